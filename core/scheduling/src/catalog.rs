//! The administrator's catalog: which boards each bitstream is valid for. A bitstream is built for one board and shell
//! and must not be loaded on another.
//!
//! **The catalog fails closed.** A listed bitstream is valid on the listed boards only, and not on a node whose boards
//! are unknown. [`Unlisted`] says whether an unlisted bitstream is valid everywhere or nowhere.

use crate::bitstream::{BitstreamId, Digest};
use crate::board_kind::BoardKind;
use serde::Serialize;
use std::fmt;
use std::str::FromStr;

/// Maximum number of bitstreams in a catalog.
pub const MAX_BITSTREAMS: usize = 4096;
/// Maximum number of boards that one bitstream is listed for.
pub const MAX_BOARDS: usize = 64;

/// The listed bitstreams, each with the boards that it is valid for.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Catalog {
    listed: Vec<Listed>,
    unlisted: Unlisted,
}

/// A bitstream and the boards that it is valid for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Listed {
    /// Name of the bitstream.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Digest of the bitstream.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub digest: Option<Digest>,
    /// Boards that the bitstream is valid for.
    pub boards: Vec<BoardKind>,
}

/// Where bitstreams are valid that the catalog does not list.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Unlisted {
    /// On every board.
    #[default]
    Accept,
    /// On no board.
    Reject,
}

/// The text is not an [`Unlisted`].
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} doesn't say what becomes of unlisted bitstreams; write `accept` or `reject`")]
pub struct InvalidUnlisted(String);

/// The reason why entries do not form a [`Catalog`].
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum InvalidCatalog {
    /// More than [`MAX_BITSTREAMS`] entries.
    #[error("{0} bitstreams are listed; list at most {MAX_BITSTREAMS}")]
    TooManyBitstreams(usize),
    /// More than [`MAX_BOARDS`] boards for one bitstream.
    #[error("a bitstream is listed for {0} boards; list at most {MAX_BOARDS}")]
    TooManyBoards(usize),
    /// An entry has neither a name nor a digest.
    #[error("a listed bitstream has neither a name nor a digest; write `name: sobel` or `digest: sha256:…`")]
    Nameless,
    /// The name of an entry is not a bitstream's name; it may be a digest.
    #[error("{0:?} is no bitstream's name; write letters, digits, `.`, `_`, `-` or `/`")]
    Name(String),
    /// An entry lists no board.
    #[error("a listed bitstream is valid for no board; write `boards: [{{vendor: …, board: …, shell: …}}]`")]
    NoBoards,
}

impl Catalog {
    /// A catalog of `listed`.
    ///
    /// # Errors
    /// [`InvalidCatalog`] for the first invalid entry, and for too many entries.
    pub fn new(listed: Vec<Listed>, unlisted: Unlisted) -> Result<Self, InvalidCatalog> {
        if listed.len() > MAX_BITSTREAMS {
            return Err(InvalidCatalog::TooManyBitstreams(listed.len()));
        }
        listed.iter().try_for_each(Listed::check)?;
        Ok(Self { listed, unlisted })
    }

    /// For each of `bitstreams` that is not valid on every board, the boards that it is valid for. A pod that uses
    /// these bitstreams needs a board that is in every one of the lists.
    #[must_use]
    pub fn valid_boards<'b>(
        &self,
        bitstreams: impl IntoIterator<Item = &'b BitstreamId>,
    ) -> Vec<Vec<BoardKind>> {
        if self.listed.is_empty() && self.unlisted == Unlisted::Accept {
            return Vec::new();
        }
        bitstreams.into_iter().filter_map(|id| self.boards_of(id)).collect()
    }

    /// The boards that `id` is valid for; `None` if it is valid everywhere. All entries of a name count, since a name
    /// identifies another bitstream on each kind of board.
    pub(crate) fn boards_of(&self, id: &BitstreamId) -> Option<Vec<BoardKind>> {
        let mut entries = self.listed.iter().filter(|listed| listed.is(id)).peekable();
        match (entries.peek(), self.unlisted) {
            (None, Unlisted::Accept) => None,
            (None, Unlisted::Reject) => Some(Vec::new()),
            (Some(_), _) => Some(entries.flat_map(|listed| listed.boards.iter().cloned()).collect()),
        }
    }
}

