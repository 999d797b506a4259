//! What a pod with boards says of itself.

use crate::terms::pod_terms;
use fpga_core::board_request::BoardRequest;
use fpga_core::names::{BOARDS_ANNOTATION, NEW_BEFORE_OLD_ANNOTATION};
use fpga_core::node_terms::PodTerms;
use fpga_core::requirement::{PodText, Requirement};
use k8s_openapi::api::core::v1::{Container, Pod};
use std::collections::BTreeMap;

/// A pod that asks for boards and has not ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FpgaPod {
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// Its UID.
    pub uid: String,
    /// Its labels.
    pub labels: BTreeMap<String, String>,
    /// Its node; `None` while it waits.
    pub node: Option<String>,
    /// Which nodes it may go to.
    pub terms: PodTerms,
    /// What made it; `None` for a bare pod.
    pub controller: Option<Controller>,
    /// The requirement that its boards meet.
    pub requirement: Requirement,
    /// The boards that the node plugin gave to its containers, by id.
    pub boards: Vec<String>,
    /// Whether it is Ready.
    pub is_ready: bool,
    /// Whether it is about to be deleted.
    pub is_ending: bool,
    /// Whether its owner wants a replacement before it is moved.
    pub new_before_old: bool,
}

/// The controller of a pod.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Controller {
    /// Its kind, for example `ReplicaSet`.
    pub kind: String,
    /// Its name.
    pub name: String,
    /// Its UID.
    pub uid: String,
}

impl FpgaPod {
    /// The pod, if it asks for boards and has not ended. A pod whose requirement can't be understood names no bitstream, and
    /// asks for any board.
    #[must_use]
    pub fn of(pod: &Pod) -> Option<Self> {
        let (metadata, spec) = (&pod.metadata, pod.spec.as_ref()?);
        let status = pod.status.as_ref();
        if matches!(status.and_then(|status| status.phase.as_deref()), Some("Succeeded" | "Failed")) {
            return None;
        }
        let containers = spec.containers.iter().chain(spec.init_containers.iter().flatten());
        let resources: Vec<Vec<(&str, &str)>> = containers.map(resources).collect();
        let requests: Vec<BoardRequest<'_>> =
            resources.iter().filter_map(|pairs| BoardRequest::among(pairs.iter().copied())).collect();
        let asked = Requirement::of_pod(PodText {
            labels: pairs(metadata.labels.as_ref()),
            annotations: pairs(metadata.annotations.as_ref()),
            containers: &requests,
        });
        let asked = match asked {
            Ok(asked) => asked?,
            Err(_) => Requirement::default(),
        };
        let mut owners = metadata.owner_references.iter().flatten();
        let controller = owners.find(|owner| owner.controller == Some(true));
        let annotation = |name: &str| metadata.annotations.as_ref()?.get(name).map(String::as_str);
        let boards = annotation(BOARDS_ANNOTATION).into_iter().flat_map(|boards| boards.split(','));
        let boards = boards.map(str::trim).filter(|board| !board.is_empty()).map(str::to_owned);
        let conditions = status.iter().flat_map(|status| status.conditions.iter().flatten());
        Some(Self {
            namespace: metadata.namespace.clone().unwrap_or_default(),
            name: metadata.name.clone()?,
            uid: metadata.uid.clone()?,
            labels: metadata.labels.clone().unwrap_or_default(),
            node: spec.node_name.clone().filter(|node| !node.is_empty()),
            terms: pod_terms(spec.tolerations.as_ref(), spec.node_selector.as_ref(), spec.affinity.as_ref()),
            controller: controller.map(|owner| Controller {
                kind: owner.kind.clone(),
                name: owner.name.clone(),
                uid: owner.uid.clone(),
            }),
            requirement: asked,
            boards: boards.collect(),
            is_ready: conditions.into_iter().any(|c| c.type_ == "Ready" && c.status == "True"),
            is_ending: metadata.deletion_timestamp.is_some(),
            new_before_old: annotation(NEW_BEFORE_OLD_ANNOTATION) == Some("true"),
        })
    }
}

fn pairs(map: Option<&BTreeMap<String, String>>) -> impl Iterator<Item = (&str, &str)> {
    map.into_iter().flatten().map(|(key, value)| (key.as_str(), value.as_str()))
}

/// The resources that a container asks for.
fn resources(container: &Container) -> Vec<(&str, &str)> {
    let resources = container.resources.iter();
    let all = resources.flat_map(|all| all.limits.iter().flatten().chain(all.requests.iter().flatten()));
    all.map(|(name, quantity)| (name.as_str(), quantity.0.as_str())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn pod(change: impl FnOnce(&mut Value)) -> Option<FpgaPod> {
        let mut pod = json!({
            "metadata": {
                "namespace": "shop", "name": "sobel-1", "uid": "u",
                "annotations": {"fpga-scheduling.io/bitstreams": "sobel", "fpga-scheduling.io/boards": "a10-0, a10-1"},
                "ownerReferences": [
                    {"apiVersion": "v1", "kind": "Other", "name": "o", "uid": "x"},
                    {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "sobel", "uid": "rs", "controller": true},
                ],
            },
            "spec": {"nodeName": "n", "containers": [
                {"name": "main", "resources": {"limits": {"fpga-scheduling.io/accelerated": "1"}}},
            ]},
            "status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]},
        });
        change(&mut pod);
        FpgaPod::of(&serde_json::from_value(pod).unwrap())
    }

    #[test]
    fn a_pod_with_boards_is_read() {
        let found = pod(|_| {}).unwrap();
        assert_eq!(
            (found.namespace.as_str(), found.name.as_str(), found.uid.as_str()),
            ("shop", "sobel-1", "u")
        );
        assert_eq!((found.node.as_deref(), found.is_ready, found.is_ending), (Some("n"), true, false));
        assert_eq!(
            (found.boards, found.requirement.bitstreams.len()),
            (vec!["a10-0".to_owned(), "a10-1".to_owned()], 1)
        );
        assert!(!found.new_before_old);
        let wants =
            pod(|pod| pod["metadata"]["annotations"]["fpga-scheduling.io/new-before-old"] = json!("true"));
        assert!(wants.unwrap().new_before_old);
        let controller = found.controller.unwrap();
        assert_eq!((controller.kind.as_str(), controller.uid.as_str()), ("ReplicaSet", "rs"));
    }

    #[test]
    fn pods_without_boards_and_pods_that_have_ended_are_none() {
        assert_eq!(pod(|pod| pod["status"]["phase"] = json!("Failed")), None);
        let without = pod(|pod| {
            pod["metadata"]["annotations"] = json!({});
            pod["spec"]["containers"][0]["resources"] = json!({"limits": {"cpu": "1"}});
        });
        assert_eq!(without, None);
    }

    #[test]
    fn a_pod_that_can_not_be_understood_still_has_its_boards() {
        let odd =
            pod(|pod| pod["metadata"]["annotations"]["fpga-scheduling.io/slots"] = json!("many")).unwrap();
        assert_eq!((odd.boards.len(), odd.requirement.bitstreams.len()), (2, 0));
    }
}
