//! What the bitstreams that a pod names mean by the library, and what of it the chosen boards need: without I/O.

use fpga_bitstream_store::Wanted;
use fpga_core::bitstream::{BitstreamId, Digest};
use fpga_core::board_kind::BoardKind;
use fpga_core::node_state::{DeviceState, DigestPrefix, NodeState};
use fpga_core::requirement::Requirement;
use std::collections::{BTreeMap, BTreeSet};

/// End of the names of bitstreams' files.
const EXTENSION: &str = "bitstream";
/// Start of the names of folders for one board each. No namespace has a dot in its name.
const BOARD_FOLDER: &str = "board.";

/// What the bitstreams of a pod mean. Those that the library does not have are left out.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Meanings {
    by_id: BTreeMap<BitstreamId, Vec<Variant>>,
    /// As [`Requirement::synonyms`].
    synonyms: BTreeMap<BitstreamId, Vec<BitstreamId>>,
}

/// A bitstream for a kind of boards.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Variant {
    /// The boards that it was built for.
    pub boards: BoardKind,
    /// Number of the board's slots that its region takes.
    pub region_size: u32,
    /// The bytes.
    pub wanted: Wanted,
}

impl Meanings {
    /// No meanings yet, and the other identifiers of the bitstreams, as [`Requirement::synonyms`].
    #[must_use]
    pub fn with_synonyms(synonyms: BTreeMap<BitstreamId, Vec<BitstreamId>>) -> Self {
        Self { synonyms, ..Self::default() }
    }

    /// What the pod asks for, with what the library knows of its bitstreams: the boards that they are valid on, and their
    /// other identifiers.
    #[must_use]
    pub fn required(&self, asked: &Requirement) -> Requirement {
        Requirement { valid_on: self.valid_on(), synonyms: self.synonyms.clone(), ..asked.clone() }
    }

    /// Adds what an identifier means: these variants, none of which may be there.
    pub fn insert(&mut self, id: BitstreamId, variants: Vec<Variant>) {
        self.by_id.insert(id, variants);
    }

    /// The lists of boards that bitstreams are valid on. A board must be in each list.
    #[must_use]
    pub fn valid_on(&self) -> Vec<Vec<BoardKind>> {
        let boards =
            |variants: &Vec<Variant>| variants.iter().map(|variant| variant.boards.clone()).collect();
        self.by_id.values().map(boards).collect()
    }

    /// The node's state in the pod's words: a bitstream in a slot has a name of the pod if, and only if, it is what the
    /// name means. Managers know files of the library by digest alone, and may have other files of the same name.
    #[must_use]
    pub fn in_words_of_pod(&self, mut node: NodeState) -> NodeState {
        for (id, variants) in &self.by_id {
            let BitstreamId::Name(name) = id else { continue };
            let digests: BTreeSet<DigestPrefix> =
                variants.iter().map(|variant| DigestPrefix::from(&variant.wanted.digest)).collect();
            for bitstream in &mut node.bitstreams {
                match bitstream.digest {
                    Some(digest) if digests.contains(&digest) => bitstream.name = Some(name.clone()),
                    Some(_) if bitstream.name.as_ref() == Some(name) => bitstream.name = None,
                    Some(_) | None => {}
                }
            }
        }
        node
    }

    /// The files that a container with these boards gets, by their paths in its folder: `NAME.bitstream` for its first
    /// board, and where it has several, `board.ID/NAME.bitstream` for each of them.
    #[must_use]
    pub fn files(&self, boards: &BTreeSet<String>, node: &NodeState) -> BTreeMap<String, Wanted> {
        let mut files = BTreeMap::new();
        for (number, board) in boards.iter().enumerate() {
            let Some(device) = node.devices.iter().find(|device| device.id == *board) else { continue };
            for (id, variants) in &self.by_id {
                let Some(wanted) = best(variants, device) else { continue };
                let name = format!("{id}.{EXTENSION}");
                if boards.len() > 1 {
                    files.insert(format!("{BOARD_FOLDER}{board}/{name}"), wanted.clone());
                }
                if number == 0 {
                    files.insert(name, wanted.clone());
                }
            }
        }
        files
    }
}

/// The variant for this board: the one with the smallest region.
fn best<'v>(variants: &'v [Variant], device: &DeviceState) -> Option<&'v Wanted> {
    let fits = |variant: &&Variant| variant.boards.is(device) && variant.region_size <= device.slots;
    variants.iter().filter(fits).min_by_key(|variant| variant.region_size).map(|variant| &variant.wanted)
}

/// The digests of these files.
#[must_use]
pub fn digests(files: &BTreeMap<String, Wanted>) -> BTreeMap<String, Digest> {
    files.iter().map(|(path, wanted)| (path.clone(), wanted.digest)).collect()
}

