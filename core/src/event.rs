//! What a device runtime reports to the collector of its node (S-5), and how an event is told from its retry.

use crate::bitstream::{BitstreamId, Digest};
use crate::units::{Millis, WallTime};
use serde::{Deserialize, Serialize};

/// One timing event: a task that held a slot, a reconfiguration, or the progress of a running task (S-5).
///
/// The four fields of the paper are required; the rest gives an event its identity. An event without `reporter` and
/// `seq` is accepted too, at least once.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Event {
    /// When it ended, milliseconds since the Unix epoch on the reporter's node.
    pub timestamp_ms: WallTime,
    /// How long a slot was held, reconfiguration included; 0 in the event of a reconfiguration.
    pub duration_ms: Millis,
    /// How long a slot was being reconfigured; 0 in the event of a task.
    pub reconfiguration_ms: Millis,
    /// The bitstream that ran or was loaded.
    pub bitstream_identifier: BitstreamId,
    /// The digest of the bitstream, where the identifier is a name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub digest: Option<Digest>,
    /// Who says so and as which of its events; absent in plain S-5 events.
    #[serde(flatten)]
    pub identity: Option<Identity>,
    /// Id of the task, unique for the reporter: progress and final event of one task share it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub task: Option<u64>,
    /// Whether the task still runs.
    #[serde(default, skip_serializing_if = "Phase::is_final")]
    pub phase: Phase,
    /// Set when the hook's queue was full and several events became this one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub merged: Option<Merged>,
    /// Id of the device on its node.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub device: Option<String>,
    /// Index of the slot in the device.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub slot: Option<u32>,
    /// The tenant whose task it was.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tenant: Option<String>,
}

/// Identity of an event: a retried one has the identity of the first try and counts once.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Identity {
    /// Random per process of the reporter.
    pub reporter: u64,
    /// 1, 2, 3 … per reporter, without gaps. A merged event has that of its last part.
    pub seq: u64,
}

/// Whether an event is the last word on its task.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Phase {
    /// The task runs; `duration_ms` is its cumulative duration so far, replaced by the next event of the task.
    Running,
    /// The task has ended.
    #[default]
    Final,
}

/// What several events that became one still tell.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Merged {
    /// `seq` of the first part; all numbers from it to the event's own are covered.
    pub first_seq: u64,
    /// How many events it stands for.
    pub count: u32,
    /// Start of the earliest part, milliseconds since the epoch; the sums spread from here to `timestamp_ms`.
    pub first_ms: WallTime,
}

impl Phase {
    /// Whether nothing more will come of the task.
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
