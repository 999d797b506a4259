//! Timing events that a device runtime reports to the collector of its node (S-5), and the identity that tells an
//! event from its retry.

use crate::bitstream::{BitstreamId, Digest};
use crate::units::{Millis, WallTime};
use serde::{Deserialize, Serialize};

/// One timing event: a task that held a slot, a reconfiguration, or the progress of a running task (S-5).
///
/// The paper's four fields are required; the others identify the event. An event without `reporter` and `seq` is
/// accepted as well, but a retry of it counts again.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Event {
    /// End of the task or reconfiguration, milliseconds since the Unix epoch on the reporter's node.
    pub timestamp_ms: WallTime,
    /// Time for which a slot was held, reconfiguration included; 0 in the event of a reconfiguration.
    pub duration_ms: Millis,
    /// Time for which a slot was reconfigured; 0 in the event of a task.
    pub reconfiguration_ms: Millis,
    /// The bitstream that ran or was loaded.
    pub bitstream_identifier: BitstreamId,
    /// The digest of the bitstream, where the identifier is a name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub digest: Option<Digest>,
    /// Reporter and sequence number; absent in plain S-5 events.
    #[serde(flatten)]
    pub identity: Option<Identity>,
    /// Id of the task, unique per reporter. Progress events and the final event of a task share it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub task: Option<u64>,
    /// Whether the task still runs.
    #[serde(default, skip_serializing_if = "Phase::is_final")]
    pub phase: Phase,
    /// Present if the hook's queue was full and the hook merged several events into this one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub merged: Option<Merged>,
    /// Id of the device on its node.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub device: Option<String>,
    /// Index of the slot in the device.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub slot: Option<u32>,
    /// Tenant that the task belongs to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tenant: Option<String>,
}

/// Identity of an event. A retried event has the identity of the first try and counts once.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Identity {
    /// Random number, one per process of a reporter.
    pub reporter: u64,
    /// 1, 2, 3 … per reporter, without gaps. A merged event has the number of its last part.
    pub seq: u64,
}

/// Whether an event is the last one of its task.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Phase {
    /// The task runs. `duration_ms` is its cumulative duration so far; the next event of the task replaces it.
    Running,
    /// The task has ended.
    #[default]
    Final,
}

/// The range that a merged event covers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Merged {
    /// `seq` of the first part. The event covers all numbers from this one to its own.
    pub first_seq: u64,
    /// Number of events that were merged.
    pub count: u32,
    /// Start of the earliest part, milliseconds since the Unix epoch. The sums are spread from here to `timestamp_ms`.
    pub first_ms: WallTime,
}

impl Event {
    /// An event of the paper's fields alone: a task that held a slot for `duration` and ended at `end`.
    #[must_use]
    pub const fn of_task(end: WallTime, duration: Millis, bitstream: BitstreamId) -> Self {
        Self {
            timestamp_ms: end,
            duration_ms: duration,
            reconfiguration_ms: Millis::ZERO,
            bitstream_identifier: bitstream,
            digest: None,
            identity: None,
            task: None,
            phase: Phase::Final,
            merged: None,
            device: None,
            slot: None,
            tenant: None,
        }
    }
}

impl Phase {
    /// Whether no further event of the task follows.
    #[must_use]
    pub fn is_final(&self) -> bool {
        *self == Self::Final
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plain_event_of_the_paper_is_read() {
        let event: Event = serde_json::from_str(
            r#"{"timestamp_ms":1700000000000,"duration_ms":12,"reconfiguration_ms":0,"bitstream_identifier":"sobel"}"#,
        )
        .unwrap();
        assert_eq!((event.identity, event.phase, event.merged), (None, Phase::Final, None));
    }

    #[test]
    fn an_event_with_identity_survives_a_round_trip() {
        let text = r#"{"timestamp_ms":5,"duration_ms":3,"reconfiguration_ms":0,"bitstream_identifier":"mm","reporter":9,"seq":4,"task":2,"phase":"running","device":"dm0","slot":1,"tenant":"uid:0"}"#;
        let event: Event = serde_json::from_str(text).unwrap();
        assert_eq!(event.identity, Some(Identity { reporter: 9, seq: 4 }));
        assert_eq!(serde_json::to_string(&event).unwrap(), text);
    }
}
