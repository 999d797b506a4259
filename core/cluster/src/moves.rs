//! Which pods are moved off their node (S-11, T-6): who may be moved, and how many of them at a time.
//!
//! A move is an eviction: the workload's controller makes a new pod, and the scheduler places it elsewhere. So a pod is
//! moved only if its workload goes on serving without it, and only if the last move of the workload has ended well. Where
//! the owner wants it, the replacement comes first ([`new_first`]).

mod history;
pub mod new_first;

use fpga_core::units::{Millis, WallTime};
use history::{Hour, last_moves, rested};
use std::collections::BTreeSet;
use std::fmt;

/// The time in which [`MovePolicy::per_hour`] is counted.
pub const HOUR: Millis = Millis::from_secs(3_600);
/// Name of [`Cause::ColdStarts`] in metrics and records.
pub const COLD_STARTS: &str = "cold_starts";
/// Ready replicas that a Deployment needs before a Ready pod of it is moved.
const LEAST_READY: u32 = 2;

/// The bounds on moves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MovePolicy {
    /// Most moves in one decision.
    pub per_interval: usize,
    /// Most moves in any [`HOUR`]. Where several namespaces have pods with boards, a namespace gets a move only while more are
    /// left than it has had: half of them at most.
    pub per_hour: usize,
    /// Least time between two moves of one workload.
    pub cool_down: Millis,
}

/// Why a pod had better be elsewhere. The first is the most urgent.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Cause {
    /// The node plugin could not give the pod a board, for a reason that does not pass.
    NotPrepared,
    /// A board of the pod has been lost for longer than its grace.
    BoardLost {
        /// Id of the board.
        board: String,
        /// Time since the loss was seen.
        since: Millis,
    },
    /// Another pod waits to have a board of the pod reconfigured as a whole, and other boards can take the load.
    BoardWanted {
        /// Id of the board.
        board: String,
    },
    /// There are fewer cold starts with the pod on another board.
    ColdStarts(SavedColdStarts),
}

/// What a move saves, by the gaps between the uses of bitstreams ([`crate::rebalance::expected`]).
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SavedColdStarts {
    /// Id of the pod's board.
    pub board: String,
    /// Cold starts of the board in an hour.
    pub per_hour: u32,
    /// Cold starts fewer in an hour, the mean over the boards that the scheduler may choose.
    pub saved: u32,
    /// The board where most is saved, with its node.
    pub best: String,
    /// What is saved there.
    pub saved_at_best: u32,
}

/// A pod that had better be elsewhere.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Candidate {
    /// UID of the pod.
    pub pod: String,
    /// Namespace of the pod.
    pub namespace: String,
    /// Why the pod had better be elsewhere.
    pub cause: Cause,
    /// Whether the pod serves.
    pub readiness: Readiness,
    /// The workload of the pod.
    pub workload: Workload,
    /// Whether the disruption budgets that select the pod let it go.
    pub disruption: Disruption,
    /// When its replacement comes.
    pub replacement: Replacement,
    /// Whether there is a place for it.
    pub destination: Destination,
}

/// Whether there is a place for a pod that had better be elsewhere.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Destination {
    /// A node with boards would take the pod.
    Somewhere,
    /// No node with boards would take the pod: its replacement would stay Pending.
    Nowhere,
}

/// When the replacement of a moved pod comes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Replacement {
    /// After the pod has gone: its workload makes a new one.
    AfterThePod,
    /// Before the pod goes: the workload has one replica more for a while.
    BeforeThePod(CountOwner),
}

/// Who decides on the number of replicas of a workload.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CountOwner {
    /// Whoever wrote the workload, and nobody else.
    Owner,
    /// The named autoscaler, which would undo a change.
    Autoscaler(String),
}

/// Whether a pod serves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Readiness {
    /// The pod is Ready.
    Ready,
    /// The pod is not Ready: nobody misses it.
    NotReady,
}

/// What made a pod.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Workload {
    /// A Deployment, which replaces its pods one for one.
    Deployment(Deployment),
    /// Anything else, or nothing: such pods are left alone.
    Other {
        /// The kind of the controller, for example `StatefulSet`; `None` for a pod without one.
        kind: Option<String>,
    },
    /// The API server does not tell about it, for this reason.
    Unknown(String),
}

/// A Deployment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Deployment {
    /// Its UID.
    pub uid: String,
    /// Whether its pods are just being replaced.
    pub rollout: Rollout,
    /// Number of Ready pods.
    pub ready: u32,
}

