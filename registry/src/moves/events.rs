//! Events on Deployments that say what was suggested or done.

use crate::metrics::Metrics;
use fpga_net::kube_events::EventWriter;
use fpga_registry_api::{MoveOutcome, MoveRecord};
use k8s_openapi::api::core::v1::ObjectReference;
use kube::Client;
use kube::runtime::events::{Event, EventType};
use tracing::warn;

/// The reporting controller of events.
const CONTROLLER: &str = "fpga-scheduling.io/registry";

/// Writes events.
pub(super) struct Events {
    writer: EventWriter,
    metrics: Metrics,
}

impl Events {
    /// Events of the replica `me`.
    pub fn new(client: Client, metrics: Metrics, me: String) -> Self {
        Self { writer: EventWriter::new(client, CONTROLLER, me), metrics }
    }

    /// Says on the Deployment what was suggested or done. An event that is not written is missing, and nothing else.
    pub async fn tell(&self, record: &MoveRecord, outcome: &MoveOutcome) {
        let MoveRecord { pod, node, reckoning, .. } = record;
        let (reason, action, note) = match outcome {
            MoveOutcome::Suggested => (
                "MoveSuggested",
                "Suggest",
                format!(
                    "The pod {pod} had better not be on the node {node}: {reckoning}; delete the pod, or set \
                     registry.moves.mode=evict"
                ),
            ),
            MoveOutcome::GivenUp(why) => (
                "MoveGivenUp",
                "Evict",
                format!("The pod {pod} had better not be on the node {node}: {reckoning}; it stays: {why}"),
            ),
            MoveOutcome::Stuck(why) => (
                "MoveStuck",
                "Wait",
                format!("The pod {pod} was moved off the node {node}, and not all replicas are Ready: {why}"),
            ),
            MoveOutcome::Raised => (
                "MoveBegun",
                "Scale",
                format!(
                    "The pod {pod} is moved off the node {node} when its replacement is Ready, for which there is one \
                     replica more: {reckoning}"
                ),
            ),
            MoveOutcome::Begun | MoveOutcome::Evicted | MoveOutcome::Ended => {
                ("Moved", "Evict", format!("The pod {pod} is moved off the node {node}: {reckoning}"))
            }
        };
        let is_stuck = matches!(outcome, MoveOutcome::Stuck(_));
        let event = Event {
            type_: if is_stuck { EventType::Warning } else { EventType::Normal },
            reason: reason.to_owned(),
            note: Some(note),
            action: action.to_owned(),
            secondary: None,
        };
        let deployment = ObjectReference {
            api_version: Some("apps/v1".to_owned()),
            kind: Some("Deployment".to_owned()),
            namespace: Some(record.namespace.clone()),
            name: Some(record.workload.clone()),
            uid: Some(record.workload_uid.clone()),
            ..ObjectReference::default()
        };
        if let Err(error) = self.writer.publish(event, &deployment).await {
            self.metrics.write_errors.inc();
            warn!(%error, "An event on a move is not written");
        }
    }
}
