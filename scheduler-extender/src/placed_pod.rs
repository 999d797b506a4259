//! The fields of a watched pod that decisions about other pods need: UID, owner, node, boards, priority, time of the
//! binding, and which nodes the pod may go to. All others are skipped when decoded. Of a pod that asks for no FPGA only the name and UID are kept.

use fpga_core::board_pods::{BoardPod, Life, Place, WantedInstances};
use fpga_core::board_request::BoardRequest;
use fpga_core::expected_load::PlacedPod;
use fpga_core::names::BOARDS_ANNOTATION;
use fpga_core::requirement::{PodText, Requirement};
use fpga_core::signals::AskedKind;
use fpga_core::units::WallTime;
use fpga_registry_api::pod_terms;
use k8s_openapi::NamespaceResourceScope;
use k8s_openapi::api::core::v1::{Affinity, Toleration};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time};
use kube::Resource;
use serde::Deserialize;
use std::borrow::Cow;
use std::collections::BTreeMap;

/// A pod of the watch.
#[derive(Debug, Clone, Deserialize)]
#[serde(from = "Wire")]
pub struct WatchedPod {
    identity: ObjectMeta,
    /// The placement of the pod, if it is an FPGA pod.
    pub placement: Placement,
    /// The pod as others' places on its node depend on it; `None` without a node or a request for boards.
    pub board_pod: Option<BoardPod>,
    /// Time of the binding by the API server's clock, milliseconds since the epoch; if unknown, time of the creation.
    pub since: Option<WallTime>,
}

/// The placement of a pod.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Placement {
    /// The pod asks for no FPGA.
    NotOurs,
    /// The pod has no node yet.
    Waits,
    /// The pod has a node.
    Placed(PlacedPod),
}

impl WatchedPod {
    /// The pod's UID; empty if it has none.
    #[must_use]
    pub fn uid(&self) -> &str {
        self.identity.uid.as_deref().unwrap_or_default()
    }
}

impl Resource for WatchedPod {
    type DynamicType = ();
    type Scope = NamespaceResourceScope;

