//! The row of a pod that has boards, or waits for them.

use fpga_registry_api::FpgaPod;
use k8s_openapi::api::core::v1::{ContainerStatus, Pod};
use serde::Serialize;

/// Longest reason that is shown.
const MAX_REASON: usize = 1024;

/// A pod, as the page shows it. Its namespace is the tenant.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct PodRow {
    /// Kind and name of the controller; `None` for a bare pod.
    pub owner: Option<String>,
    /// The node; `None` while the pod waits for one.
    pub node: Option<String>,
    /// The boards that the node plugin gave to its containers.
    pub boards: Vec<String>,
    /// The bitstreams that the pod names.
    pub bitstreams: Vec<String>,
    /// Whether the pod is ready.
    pub is_ready: bool,
    /// Whether the pod is about to be deleted.
    pub is_ending: bool,
    /// Time of its creation, milliseconds since the epoch.
    pub created_at_ms: Option<u64>,
    /// Why the pod waits, in the words of kube-scheduler or the kubelet; `None` if it does not, or nobody says.
    pub waits: Option<String>,
}

impl PodRow {
    /// The row of a pod with its key; `None` if the pod wants no board or has ended.
    #[must_use]
    pub fn of(pod: &Pod) -> Option<(String, Self)> {
        let found = FpgaPod::of(pod)?;
        let created = pod.metadata.creation_timestamp.as_ref().map(|time| time.0.as_millisecond());
        let row = Self {
            owner: found.controller.map(|owner| format!("{}/{}", owner.kind, owner.name)),
            node: found.node,
            boards: found.boards,
            bitstreams: found.requirement.bitstreams.iter().map(ToString::to_string).collect(),
            is_ready: found.is_ready,
            is_ending: found.is_ending,
            created_at_ms: created.and_then(|at| u64::try_from(at).ok()),
            waits: reason(pod).map(|reason| reason.chars().take(MAX_REASON).collect()),
        };
        Some((format!("{}/{}", found.namespace, found.name), row))
    }
}

/// Why a pod waits: it is not scheduled, or a container does not start.
fn reason(pod: &Pod) -> Option<String> {
    let status = pod.status.as_ref()?;
    let mut conditions = status.conditions.iter().flatten();
    let unscheduled = conditions.find(|found| found.type_ == "PodScheduled" && found.status == "False");
    if let Some(condition) = unscheduled {
        return condition.message.clone().or_else(|| condition.reason.clone());
    }
    let containers = status.container_statuses.iter().chain(&status.init_container_statuses).flatten();
    containers.filter_map(held_up).next()
}

fn held_up(status: &ContainerStatus) -> Option<String> {
    let waiting = status.state.as_ref()?.waiting.as_ref()?;
    let reason = waiting.reason.clone().unwrap_or_default();
    match &waiting.message {
        Some(message) => Some(format!("{reason}: {message}")),
        None if reason == "ContainerCreating" || reason == "PodInitializing" || reason.is_empty() => None,
        None => Some(reason),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn row(status: &Value) -> PodRow {
        let pod = json!({
            "metadata": {"namespace": "shop", "name": "p", "uid": "u", "creationTimestamp": "2026-01-01T00:00:00Z",
                         "annotations": {"fpga-scheduling.io/bitstreams": "sobel"}},
            "spec": {"containers": []}, "status": status,
        });
        let (key, row) = PodRow::of(&serde_json::from_value(pod).unwrap()).unwrap();
        assert_eq!(key, "shop/p");
        row
    }

    #[test]
    fn a_pod_that_waits_says_why_in_the_words_of_who_makes_it_wait() {
        let condition = json!({"type": "PodScheduled", "status": "False", "reason": "Unschedulable",
            "message": "0/3 nodes are available: 3 FPGA vendor does not match."});
        let waits = row(&json!({"phase": "Pending", "conditions": [condition]}));
        assert_eq!(waits.waits.unwrap(), "0/3 nodes are available: 3 FPGA vendor does not match.");
        assert_eq!(
            (waits.bitstreams, waits.created_at_ms),
            (vec!["sobel".to_owned()], Some(1_767_225_600_000))
        );

        let container = |waiting: Value| {
            json!({"containerStatuses": [{"name": "c", "image": "", "imageID": "", "ready": false, "restartCount": 0,
                "state": {"waiting": waiting}}]})
        };
        let held =
            row(&container(json!({"reason": "CreateContainerConfigError", "message": "no board is free"})));
        assert_eq!(held.waits.unwrap(), "CreateContainerConfigError: no board is free");
        assert_eq!(row(&container(json!({"reason": "ContainerCreating"}))).waits, None);
        assert_eq!(row(&json!({})).waits, None);
    }

    #[test]
    fn a_reason_is_bounded() {
        let condition = json!({"type": "PodScheduled", "status": "False", "message": "x".repeat(1 << 20)});
        assert_eq!(row(&json!({"conditions": [condition]})).waits.unwrap().len(), MAX_REASON);
    }
}
