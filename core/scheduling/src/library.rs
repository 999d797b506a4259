//! The library: what the name of an accelerator means for a pod, by the Bitstreams of the cluster (T-3).
//!
//! **A name means one Bitstream**: that of the pod's own namespace, else that of the library namespace, else the one
//! that `namespace/name` writes out. Bitstreams of equal names are never joined, so that nobody changes what another
//! namespace's name is valid for. What the library does not have, the administrator's [`Catalog`] decides.
//!
//! **Bytes of a bitstream are reachable only by namespaces whose own source delivered them, or to which the library or such a
//! namespace gives them** (`registry/README.md`). The store proves deliveries, [`Library::gives`] is for boards of the pool, which
//! have no proof, and the [gate](crate::gate) is for all others.
//!
//! **The library fails closed.** A Bitstream that the pod's namespace may not use is valid nowhere for it.

use crate::bitstream::{BitstreamId, Digest};
use crate::board_kind::BoardKind;
use crate::catalog::Catalog;
use crate::requirement::Requirement;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::hash::{DefaultHasher, Hash as _, Hasher as _};

/// The Bitstreams of the cluster, and the labels of its namespaces.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Library {
    /// The namespace whose Bitstreams all namespaces may name without writing it.
    shared: Option<String>,
    bitstreams: BTreeMap<String, BTreeMap<String, LibraryBitstream>>,
    namespaces: BTreeMap<String, BTreeMap<String, String>>,
}

/// A Bitstream.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct LibraryBitstream {
    /// Namespaces, beside its own, whose pods may use it.
    pub allowed: AllowedNamespaces,
    /// The bitstreams of the accelerator, for each kind of board one.
    pub variants: Vec<LibraryVariant>,
}

/// A bitstream of a Bitstream.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct LibraryVariant {
    /// The boards that it was built for.
    pub boards: BoardKind,
    /// Digest of the bytes.
    pub digest: Digest,
    /// Number of a board's slots that the bitstream takes.
    pub region_size: u32,
}

/// Namespaces, beside a Bitstream's own, whose pods may use it.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum AllowedNamespaces {
    /// None.
    Same,
    /// Every namespace.
    All,
    /// Those whose labels meet all requirements.
    Selector(Vec<LabelRequirement>),
}

/// A requirement of a label selector.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct LabelRequirement {
    /// The label.
    pub key: String,
    /// The condition on the label.
    pub operator: LabelOperator,
}

