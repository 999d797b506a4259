//! The accelerators of the pool and their bitstreams: from Bitstream objects, or from a file outside of a cluster.

use fpga_accelerators::Interface;
use fpga_core::bitstream::{BitstreamId, Digest, MAX_NAME_BYTES};
use fpga_core::library::{Library, LibraryVariant, Meaning};
use fpga_pool_api::limits::MAX_NAME_BYTES as MAX_KIND_BYTES;
use serde::Deserialize;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Maximum size of a library file, in bytes.
const MAX_FILE_BYTES: usize = 1 << 20;

/// The accelerators of the pool.
#[derive(Debug)]
pub enum Catalog {
    /// Those of a file. Every tenant may use them.
    File {
        /// The bitstreams of each accelerator.
        accelerators: BTreeMap<String, Arc<[Variant]>>,
        /// What accelerators take and give, by name.
        interfaces: BTreeMap<String, Arc<str>>,
    },
    /// Those of Bitstream objects, which say which namespaces may use them.
    Cluster(ClusterCatalog),
}

/// The accelerators of Bitstream objects. A board of the pool loads whatever bitstream a lease names, and gives its bytes to the
/// client. So a tenant gets no bitstream that the library or another namespace withholds, also if its own Bitstream has the
/// digest ([`Library::gives`]).
#[derive(Debug)]
pub struct ClusterCatalog {
    library: Library,
    interfaces: ClusterInterfaces,
    /// The namespaces that have each bitstream.
    holders: BTreeMap<Digest, BTreeSet<String>>,
}

/// Interfaces as JSON, by namespace and name of the Bitstream.
pub type ClusterInterfaces = BTreeMap<(String, String), Arc<str>>;

/// A bitstream of an accelerator.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Variant {
    /// Kind of the boards that it was built for: `BOARD` or `VENDOR/BOARD`.
    pub board: String,
    /// Shell of the boards; without it any.
    pub shell: Option<String>,
    /// Region of the board that it fits; without it any.
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
    #[serde(default)]
    interfaces: BTreeMap<String, Interface>,
}

impl ClusterCatalog {
    /// The accelerators of the library, and what they take and give.
    #[must_use]
    pub fn new(library: Library, interfaces: ClusterInterfaces) -> Self {
        Self { holders: library.holders(), library, interfaces }
    }

    fn variants(&self, tenant: &str, accelerator: &str) -> Arc<[Variant]> {
        let gives = |variant: &&LibraryVariant| {
            let holders = self.holders.get(&variant.digest);
            holders.is_some_and(|holders| self.library.gives(tenant, &variant.digest, holders))
        };
        match self.library.meaning(tenant, &BitstreamId::Name(accelerator.to_owned())) {
            Meaning::Variants(variants) => {
                variants.into_iter().filter(gives).filter_map(Variant::of).collect()
            }
            Meaning::Unlisted | Meaning::Refused => Arc::default(),
        }
    }
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
        let LibraryFile { accelerators, interfaces } =
            toml::from_str(text).map_err(|error| error.to_string())?;
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
        if let Some(name) = interfaces.keys().find(|name| !accelerators.contains_key(*name)) {
            return Err(format!("interfaces.{name} is of no accelerator: write [[accelerators.{name}]]"));
        }
        let interfaces = interfaces.into_iter().map(|(name, interface)| Ok((name, json(&interface)?)));
        Ok(Self::File {
            interfaces: interfaces
                .collect::<Result<_, serde_json::Error>>()
                .map_err(|error| error.to_string())?,
            accelerators: accelerators.into_iter().map(of).collect(),
        })
    }

    /// What an accelerator that a tenant may use takes and gives, as JSON; `None` if the library does not say it.
    #[must_use]
    pub fn interface(&self, tenant: &str, accelerator: &str) -> Option<Arc<str>> {
        match self {
            Self::File { interfaces, .. } => interfaces.get(accelerator).cloned(),
            Self::Cluster(ClusterCatalog { library, interfaces, .. }) => {
                let meant = library.used_by(tenant, &BitstreamId::Name(accelerator.to_owned()));
                let (namespace, name) = *meant.first()?;
                interfaces.get(&(namespace.to_owned(), name.to_owned())).cloned()
            }
        }
    }

    /// The bitstreams of an accelerator that a tenant may use; none if there is no such accelerator.
    #[must_use]
    pub fn variants(&self, tenant: &str, accelerator: &str) -> Arc<[Variant]> {
        match self {
            Self::File { accelerators, .. } => accelerators.get(accelerator).cloned().unwrap_or_default(),
            Self::Cluster(catalog) => catalog.variants(tenant, accelerator),
        }
    }

    /// The accelerator that has a bitstream which a tenant may use; `None` if there is none.
    #[must_use]
    pub fn accelerator(&self, tenant: &str, digest: &Digest) -> Option<&str> {
        match self {
            Self::File { accelerators, .. } => {
                let has = |variants: &[Variant]| variants.iter().any(|variant| variant.digest == *digest);
                let found = accelerators.iter().find(|(_, variants)| has(variants));
                found.map(|(name, _)| name.as_str())
            }
            Self::Cluster(ClusterCatalog { library, .. }) => {
                let found = library.used_by(tenant, &BitstreamId::Digest(*digest));
                found.first().map(|(_, name)| *name)
            }
        }
    }
}

