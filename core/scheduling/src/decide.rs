//! The two decisions of the extender, filter (S-1) and prioritize (S-2). Both are pure functions: the extender and the
//! simulator get the same answer for the same candidates and the same time.
//!
//! A candidate is identified by its index in the request; the caller knows the names.

mod scores;
#[cfg(test)]
mod tests;

pub use scores::{ScoreDecision, prioritize, prioritize_expecting, prioritize_ranking};

use crate::boards_now::BoardsNow;
use crate::matching::{Fit, Matcher, Rejection, UnlabelledNodes, is_kept_off};
use crate::node_facts::KnownNode;
use crate::redistribution::FreeTime;
use crate::requirement::Requirement;
use crate::score::{MaxScore, PerSignal, Weights};
use crate::staleness::{Freshness, StalePolicies};
use crate::units::{Millis, MonotonicTime};
use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;

/// The administrator's settings for filter and prioritize.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct DecisionRules {
    /// Weight of each signal.
    pub weights: Weights,
    /// Greatest score.
    pub max_score: MaxScore,
    /// Value of each signal of a node without fresh state.
    pub stale: StalePolicies,
    /// Whether nodes with neither state nor label pass the filter.
    pub unlabelled: UnlabelledNodes,
    /// Whether pods that were just placed count before any measurement shows them.
    pub anti_herd: AntiHerd,
}

/// Whether pods that were just placed count towards the load of their node before any measurement shows them.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum AntiHerd {
    /// Pods count from the decision on.
    #[default]
    On,
    /// Only measured usage counts, as in the paper (S-2). Pods that arrive at the same time then go to one node.
    Off,
}

/// The quantity by which nodes are compared.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Ranking {
    /// Usage per slot of the boards of the requested kind. The order is the paper's (S-2) where every node has one
    /// board of equal size.
    #[default]
    PerSlot,
    /// Usage of the whole node, whatever its boards. Recordings of version 1 were made by it.
    WholeNode,
}

/// The text is not an [`AntiHerd`].
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not a setting of anti-herd; write `on` or `off`")]
pub struct InvalidAntiHerd(String);

/// A node of the request; `None` if the caller has never seen it.
pub type Candidate<'a> = Option<KnownNode<'a>>;

/// The answer to filter.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FilterDecision {
    /// For each candidate, in the order of the request, whether it fits; `Err` has the reason.
    pub verdicts: Vec<Result<(), Rejection>>,
    /// The free time of all known boards, if load had to be redistributed among them.
    pub free_time: Option<FreeTime>,
}

/// A node's score and all terms that went into it.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct NodeScore {
    /// The score that kube-scheduler gets, 0 to [`DecisionRules::max_score`].
    pub score: u32,
    /// Weighted mean of the terms, 0 to 1.
    pub mean: f32,
    /// The value of each signal.
    #[serde(flatten)]
    pub terms: PerSignal<Term>,
    /// Whether the node's state was fresh enough to be ranked.
    pub freshness: Freshness,
    /// Measured values; `None` if the state is not fresh.
    pub measured: Option<MeasuredBoards>,
    /// Usage expected beyond the measured one; `None` if no pod is expected.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub expected: Option<ExpectedShare>,
    /// Whether the score was lowered so that a node without fresh state doesn't look best.
    pub capped: Capped,
}

/// One signal of one node.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize)]
pub struct Term {
    /// Value of the signal, 0 to 1; greater is better.
    pub value: f32,
    /// Origin of the value.
    pub basis: Basis,
}

/// The origin of a [`Term`]'s value.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Basis {
    /// The node's fresh state.
    Measured,
    /// None: the weight of the signal is 0 and the signal was not evaluated.
    Unweighted,
    /// The stale policy `neutral`: 0.5.
    Neutral,
    /// The stale policies `penalise` and `exclude`: 0.
    #[default]
    Penalised,
}

/// Whether a score was lowered so that a node without fresh state does not look best.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Capped {
    /// The score was lowered.
    Yes,
    /// The score follows from the mean alone.
    No,
}

/// Measured values of the boards of the requested kind: usage in the window that ends now, and slots and queue at the
/// time of the measurement.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct MeasuredBoards {
    /// Slot time used. Ranks compare it per slot.
    #[serde(rename = "usageMs")]
    pub usage: Millis,
    /// Time spent reconfiguring. Ranks compare it per slot.
    #[serde(rename = "reconfigurationMs")]
    pub reconfiguration: Millis,
    /// Number of slots of these boards.
    pub slots: u32,
    /// Empty slots and waiting tasks.
    #[serde(flatten)]
    pub now: BoardsNow,
    /// Age of the state.
    #[serde(rename = "ageMs")]
    pub age: Millis,
}

