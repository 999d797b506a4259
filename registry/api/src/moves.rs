//! What the registry keeps of its moves: one ConfigMap, which is written before anything is done.
//!
//! The API server refuses a write by somebody who has not read the latest version, so that of two registries one alone
//! can begin a move.

use serde::{Deserialize, Serialize};

/// Name of the ConfigMap, in the registry's namespace.
pub const MOVES_CONFIG_MAP: &str = "fpga-registry-moves";
/// The key of the ConfigMap with [`MoveRecords`] as JSON.
pub const MOVES_KEY: &str = "moves.json";
/// The key of the ConfigMap with the [`HeldMove`]s as JSON.
pub const HELD_KEY: &str = "held.json";
/// Records that are kept beyond those that matter for the bounds on moves.
const KEPT: usize = 64;

/// The moves of the last hours, the oldest first.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct MoveRecords(pub Vec<MoveRecord>);

/// A move, or the suggestion of one.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct MoveRecord {
    /// Moment of the decision, milliseconds since the Unix epoch.
    pub at_ms: u64,
    /// Namespace of the pod and its Deployment.
    pub namespace: String,
    /// Name of the Deployment.
    pub workload: String,
    /// UID of the Deployment.
    pub workload_uid: String,
    /// UID of the pod's controller, which is kept off the node.
    pub controller_uid: String,
    /// Name of the pod.
    pub pod: String,
    /// UID of the pod.
    pub pod_uid: String,
    /// The node that the pod is, or was, on.
    pub node: String,
    /// Kind of the cause, for example `board_lost`.
    pub cause: String,
    /// The cause and what it was weighed against, for people.
    pub reckoning: String,
    /// What became of it.
    pub outcome: MoveOutcome,
    /// What the Deployment had before its number of replicas was raised for the move; none where that is not done.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub before: Option<ReplicasBefore>,
}

/// What a Deployment had before a move whose replacement comes first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ReplicasBefore {
    /// The number of replicas, which the Deployment gets back.
    pub replicas: u32,
    /// Number of Ready pods, with the one to move.
    pub ready: u32,
}

/// A pod that had better be elsewhere, and stays for now.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct HeldMove {
    /// Namespace of the pod.
    pub namespace: String,
    /// Name of the pod.
    pub pod: String,
    /// Its node.
    pub node: String,
    /// Kind of the cause, for example `board_lost`.
    pub cause: String,
    /// Why it stays, for people.
    pub reason: String,
}

/// What became of a move.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum MoveOutcome {
    /// The registry only suggests moves: an event on the Deployment has been, or will be, written.
    Suggested,
    /// The move is decided, and its pod may be evicted already.
    Begun,
    /// The Deployment has one replica more; the pod goes when that is Ready.
    Raised,
    /// The pod is gone or about to go; not all replicas are Ready yet.
    Evicted,
    /// The pod is gone, and for a long time not all replicas have been Ready, for this reason. Nothing more of the
    /// Deployment is moved until they are.
    Stuck(String),
    /// All replicas of the Deployment are Ready again.
    Ended,
    /// The pod was not evicted, for this reason.
    GivenUp(String),
}

impl MoveOutcome {
    /// Whether something remains to be done or to be waited for.
    #[must_use]
    pub const fn is_open(&self) -> bool {
        matches!(self, Self::Begun | Self::Raised | Self::Evicted | Self::Stuck(_))
    }
}

impl MoveRecords {
    /// Drops the oldest records that have ended, until so many are left as are kept or are young enough to matter:
    /// `must_stay` is asked for each.
    pub fn trim(&mut self, must_stay: impl Fn(&MoveRecord) -> bool) {
        let mut surplus = self.0.len().saturating_sub(KEPT);
        self.0.retain(|record| {
            let goes = surplus > 0 && !record.outcome.is_open() && !must_stay(record);
            surplus -= usize::from(goes);
            !goes
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(at_ms: u64, outcome: MoveOutcome) -> MoveRecord {
        let text = || "x".to_owned();
        MoveRecord {
            at_ms,
            namespace: text(),
            workload: text(),
            workload_uid: text(),
            controller_uid: text(),
            pod: text(),
            pod_uid: text(),
            node: text(),
            cause: text(),
            reckoning: text(),
            outcome,
            before: None,
        }
    }

    #[test]
    fn a_record_of_before_replacements_came_first_is_read() {
        let mut written = serde_json::to_value(record(1, MoveOutcome::Begun)).unwrap();
        assert_eq!(written.get("before"), None);
        assert_eq!(serde_json::from_value::<MoveRecord>(written.clone()).unwrap().before, None);
        written["before"] = serde_json::json!({"replicas": 2, "ready": 1});
        let before = Some(ReplicasBefore { replicas: 2, ready: 1 });
        assert_eq!(serde_json::from_value::<MoveRecord>(written).unwrap().before, before);
    }

    #[test]
    fn old_records_go_and_those_that_matter_stay() {
        let open = (0..2).map(|at| record(at, MoveOutcome::Evicted));
        let ended = (2..100).map(|at| record(at, MoveOutcome::Ended));
        let mut records = MoveRecords(open.chain(ended).collect());
        records.trim(|record| record.at_ms == 2);
        let left: Vec<u64> = records.0.iter().map(|record| record.at_ms).collect();
        assert_eq!((left.len(), &left[..4]), (KEPT, &[0, 1, 2, 39][..]));
        let mut all = MoveRecords((0..100).map(|at| record(at, MoveOutcome::Ended)).collect());
        all.trim(|_| true);
        assert_eq!(all.0.len(), 100);
    }

    #[test]
    fn outcomes_are_written_as_names() {
        let text = |outcome: &MoveOutcome| serde_json::to_string(outcome).unwrap();
        assert_eq!(text(&MoveOutcome::Evicted), r#""evicted""#);
        assert_eq!(text(&MoveOutcome::GivenUp("gone".into())), r#"{"givenUp":"gone"}"#);
    }
}