impl Default for Catalog {
    fn default() -> Self {
        Self::File { accelerators: BTreeMap::new(), interfaces: BTreeMap::new() }
    }
}

/// An interface as it goes to clients.
pub(crate) fn json(interface: &Interface) -> serde_json::Result<Arc<str>> {
    serde_json::to_string(interface).map(Into::into)
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
    use fpga_core::board_kind::BoardKind;
    use fpga_core::library::{AllowedNamespaces, LibraryBitstream};

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
    fn a_library_says_what_its_own_accelerators_take_and_give() {
        let text = format!(
            "[[accelerators.invert]]\nboard = \"a10\"\ndigest = \"sha256:{}\"\n[interfaces.invert]\nkernel = \"invert\"\n\
             blockBytes = 1\noutputBytesPerBlock = 1\ntail = \"Partial\"\nworkGroupSize = 64\nworkItemsPerBlock = 1\n",
            "00".repeat(32)
        );
        let catalog = Catalog::parse(&text).unwrap();
        let told = catalog.interface("any", "invert").unwrap();
        assert_eq!(serde_json::from_str::<Interface>(&told).unwrap().spec().kernel, "invert");
        assert_eq!(catalog.interface("any", "other"), None);
        for (from, to, hint) in [
            ("interfaces.invert", "interfaces.other", "accelerators.other"),
            ("Size = 64", "Size = 0", "workGroupSize"),
        ] {
            let error = Catalog::parse(&text.replace(from, to)).unwrap_err();
            assert!(error.contains(hint), "{error}");
        }
    }

    #[test]
    fn a_cluster_tells_the_interface_of_the_bitstream_that_a_tenant_means() {
        let digest = Digest::from_bytes([7; 32]);
        let boards = BoardKind { vendor: None, board: Some("a10".to_owned()), shell: None };
        let variants = vec![LibraryVariant { boards, digest, region_size: 1 }];
        let mut library = Library::new(Some("library".to_owned()));
        let mut interfaces = ClusterInterfaces::new();
        for (namespace, allowed) in [("library", AllowedNamespaces::All), ("team", AllowedNamespaces::Same)] {
            let variants = variants.clone();
            library.insert(namespace, "invert", LibraryBitstream { allowed, variants });
            interfaces.insert((namespace.to_owned(), "invert".to_owned()), namespace.into());
        }
        let catalog = Catalog::Cluster(ClusterCatalog::new(library, interfaces));
        let told = |tenant, name| catalog.interface(tenant, name);
        assert_eq!(told("team", "invert").as_deref(), Some("team"));
        assert_eq!(told("other", "invert").as_deref(), Some("library"));
        assert_eq!(told("other", "team/invert"), None);
    }

    #[test]
    fn a_tenant_that_names_a_digest_gets_no_bitstream_that_others_withhold() {
        use AllowedNamespaces::{All, Same};
        let digest = |byte| Digest::from_bytes([byte; 32]);
        let mut library = Library::new(Some("library".to_owned()));
        for (namespace, name, allowed, byte) in [
            ("library", "closed", Same, 1),
            ("library", "open", All, 2),
            ("shop", "secret", Same, 3),
            ("shop", "shared", All, 4),
            ("shop", "own", Same, 5),
            ("evil", "thief1", All, 1),
            ("evil", "thief2", Same, 2),
            ("evil", "thief3", All, 3),
            ("shop", "same", Same, 6),
            ("evil", "same", Same, 6),
        ] {
            let boards = BoardKind { vendor: None, board: Some("a10".to_owned()), shell: None };
            let variants = vec![LibraryVariant { boards, digest: digest(byte), region_size: 1 }];
            library.insert(namespace, name, LibraryBitstream { allowed, variants });
        }
        let catalog = Catalog::Cluster(ClusterCatalog::new(library, ClusterInterfaces::new()));
        for (tenant, accelerator, is_lent) in [
            ("evil", "thief1", false),
            ("evil", "thief3", false),
            ("accomplice", "evil/thief1", false),
            ("accomplice", "evil/thief3", false),
            ("evil", "closed", false),
            ("evil", "secret", false),
            ("evil", "shop/secret", false),
            ("evil", "open", true),
            ("evil", "thief2", true),
            ("evil", "shop/shared", true),
            ("library", "closed", true),
            ("shop", "open", true),
            ("shop", "secret", true),
            ("shop", "own", true),
            ("shop", "shared", true),
            // Nothing says whose it is.
            ("shop", "same", false),
            ("evil", "same", false),
        ] {
            let lent = catalog.variants(tenant, accelerator);
            assert_eq!(!lent.is_empty(), is_lent, "{accelerator} to {tenant}");
        }
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
