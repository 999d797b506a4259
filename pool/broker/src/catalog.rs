//! The accelerators of the pool and their bitstreams: from Bitstream objects, or from a file outside of a cluster.

use fpga_core::bitstream::{BitstreamId, Digest, MAX_NAME_BYTES};
use fpga_core::library::{Library, LibraryVariant, Meaning};
use fpga_pool_api::limits::MAX_NAME_BYTES as MAX_KIND_BYTES;
use serde::Deserialize;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Maximum size of a library file, in bytes.
const MAX_FILE_BYTES: usize = 1 << 20;

/// The accelerators of the pool.
#[derive(Debug)]
pub enum Catalog {
    /// Those of a file. Every tenant may use them.
    File(BTreeMap<String, Arc<[Variant]>>),
    /// Those of Bitstream objects, which say which namespaces may use them.
    Cluster(Library),
}

/// A bitstream of an accelerator.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Variant {
    /// Kind of the boards that it was built for: `BOARD` or `VENDOR/BOARD`.
    pub board: String,
    /// Shell of the boards; without it any.
    #[serde(default)]
    pub shell: Option<String>,
    /// Region of the board that it fits; without it any.
    #[serde(default)]
    pub region: Option<String>,
    /// Digest of the bitstream.
    pub digest: Digest,
}

/// What slots have in common in which the same bitstreams run.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SlotKind {
    /// Kind of the board.
    pub kind: Arc<str>,
    /// Shell of the board.
    pub shell: Option<Arc<str>>,
    /// Region of the board.
    pub region: Option<Arc<str>>,
}

/// The reason why a library file can't be used.
#[derive(Debug, thiserror::Error)]
pub enum LibraryFileError {
    /// The file can't be read.
    #[error("{path} can't be read")]
    Io {
        /// The file.
        path: PathBuf,
        /// The system's error.
        #[source]
        source: std::io::Error,
    },
    /// The file is no library.
    #[error("{path} is no library: {reason}")]
    Malformed {
        /// The file.
        path: PathBuf,
        /// What the file says that it must not, and where.
        reason: String,
    },
}

/// The form of a library file.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct LibraryFile {
    accelerators: BTreeMap<String, Vec<Variant>>,
}

impl Catalog {
    /// Reads a library file (TOML).
    ///
    /// # Errors
    /// [`LibraryFileError`].
    pub fn read(path: &Path) -> Result<Self, LibraryFileError> {
        let text = fpga_net::token_file::read_text(path, MAX_FILE_BYTES)
            .map_err(|source| LibraryFileError::Io { path: path.to_owned(), source })?;
        let malformed = |reason: String| LibraryFileError::Malformed { path: path.to_owned(), reason };
        if text.len() > MAX_FILE_BYTES {
            return Err(malformed(format!("it has more than {MAX_FILE_BYTES} bytes")));
        }
        Self::parse(&text).map_err(malformed)
    }

    /// Parses the text of a library file. The error says what is wrong.
    ///
    /// # Errors
    /// A text.
    pub fn parse(text: &str) -> Result<Self, String> {
        let LibraryFile { accelerators } = toml::from_str(text).map_err(|error| error.to_string())?;
        for (name, variants) in &accelerators {
            if name.is_empty() || name.len() > MAX_NAME_BYTES {
                return Err(format!(
                    "{name:?} is no name of an accelerator: write 1 to {MAX_NAME_BYTES} bytes"
                ));
            }
            if variants.iter().any(|variant| variant.board.len() > MAX_KIND_BYTES) {
                return Err(format!("a board of {name:?} has more than {MAX_KIND_BYTES} bytes"));
            }
        }
        let of = |(name, variants): (String, Vec<Variant>)| (name, variants.into());
        Ok(Self::File(accelerators.into_iter().map(of).collect()))
    }

    /// The bitstreams of an accelerator that a tenant may use; none if there is no such accelerator.
    #[must_use]
    pub fn variants(&self, tenant: &str, accelerator: &str) -> Arc<[Variant]> {
        match self {
            Self::File(accelerators) => accelerators.get(accelerator).cloned().unwrap_or_default(),
            Self::Cluster(library) => {
                match library.meaning(tenant, &BitstreamId::Name(accelerator.to_owned())) {
                    Meaning::Variants(variants) => variants.into_iter().filter_map(Variant::of).collect(),
                    Meaning::Unlisted | Meaning::Refused => Arc::default(),
                }
            }
        }
    }