impl Listed {
    /// Checks one entry of a catalog.
    ///
    /// # Errors
    /// [`InvalidCatalog`] for the first field that is invalid.
    pub fn check(&self) -> Result<(), InvalidCatalog> {
        if let Some(name) = &self.name
            && !matches!(name.parse(), Ok(BitstreamId::Name(_)))
        {
            return Err(InvalidCatalog::Name(name.clone()));
        }
        match (self.boards.len(), &self.name, &self.digest) {
            (_, None, None) => Err(InvalidCatalog::Nameless),
            (0, ..) => Err(InvalidCatalog::NoBoards),
            (boards, ..) if boards > MAX_BOARDS => Err(InvalidCatalog::TooManyBoards(boards)),
            _ => Ok(()),
        }
    }

    fn is(&self, id: &BitstreamId) -> bool {
        match id {
            BitstreamId::Name(name) => self.name.as_ref() == Some(name),
            BitstreamId::Digest(digest) => self.digest.as_ref() == Some(digest),
        }
    }
}

impl FromStr for Unlisted {
    type Err = InvalidUnlisted;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text {
            "accept" => Ok(Self::Accept),
            "reject" => Ok(Self::Reject),
            _ => Err(InvalidUnlisted(text.to_owned())),
        }
    }
}

impl fmt::Display for Unlisted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Accept => "accept",
            Self::Reject => "reject",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn listed(name: &str, board: &str) -> Listed {
        let kind = BoardKind { board: Some(board.to_owned()), ..BoardKind::default() };
        Listed { name: Some(name.to_owned()), digest: None, boards: vec![kind] }
    }

    fn valid(catalog: &Catalog, bitstreams: &[&str]) -> Vec<Vec<String>> {
        let bitstreams: Vec<BitstreamId> = bitstreams.iter().map(|text| text.parse().unwrap()).collect();
        let boards = |kinds: Vec<BoardKind>| kinds.into_iter().filter_map(|kind| kind.board).collect();
        catalog.valid_boards(&bitstreams).into_iter().map(boards).collect()
    }

    #[test]
    fn a_listed_bitstream_is_valid_on_its_boards_and_a_name_may_be_listed_twice() {
        let digest = format!("sha256:{}", "0a".repeat(32));
        let mut entries = vec![listed("sobel", "a10"), listed("mm", "s10"), listed("sobel", "s10")];
        entries[1].digest = Some(digest.parse().unwrap());
        let catalog = Catalog::new(entries, Unlisted::Accept).unwrap();
        assert_eq!(valid(&catalog, &["sobel", "fft", &digest]), [vec!["a10", "s10"], vec!["s10"]]);
        assert!(valid(&catalog, &["fft"]).is_empty() && valid(&catalog, &[]).is_empty());
    }

    #[test]
    fn an_unlisted_bitstream_is_valid_everywhere_or_nowhere() {
        let strict = Catalog::new(vec![listed("sobel", "a10")], Unlisted::Reject).unwrap();
        assert_eq!(valid(&strict, &["fft", "sobel"]), [vec![], vec!["a10"]]);
        assert!(valid(&Catalog::default(), &["fft"]).is_empty());
    }

    #[test]
    fn an_entry_without_name_or_boards_and_one_with_a_bad_name_are_refused() {
        let refused = |entry: Listed| Catalog::new(vec![entry], Unlisted::Accept).unwrap_err();
        let sobel = listed("sobel", "a10");
        assert_eq!(refused(Listed { name: None, ..sobel.clone() }), InvalidCatalog::Nameless);
        assert_eq!(refused(Listed { boards: Vec::new(), ..sobel.clone() }), InvalidCatalog::NoBoards);
        assert!(matches!(refused(listed("so bel", "a10")), InvalidCatalog::Name(_)));
        let many = vec![BoardKind::default(); MAX_BOARDS + 1];
        assert!(matches!(refused(Listed { boards: many, ..sobel }), InvalidCatalog::TooManyBoards(_)));
    }
}
