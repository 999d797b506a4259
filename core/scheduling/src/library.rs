//! The library: what the name of an accelerator means for a pod, by the Bitstreams of the cluster (T-3).
//!
//! **A name means one Bitstream**: that of the pod's own namespace, else that of the library namespace, else the one
//! that `namespace/name` writes out. Bitstreams of equal names are never joined, so that nobody changes what another
//! namespace's name is valid for. What the library does not have, the administrator's [`Catalog`] decides.
//!
//! **The library fails closed.** A Bitstream that the pod's namespace may not use is valid nowhere for it.

use crate::bitstream::{BitstreamId, Digest};
use crate::board_kind::BoardKind;
use crate::catalog::Catalog;
use std::collections::{BTreeMap, BTreeSet};

/// The Bitstreams of the cluster, and the labels of its namespaces.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Library {
    /// The namespace whose Bitstreams all namespaces may name without writing it.
    shared: Option<String>,
    bitstreams: BTreeMap<String, BTreeMap<String, LibraryBitstream>>,
    namespaces: BTreeMap<String, BTreeMap<String, String>>,
}

/// A Bitstream.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LibraryBitstream {
    /// Namespaces, beside its own, whose pods may use it.
    pub allowed: AllowedNamespaces,
    /// The bitstreams of the accelerator, for each kind of board one.
    pub variants: Vec<LibraryVariant>,
}

/// A bitstream of a Bitstream.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LibraryVariant {
    /// The boards that it was built for.
    pub boards: BoardKind,
    /// Digest of the bytes.
    pub digest: Digest,
}

/// Namespaces, beside a Bitstream's own, whose pods may use it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AllowedNamespaces {
    /// None.
    Same,
    /// Every namespace.
    All,
    /// Those whose labels meet all requirements.
    Selector(Vec<LabelRequirement>),
}

/// A requirement of a label selector.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LabelRequirement {
    /// The label.
    pub key: String,
    /// The condition on the label.
    pub operator: LabelOperator,
}

/// What is required of a label, with the meaning of Kubernetes' label selectors.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LabelOperator {
    /// The label is there and has one of the values.
    In(BTreeSet<String>),
    /// The label is missing or has none of the values.
    NotIn(BTreeSet<String>),
    /// The label is there.
    Exists,
    /// The label is missing.
    DoesNotExist,
}

/// What an identifier means for the pods of a namespace.
#[derive(Debug, PartialEq, Eq)]
enum Meaning<'l> {
    /// The library does not have it.
    Unlisted,
    /// It is there, and the namespace may not use it.
    Refused,
    /// These variants, of the Bitstreams of one namespace.
    Variants(Vec<&'l LibraryVariant>),
}

impl Library {
    /// A library without Bitstreams, whose shared namespace is `shared`.
    #[must_use]
    pub fn new(shared: Option<String>) -> Self {
        Self { shared, ..Self::default() }
    }

    /// Adds or replaces a Bitstream.
    pub fn insert(&mut self, namespace: &str, name: &str, bitstream: LibraryBitstream) {
        self.bitstreams.entry(namespace.to_owned()).or_default().insert(name.to_owned(), bitstream);
    }

    /// Removes a Bitstream.
    pub fn remove(&mut self, namespace: &str, name: &str) {
        if let Some(of_namespace) = self.bitstreams.get_mut(namespace) {
            of_namespace.remove(name);
            if of_namespace.is_empty() {
                self.bitstreams.remove(namespace);
            }
        }
    }

    /// Keeps only the Bitstreams of which `keep` is true for namespace and name.
    pub fn retain(&mut self, mut keep: impl FnMut(&str, &str) -> bool) {
        self.bitstreams.retain(|namespace, of_namespace| {
            of_namespace.retain(|name, _| keep(namespace, name));
            !of_namespace.is_empty()
        });
    }

    /// Replaces the labels of all namespaces.
    pub fn set_namespaces(&mut self, namespaces: BTreeMap<String, BTreeMap<String, String>>) {
        self.namespaces = namespaces;
    }

    /// Replaces the labels of a namespace.
    pub fn set_namespace(&mut self, name: &str, labels: BTreeMap<String, String>) {
        self.namespaces.insert(name.to_owned(), labels);
    }