    /// The accelerator that has a bitstream which a tenant may use; `None` if there is none.
    #[must_use]
    pub fn accelerator(&self, tenant: &str, digest: &Digest) -> Option<&str> {
        match self {
            Self::File(accelerators) => {
                let has = |variants: &[Variant]| variants.iter().any(|variant| variant.digest == *digest);
                let found = accelerators.iter().find(|(_, variants)| has(variants));
                found.map(|(name, _)| name.as_str())
            }
            Self::Cluster(library) => {
                let found = library.used_by(tenant, &BitstreamId::Digest(*digest));
                found.first().map(|(_, name)| *name)
            }
        }
    }
}

impl Default for Catalog {
    fn default() -> Self {
        Self::File(BTreeMap::new())
    }
}

impl Variant {
    /// A variant of a Bitstream object; `None` if its region takes several slots, which the pool does not lend at once.
    fn of(variant: &LibraryVariant) -> Option<Self> {
        let LibraryVariant { boards, digest, region_size } = variant;
        let board = match (&boards.vendor, &boards.board) {
            (Some(vendor), Some(board)) => format!("{vendor}/{board}"),
            (None, Some(board)) => board.clone(),
            (_, None) => return None,
        };
        (*region_size == 1).then(|| Self {
            board,
            shell: boards.shell.clone(),
            region: None,
            digest: *digest,
        })
    }

    /// Whether the bitstream runs in such a slot. What either side does not say is no obstacle.
    #[must_use]
    pub fn fits(&self, slot: &SlotKind) -> bool {
        let agrees = |own: &Option<String>, of_slot: &Option<Arc<str>>| match (own, of_slot) {
            (Some(own), Some(of_slot)) => own.as_str() == of_slot.as_ref(),
            _ => true,
        };
        let name = |kind: &str| kind.rsplit('/').next().map(str::to_owned);
        let is_kind = match (self.board.contains('/'), slot.kind.contains('/')) {
            (true, true) | (false, false) => self.board == *slot.kind,
            // One of the two leaves the vendor out.
            _ => name(&self.board) == name(&slot.kind),
        };
        is_kind && agrees(&self.shell, &slot.shell) && agrees(&self.region, &slot.region)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn slot(kind: &str, shell: Option<&str>, region: Option<&str>) -> SlotKind {
        SlotKind { kind: kind.into(), shell: shell.map(Into::into), region: region.map(Into::into) }
    }

    #[test]
    fn a_bitstream_runs_in_slots_of_its_kind_of_board() {
        let digest = "00".repeat(32);
        let text = format!(
            "[[accelerators.aes]]\nboard = \"intel/a10\"\nshell = \"1.2\"\ndigest = \"sha256:{digest}\"\n\
             [[accelerators.aes]]\nboard = \"u250\"\nregion = \"left\"\ndigest = \"sha256:{digest}\"\n"
        );
        let catalog = Catalog::parse(&text).unwrap();
        let variants = catalog.variants("any", "aes");
        let fits = |slot: SlotKind| variants.iter().map(|of| of.fits(&slot)).collect::<Vec<_>>();
        assert_eq!(fits(slot("intel/a10", Some("1.2"), None)), [true, false]);
        assert_eq!(fits(slot("a10", None, None)), [true, false]);
        assert_eq!(fits(slot("amd/a10", None, None)), [false, false]);
        assert_eq!(fits(slot("a10", Some("1.3"), None)), [false, false]);
        assert_eq!(fits(slot("u250", None, Some("left"))), [false, true]);
        assert_eq!(fits(slot("u250", None, Some("right"))), [false, false]);
        assert!(catalog.variants("any", "other").is_empty());
        assert_eq!(catalog.accelerator("any", &variants[0].digest), Some("aes"));
        assert_eq!(catalog.accelerator("any", &Digest::from_bytes([9; 32])), None);
    }

    #[test]
    fn a_file_that_is_no_library_is_refused_with_the_reason() {
        for (text, hint) in [
            ("[accelerators]\nx = 1", "expected a sequence"),
            ("[[accelerators.x]]\nboard = \"b\"", "digest"),
            ("[[accelerators.x]]\nboard = \"b\"\ndigest = \"sha256:0\"", "64"),
            ("[other]", "unknown field"),
        ] {
            let error = Catalog::parse(text).unwrap_err();
            assert!(error.contains(hint), "{error}");
        }
    }
}
