//! The lines of a recording.

use crate::decide::{Ranking, Rules};
use crate::expected_load::Expected;
use crate::matching::Rejection;
use crate::node_labels::NodeLabels;
use crate::node_state::NodeState;
use crate::requirement::Requirement;
use crate::units::{Millis, MonotonicTime, WallTime};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt;

/// What [`Header::format`] says.
pub const FORMAT: &str = "kube-fpga-record";
/// The version that is written. Version 1 is read, too: its decisions were made by [`Ranking::WholeNode`].
pub const VERSION: u32 = 2;

/// One line.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Line {
    /// The first one. What was said before is forgotten.
    Header(Header),
    /// What the administrator chose, from here on.
    Rules(Box<Rules>),
    /// What is known of a node, from here on.
    Node(Box<NodeLine>),
    /// A decision.
    Decision(Box<DecisionLine>),
}

/// What a recording is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Header {
    /// [`FORMAT`].
    pub format: String,
    /// [`VERSION`] when it was written.
    pub version: u32,
    /// Who wrote it, with its version.
    pub program: String,
    /// When, milliseconds since the epoch.
    #[serde(rename = "startedAtMs")]
    pub started_at: WallTime,
}

/// What is known of a node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct NodeLine {
    /// Its number in this recording: 0 for the first one, one more for each that is new.
    pub number: u32,
    /// Its name.
    pub name: String,
    /// Our labels.
    #[serde(default)]
    pub labels: NodeLabels,
    /// What is known of its boards.
    #[serde(default)]
    pub knowledge: KnowledgeLine,
    /// What brought the state, in the words of who recorded it.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub source: String,
}

/// What is known of a node's boards.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum KnowledgeLine {
    /// It never said anything.
    #[default]
    Absent,
    /// What it said can't be read.
    Unreadable,
    /// Its last word.
    #[serde(rename_all = "camelCase")]
    Known {
        /// When it came, on the clock of [`DecisionLine::now`].
        #[serde(rename = "receivedAtMs")]
        received_at: MonotonicTime,
        /// How old it was then.
        #[serde(rename = "ageThenMs")]
        age_then: Millis,
        /// What it said.
        state: Box<NodeState>,
    },
}

/// A decision: what was asked and what was answered.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct DecisionLine {
    /// What was asked, for whom and when.
    #[serde(flatten)]
    pub asked: Asked,
    /// The candidates in the order of the request.
    pub candidates: Vec<CandidateLine>,
    /// What was expected on them beyond their measurements, where that was anything.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub expected: Vec<ExpectedLine>,
    /// What was answered.
    pub answer: Answer,
}

/// What was asked, for whom and when.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Asked {
    /// By which verb.
    pub verb: Verb,
    /// When, milliseconds since the epoch.
    #[serde(rename = "atMs")]
    pub at: WallTime,
    /// When, on the clock by which ages are counted.
    #[serde(rename = "nowMs")]
    pub now: MonotonicTime,
    /// The pod's namespace.
    pub namespace: String,
    /// Its name.
    pub pod: String,
    /// Its UID.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub uid: String,
    /// UID of its controller.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub owner: Option<String>,
    /// What it asks of a board.
    pub requirement: Requirement,
}

/// What kube-scheduler asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Verb {
    /// Which nodes fit.
    Filter,
    /// How good each is.
    Prioritize,
    /// On which nodes evicting pods would help: those that fit.
    Preempt,
}

/// A candidate.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum CandidateLine {
    /// A node of this recording.
    Number(u32),
    /// One that was never seen.
    Name(String),
}

/// What was expected on one candidate. Numbers with a fraction are texts: they come back to the last bit.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ExpectedLine {
    /// Which of the candidates.
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

/// What was answered, by the place of the candidates in the request.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Answer {
    /// To filter and preempt: who was rejected and why; everybody else passed.
    Rejected(BTreeMap<Rejection, Vec<u32>>),
    /// To prioritize: the score of each.
    Scores(Vec<u32>),
}

impl Header {
    /// How the decisions of this recording compared nodes; nothing if its version is not understood.
    #[must_use]
    pub fn ranking(&self) -> Option<Ranking> {
        match self.version {
            1 => Some(Ranking::WholeNode),
            VERSION => Some(Ranking::PerSlot),
            _ => None,
        }
    }

    /// That of a recording which begins now.
    #[must_use]
    pub fn new(program: &str, started_at: WallTime) -> Self {
        Self { format: FORMAT.to_owned(), version: VERSION, program: program.to_owned(), started_at }
    }
}

impl ExpectedLine {
    /// What was expected on the candidate of this place.
    #[must_use]
    pub fn new(candidate: u32, expected: &Expected) -> Self {
        let Expected { usage, unknown, shown, pods } = *expected;
        Self { candidate, usage, unknown, shown, pods }
    }

    /// The same, without its place.
    #[must_use]
    pub fn expected(&self) -> Expected {
        let Self { candidate: _, usage, unknown, shown, pods } = *self;
        Expected { usage, unknown, shown, pods }
    }
}

impl Answer {
    /// The answer to filter and preempt.
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

/// Numbers as the shortest text that means them: JSON readers differ in the last bit of long ones.
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