    fn kind((): &()) -> Cow<'_, str> {
        "Pod".into()
    }

    fn group((): &()) -> Cow<'_, str> {
        "".into()
    }

    fn version((): &()) -> Cow<'_, str> {
        "v1".into()
    }

    fn plural((): &()) -> Cow<'_, str> {
        "pods".into()
    }

    fn meta(&self) -> &ObjectMeta {
        &self.identity
    }

    fn meta_mut(&mut self) -> &mut ObjectMeta {
        &mut self.identity
    }
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Wire {
    metadata: Metadata,
    spec: Spec,
    status: Status,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Metadata {
    name: Option<String>,
    namespace: Option<String>,
    uid: Option<String>,
    resource_version: Option<String>,
    creation_timestamp: Option<Time>,
    deletion_timestamp: Option<Time>,
    labels: Option<BTreeMap<String, String>>,
    annotations: Option<BTreeMap<String, String>>,
    owner_references: Option<Vec<Owner>>,
}

#[derive(Debug, Deserialize)]
struct Owner {
    uid: String,
    controller: Option<bool>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Spec {
    node_name: Option<String>,
    priority: Option<i32>,
    containers: Option<Vec<Container>>,
    init_containers: Option<Vec<Container>>,
    tolerations: Option<Vec<Toleration>>,
    node_selector: Option<BTreeMap<String, String>>,
    affinity: Option<Affinity>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Container {
    resources: Option<Resources>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Resources {
    limits: Option<BTreeMap<String, String>>,
    requests: Option<BTreeMap<String, String>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Status {
    conditions: Option<Vec<Condition>>,
    nominated_node_name: Option<String>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Condition {
    #[serde(rename = "type")]
    kind: String,
    #[serde(default)]
    last_transition_time: Option<Time>,
}

impl From<Wire> for WatchedPod {
    fn from(wire: Wire) -> Self {
        let asks: Vec<BoardRequest<'_>> = wire.spec.asks().collect();
        let asked = wire.requirement(&asks);
        let (placement, since) = (wire.placement(asked.clone()), wire.since());
        let board_pod = asked.and_then(|asked| wire.board_pod(asked, &asks, since));
        let Metadata { name, namespace, uid, resource_version, .. } = wire.metadata;
        let identity = ObjectMeta { name, namespace, uid, resource_version, ..ObjectMeta::default() };
        Self { identity, placement, board_pod, since }
    }
}

impl Wire {
    /// What the pod asks for; `None` if it is not an FPGA pod.
    fn requirement(&self, asks: &[BoardRequest<'_>]) -> Option<Requirement> {
        let asked = Requirement::of_pod(PodText {
            labels: pairs(self.metadata.labels.as_ref()),
            annotations: pairs(self.metadata.annotations.as_ref()),
            containers: asks,
        });
        // A pod whose wishes can't be understood still uses its node, whatever placed it there.
        asked.unwrap_or_else(|_| Some(Requirement::default()))
    }

    fn since(&self) -> Option<WallTime> {
        let scheduled = self.status.conditions.iter().flatten().find(|it| it.kind == "PodScheduled");
        let bound = scheduled.and_then(|condition| condition.last_transition_time.as_ref());
        let since = bound.or(self.metadata.creation_timestamp.as_ref())?;
        u64::try_from(since.0.as_millisecond()).ok().map(WallTime)
    }

    fn placement(&self, asked: Option<Requirement>) -> Placement {
        let (Some(asked), Some(uid)) = (asked, self.metadata.uid.clone()) else { return Placement::NotOurs };
        let Some(node) = self.spec.node() else { return Placement::Waits };
        let owner = self.metadata.owner_references.iter().flatten();
        let owner = owner.into_iter().find(|owner| owner.controller == Some(true));
        Placement::Placed(PlacedPod {
            uid,
            owner: owner.map(|owner| owner.uid.clone()),
            node: node.to_owned(),
            kind: AskedKind::of(&asked),
            bitstreams: asked.bitstreams,
        })
    }

    fn board_pod(
        &self,
        requirement: Requirement,
        asks: &[BoardRequest<'_>],
        since: Option<WallTime>,
    ) -> Option<BoardPod> {
        let wanted = WantedInstances::of(asks);
        let nominated = self.status.nominated_node_name.as_deref().filter(|node| !node.is_empty());
        let (place, node) = match (self.spec.node(), nominated) {
            (Some(node), _) => (Place::Bound, node),
            (None, Some(node)) => (Place::Nominated, node),
            (None, None) => return None,
        };
        let boards = self.metadata.annotations.as_ref().and_then(|all| all.get(BOARDS_ANNOTATION));
        let boards = boards.into_iter().flat_map(|boards| boards.split(','));
        let boards = boards.map(str::trim).filter(|board| !board.is_empty());
        (wanted.containers > 0).then_some(BoardPod {
            uid: self.metadata.uid.clone()?,
            node: node.to_owned(),
            place,
            life: if self.metadata.deletion_timestamp.is_some() { Life::Ends } else { Life::Stays },
            priority: self.spec.priority.unwrap_or_default(),
            since,
            boards: boards.map(str::to_owned).collect(),
            wanted,
            requirement,
            terms: pod_terms(
                self.spec.tolerations.as_ref(),
                self.spec.node_selector.as_ref(),
                self.spec.affinity.as_ref(),
            ),
        })
    }
}

impl Spec {
    fn node(&self) -> Option<&str> {
        self.node_name.as_deref().filter(|node| !node.is_empty())
    }

    /// What the containers ask for, init containers included.
    fn asks(&self) -> impl Iterator<Item = BoardRequest<'_>> {
        self.containers.iter().chain(&self.init_containers).flatten().filter_map(Container::boards)
    }
}

fn pairs(map: Option<&BTreeMap<String, String>>) -> impl Iterator<Item = (&str, &str)> {
    map.into_iter().flatten().map(|(key, value)| (key.as_str(), value.as_str()))
}

impl Container {
    /// The boards that the container asks for.
    fn boards(&self) -> Option<BoardRequest<'_>> {
        let resources = self.resources.as_ref()?;
        BoardRequest::among(pairs(resources.limits.as_ref()).chain(pairs(resources.requests.as_ref())))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pod(text: &str) -> WatchedPod {
        serde_json::from_str(text).unwrap()
    }

    fn placed(pod: WatchedPod) -> PlacedPod {
        let Placement::Placed(placed) = pod.placement else { panic!("{:?}", pod.placement) };
        placed
    }

    #[test]
    fn of_an_fpga_pod_its_placement_is_read_and_the_rest_is_skipped() {
        let pod = pod(r#"{"apiVersion":"v1","kind":"Pod",
            "metadata":{"name":"p","namespace":"d","uid":"u","resourceVersion":"7","creationTimestamp":"2026-01-01T00:00:00Z",
                "labels":{"fpga-scheduling.io/board":"a10"},"annotations":{"fpga-scheduling.io/bitstreams":"sobel,mm","other":"x"},"managedFields":[{"manager":"m"}],
                "ownerReferences":[{"uid":"x","kind":"Foo","name":"f","apiVersion":"v1"},{"uid":"rs","controller":true}]},
            "spec":{"nodeName":"n1","containers":[{"name":"c","image":"i"}]},
            "status":{"conditions":[{"type":"Ready","status":"True"},
                {"type":"PodScheduled","status":"True","lastTransitionTime":"2026-01-01T00:00:09Z"}]}}"#);
        let bitstreams = ["sobel", "mm"].map(|name| name.parse().unwrap()).to_vec();
        let kind = AskedKind::of(&Requirement { board: Some("a10".into()), ..Requirement::default() });
        let (uid, owner, node) = ("u".into(), Some("rs".into()), "n1".into());
        let placed = PlacedPod { uid, owner, node, kind, bitstreams };
        assert_eq!(pod.placement, Placement::Placed(placed));
        assert_eq!(pod.since, Some(WallTime(1_767_225_609_000)));
        assert_eq!((pod.uid(), pod.meta().resource_version.as_deref()), ("u", Some("7")));
    }

    #[test]
    fn the_managed_resource_alone_makes_an_fpga_pod_and_its_creation_stands_in_for_its_binding() {
        let pod = pod(
            r#"{"metadata":{"uid":"u","creationTimestamp":"2026-01-01T00:00:00Z"},"spec":{"nodeName":"n1",
            "containers":[{},{"resources":{"limits":{"fpga-scheduling.io/accelerated":"1","cpu":"1"}}}]}}"#,
        );
        assert_eq!(pod.since, Some(WallTime(1_767_225_600_000)));
        assert_eq!(placed(pod).node, "n1");
    }

    #[test]
    fn of_a_pod_with_boards_its_boards_priority_and_end_are_read() {
        let text = r#"{"metadata":{"uid":"u","deletionTimestamp":"2026-01-01T00:00:00Z",
            "annotations":{"fpga-scheduling.io/boards":"dm0, dm1"}},"spec":{"nodeName":"n1","priority":-5,
            "containers":[{"resources":{"limits":{"fpga-scheduling.io/intel":"2"}}},{}]}}"#;
        let held = pod(text).board_pod.unwrap();
        assert_eq!((held.place, held.life, held.priority), (Place::Bound, Life::Ends, -5));
        assert_eq!(held.boards, ["dm0", "dm1"].map(str::to_owned).into());
        let by_resource = [("fpga-scheduling.io/intel".to_owned(), 2)].into();
        assert_eq!(held.wanted, WantedInstances { containers: 1, by_resource });
    }

    #[test]
    fn a_nominated_pod_belongs_to_its_node_and_one_without_a_request_for_boards_has_none() {
        let asks = r#""containers":[{"resources":{"requests":{"fpga-scheduling.io/accelerated":"1"}}}]"#;
        let nominated = format!(
            r#"{{"metadata":{{"uid":"u"}},"spec":{{{asks}}},"status":{{"nominatedNodeName":"n2"}}}}"#
        );
        let held = pod(&nominated).board_pod.unwrap();
        assert_eq!((held.place, held.node.as_str(), held.priority), (Place::Nominated, "n2", 0));
        assert_eq!(pod(&format!(r#"{{"metadata":{{"uid":"u"}},"spec":{{{asks}}}}}"#)).board_pod, None);
        let labelled =
            r#"{"metadata":{"uid":"u","labels":{"fpga-scheduling.io/board":"a10"}},"spec":{"nodeName":"n"}}"#;
        assert_eq!(pod(labelled).board_pod, None);
    }

    #[test]
    fn other_pods_are_not_ours_and_pods_without_a_node_wait() {
        let other = r#"{"metadata":{"uid":"u"},"spec":{"nodeName":"n1","containers":[{"resources":{"limits":{"cpu":"1"}}}]}}"#;
        for text in [other, "{}"] {
            assert_eq!(pod(text).placement, Placement::NotOurs, "{text}");
        }
        for text in [
            r#"{"metadata":{"uid":"u","annotations":{"fpga-scheduling.io/bitstreams":"mm"}},"spec":{}}"#,
            r#"{"metadata":{"uid":"u","labels":null,"annotations":{"fpga-scheduling.io/bitstreams":"mm"}},"spec":{"nodeName":""}}"#,
        ] {
            assert_eq!(pod(text).placement, Placement::Waits, "{text}");
        }
    }

    #[test]
    fn a_pod_whose_wishes_cannot_be_understood_is_placed_all_the_same() {
        let pod = pod(
            r#"{"metadata":{"uid":"u","annotations":{"fpga-scheduling.io/bitstreams":"m m"}},"spec":{"nodeName":"n"}}"#,
        );
        assert_eq!(placed(pod).bitstreams, []);
    }
}