    /// Forgets the labels of a namespace.
    pub fn remove_namespace(&mut self, name: &str) {
        self.namespaces.remove(name);
    }

    /// Number of Bitstreams.
    #[must_use]
    pub fn len(&self) -> usize {
        self.bitstreams.values().map(BTreeMap::len).sum()
    }

    /// Whether there is no Bitstream.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.bitstreams.is_empty()
    }

    /// For each of `bitstreams` that is not valid on every board, the boards that it is valid for in pods of
    /// `namespace`, as [`Catalog::valid_boards`]; `catalog` decides what the library does not have.
    #[must_use]
    pub fn valid_boards<'b>(
        &self,
        namespace: &str,
        bitstreams: impl IntoIterator<Item = &'b BitstreamId>,
        catalog: &Catalog,
    ) -> Vec<Vec<BoardKind>> {
        if self.is_empty() {
            return catalog.valid_boards(bitstreams);
        }
        let boards = |id: &BitstreamId| match self.meaning(namespace, id) {
            Meaning::Unlisted => catalog.boards_of(id),
            Meaning::Refused => Some(Vec::new()),
            Meaning::Variants(variants) => {
                Some(variants.into_iter().map(|variant| variant.boards.clone()).collect())
            }
        };
        bitstreams.into_iter().filter_map(boards).collect()
    }

    fn meaning(&self, namespace: &str, id: &BitstreamId) -> Meaning<'_> {
        match id {
            BitstreamId::Name(name) => self.of_name(namespace, name),
            BitstreamId::Digest(digest) => self.of_digest(namespace, digest),
        }
    }

    fn of_name(&self, namespace: &str, name: &str) -> Meaning<'_> {
        let own = self.find(namespace, namespace, name);
        let own_or_shared = own.or_else(|| self.find(namespace, self.shared.as_deref()?, name));
        let written_out = || {
            let (of, name) = name.split_once('/')?;
            self.find(namespace, of, name)
        };
        own_or_shared.or_else(written_out).unwrap_or(Meaning::Unlisted)
    }

    /// A Bitstream as the pods of `namespace` see it; `None` if it does not exist.
    fn find(&self, namespace: &str, of: &str, name: &str) -> Option<Meaning<'_>> {
        let bitstream = self.bitstreams.get(of)?.get(name)?;
        Some(if self.may_use(namespace, of, bitstream) {
            Meaning::Variants(bitstream.variants.iter().collect())
        } else {
            Meaning::Refused
        })
    }

    /// A digest is looked for where a name is. The Bitstreams of one namespace that have it are joined: they are one
    /// owner's, and the bytes are equal.
    fn of_digest(&self, namespace: &str, digest: &Digest) -> Meaning<'_> {
        for of in [Some(namespace), self.shared.as_deref()].into_iter().flatten() {
            let with_digest = |bitstream: &&LibraryBitstream| {
                bitstream.variants.iter().any(|variant| variant.digest == *digest)
            };
            let mut found =
                self.bitstreams.get(of).into_iter().flat_map(BTreeMap::values).filter(with_digest).peekable();
            if found.peek().is_none() {
                continue;
            }
            let allowed = found.filter(|bitstream| self.may_use(namespace, of, bitstream));
            let variants = allowed.flat_map(|bitstream| &bitstream.variants);
            let variants: Vec<_> = variants.filter(|variant| variant.digest == *digest).collect();
            return if variants.is_empty() { Meaning::Refused } else { Meaning::Variants(variants) };
        }
        Meaning::Unlisted
    }

    fn may_use(&self, namespace: &str, of: &str, bitstream: &LibraryBitstream) -> bool {
        namespace == of
            || match &bitstream.allowed {
                AllowedNamespaces::Same => false,
                AllowedNamespaces::All => true,
                // A namespace that is not known yet has no labels that could be trusted, not even missing ones.
                AllowedNamespaces::Selector(requirements) => {
                    self.namespaces.get(namespace).is_some_and(|labels| {
                        requirements.iter().all(|requirement| requirement.is_met_by(labels))
                    })
                }
            }
    }
}

