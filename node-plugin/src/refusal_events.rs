//! Events on pods whose program was refused a bitstream. The program itself sees an error of OpenCL, which has no room for a
//! reason.

use fpga_core::gate::{AllocatedContainer, GateRefusal, GateRequest};
use fpga_net::kube_events::EventWriter;
use k8s_openapi::api::core::v1::ObjectReference;
use kube::Client;
use kube::runtime::events::{Event, EventType};
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::time::{Duration, Instant};
use tracing::warn;

/// The reporting controller of events.
const CONTROLLER: &str = "fpga-scheduling.io/node-plugin";
/// Least time between two events on a pod: a program may ask again and again.
const PAUSE: Duration = Duration::from_secs(60);
/// Least time between two events on a pod that say the same.
const REPEATED_AFTER: Duration = Duration::from_secs(600);
/// Longest time that the API server may take.
const TIMEOUT: Duration = Duration::from_secs(5);

/// Writes the events of a node.
pub(crate) struct RefusalEvents {
    writer: EventWriter,
    told: Mutex<Told>,
}

/// The last event on each pod, by UID.
#[derive(Debug, Default)]
struct Told(BTreeMap<String, Last>);

/// The last event on a pod.
#[derive(Debug)]
struct Last {
    at: Instant,
    note: String,
}

impl Told {
    /// Whether an event with this note is due on the pod, which then counts as told.
    fn is_due(&mut self, uid: &str, note: &str, now: Instant) -> bool {
        self.0.retain(|_, last| now.saturating_duration_since(last.at) < REPEATED_AFTER);
        let is_due = self
            .0
            .get(uid)
            .is_none_or(|last| last.note != note && now.saturating_duration_since(last.at) >= PAUSE);
        if is_due {
            self.0.insert(uid.to_owned(), Last { at: now, note: note.to_owned() });
        }
        is_due
    }
}

impl RefusalEvents {
    /// Events of the plugin of this node.
    pub(crate) fn new(client: Client, node: &str) -> Self {
        Self { writer: EventWriter::new(client, CONTROLLER, node.to_owned()), told: Mutex::default() }
    }

    /// Says on the pod of the container why its program does not get a bitstream, unless that was said a while ago. Nobody
    /// waits for the API server: without the event the reason is in the plugin's log.
    pub(crate) fn tell(&self, container: &AllocatedContainer, request: &GateRequest, refusal: &GateRefusal) {
        let note = note(request, refusal);
        if !self.told.lock().is_due(&container.uid, &note, Instant::now()) {
            return;
        }
        let event = Event {
            type_: EventType::Warning,
            reason: "BitstreamRefused".to_owned(),
            note: Some(note),
            action: "Load".to_owned(),
            secondary: None,
        };
        let pod = ObjectReference {
            api_version: Some("v1".to_owned()),
            kind: Some("Pod".to_owned()),
            namespace: Some(container.namespace.clone()),
            name: Some(container.pod.clone()),
            uid: Some(container.uid.clone()),
            ..ObjectReference::default()
        };
        let writer = self.writer.clone();
        tokio::spawn(async move {
            match tokio::time::timeout(TIMEOUT, writer.publish(event, &pod)).await {
                Ok(Ok(())) => {}
                Ok(Err(error)) => warn!(%error, "An event on a refused bitstream is not written"),
                Err(_) => warn!("The API server does not answer for an event on a refused bitstream"),
            }
        });
    }
}

/// Why the bitstream is refused, what to do, and which bitstream it is, the least important last: the end may be missing.
fn note(request: &GateRequest, refusal: &GateRefusal) -> String {
    let GateRequest { board, bitstream, .. } = request;
    format!("{refusal} (bitstream {bitstream}, board {board})")
}

#[cfg(test)]
mod tests {
    use super::*;
    use fpga_core::bitstream::Digest;
    use fpga_core::gate::{Origin, Others, Residency};

    #[test]
    fn a_pod_that_asks_again_and_again_gets_few_events_and_others_get_theirs() {
        let (mut told, begin) = (Told::default(), Instant::now());
        for (uid, note, seconds, is_due) in [
            ("a", "unlisted", 0, true),
            ("a", "unlisted", 1, false),
            ("b", "unlisted", 2, true),
            ("a", "busy", 59, false),
            ("a", "unlisted", 60, false),
            ("a", "busy", 60, true),
            ("a", "unlisted", 119, false),
            ("a", "unlisted", 120, true),
            ("a", "unlisted", 719, false),
            ("a", "unlisted", 720, true),
        ] {
            let now = begin + Duration::from_secs(seconds);
            assert_eq!(told.is_due(uid, note, now), is_due, "{uid}: {note} after {seconds} s");
        }
        assert_eq!(told.0.len(), 1, "pods that are quiet are forgotten");
    }

    #[test]
    fn the_note_has_the_reason_before_the_digest() {
        let request = GateRequest {
            token: Digest::from_bytes([1; 32]),
            board: "a10-0".to_owned(),
            bitstream: Digest::from_bytes([7; 32]),
            origin: Origin::Client,
            residency: Residency::Absent,
            others: Others::Idle,
        };
        let refusal = GateRefusal::Unlisted { namespace: "n".repeat(63) };
        let expected = format!("{refusal} (bitstream sha256:{}, board a10-0)", "07".repeat(32));
        assert_eq!(note(&request, &refusal), expected);
    }
}
