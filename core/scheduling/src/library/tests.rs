use super::*;
use crate::catalog::{Listed, Unlisted};
use crate::gate::{
    Allocated, AllocatedContainer, GateBoard, GateRequest, GateVerdict, Moves, Origin, Others, Residency,
    decide,
};
use crate::node_state::NodeState;
use crate::units::MonotonicTime;
use proptest::prelude::*;

fn kind(board: &str) -> BoardKind {
    BoardKind { board: Some(board.to_owned()), ..BoardKind::default() }
}

fn bitstream(allowed: AllowedNamespaces, boards: &[&str]) -> LibraryBitstream {
    let variant = |board: &&str| LibraryVariant {
        boards: kind(board),
        digest: Digest::from_bytes([7; 32]),
        region_size: 1,
    };
    LibraryBitstream { allowed, variants: boards.iter().map(variant).collect() }
}

#[test]
fn names_that_no_object_can_have_are_looked_for_nowhere() {
    let library = Library::new(Some("library".to_owned()));
    let candidates = |name: &str| -> Vec<String> {
        library.candidates("shop", name).map(|(of, name)| format!("{of}/{name}")).collect()
    };
    assert_eq!(candidates("sobel"), ["shop/sobel", "library/sobel"]);
    assert_eq!(candidates("mill/sobel"), ["mill/sobel"]);
    for name in ["mill/a/b", "../sobel", "mill/..", ".", "So_bel", "/sobel", "mill/", "a..b"] {
        assert_eq!(candidates(name), [""; 0], "{name}");
    }
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
fn a_name_has_the_digests_of_its_variants_for_the_requested_board_and_a_digest_the_names_that_mean_it() {
    use AllowedNamespaces::{All, Same};
    let digest = |byte| Digest::from_bytes([byte; 32]);
    let of = |variants: &[(&str, u8)]| {
        let variant = |(board, byte): &(&str, u8)| LibraryVariant {
            boards: kind(board),
            digest: digest(*byte),
            region_size: 1,
        };
        variants.iter().map(variant).collect::<Vec<_>>()
    };
    let mut library = Library::new(Some("library".to_owned()));
    let shared = of(&[("a10", 1), ("s10", 2)]);
    library.insert("library", "sobel", LibraryBitstream { allowed: All, variants: shared.clone() });
    library.insert("library", "edges", LibraryBitstream { allowed: All, variants: shared });
    library.insert("library", "secret", LibraryBitstream { allowed: Same, variants: of(&[("a10", 1)]) });
    library.insert("vision", "sobel", LibraryBitstream { allowed: Same, variants: of(&[("a10", 3)]) });
    let synonyms = |namespace: &str, id: &str, board: Option<&str>| -> Vec<String> {
        let asked = Requirement { board: board.map(str::to_owned), ..crate::fixtures::mk_asked(&[id]) };
        let mut all = library.synonyms(namespace, &asked);
        let synonyms = all.remove(&asked.bitstreams[0]).unwrap_or_default();
        assert!(all.is_empty());
        synonyms.iter().map(ToString::to_string).collect()
    };
    let (one, two, three) = (digest(1).to_string(), digest(2).to_string(), digest(3).to_string());
    assert_eq!(synonyms("shop", "sobel", None), [one.clone(), two.clone()]);
    assert_eq!(synonyms("shop", "sobel", Some("s10")), [two]);
    assert_eq!(synonyms("vision", "sobel", None), [three], "the own one alone");
    assert_eq!(synonyms("vision", "library/sobel", Some("a10")), std::slice::from_ref(&one));
    assert_eq!(synonyms("shop", &one, None), ["edges", "sobel"], "secret is not for shops");
    assert_eq!(synonyms("vision", &one, None), ["edges"], "sobel means another one there");
    assert_eq!(synonyms("shop", "unknown", None), [""; 0]);
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
fn the_fingerprint_changes_with_what_names_mean_and_with_nothing_else() {
    let library = |bitstreams: &[(&str, &str, LibraryBitstream)], labels: &[&str]| {
        let mut library = Library::new(Some("library".to_owned()));
        for (namespace, name, bitstream) in bitstreams {
            library.insert(namespace, name, bitstream.clone());
        }
        let label =
            |label: &&str| ((*label).to_owned(), BTreeMap::from([("team".to_owned(), (*label).to_owned())]));
        library.set_namespaces(labels.iter().map(label).collect());
        library.fingerprint()
    };
    let open = |board: &str| ("library", "sobel", bitstream(AllowedNamespaces::All, &[board]));
    let own = ("vision", "mm", bitstream(AllowedNamespaces::Same, &["a10"]));
    let one = library(&[open("a10"), own.clone()], &[]);
    assert_eq!(library(&[own.clone(), open("a10")], &["vision"]), one, "nobody is selected by label");
    assert_ne!(library(&[open("s10"), own], &[]), one);
    assert_ne!(library(&[open("a10")], &[]), one);
    let exists = LabelRequirement { key: "team".to_owned(), operator: LabelOperator::Exists };
    let selected = ("library", "sobel", bitstream(AllowedNamespaces::Selector(vec![exists]), &["a10"]));
    assert_ne!(library(std::slice::from_ref(&selected), &["vision"]), library(&[selected], &[]));
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

proptest! {
    /// All Bitstreams here have one digest.
    #[test]
    fn a_digest_gives_a_namespace_its_own_bitstreams_and_those_that_the_library_gives_it(
        bitstreams in prop::collection::vec(some_bitstream(), 0..12),
        namespace in 0..4_usize,
    ) {
        let namespace = NAMESPACES[namespace];
        let library = library_of(&bitstreams);
        let id = BitstreamId::Digest(Digest::from_bytes([7; 32]));
        let of = |wanted: &str| library.bitstreams.get(wanted).map(|all| all.values().collect::<Vec<_>>());
        let is_own = of(namespace).is_some();
        let is_given = |bitstream: &&LibraryBitstream| bitstream.allowed == AllowedNamespaces::All;
        let by_library = of("library").map(|all| namespace == "library" || all.iter().any(is_given));
        let expected = by_library.or(is_own.then_some(true));
        let found = match library.meaning(namespace, &id) {
            Meaning::Unlisted => None,
            Meaning::Refused => Some(false),
            Meaning::Variants(variants) => {
                let owner = library.owner(namespace, &id).unwrap();
                prop_assert_eq!(owner, if is_own { namespace } else { "library" });
                let is_owners = |variant: &&LibraryVariant| {
                    variant.boards.board.as_ref().is_some_and(|board| board.starts_with(&format!("{owner}-")))
                };
                prop_assert!(variants.iter().all(is_owners), "{:?} of {}", variants, owner);
                Some(true)
            }
        };
        prop_assert_eq!(found, expected);
    }
}

/// A Bitstream of a namespace with a name and a digest, which lets others use it or not, and which counts or was refused.
fn any_bitstream() -> impl Strategy<Value = (usize, usize, u8, bool, bool)> {
    (0..4_usize, 0..3_usize, 0..3_u8, any::<bool>(), any::<bool>())
}

proptest! {
    /// The promise of `registry/README.md` on the bytes of bitstreams, without the sources: the store proves those
    /// (`bytes_go_to_whoever_can_fetch_them_and_to_nobody_else`).
    #[test]
    fn bytes_are_reachable_only_by_those_who_name_a_source_or_are_given_them(
        bitstreams in prop::collection::vec(any_bitstream(), 0..12),
        tenant in 0..4_usize,
        byte in 0..3_u8,
        given in any::<bool>(),
        is_on_node in any::<bool>(),
    ) {
        let (tenant, digest) = (NAMESPACES[tenant], Digest::from_bytes([byte; 32]));
        let mut library = Library::new(Some("library".to_owned()));
        let mut all = BTreeMap::new();
        for (namespace, name, byte, is_open, counts) in bitstreams {
            let (namespace, name) = (NAMESPACES[namespace], NAMES[name]);
            let mut found = bitstream(if is_open { AllowedNamespaces::All } else { AllowedNamespaces::Same }, &["a10"]);
            found.variants[0].digest = Digest::from_bytes([byte; 32]);
            if !counts {
                found = LibraryBitstream { allowed: AllowedNamespaces::Same, variants: Vec::new() };
            }
            library.insert(namespace, name, found.clone());
            all.insert((namespace, name), found);
        }
        // Whether each namespace that has the bytes gives them to the tenant.
        let mut gives: BTreeMap<&str, bool> = BTreeMap::new();
        for ((namespace, _), found) in &all {
            if found.variants.iter().any(|variant| variant.digest == digest) {
                *gives.entry(namespace).or_default() |= *namespace == tenant || found.allowed == AllowedNamespaces::All;
            }
        }
        let by_library = gives.get("library").copied();
        let has_own = gives.contains_key(tenant);

        // A lent board of the pool, which gives the bytes to whoever names the digest.
        let lent = library.holders().get(&digest).is_some_and(|holders| library.gives(tenant, &digest, holders));
        let is_due = by_library.unwrap_or_else(|| !gives.is_empty() && gives.values().all(|gives| *gives));
        prop_assert_eq!(lent, is_due, "on a lent board");

        // The gate of a board, whose container was given the bytes at its start or not.
        let given_to = if given { [("dm0".to_owned(), [digest].into())].into() } else { BTreeMap::new() };
        let container = AllocatedContainer {
            namespace: tenant.to_owned(),
            pod: "p".to_owned(),
            uid: "u".to_owned(),
            boards: ["dm0".to_owned()].into(),
            given: given_to,
        };
        let mut device = crate::fixtures::mk_device("intel", "a10", "1");
        device.id = "dm0".to_owned();
        let state = NodeState { devices: vec![device], ..crate::fixtures::mk_state() };
        let request = GateRequest {
            token: digest,
            board: "dm0".to_owned(),
            bitstream: digest,
            origin: if is_on_node { Origin::OfNode } else { Origin::Client },
            residency: Residency::Absent,
            others: Others::Idle,
        };
        let board = GateBoard { state: Some(&state), reservation: None, moves: Moves::Off };
        let allocated = Allocated([(digest, container)].into());
        let verdict = decide(&allocated, Some(&library), board, &request, MonotonicTime(0)).verdict;
        // A file that no Bitstream has is the administrator's, and for all.
        let is_due = by_library.unwrap_or(has_own || given || is_on_node);
        prop_assert_eq!(verdict == GateVerdict::Allowed, is_due, "at the gate: {:?}", verdict);
    }
}

#[test]
fn a_pod_uses_the_bitstream_that_its_identifier_means() {
    let mut library = Library::new(Some("shared".to_owned()));
    library.insert("shared", "sobel", bitstream(AllowedNamespaces::All, &["a10"]));
    library.insert("shared", "mm", bitstream(AllowedNamespaces::Same, &["a10"]));
    library.insert("own", "sobel", bitstream(AllowedNamespaces::Same, &["a10"]));
    let digest = format!("sha256:{}", "07".repeat(32));
    let digest = digest.as_str();
    for (namespace, id, expected) in [
        ("own", "sobel", Some(("own", "sobel"))),
        ("team", "sobel", Some(("shared", "sobel"))),
        ("team", "shared/sobel", Some(("shared", "sobel"))),
        ("team", "own/sobel", None),
        ("team", "mm", None),
        ("team", "unlisted", None),
        ("own", digest, Some(("own", "sobel"))),
        ("team", digest, Some(("shared", "sobel"))),
    ] {
        let used = library.used_by(namespace, &id.parse().unwrap());
        assert_eq!(used, expected.into_iter().collect::<Vec<_>>(), "{id} in {namespace}");
    }
    assert_eq!(library.used_by("shared", &digest.parse().unwrap()), [("shared", "mm"), ("shared", "sobel")]);
}