impl LabelRequirement {
    fn is_met_by(&self, labels: &BTreeMap<String, String>) -> bool {
        let value = labels.get(&self.key);
        match &self.operator {
            LabelOperator::In(values) => value.is_some_and(|value| values.contains(value)),
            LabelOperator::NotIn(values) => value.is_none_or(|value| !values.contains(value)),
            LabelOperator::Exists => value.is_some(),
            LabelOperator::DoesNotExist => value.is_none(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::catalog::{Listed, Unlisted};
    use proptest::prelude::*;

    fn kind(board: &str) -> BoardKind {
        BoardKind { board: Some(board.to_owned()), ..BoardKind::default() }
    }

    fn bitstream(allowed: AllowedNamespaces, boards: &[&str]) -> LibraryBitstream {
        let variant =
            |board: &&str| LibraryVariant { boards: kind(board), digest: Digest::from_bytes([7; 32]) };
        LibraryBitstream { allowed, variants: boards.iter().map(variant).collect() }
    }

    /// The boards that one identifier is valid on; `None` for all.
    fn valid(library: &Library, namespace: &str, id: &str) -> Option<Vec<String>> {
        valid_by(library, namespace, id, &Catalog::default())
    }

    fn valid_by(library: &Library, namespace: &str, id: &str, catalog: &Catalog) -> Option<Vec<String>> {
        let mut lists = library.valid_boards(namespace, [&id.parse().unwrap()], catalog);
        assert!(lists.len() <= 1);
        lists.pop().map(|kinds| kinds.into_iter().filter_map(|kind| kind.board).collect())
    }

    fn boards(boards: &[&str]) -> Option<Vec<String>> {
        Some(boards.iter().map(|board| (*board).to_owned()).collect())
    }

    #[test]
    fn a_name_means_the_own_bitstream_then_the_librarys_then_the_one_that_is_written_out() {
        use AllowedNamespaces::{All, Same};
        let mut library = Library::new(Some("library".to_owned()));
        library.insert("library", "sobel", bitstream(All, &["shared"]));
        library.insert("vision", "sobel", bitstream(Same, &["own"]));
        library.insert("shop", "fft", bitstream(All, &["shops"]));
        assert_eq!(valid(&library, "vision", "sobel"), boards(&["own"]));
        assert_eq!(valid(&library, "vision", "library/sobel"), boards(&["shared"]));
        assert_eq!(valid(&library, "shop", "sobel"), boards(&["shared"]));
        assert_eq!(valid(&library, "vision", "shop/fft"), boards(&["shops"]));
        // Without its namespace another's name means nothing, and the list without a library decides.
        assert_eq!(valid(&library, "vision", "fft"), None);
        assert_eq!(valid(&library, "vision", "shop/none"), None);
        library.remove("vision", "sobel");
        assert_eq!(valid(&library, "vision", "sobel"), boards(&["shared"]));
    }

    #[test]
    fn a_bitstream_that_a_namespace_may_not_use_is_valid_nowhere_for_it() {
        let mut library = Library::new(Some("library".to_owned()));
        library.insert("library", "sobel", bitstream(AllowedNamespaces::Same, &["a10"]));
        for id in ["sobel", "library/sobel", &Digest::from_bytes([7; 32]).to_string()] {
            assert_eq!(valid(&library, "vision", id), boards(&[]), "{id}");
            assert_eq!(valid(&library, "library", id), boards(&["a10"]), "{id}");
        }
    }

    #[test]
    fn a_selector_asks_the_labels_of_the_pods_namespace() {
        let requirement = |key: &str, operator| LabelRequirement { key: key.to_owned(), operator };
        let values = |value: &str| BTreeSet::from([value.to_owned()]);
        let allowed = AllowedNamespaces::Selector(vec![
            requirement("team", LabelOperator::In(values("vision"))),
            requirement("tier", LabelOperator::NotIn(values("test"))),
            requirement("fpga", LabelOperator::Exists),
            requirement("blocked", LabelOperator::DoesNotExist),
        ]);
        let mut library = Library::new(Some("library".to_owned()));
        library.insert("library", "sobel", bitstream(allowed, &["a10"]));
        assert_eq!(valid(&library, "unknown", "sobel"), boards(&[]));
        let good = [("team", "vision"), ("fpga", "")];
        for (labels, expected) in [
            (good.to_vec(), boards(&["a10"])),
            ([good.as_slice(), &[("tier", "live")]].concat(), boards(&["a10"])),
            ([good.as_slice(), &[("tier", "test")]].concat(), boards(&[])),
            ([good.as_slice(), &[("blocked", "")]].concat(), boards(&[])),
            (vec![("team", "vision")], boards(&[])),
            (vec![("team", "other"), ("fpga", "")], boards(&[])),
        ] {
            let labels = labels.into_iter().map(|(key, value)| (key.to_owned(), value.to_owned())).collect();
            library.set_namespace("pods", labels);
            assert_eq!(valid(&library, "pods", "sobel"), expected);
        }
    }

    #[test]
    fn the_administrators_list_decides_what_the_library_does_not_have() {
        let listed =
            |name: &str| Listed { name: Some(name.to_owned()), digest: None, boards: vec![kind("listed")] };
        let catalog = Catalog::new(vec![listed("sobel"), listed("vendor/fft")], Unlisted::Reject).unwrap();
        let mut library = Library::new(None);
        assert_eq!(valid_by(&library, "vision", "sobel", &catalog), boards(&["listed"]));
        library.insert("vision", "sobel", bitstream(AllowedNamespaces::Same, &["a10"]));
        assert_eq!(valid_by(&library, "vision", "sobel", &catalog), boards(&["a10"]));
        assert_eq!(valid_by(&library, "shop", "sobel", &catalog), boards(&["listed"]));
        assert_eq!(valid_by(&library, "vision", "vendor/fft", &catalog), boards(&["listed"]));
        assert_eq!(valid_by(&library, "vision", "mm", &catalog), boards(&[]));
    }

    /// A Bitstream whose boards tell where it is from.
    fn some_bitstream() -> impl Strategy<Value = (usize, usize, bool)> {
        (0..4_usize, 0..3_usize, any::<bool>())
    }

    const NAMESPACES: [&str; 4] = ["library", "vision", "shop", "else"];
    const NAMES: [&str; 3] = ["sobel", "mm", "fft"];

    fn library_of(bitstreams: &[(usize, usize, bool)]) -> Library {
        let mut library = Library::new(Some("library".to_owned()));
        for (namespace, name, is_open) in bitstreams {
            let (namespace, name) = (NAMESPACES[*namespace], NAMES[*name]);
            let allowed = if *is_open { AllowedNamespaces::All } else { AllowedNamespaces::Same };
            library.insert(namespace, name, bitstream(allowed, &[&format!("{namespace}-{name}")]));
        }
        library
    }

    proptest! {
        #[test]
        fn what_a_name_is_valid_for_is_never_changed_by_another_namespace(
            bitstreams in prop::collection::vec(some_bitstream(), 0..12),
            more in prop::collection::vec(some_bitstream(), 0..12),
            namespace in 0..4_usize,
            name in 0..3_usize,
        ) {
            let (namespace, name) = (NAMESPACES[namespace], NAMES[name]);
            let before = library_of(&bitstreams);
            // Anybody but the pod's own namespace and the library adds Bitstreams and removes them.
            let mut after = before.clone();
            after.retain(|of, _| of == namespace || of == "library");
            for (of, name, is_open) in more {
                let of = NAMESPACES[of];
                if of != namespace && of != "library" {
                    let allowed = if is_open { AllowedNamespaces::All } else { AllowedNamespaces::Same };
                    after.insert(of, NAMES[name], bitstream(allowed, &["theirs"]));
                }
            }
            let catalog = Catalog::new(Vec::new(), Unlisted::Reject).unwrap();
            let found = valid_by(&before, namespace, name, &catalog);
            prop_assert_eq!(&found, &valid_by(&after, namespace, name, &catalog));
            // One Bitstream's boards or none, never those of two.
            prop_assert!(found.is_some_and(|found| found.len() <= 1));
        }
    }
}