/// The digests of a container's files, by the board that they are for. The paths are those of [`Meanings::files`].
#[must_use]
pub fn given(
    boards: &BTreeSet<String>,
    files: &BTreeMap<String, Digest>,
) -> BTreeMap<String, BTreeSet<Digest>> {
    let of_board = |board: &String| {
        let folder = format!("{BOARD_FOLDER}{board}/");
        let is_for = |path: &str| boards.len() == 1 || path.starts_with(&folder);
        let digests = files.iter().filter(|(path, _)| is_for(path)).map(|(_, digest)| *digest);
        (board.clone(), digests.collect())
    };
    boards.iter().map(of_board).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use fpga_bitstream_store::{Owner, Source};
    use fpga_core::fixtures::{mk_bitstream, mk_board, mk_state};

    fn wanted(byte: u8) -> Wanted {
        let source = Source::https("https://files.example/x").unwrap();
        Wanted { digest: Digest::from_bytes([byte; 32]), bytes: 1, source, owner: Owner::Library }
    }

    fn variant(board: &str, region_size: u32, byte: u8) -> Variant {
        let boards = BoardKind { board: Some(board.to_owned()), ..BoardKind::default() };
        Variant { boards, region_size, wanted: wanted(byte) }
    }

    fn device(id: &str, board: &str, slots: u32) -> DeviceState {
        DeviceState { board: board.to_owned(), slots, ..mk_board(id, &[]) }
    }

    fn meanings(entries: &[(&str, Vec<Variant>)]) -> Meanings {
        let mut meanings = Meanings::default();
        for (id, variants) in entries {
            meanings.insert(id.parse().unwrap(), variants.clone());
        }
        meanings
    }

    fn boards(ids: &[&str]) -> BTreeSet<String> {
        ids.iter().map(|id| (*id).to_owned()).collect()
    }

    #[test]
    fn each_board_gets_the_variant_of_its_kind_with_the_smallest_region() {
        let sobel = vec![variant("a10", 2, 1), variant("a10", 1, 2), variant("s10", 1, 3)];
        let meanings = meanings(&[("sobel", sobel), ("library/mm", vec![variant("a10", 4, 4)])]);
        let node = NodeState { devices: vec![device("b0", "a10", 4), device("b1", "s10", 4)], ..mk_state() };
        let files = |ids: &[&str]| digests(&meanings.files(&boards(ids), &node));
        let digest = |byte| wanted(byte).digest;
        assert_eq!(
            files(&["b0"]),
            [("library/mm.bitstream".to_owned(), digest(4)), ("sobel.bitstream".to_owned(), digest(2))]
                .into()
        );
        assert_eq!(files(&["b1"]), [("sobel.bitstream".to_owned(), digest(3))].into());
        let both = files(&["b0", "b1"]);
        assert_eq!(both["sobel.bitstream"], digest(2));
        assert_eq!(
            (both["board.b0/sobel.bitstream"], both["board.b1/sobel.bitstream"]),
            (digest(2), digest(3))
        );
        let given = |ids: &[&str]| given(&boards(ids), &digests(&meanings.files(&boards(ids), &node)));
        assert_eq!(given(&["b0"]), [("b0".to_owned(), [digest(2), digest(4)].into())].into());
        let of_both =
            [("b0".to_owned(), [digest(2), digest(4)].into()), ("b1".to_owned(), [digest(3)].into())];
        assert_eq!(given(&["b0", "b1"]), of_both.into());
        let small = NodeState { devices: vec![device("b0", "a10", 1)], ..mk_state() };
        assert_eq!(
            meanings.files(&boards(&["b0"]), &small).len(),
            1,
            "a region larger than the board is no choice"
        );
    }

    #[test]
    fn what_means_nothing_is_valid_nowhere_and_what_the_library_does_not_have_everywhere() {
        assert!(Meanings::default().valid_on().is_empty());
        assert_eq!(meanings(&[("sobel", vec![])]).valid_on(), [vec![]]);
    }

    #[test]
    fn a_slot_has_the_pods_name_exactly_where_it_holds_what_the_name_means() {
        let meanings = meanings(&[("sobel", vec![variant("a10", 1, 1)])]);
        let mut bitstreams = vec![mk_bitstream("sobel", 0), mk_bitstream("x", 0), mk_bitstream("sobel", 0)];
        for (bitstream, byte) in bitstreams.iter_mut().zip([9, 1]) {
            bitstream.digest = Some((&Digest::from_bytes([byte; 32])).into());
        }
        let node = meanings.in_words_of_pod(NodeState { bitstreams, ..mk_state() });
        let names: Vec<Option<&str>> =
            node.bitstreams.iter().map(|bitstream| bitstream.name.as_deref()).collect();
        assert_eq!(names, [None, Some("sobel"), Some("sobel")]);
    }
}