/// Whether the pods of a Deployment are just being replaced by those of another version, or become more or fewer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rollout {
    /// All pods are of one version, and as many as wanted.
    Complete,
    /// Pods of several versions are there, or too many or too few, or the newest version has not been seen by its controller.
    Underway,
}

/// Whether disruption budgets let a pod go.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Disruption {
    /// No budget forbids it.
    Allowed,
    /// The named budget forbids it.
    Forbidden(String),
}

/// An earlier move.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PastMove {
    /// Namespace of the workload.
    pub namespace: String,
    /// UID of the workload.
    pub workload: String,
    /// Moment of the decision. The API server keeps it, so it is of a wall clock; one in the future counts as now.
    pub at: WallTime,
    /// Whether the workload is as it was before.
    pub progress: Progress,
}

/// How far a move has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Progress {
    /// The pod is still there, or its replacement is not Ready.
    Underway,
    /// All replicas are Ready, or the move was given up.
    Ended,
}

/// Why a pod is not moved now.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Held {
    /// The pod is none of a Deployment.
    NoDeployment(Option<String>),
    /// The API server does not tell about the pod's workload, for this reason.
    UnknownWorkload(String),
    /// The Deployment is rolling out, or its number of pods is just changing.
    RollingOut,
    /// Too few of the Deployment's pods are Ready.
    TooFewReady(u32),
    /// The named disruption budget forbids it.
    DisruptionBudget(String),
    /// No node with boards would take the pod.
    NowhereToGo,
    /// The replacement is to come first, and the named autoscaler owns the number of replicas.
    Autoscaled(String),
    /// The last move of the Deployment has not ended.
    MoveUnderway,
    /// The last move of the Deployment was a short time ago; this much of the cool-down is left.
    CoolingDown(Millis),
    /// As many moves as may be in one decision are more urgent.
    IntervalSpent,
    /// The pod's namespace has had as many moves in this hour as are left for all others.
    NamespaceHourSpent,
    /// As many moves as may be in an hour were decided.
    HourSpent,
}

/// What is decided: indexes of the candidates.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct MoveDecision {
    /// The pods to move, the most urgent first.
    pub moves: Vec<usize>,
    /// The pods that stay for now, and why.
    pub held: Vec<(usize, Held)>,
}

impl Cause {
    /// The name in metrics and records.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        match self {
            Self::NotPrepared => "not_prepared",
            Self::BoardLost { .. } => "board_lost",
            Self::BoardWanted { .. } => "board_wanted",
            Self::ColdStarts(_) => COLD_STARTS,
        }
    }
}

impl Held {
    /// The name in metrics and records.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        match self {
            Self::NoDeployment(_) => "no_deployment",
            Self::UnknownWorkload(_) => "unknown_workload",
            Self::RollingOut => "rolling_out",
            Self::TooFewReady(_) => "too_few_ready",
            Self::DisruptionBudget(_) => "disruption_budget",
            Self::NowhereToGo => "nowhere_to_go",
            Self::Autoscaled(_) => "autoscaled",
            Self::MoveUnderway => "move_underway",
            Self::CoolingDown(_) => "cooling_down",
            Self::IntervalSpent => "interval_spent",
            Self::NamespaceHourSpent => "namespace_hour_spent",
            Self::HourSpent => "hour_spent",
        }
    }
}

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotPrepared => f.write_str("the node could not give it a board"),
            Self::BoardLost { board, since } => {
                write!(f, "its board {board} has been lost for {} s", since.0 / 1_000)
            }
            Self::BoardWanted { board } => {
                write!(f, "another pod waits to have its board {board} reconfigured as a whole")
            }
            Self::ColdStarts(SavedColdStarts { board, per_hour, saved, best, saved_at_best }) => write!(
                f,
                "of {per_hour} cold starts per hour on its board {board}, {saved} fewer are to be expected with it \
                 on another board, {saved_at_best} on {best}"
            ),
        }
    }
}