/// The usage that a decision adds to the measured one, for pods that were placed on the node a moment ago.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ExpectedShare {
    /// Slot time. A pod whose usage cannot be predicted adds as much as costs one rank among these candidates.
    #[serde(rename = "usageMs")]
    pub usage: Millis,
    /// Number of pods. A pod that is not bound yet counts by the probability that it is bound to this node.
    pub pods: f32,
}

/// Decides which of `candidates` meet the requirement `asked`.
#[must_use]
pub fn filter(
    asked: &Requirement,
    candidates: &[Candidate<'_>],
    rules: &DecisionRules,
    now: MonotonicTime,
) -> FilterDecision {
    filter_for(None, asked, candidates, rules, now)
}

/// Decides which of `candidates` meet the requirement `asked` of a pod of this
/// [`controller`](crate::node_state::controller). A node whose plugin could not serve pods of that controller is
/// rejected, and so is one that a pod of that controller was moved off a moment ago.
/// The load of boards is [redistributed](crate::redistribution) among the boards of the candidates.
#[must_use]
pub fn filter_for(
    controller: Option<&str>,
    asked: &Requirement,
    candidates: &[Candidate<'_>],
    rules: &DecisionRules,
    now: MonotonicTime,
) -> FilterDecision {
    let states = || candidates.iter().flatten().filter_map(|node| node.facts.knowledge.state());
    filter_among(controller, asked, candidates, || FreeTime::of(states()), rules, now)
}

/// As [`filter_for`], where more nodes than the candidates are known: `free_time` is called if load would have to be
/// redistributed among them.
#[must_use]
pub fn filter_among(
    controller: Option<&str>,
    asked: &Requirement,
    candidates: &[Candidate<'_>],
    free_time: impl FnOnce() -> FreeTime,
    rules: &DecisionRules,
    now: MonotonicTime,
) -> FilterDecision {
    let (matcher, excludes) = (Matcher::of(asked), rules.stale.exclude());
    let fit = |candidate: &Candidate<'_>| match candidate {
        // The boards of the node are unknown, so a bitstream that is valid on some boards only is not valid here.
        None if rules.unlabelled == UnlabelledNodes::Pass && !excludes && asked.valid_on.is_empty() => {
            Ok(Fit::Free)
        }
        None => Err(Rejection::UnknownNode),
        Some(node) => {
            let fit = matcher.fit(*node, rules.unlabelled)?;
            if controller.is_some_and(|controller| is_kept_off(*node, controller)) {
                return Err(Rejection::KeptOff);
            }
            if node.has_moved_off
                && controller.is_some_and(|controller| node.facts.moved_off.has(controller, now))
            {
                return Err(Rejection::MovedOff);
            }
            if excludes && node.fresh(now).is_none() {
                return Err(Rejection::NotFresh);
            }
            Ok(fit)
        }
    };
    let fits: Vec<Result<Fit, Rejection>> = candidates.iter().map(fit).collect();
    if !fits.contains(&Ok(Fit::TakesFromOthers)) {
        let verdicts = fits.into_iter().map(|fit| fit.map(drop)).collect();
        return FilterDecision { verdicts, free_time: None };
    }
    // Nodes that kube-scheduler has ruled out are no candidates: a bitstream that is there helps the pod nothing.
    let fitting = candidates.iter().zip(&fits).filter(|(_, fit)| fit.is_ok());
    let mut fitting = fitting.filter_map(|(node, _)| *node);
    let is_loaded_elsewhere = fitting.any(|node| matcher.has_bitstreams(node.facts));
    let free_time = (!is_loaded_elsewhere).then(free_time);
    let verdict = |(node, fit): (&Candidate<'_>, Result<Fit, Rejection>)| match (fit?, node, &free_time) {
        (Fit::TakesFromOthers, _, None) => Err(Rejection::LoadedElsewhere),
        (Fit::TakesFromOthers, Some(node), Some(free_time)) if !matcher.can_take(node.facts, free_time) => {
            Err(Rejection::NotRedistributable)
        }
        _ => Ok(()),
    };
    FilterDecision { verdicts: candidates.iter().zip(fits).map(verdict).collect(), free_time }
}

impl FromStr for AntiHerd {
    type Err = InvalidAntiHerd;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text {
            "on" => Ok(Self::On),
            "off" => Ok(Self::Off),
            _ => Err(InvalidAntiHerd(text.to_owned())),
        }
    }
}

impl fmt::Display for AntiHerd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::On => "on",
            Self::Off => "off",
        })
    }
}
