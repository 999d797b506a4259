//! What the registry tells on each Bitstream: where it is valid, where it is resident, and how many pods name it.

use crate::cluster::{Cluster, KnownNode};
use crate::own_bitstreams::Verdict;
use fpga_core::library::{Library, LibraryBitstream};
use fpga_core::node_state::DigestPrefix;
use fpga_registry_api::{ACCEPTED, Bitstream, BitstreamStatus, FpgaPod, LibraryRules, library_bitstream};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use kube::ResourceExt as _;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Type of the condition: whether any node has a board that a variant was built for.
pub const AVAILABLE: &str = "Available";

/// A Bitstream whose status has changed.
#[derive(Debug, Clone)]
pub struct StatusChange {
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// The version of the object that the status follows from.
    pub version: Option<String>,
    /// The status that it should have.
    pub status: BitstreamStatus,
}

/// The library of a cluster.
#[must_use]
pub fn library_of(cluster: &Cluster, rules: &LibraryRules) -> Library {
    let namespaces = cluster.namespaces.state();
    let labels = namespaces
        .iter()
        .map(|namespace| (namespace.name_any(), namespace.metadata.labels.clone().unwrap_or_default()));
    library(&cluster.bitstreams.state(), labels.collect(), rules)
}

/// The library as it follows from the objects.
#[must_use]
pub fn library(
    bitstreams: &[Arc<Bitstream>],
    namespaces: BTreeMap<String, BTreeMap<String, String>>,
    rules: &LibraryRules,
) -> Library {
    let mut library = Library::new(rules.shared.clone());
    library.set_namespaces(namespaces);
    for object in bitstreams {
        let namespace = object.namespace().unwrap_or_default();
        library.insert(&namespace, &object.name_any(), rules.bitstream(object));
    }
    library
}

/// The Bitstreams whose status is not what it should be at the moment `now`. `verdicts` are those on whether they count.
#[must_use]
pub fn changes(
    bitstreams: &[Arc<Bitstream>],
    library: &Library,
    verdicts: &BTreeMap<(String, String), Verdict>,
    nodes: &[KnownNode],
    pods: &[FpgaPod],
    now: &Time,
) -> Vec<StatusChange> {
    let mut users: BTreeMap<(&str, &str), BTreeSet<&str>> = BTreeMap::new();
    for pod in pods {
        for key in pod.requirement.bitstreams.iter().flat_map(|id| library.used_by(&pod.namespace, id)) {
            users.entry(key).or_default().insert(&pod.uid);
        }
    }
    let change = |object: &Arc<Bitstream>| {
        let key = (object.namespace().unwrap_or_default(), object.name_any());
        let users = users.get(&(key.0.as_str(), key.1.as_str())).map_or(0, BTreeSet::len);
        let (bitstream, verdict) = (library_bitstream(object), verdicts.get(&key));
        // A Bitstream that does not count is valid nowhere. Copies with its digest on nodes belong to others.
        let counts = verdict.is_none_or(|verdict| verdict.is_accepted());
        let number = |is: fn(&LibraryBitstream, &KnownNode) -> bool| match counts {
            true => nodes.iter().filter(|node| is(&bitstream, node)).count(),
            false => 0,
        };
        let (valid, resident) = (number(is_valid_on), number(is_resident_on));
        let available = match counts {
            true => available(object, valid, now),
            false => not_available(object, now),
        };
        let verdict = verdict.map(|verdict| accepted(object, *verdict, now));
        let count = |count: usize| Some(i32::try_from(count).unwrap_or(i32::MAX));
        let status = BitstreamStatus {
            conditions: of_others(object).chain([available]).chain(verdict).collect(),
            valid_nodes: count(valid),
            resident_nodes: count(resident),
            pods: count(users),
        };
        (object.status.as_ref() != Some(&status)).then(|| {
            let version = object.metadata.resource_version.clone();
            StatusChange { namespace: key.0, name: key.1, version, status }
        })
    };
    bitstreams.iter().filter_map(change).collect()
}

fn conditions(object: &Bitstream) -> impl Iterator<Item = &Condition> {
    object.status.iter().flat_map(|status| &status.conditions)
}

/// Conditions that others have written.
fn of_others(object: &Bitstream) -> impl Iterator<Item = Condition> {
    let of_others =
        conditions(object).filter(|condition| ![AVAILABLE, ACCEPTED].contains(&&*condition.type_));
    of_others.cloned()
}

fn available(object: &Bitstream, valid: usize, now: &Time) -> Condition {
    let (status, reason, message) = match valid {
        0 => ("False", "NoBoard", "no node has a board that a variant was built for".to_owned()),
        1 => ("True", "BoardsExist", "1 node has a board that a variant was built for".to_owned()),
        many => ("True", "BoardsExist", format!("{many} nodes have boards that a variant was built for")),
    };
    condition(object, AVAILABLE, status, reason, message, now)
}

