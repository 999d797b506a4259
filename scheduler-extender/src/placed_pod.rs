//! The fields of a watched pod that expectations need: UID, owner, node, and time of the binding. All others are
//! skipped when decoded. Of a pod that asks for no FPGA only the name and UID are kept.

use fpga_core::board_request::BoardRequest;
use fpga_core::expected_load::PlacedPod;
use fpga_core::requirement::{PodText, Requirement};
use fpga_core::signals::AskedKind;
use fpga_core::units::WallTime;
use k8s_openapi::NamespaceResourceScope;
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
    containers: Option<Vec<Container>>,
    init_containers: Option<Vec<Container>>,
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
#[serde(default)]
struct Status {
    conditions: Option<Vec<Condition>>,
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
        let placement = wire.placement();
        let scheduled = wire.status.conditions.iter().flatten().find(|it| it.kind == "PodScheduled");
        let bound = scheduled.and_then(|condition| condition.last_transition_time.as_ref());
        let since = bound.or(wire.metadata.creation_timestamp.as_ref());
        let since = since.and_then(|time| u64::try_from(time.0.as_millisecond()).ok()).map(WallTime);
        let Metadata { name, namespace, uid, resource_version, .. } = wire.metadata;
        let identity = ObjectMeta { name, namespace, uid, resource_version, ..ObjectMeta::default() };
        Self { identity, placement, since }
    }
}

impl Wire {
    fn placement(&self) -> Placement {
        let (metadata, spec) = (&self.metadata, &self.spec);
        let containers = spec.containers.iter().chain(&spec.init_containers).flatten();
        let asked = Requirement::of_pod(PodText {
            labels: pairs(metadata.labels.as_ref()),
            annotations: pairs(metadata.annotations.as_ref()),
            containers: &containers.filter_map(Container::boards).collect::<Vec<_>>(),
        });
        let asked = match asked {
            Ok(None) => return Placement::NotOurs,
            Ok(Some(asked)) => asked,
            // Such a pod still uses its node, whatever placed it there.
            Err(_) => Requirement::default(),
        };
        let controller = |owner: &&Owner| owner.controller == Some(true);
        let Some(uid) = metadata.uid.clone() else { return Placement::NotOurs };
        let Some(node) = spec.node_name.clone().filter(|node| !node.is_empty()) else {
            return Placement::Waits;
        };
        let owner = metadata.owner_references.iter().flatten().find(controller);
        Placement::Placed(PlacedPod {
            uid,
            owner: owner.map(|owner| owner.uid.clone()),
            node,
            kind: AskedKind::of(&asked),
            bitstreams: asked.bitstreams,
        })
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
