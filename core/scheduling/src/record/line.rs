//! The lines of a recording. Field and variant names are part of the format: recordings of earlier versions use them.

use crate::decide::{DecisionRules, Ranking};
use crate::expected_load::Expected;
use crate::matching::Rejection;
use crate::moved_off::MovedOff;
use crate::node_labels::NodeLabels;
use crate::node_state::NodeState;
use crate::redistribution::FreeTime;
use crate::requirement::Requirement;
use crate::units::{Millis, MonotonicTime, WallTime};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt;

/// Value of [`Header::format`].
pub const FORMAT: &str = "kube-fpga-record";
/// Version that is written. Version 1 can be read; its decisions were made by [`Ranking::WholeNode`].
pub const VERSION: u32 = 2;

/// One line of a recording.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Line {
    /// The first line. A further header resets the decoder.
    Header(Header),
    /// The administrator's settings, from this line on.
    Rules(Box<DecisionRules>),
    /// The facts of a node, from this line on.
    Node(Box<NodeLine>),
    /// A decision.
    Decision(Box<DecisionLine>),
}

/// The header of a recording.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Header {
    /// [`FORMAT`].
    pub format: String,
    /// [`VERSION`] of the program that wrote the recording.
    pub version: u32,
    /// Name and version of the program that wrote the recording.
    pub program: String,
    /// Start of the recording, milliseconds since the Unix epoch.
    #[serde(rename = "startedAtMs")]
    pub started_at: WallTime,
}

/// The facts of a node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct NodeLine {
    /// Number of the node in this recording, from 0 in the order of first occurrence.
    pub number: u32,
    /// Name of the node.
    pub name: String,
    /// Our labels of the node.
    #[serde(default)]
    pub labels: NodeLabels,
    /// Knowledge of the node's boards.
    #[serde(default)]
    pub knowledge: KnowledgeLine,
    /// The workloads that were moved off the node a moment ago, on the clock of [`Asked::now`].
    #[serde(default, skip_serializing_if = "MovedOff::is_empty")]
    pub moved_off: MovedOff,
    /// Source of the state, for example `stream`, as the recorder names it.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub source: String,
}

/// Knowledge of a node's boards.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum KnowledgeLine {
    /// The node never published a state.
    #[default]
    Absent,
    /// The last published state could not be decoded.
    Unreadable,
    /// The last published state.
    #[serde(rename_all = "camelCase")]
    Known {
        /// Time of the receipt, on the clock of [`Asked::now`].
        #[serde(rename = "receivedAtMs")]
        received_at: MonotonicTime,
        /// Age of the state at its receipt.
        #[serde(rename = "ageThenMs")]
        age_then: Millis,
        /// The state.
        state: Box<NodeState>,
    },
}

/// A decision: the request, its inputs and the answer.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct DecisionLine {
    /// The request.
    #[serde(flatten)]
    pub asked: Asked,
    /// Candidates in the order of the request.
    pub candidates: Vec<CandidateLine>,
    /// Expectations of those candidates that have one.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub expected: Vec<ExpectedLine>,
    /// The free time of all known boards, if the load of some had to be redistributed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub free_time: Option<FreeTime>,
    /// The answer.
    pub answer: RecordedAnswer,
}

/// A request: the verb, the time and the pod.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Asked {
    /// Verb of the request.
    pub verb: Verb,
    /// Time of the request, milliseconds since the Unix epoch.
    #[serde(rename = "atMs")]
    pub at: WallTime,
    /// Time of the request, on the monotonic clock by which ages are counted.
    #[serde(rename = "nowMs")]
    pub now: MonotonicTime,
    /// Namespace of the pod.
    pub namespace: String,
    /// Name of the pod.
    pub pod: String,
    /// UID of the pod.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub uid: String,
    /// UID of the pod's controller.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub owner: Option<String>,
    /// Requirement of the pod.
    pub requirement: Requirement,
}

/// The verb of a request by kube-scheduler.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Verb {
    /// Which candidates fit.
    Filter,
    /// The score of each candidate.
    Prioritize,
    /// On which candidates a preemption would help: those that fit.
    Preempt,
}

/// A candidate of a decision.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum CandidateLine {
    /// Number of a node of this recording.
    Number(u32),
    /// Name of a node that was never seen.
    Name(String),
}

/// The expectation of one candidate. Fractional numbers are texts, so that they are read back exactly.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ExpectedLine {
    /// Index of the candidate.
    pub candidate: u32,
    /// [`Expected::usage`].
    #[serde(rename = "usageMs")]
    pub usage: Millis,
    /// [`Expected::unknown`].
    #[serde(with = "exact")]
    pub unknown: f64,
    /// [`Expected::shown`].
    #[serde(rename = "shownMs")]
    pub shown: Millis,
    /// [`Expected::pods`].
    #[serde(with = "exact")]
    pub pods: f64,
}

/// An answer; candidates are identified by their index in the request.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum RecordedAnswer {
    /// To filter and preempt: the rejected candidates by reason. All others passed.
    Rejected(BTreeMap<Rejection, Vec<u32>>),
    /// To prioritize: the score of each candidate.
    Scores(Vec<u32>),
}

impl Header {
    /// The ranking by which this recording's decisions were made; `None` for an unknown version.
    #[must_use]
    pub fn ranking(&self) -> Option<Ranking> {
        match self.version {
            1 => Some(Ranking::WholeNode),
            VERSION => Some(Ranking::PerSlot),
            _ => None,
        }
    }

    /// The header of a recording that starts at `started_at`.
    #[must_use]
    pub fn new(program: &str, started_at: WallTime) -> Self {
        Self { format: FORMAT.to_owned(), version: VERSION, program: program.to_owned(), started_at }
    }
}

impl ExpectedLine {
    /// The expectation of the candidate with this index.
    #[must_use]
    pub fn new(candidate: u32, expected: &Expected) -> Self {
        let Expected { usage, unknown, shown, pods } = *expected;
        Self { candidate, usage, unknown, shown, pods }
    }

    /// The expectation without the index.
    #[must_use]
    pub fn expected(&self) -> Expected {
        let Self { candidate: _, usage, unknown, shown, pods } = *self;
        Expected { usage, unknown, shown, pods }
    }
}

impl RecordedAnswer {
    /// An answer to filter or preempt.
    #[must_use]
    pub fn of_verdicts(verdicts: &[Result<(), Rejection>]) -> Self {
        let mut rejected: BTreeMap<Rejection, Vec<u32>> = BTreeMap::new();
        for (place, verdict) in (0..).zip(verdicts) {
            if let Err(rejection) = verdict {
                rejected.entry(*rejection).or_default().push(place);
            }
        }
        Self::Rejected(rejected)
    }
}

impl fmt::Display for Verb {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Filter => "filter",
            Self::Prioritize => "prioritize",
            Self::Preempt => "preempt",
        })
    }
}

/// Numbers as the shortest text that is read back exactly: JSON readers differ in the last bit of long numbers.
mod exact {
    use serde::{Deserialize, Deserializer, Serializer, de};

    #[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
    pub(super) fn serialize<S: Serializer>(number: &f64, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(number)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<f64, D::Error> {
        let text = String::deserialize(deserializer)?;
        text.parse().map_err(|_| de::Error::custom(format!("{text:?} is not a number")))
    }
}