fn not_available(object: &Bitstream, now: &Time) -> Condition {
    let message = format!("the Bitstream does not count: the condition {ACCEPTED} says why");
    condition(object, AVAILABLE, "False", "NotAccepted", message, now)
}

fn accepted(object: &Bitstream, verdict: Verdict, now: &Time) -> Condition {
    let status = if verdict.is_accepted() { "True" } else { "False" };
    condition(object, ACCEPTED, status, verdict.reason(), verdict.to_string(), now)
}

/// A condition whose date is that of its last transition.
fn condition(
    object: &Bitstream,
    kind: &str,
    status: &str,
    reason: &str,
    message: String,
    now: &Time,
) -> Condition {
    let before = conditions(object).find(|condition| condition.type_ == kind);
    let since = before.filter(|before| before.status == status).map(|before| &before.last_transition_time);
    Condition {
        type_: kind.to_owned(),
        status: status.to_owned(),
        reason: reason.to_owned(),
        message,
        observed_generation: object.metadata.generation,
        last_transition_time: since.unwrap_or(now).clone(),
    }
}

/// Whether the node has a board that a variant was built for, by its state or else by its labels.
fn is_valid_on(bitstream: &LibraryBitstream, node: &KnownNode) -> bool {
    let kinds = || bitstream.variants.iter().map(|variant| &variant.boards);
    match &node.state {
        Some(state) => state.devices.iter().any(|device| kinds().any(|kind| kind.is(device))),
        None => !node.labels.is_empty() && kinds().any(|kind| kind.is_labelled(&node.labels)),
    }
}

