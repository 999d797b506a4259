//! Computes the status of a pod for the API server from the node's knowledge. Pure.

use k8s_openapi::api::core::v1::{Container, Pod, PodCondition};
use k8s_openapi::jiff::Timestamp;
use serde_json::{Value, json};
use std::net::Ipv4Addr;

/// The phases of a pod.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Phase {
    Pending,
    Running,
    Succeeded,
    Failed,
}

/// The node's knowledge of a pod.
pub(super) struct PodView<'a> {
    pub pod: &'a Pod,
    pub phase: Phase,
    pub pod_ip: Ipv4Addr,
    pub host_ip: Ipv4Addr,
    pub started: Timestamp,
    pub init: Vec<ContainerView<'a>>,
    pub containers: Vec<ContainerView<'a>>,
}

/// The node's knowledge of a container.
pub(super) struct ContainerView<'a> {
    pub container: &'a Container,
    pub state: StateView<'a>,
    pub ready: bool,
    pub restarts: i32,
    pub last: Option<&'a Ended>,
}

/// The state of a container.
pub(super) enum StateView<'a> {
    Waiting { reason: &'a str, message: &'a str },
    Running { since: Timestamp },
    Ended(&'a Ended),
}

/// The end of a container.
#[derive(Debug, Clone)]
pub(super) struct Ended {
    pub code: i32,
    pub signal: Option<i32>,
    pub reason: &'static str,
    pub message: String,
    pub since: Timestamp,
    pub until: Timestamp,
}

/// Whether the pod's status says that it has ended.
pub(super) fn is_final(pod: &Pod) -> bool {
    let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
    matches!(phase, Some("Succeeded" | "Failed"))
}

/// The complete status, as JSON for a merge patch.
pub(super) fn build(view: &PodView<'_>) -> Value {
    json!({
        "phase": format!("{:?}", view.phase),
        "conditions": conditions(view),
        "hostIP": view.host_ip.to_string(),
        "hostIPs": [{"ip": view.host_ip.to_string()}],
        "podIP": view.pod_ip.to_string(),
        "podIPs": [{"ip": view.pod_ip.to_string()}],
        "startTime": seconds(view.started),
        "initContainerStatuses": view.init.iter().map(container_status).collect::<Vec<_>>(),
        "containerStatuses": view.containers.iter().map(container_status).collect::<Vec<_>>(),
    })
}

/// All conditions: those of others first, such as the scheduler's PodScheduled, which a merge patch would otherwise
/// drop.
fn conditions(view: &PodView<'_>) -> Vec<Value> {
    let before: &[PodCondition] =
        view.pod.status.as_ref().and_then(|status| status.conditions.as_deref()).unwrap_or_default();
    let initialized =
        view.init.iter().all(|init| matches!(init.state, StateView::Ended(Ended { code: 0, .. })));
    let running = view.phase == Phase::Running && view.pod.metadata.deletion_timestamp.is_none();
    let ready = running && view.containers.iter().all(|container| container.ready);
    let ours = [("Initialized", initialized), ("ContainersReady", ready), ("Ready", ready)];
    let others = before.iter().filter(|condition| !ours.iter().any(|(kind, _)| *kind == condition.type_));
    let mut all: Vec<Value> = others.map(|condition| json!(condition)).collect();
    for (kind, holds) in ours {
        let status = if holds { "True" } else { "False" };
        let same = before.iter().find(|condition| condition.type_ == kind && condition.status == status);
        let since =
            same.and_then(|condition| condition.last_transition_time.as_ref()).map(|time| json!(time));
        // Conditions are compared by status only, so that the time alone doesn't change a report.
        let since = since.unwrap_or_else(|| seconds(transition(view, holds)));
        all.push(json!({"type": kind, "status": status, "lastTransitionTime": since}));
    }
    all
}

/// The time for a condition that has changed: the latest change of a container.
fn transition(view: &PodView<'_>, holds: bool) -> Timestamp {
    let times = view.containers.iter().map(|container| match &container.state {
        StateView::Running { since } => *since,
        StateView::Ended(ended) if !holds => ended.until,
        _ => view.started,
    });
    times.max().unwrap_or(view.started)
}

fn container_status(view: &ContainerView<'_>) -> Value {
    let state = match &view.state {
        StateView::Waiting { reason, message } => json!({"waiting": {"reason": reason, "message": message}}),
        StateView::Running { since } => json!({"running": {"startedAt": seconds(*since)}}),
        StateView::Ended(ended) => json!({"terminated": terminated(ended)}),
    };
    let last = view.last.map_or(json!({}), |ended| json!({"terminated": terminated(ended)}));
    let image = view.container.image.as_deref().unwrap_or_default();
    json!({
        "name": view.container.name,
        "image": image,
        "imageID": format!("process://{image}"),
        "ready": view.ready,
        "started": matches!(view.state, StateView::Running { .. }),
        "restartCount": view.restarts,
        "state": state,
        "lastState": last,
    })
}

fn terminated(ended: &Ended) -> Value {
    json!({
        "exitCode": ended.code,
        "signal": ended.signal.unwrap_or(0),
        "reason": ended.reason,
        "message": ended.message,
        "startedAt": seconds(ended.since),
        "finishedAt": seconds(ended.until),
    })
}

/// Times of Kubernetes have whole seconds.
fn seconds(time: Timestamp) -> Value {
    json!(time.strftime("%Y-%m-%dT%H:%M:%SZ").to_string())
}