impl fmt::Display for Held {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoDeployment(None) => f.write_str("no controller would replace it"),
            Self::NoDeployment(Some(kind)) => write!(f, "pods of a {kind} are left alone"),
            Self::UnknownWorkload(reason) => {
                write!(f, "the API server does not tell about its workload: {reason}")
            }
            Self::RollingOut => f.write_str("the Deployment is rolling out or being scaled"),
            Self::TooFewReady(ready) => {
                write!(f, "the Deployment has {ready} Ready pods, and {LEAST_READY} are needed")
            }
            Self::DisruptionBudget(name) => write!(f, "the PodDisruptionBudget {name} forbids it"),
            Self::NowhereToGo => f.write_str(
                "no other node has a board for it, or a cordon, taint, nodeSelector, node affinity or an earlier move keeps \
                 it off",
            ),
            Self::Autoscaled(name) => write!(
                f,
                "the replacement is to come first, and the HorizontalPodAutoscaler {name} owns the number of replicas"
            ),
            Self::MoveUnderway => f.write_str("the last move of the Deployment has not ended"),
            Self::CoolingDown(_) => f.write_str("the last move of the Deployment was a short time ago"),
            Self::IntervalSpent => f.write_str("other moves of this interval come first"),
            Self::NamespaceHourSpent => {
                f.write_str("its namespace has had as many moves in this hour as are left for all others")
            }
            Self::HourSpent => f.write_str("as many moves as may be in an hour were decided"),
        }
    }
}

/// Decides which of `candidates` are moved at the moment `now`, the most urgent first, and of each workload one at most.
/// `past` are all moves whose workload or hour may matter, `namespaces` those that have pods with boards.
#[must_use]
pub fn decide(
    candidates: &[Candidate],
    past: &[PastMove],
    namespaces: &BTreeSet<&str>,
    policy: &MovePolicy,
    now: WallTime,
) -> MoveDecision {
    let mut order: Vec<usize> = (0..candidates.len()).collect();
    order.sort_by_key(|index| urgency(&candidates[*index]));
    let mut hour = Hour::of(past, policy, now);
    let last = last_moves(past);
    let mut chosen: BTreeSet<&str> = BTreeSet::new();
    let mut decision = MoveDecision::default();
    for index in order {
        let candidate = &candidates[index];
        let verdict = eligible(candidate).and_then(|deployment| {
            if chosen.contains(deployment) {
                return Err(Held::MoveUnderway);
            }
            rested(last.get(deployment).copied(), policy, now)?;
            if candidate.destination == Destination::Nowhere {
                return Err(Held::NowhereToGo);
            }
            hour.has_left(&candidate.namespace, namespaces)?;
            if decision.moves.len() < policy.per_interval { Ok(deployment) } else { Err(Held::IntervalSpent) }
        });
        match verdict {
            Ok(deployment) => {
                chosen.insert(deployment);
                hour.spend(&candidate.namespace);
                decision.moves.push(index);
            }
            Err(held) => decision.held.push((index, held)),
        }
    }
    decision
}

/// The order of candidates: by cause, of lost boards the one that was lost first, of cold starts where most are saved,
/// then by the pod's UID.
fn urgency(candidate: &Candidate) -> (u8, std::cmp::Reverse<u64>, &str) {
    let (cause, within) = match &candidate.cause {
        Cause::NotPrepared => (0, 0),
        Cause::BoardLost { since, .. } => (1, since.0),
        Cause::BoardWanted { .. } => (2, 0),
        Cause::ColdStarts(SavedColdStarts { saved, .. }) => (3, u64::from(*saved)),
    };
    (cause, std::cmp::Reverse(within), &candidate.pod)
}

/// The UID of the candidate's Deployment, if its pods may be moved at all.
fn eligible(candidate: &Candidate) -> Result<&str, Held> {
    let deployment = match &candidate.workload {
        Workload::Deployment(deployment) => deployment,
        Workload::Other { kind } => return Err(Held::NoDeployment(kind.clone())),
        Workload::Unknown(reason) => return Err(Held::UnknownWorkload(reason.clone())),
    };
    if deployment.rollout == Rollout::Underway {
        return Err(Held::RollingOut);
    }
    match &candidate.replacement {
        Replacement::BeforeThePod(CountOwner::Owner) => {}
        Replacement::BeforeThePod(CountOwner::Autoscaler(name)) => {
            return Err(Held::Autoscaled(name.clone()));
        }
        Replacement::AfterThePod => {
            if candidate.readiness == Readiness::Ready && deployment.ready < LEAST_READY {
                return Err(Held::TooFewReady(deployment.ready));
            }
        }
    }
    match &candidate.disruption {
        Disruption::Allowed => Ok(&deployment.uid),
        Disruption::Forbidden(budget) => Err(Held::DisruptionBudget(budget.clone())),
    }
}

#[cfg(test)]
mod tests;