/// Whether a slot of the node has a variant.
fn is_resident_on(bitstream: &LibraryBitstream, node: &KnownNode) -> bool {
    let digests: Vec<DigestPrefix> =
        bitstream.variants.iter().map(|variant| DigestPrefix::from(&variant.digest)).collect();
    let Some(state) = node.fresh() else { return false };
    let mut loaded = state.devices.iter().flat_map(|device| &device.loaded);
    loaded.any(|index| {
        let digest = state.bitstreams.get(*index as usize).and_then(|bitstream| bitstream.digest);
        digest.is_some_and(|digest| digests.contains(&digest))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use fpga_core::fixtures::{mk_asked, mk_device, mk_state};
    use fpga_core::node_labels::NodeLabels;
    use fpga_core::node_state::{NodeState, RecentBitstream};
    use fpga_core::node_terms::{NodeTerms, PodTerms};
    use fpga_core::units::Millis;
    use fpga_registry_api::OwnBitstreams;
    use k8s_openapi::jiff::Timestamp;
    use serde_json::json;

    fn at(second: i64) -> Time {
        Time(Timestamp::from_second(second).unwrap())
    }

    fn bitstream(name: &str) -> Bitstream {
        let object = json!({
            "apiVersion": "fpga-scheduling.io/v1alpha1", "kind": "Bitstream",
            "metadata": {"namespace": "library", "name": name, "generation": 3},
            "spec": {
                "allowedNamespaces": {"from": "All"},
                "variants": [{
                    "vendor": "intel", "board": "a10", "shell": "1", "bytes": 1,
                    "digest": format!("sha256:{}", "0a".repeat(32)),
                    "source": {"https": "https://files.example/x"},
                }],
            },
        });
        serde_json::from_value(object).unwrap()
    }

    fn node(name: &str, board: &str, holds: bool) -> KnownNode {
        let mut device = mk_device("intel", board, "1");
        device.loaded = if holds { vec![0] } else { Vec::new() };
        let digest = Some(DigestPrefix::from_bytes([0x0a; 16]));
        let recent = RecentBitstream { name: None, digest, last_used_ago: Millis(1) };
        let state = NodeState { devices: vec![device], bitstreams: vec![recent], ..mk_state() };
        let state = Some(Arc::new(state));
        KnownNode {
            name: name.into(),
            labels: NodeLabels::default(),
            terms: NodeTerms::default(),
            moved_off: None,
            state,
            age: Millis::ZERO,
        }
    }

    fn pod(uid: &str, namespace: &str, bitstream: &str) -> FpgaPod {
        FpgaPod {
            namespace: namespace.into(),
            name: uid.into(),
            uid: uid.into(),
            labels: BTreeMap::new(),
            node: None,
            terms: PodTerms::default(),
            controller: None,
            requirement: mk_asked(&[bitstream]),
            boards: Vec::new(),
            is_ready: false,
            is_ending: false,
            new_before_old: false,
        }
    }

    fn rules() -> LibraryRules {
        LibraryRules { shared: Some("library".into()), own: OwnBitstreams::Accepted }
    }

    fn changed(
        object: &Bitstream,
        nodes: &[KnownNode],
        pods: &[FpgaPod],
        now: &Time,
    ) -> Option<BitstreamStatus> {
        let objects = [Arc::new(object.clone())];
        let library = library(&objects, BTreeMap::new(), &rules());
        changes(&objects, &library, &BTreeMap::new(), nodes, pods, now).pop().map(|change| change.status)
    }

    #[test]
    fn nodes_and_pods_are_counted() {
        let stale = KnownNode { age: Millis(u64::MAX), ..node("d", "a10", true) };
        let nodes = [node("a", "a10", true), node("b", "a10", false), node("c", "s10", true), stale];
        let digest = format!("sha256:{}", "0a".repeat(32));
        let pods = [
            pod("1", "team", "sobel"),
            pod("2", "team", "library/sobel"),
            pod("3", "team", &digest),
            pod("4", "team", "mm"),
        ];
        let status = changed(&bitstream("sobel"), &nodes, &pods, &at(1)).unwrap();
        let counts = (status.valid_nodes, status.resident_nodes, status.pods);
        assert_eq!(counts, (Some(3), Some(2), Some(3)));
        let condition = &status.conditions[0];
        assert_eq!((condition.status.as_str(), condition.observed_generation), ("True", Some(3)));
        assert!(condition.message.starts_with("3 nodes have"), "{}", condition.message);
    }

    #[test]
    fn a_status_is_written_only_when_it_changes_and_the_date_is_that_of_the_transition() {
        let mut object = bitstream("sobel");
        let nodes = [node("a", "a10", false)];
        object.status = changed(&object, &nodes, &[], &at(1));
        assert_eq!(changed(&object, &nodes, &[], &at(2)), None);
        let more = [node("a", "a10", false), node("b", "a10", false)];
        let status = changed(&object, &more, &[], &at(3)).unwrap();
        assert_eq!(status.conditions[0].last_transition_time, at(1));
        let status = changed(&object, &[], &[], &at(4)).unwrap();
        assert_eq!(
            (status.conditions[0].status.as_str(), &status.conditions[0].last_transition_time),
            ("False", &at(4))
        );
    }

    #[test]
    fn a_verdict_is_a_condition_beside_the_others_and_goes_with_the_rule() {
        let mut object = bitstream("sobel");
        let key = ("library".to_owned(), "sobel".to_owned());
        let with = |object: &Bitstream, verdicts: &[Verdict]| {
            let objects = [Arc::new(object.clone())];
            let library = library(&objects, BTreeMap::new(), &LibraryRules::default());
            let verdicts = verdicts.iter().map(|verdict| (key.clone(), *verdict)).collect();
            changes(&objects, &library, &verdicts, &[], &[], &at(1)).pop().map(|change| change.status)
        };
        object.status = with(&object, &[Verdict::Off]);
        let condition = &object.status.as_ref().unwrap().conditions[1];
        assert_eq!((condition.type_.as_str(), condition.status.as_str()), (ACCEPTED, "False"));
        assert_eq!((condition.reason.as_str(), condition.observed_generation), ("OwnBitstreamsOff", Some(3)));
        assert_eq!(with(&object, &[Verdict::Off]), None);
        let accepted = with(&object, &[Verdict::WithinQuota]).unwrap();
        assert_eq!(accepted.conditions[1].status, "True");
        assert_eq!(with(&object, &[]).unwrap().conditions.len(), 1);
    }

    #[test]
    fn a_refused_bitstream_counts_no_nodes_and_no_pods_that_name_its_digest() {
        let mut object = bitstream("sobel");
        object.metadata.namespace = Some("shop".into());
        let objects = [Arc::new(object)];
        let key = ("shop".to_owned(), "sobel".to_owned());
        let digest = format!("sha256:{}", "0a".repeat(32));
        let pods = [pod("1", "shop", &digest)];
        let library = library(&objects, BTreeMap::new(), &rules());
        let verdicts = [(key, Verdict::Off)].into();
        let nodes = [node("a", "a10", true)];
        let status = changes(&objects, &library, &verdicts, &nodes, &pods, &at(1)).remove(0).status;
        let counts = (status.valid_nodes, status.resident_nodes, status.pods);
        assert_eq!(counts, (Some(0), Some(0), Some(0)));
        let available = &status.conditions[0];
        assert_eq!((available.status.as_str(), available.reason.as_str()), ("False", "NotAccepted"));
    }

    #[test]
    fn conditions_of_others_stay() {
        let mut object = bitstream("sobel");
        let mut other = changed(&object, &[], &[], &at(1)).unwrap();
        other.conditions[0].type_ = "Other".into();
        object.status = Some(other);
        let status = changed(&object, &[], &[], &at(2)).unwrap();
        let types: Vec<&str> = status.conditions.iter().map(|condition| condition.type_.as_str()).collect();
        assert_eq!(types, ["Other", AVAILABLE]);
    }
}