/// What is required of a label, with the meaning of Kubernetes' label selectors.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
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
pub enum Meaning<'l> {
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

    /// A hash that changes if the meaning of a name changes for some namespace. Equal libraries have equal hashes, in
    /// other processes as well.
    #[must_use]
    pub fn fingerprint(&self) -> u64 {
        let mut hasher = DefaultHasher::new();
        self.bitstreams.hash(&mut hasher);
        let mut all = self.bitstreams.values().flat_map(BTreeMap::values);
        if all.any(|bitstream| matches!(bitstream.allowed, AllowedNamespaces::Selector(_))) {
            self.namespaces.hash(&mut hasher);
        }
        hasher.finish()
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

    /// The Bitstreams, by namespace and name, that a pod of `namespace` uses by the identifier `id`: one for a name, all
    /// of one namespace with the bytes for a digest. None if the library has none, or the namespace may not use it.
    #[must_use]
    pub fn used_by(&self, namespace: &str, id: &BitstreamId) -> Vec<(&str, &str)> {
        let found = |of: &str, name: &str| {
            let (of, bitstreams) = self.bitstreams.get_key_value(of)?;
            let (name, bitstream) = bitstreams.get_key_value(name)?;
            Some((of.as_str(), name.as_str(), bitstream))
        };
        let meant = match id {
            BitstreamId::Name(name) => {
                let mut candidates = self.candidates(namespace, name);
                candidates.find_map(|(of, name)| found(of, name)).into_iter().collect()
            }
            BitstreamId::Digest(digest) => self.with_digest(namespace, digest),
        };
        let may_use =
            |(of, _, bitstream): &(&str, &str, &LibraryBitstream)| self.may_use(namespace, of, bitstream);
        meant.into_iter().filter(may_use).map(|(of, name, _)| (of, name)).collect()
    }

    /// The Bitstreams with a digest, of the first namespace that has any.
    fn with_digest<'l>(
        &'l self,
        namespace: &str,
        digest: &Digest,
    ) -> Vec<(&'l str, &'l str, &'l LibraryBitstream)> {
        let of = |of: &str| -> Vec<_> {
            let of_namespace = self.bitstreams.get_key_value(of);
            let all = of_namespace.into_iter().flat_map(|(of, bitstreams)| {
                bitstreams.iter().map(|(name, bitstream)| (of.as_str(), name.as_str(), bitstream))
            });
            all.filter(|(_, _, bitstream)| bitstream.variants.iter().any(|v| v.digest == *digest)).collect()
        };
        let own = of(namespace);
        if own.is_empty() { self.shared.as_deref().map(of).unwrap_or_default() } else { own }
    }

    /// The namespaces that have Bitstreams with a digest, by digest.
    #[must_use]
    pub fn holders(&self) -> BTreeMap<Digest, BTreeSet<String>> {
        let mut holders: BTreeMap<Digest, BTreeSet<String>> = BTreeMap::new();
        for (namespace, bitstreams) in &self.bitstreams {
            for variant in bitstreams.values().flat_map(|bitstream| &bitstream.variants) {
                holders.entry(variant.digest).or_default().insert(namespace.clone());
            }
        }
        holders
    }

    /// Whether pods of `namespace` may have these bytes by their digest alone, without a proof that its own source has
    /// delivered them: the library gives them, or where the library does not have them, each of their `holders` does.
    #[must_use]
    pub fn gives(&self, namespace: &str, digest: &Digest, holders: &BTreeSet<String>) -> bool {
        let given_by = |of: &str| self.variants_of(namespace, of, digest).map(|given| !given.is_empty());
        let by_library = self.shared.as_deref().and_then(given_by);
        by_library.unwrap_or_else(|| holders.iter().all(|of| given_by(of).unwrap_or(true)))
    }

    /// The other identifiers of the bitstreams of `asked` in pods of `namespace`, as [`Requirement::synonyms`]: for a name
    /// the digests of those variants that were built for a board of the requested kind, for a digest the names that mean
    /// a Bitstream with that variant.
    #[must_use]
    pub fn synonyms(&self, namespace: &str, asked: &Requirement) -> BTreeMap<BitstreamId, Vec<BitstreamId>> {
        if self.is_empty() {
            return BTreeMap::new();
        }
        let all = asked.all_bitstreams().map(|id| {
            let synonyms = match id {
                BitstreamId::Name(_) => self.digests_of(namespace, id, asked),
                BitstreamId::Digest(digest) => self.names_of(namespace, digest),
            };
            (id.clone(), synonyms)
        });
        all.filter(|(_, synonyms)| !synonyms.is_empty()).collect()
    }

    fn digests_of(&self, namespace: &str, name: &BitstreamId, asked: &Requirement) -> Vec<BitstreamId> {
        let Meaning::Variants(variants) = self.meaning(namespace, name) else { return Vec::new() };
        let fitting = variants.into_iter().filter(|variant| may_be_asked(&variant.boards, asked));
        fitting.map(|variant| BitstreamId::Digest(variant.digest)).collect()
    }

    fn names_of(&self, namespace: &str, digest: &Digest) -> Vec<BitstreamId> {
        let namespaces = [Some(namespace), self.shared.as_deref()].into_iter().flatten();
        let names = namespaces.filter_map(|of| self.bitstreams.get(of)).flat_map(BTreeMap::keys);
        let means_it = |name: &&String| match self.of_name(namespace, name) {
            Meaning::Variants(variants) => variants.iter().any(|variant| variant.digest == *digest),
            Meaning::Unlisted | Meaning::Refused => false,
        };
        let names: BTreeSet<&String> = names.filter(means_it).collect();
        names.into_iter().cloned().map(BitstreamId::Name).collect()
    }

    /// What `id` means for the pods of `namespace`.
    #[must_use]
    pub fn meaning(&self, namespace: &str, id: &BitstreamId) -> Meaning<'_> {
        match id {
            BitstreamId::Name(name) => self.of_name(namespace, name),
            BitstreamId::Digest(digest) => self.of_digest(namespace, digest),
        }
    }

    /// Namespace and name of each Bitstream that `name` may mean for the pods of `namespace`. The first one that exists
    /// is meant.
    pub fn candidates<'n>(
        &'n self,
        namespace: &'n str,
        name: &'n str,
    ) -> impl Iterator<Item = (&'n str, &'n str)> {
        let own = Some((namespace, name));
        let shared = self.shared.as_deref().map(|shared| (shared, name));
        let all = [own, shared, name.split_once('/')].into_iter().flatten();
        all.filter(|(of, name)| is_object_name(of) && is_object_name(name))
    }

    fn of_name(&self, namespace: &str, name: &str) -> Meaning<'_> {
        let mut candidates = self.candidates(namespace, name);
        candidates.find_map(|(of, name)| self.find(namespace, of, name)).unwrap_or(Meaning::Unlisted)
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

    /// A digest is looked for where a name is. A Bitstream of the pod's namespace grants nothing that the library
    /// withholds.
    fn of_digest(&self, namespace: &str, digest: &Digest) -> Meaning<'_> {
        let of_library =
            self.shared.as_deref().and_then(|shared| self.variants_of(namespace, shared, digest));
        let found = match (self.variants_of(namespace, namespace, digest), of_library) {
            (_, Some(withheld)) if withheld.is_empty() => Some(withheld),
            (own, of_library) => own.or(of_library),
        };
        match found {
            None => Meaning::Unlisted,
            Some(variants) if variants.is_empty() => Meaning::Refused,
            Some(variants) => Meaning::Variants(variants),
        }
    }

    /// The variants with this digest that the Bitstreams of the namespace `of` give to the pods of `namespace`; `None` if
    /// none has the digest. They are joined: they are one owner's, and the bytes are equal.
    fn variants_of(&self, namespace: &str, of: &str, digest: &Digest) -> Option<Vec<&LibraryVariant>> {
        let has_it = |variant: &&LibraryVariant| variant.digest == *digest;
        let bitstreams = self.bitstreams.get(of)?.values();
        let mut found =
            bitstreams.filter(|bitstream| bitstream.variants.iter().any(|it| has_it(&it))).peekable();
        found.peek()?;
        let allowed = found.filter(|bitstream| self.may_use(namespace, of, bitstream));
        Some(allowed.flat_map(|bitstream| bitstream.variants.iter().filter(has_it)).collect())
    }

    /// The namespace whose Bitstreams say what `id` means for the pods of `namespace`; `None` if none does.
    #[must_use]
    pub fn owner<'n>(&'n self, namespace: &'n str, id: &'n BitstreamId) -> Option<&'n str> {
        match id {
            BitstreamId::Name(name) => {
                let is_there = |(of, name): &(&str, &str)| {
                    self.bitstreams.get(*of).is_some_and(|bitstreams| bitstreams.contains_key(*name))
                };
                self.candidates(namespace, name).find(is_there).map(|(of, _)| of)
            }
            BitstreamId::Digest(digest) => {
                let has_it = |of: &&str| self.variants_of(namespace, of, digest).is_some();
                [Some(namespace), self.shared.as_deref()].into_iter().flatten().find(has_it)
            }
        }
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

/// Whether boards of this kind can meet what the pod asks for.
fn may_be_asked(boards: &BoardKind, asked: &Requirement) -> bool {
    let agree =
        |one: &Option<String>, other: &Option<String>| one.is_none() || other.is_none() || one == other;
    agree(&boards.vendor, &asked.vendor)
        && agree(&boards.board, &asked.board)
        && agree(&boards.shell, &asked.shell)
}

/// Whether an object of Kubernetes can have the name: it is part of addresses.
#[must_use]
pub fn is_object_name(text: &str) -> bool {
    let is_end = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
    text.starts_with(is_end)
        && text.ends_with(is_end)
        && text.chars().all(|c| is_end(c) || matches!(c, '-' | '.'))
        && !text.contains("..")
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
mod tests;
