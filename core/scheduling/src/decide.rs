//! The two decisions of the extender, filter (S-1) and prioritize (S-2). Both are pure functions: the extender and the
//! simulator get the same answer for the same candidates and the same time.
//!
//! A candidate is identified by its index in the request; the caller knows the names.

#[cfg(test)]
mod tests;

use crate::boards_now::BoardsNow;
use crate::expected_load::{Expected, loads};
use crate::locality::Wanted;
use crate::matching::{Fit, Matcher, Rejection, UnlabelledNodes, is_kept_off};
use crate::node_facts::NodeFacts;
use crate::per_slot::PerSlot;
use crate::rank::ranks;
use crate::redistribution::FreeTime;
use crate::requirement::Requirement;
use crate::score::{MaxScore, PerSignal, Weights};
use crate::signals::BoardsLoad;
use crate::staleness::{Freshness, Knowledge, StalePolicies, StalePolicy};
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
pub type Candidate<'a> = Option<&'a NodeFacts>;

/// The answer to filter.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FilterDecision {
    /// For each candidate, in the order of the request, whether it fits; `Err` has the reason.
    pub verdicts: Vec<Result<(), Rejection>>,
    /// The free time of all known boards, if load had to be redistributed among them.
    pub free_time: Option<FreeTime>,
}

/// The answer to prioritize.
#[derive(Debug, Clone, PartialEq)]
pub struct ScoreDecision {
    /// The score of each candidate, in the order of the request.
    pub nodes: Vec<NodeScore>,
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
    let states = || candidates.iter().flatten().filter_map(|node| node.knowledge.state());
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
    let matcher = Matcher::of(asked);
    let fit = |candidate: &Candidate<'_>| match candidate {
        // The boards of the node are unknown, so a bitstream that is valid on some boards only is not valid here.
        None if rules.unlabelled == UnlabelledNodes::Pass
            && !rules.stale.exclude()
            && asked.valid_on.is_empty() =>
        {
            Ok(Fit::Free)
        }
        None => Err(Rejection::UnknownNode),
        Some(node) => {
            let fit = matcher.fit(node, rules.unlabelled)?;
            if controller.is_some_and(|controller| is_kept_off(node, controller)) {
                return Err(Rejection::KeptOff);
            }
            if controller.is_some_and(|controller| node.moved_off.has(controller, now)) {
                return Err(Rejection::MovedOff);
            }
            if rules.stale.exclude() && node.knowledge.fresh(now).is_none() {
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
    let is_loaded_elsewhere = fitting.any(|node| matcher.has_bitstreams(node));
    let free_time = (!is_loaded_elsewhere).then(free_time);
    let verdict = |(node, fit): (&Candidate<'_>, Result<Fit, Rejection>)| match (fit?, node, &free_time) {
        (Fit::TakesFromOthers, _, None) => Err(Rejection::LoadedElsewhere),
        (Fit::TakesFromOthers, Some(node), Some(free_time)) if !matcher.can_take(node, free_time) => {
            Err(Rejection::NotRedistributable)
        }
        _ => Ok(()),
    };
    FilterDecision { verdicts: candidates.iter().zip(fits).map(verdict).collect(), free_time }
}

/// Scores `candidates` by measured values alone. Only candidates with fresh state are ranked.
#[must_use]
pub fn prioritize(
    asked: &Requirement,
    candidates: &[Candidate<'_>],
    rules: &DecisionRules,
    now: MonotonicTime,
) -> ScoreDecision {
    prioritize_expecting(asked, candidates, &[], rules, now)
}

/// Scores `candidates` by measured values and by the usage that is expected of pods placed a moment ago. `expected`
/// has one entry per candidate, or none at all.
#[must_use]
pub fn prioritize_expecting(
    asked: &Requirement,
    candidates: &[Candidate<'_>],
    expected: &[Expected],
    rules: &DecisionRules,
    now: MonotonicTime,
) -> ScoreDecision {
    prioritize_ranking(Ranking::PerSlot, asked, candidates, expected, rules, now)
}

/// Like [`prioritize_expecting`], by the given ranking: replays of older recordings need [`Ranking::WholeNode`].
#[must_use]
pub fn prioritize_ranking(
    ranking: Ranking,
    asked: &Requirement,
    candidates: &[Candidate<'_>],
    expected: &[Expected],
    rules: &DecisionRules,
    now: MonotonicTime,
) -> ScoreDecision {
    let wanted = Wanted::by(asked);
    let fresh = |candidate: &Candidate<'_>| {
        let received = (*candidate)?.knowledge.fresh(now)?;
        let age = received.age(now);
        let BoardsLoad { mut load, slots, now } = wanted.load_on(received, age);
        if ranking == Ranking::WholeNode {
            load = received.signals().load_at(age);
        }
        Some(MeasuredBoards { usage: load.usage, reconfiguration: load.reconfiguration, slots, now, age })
    };
    let measured: Vec<Option<MeasuredBoards>> = candidates.iter().map(fresh).collect();
    let usage = usage_loads(ranking, &measured, expected);
    let mut ranked = Ranked::of(ranking, &usage, &measured, rules.weights.per_signal());
    let mut usage = usage.into_iter();
    let loaded_counts = rules.weights.per_signal().loaded > 0.0;

    let mut nodes: Vec<NodeScore> = Vec::with_capacity(candidates.len());
    for (index, (candidate, measured)) in candidates.iter().zip(&measured).enumerate() {
        let knowledge = candidate.map(|node| &node.knowledge);
        let values = match (knowledge, measured) {
            (Some(Knowledge::Known(received)), Some(measured)) => PerSignal {
                locality: (wanted.share_on(received, measured.age), Basis::Measured),
                loaded: match loaded_counts {
                    true => (wanted.loaded_share_on(received), Basis::Measured),
                    false => UNWEIGHTED,
                },
                ..ranked.next()
            },
            _ => unranked(rules.stale),
        };
        let mean = rules.weights.mean(values.map(|(value, _)| value));
        nodes.push(NodeScore {
            score: rules.max_score.score(mean),
            mean: shown(mean),
            terms: values.map(|(value, basis)| Term { value: shown(value), basis }),
            freshness: knowledge.map_or(Freshness::Absent, |knowledge| knowledge.freshness(now)),
            measured: *measured,
            expected: measured.and_then(|measured| {
                let usage = ranking.slot_time(usage.next()?, measured.slots) - measured.usage;
                let pods = expected.get(index).map_or(0.0, |expected| shown(expected.pods));
                (pods > 0.0).then_some(ExpectedShare { usage, pods })
            }),
            capped: Capped::No,
        });
    }
    cap_unranked(&mut nodes);
    ScoreDecision { nodes }
}

/// The ranks of the candidates with fresh state, as an iterator over these candidates.
struct Ranked {
    place: usize,
    usage: Vec<f64>,
    reconfiguration: Vec<f64>,
    free_slots: Option<Vec<f64>>,
    queue: Option<Vec<f64>>,
}

/// The term of a signal whose weight is 0.
const UNWEIGHTED: (f64, Basis) = (0.0, Basis::Unweighted);

impl Ranked {
    fn of(
        ranking: Ranking,
        usage: &[PerSlot],
        measured: &[Option<MeasuredBoards>],
        weights: PerSignal<f64>,
    ) -> Self {
        fn by(measured: &[Option<MeasuredBoards>], value: impl Fn(&MeasuredBoards) -> u64) -> Vec<f64> {
            ranks(&measured.iter().flatten().map(value).collect::<Vec<_>>())
        }
        Self {
            place: 0,
            usage: ranks(&usage.iter().map(|usage| usage.0).collect::<Vec<_>>()),
            reconfiguration: by(measured, |measured| {
                ranking.per_slot(measured.reconfiguration, measured.slots).0
            }),
            // More free slots are better, but `ranks` puts the least value first: rank the complement.
            free_slots: (weights.free_slots > 0.0)
                .then(|| by(measured, |measured| u64::from(u32::MAX - measured.now.free_slots))),
            queue: (weights.queue > 0.0).then(|| by(measured, |measured| measured.now.queued.into())),
        }
    }

    /// The ranks of the next candidate. Locality and loaded are shares, not ranks; the caller fills them in.
    fn next(&mut self) -> PerSignal<(f64, Basis)> {
        let place = self.place;
        self.place += 1;
        let at = |ranks: &[f64]| (ranks.get(place).copied().unwrap_or_default(), Basis::Measured);
        let if_weighted = |ranks: &Option<Vec<f64>>| ranks.as_deref().map_or(UNWEIGHTED, at);
        PerSignal {
            locality: UNWEIGHTED,
            usage: at(&self.usage),
            reconfiguration: at(&self.reconfiguration),
            free_slots: if_weighted(&self.free_slots),
            queue: if_weighted(&self.queue),
            loaded: UNWEIGHTED,
        }
    }
}

impl Ranking {
    /// The value that is compared, for `amount` of slot time on `slots` slots.
    fn per_slot(self, amount: Millis, slots: u32) -> PerSlot {
        match self {
            Self::PerSlot => PerSlot::of(amount, slots),
            // Milliseconds instead of microseconds per slot: only the order counts, and all nodes have the same unit.
            Self::WholeNode => PerSlot(amount.0),
        }
    }

    /// The inverse of [`Self::per_slot`].
    fn slot_time(self, compared: PerSlot, slots: u32) -> Millis {
        match self {
            Self::PerSlot => compared.times(slots),
            Self::WholeNode => Millis(compared.0),
        }
    }
}

/// The usage of the candidates with fresh state, raised by what is expected on each.
fn usage_loads(ranking: Ranking, measured: &[Option<MeasuredBoards>], expected: &[Expected]) -> Vec<PerSlot> {
    let usage: Vec<PerSlot> =
        measured.iter().flatten().map(|measured| ranking.per_slot(measured.usage, measured.slots)).collect();
    if expected.is_empty() {
        return usage;
    }
    let of_measured = measured.iter().zip(expected).filter_map(|(measured, expected)| {
        let slots = measured.as_ref()?.slots;
        Some(expected.per_slot(|amount| ranking.per_slot(amount, slots)))
    });
    loads(&usage, &of_measured.collect::<Vec<_>>())
}

fn unranked(policies: StalePolicies) -> PerSignal<(f64, Basis)> {
    policies.map(|policy| match policy {
        StalePolicy::Neutral => (0.5, Basis::Neutral),
        // The filter rejects with `exclude`; a node whose state became stale after the filter must not win.
        StalePolicy::Penalise | StalePolicy::Exclude => (0.0, Basis::Penalised),
    })
}

/// Rounds a value for an explanation: explanations are kept by the hundred thousand and need no more digits.
fn shown(value: f64) -> f32 {
    #[expect(clippy::cast_possible_truncation, reason = "it is small and only shown")]
    let value = value as f32;
    value
}

/// Lowers the score of every node without fresh state below the best score of a node with fresh state.
fn cap_unranked(nodes: &mut [NodeScore]) {
    let Some(best) = nodes.iter().filter(|node| node.measured.is_some()).map(|node| node.score).max() else {
        return;
    };
    let cap = best.saturating_sub(1);
    for node in nodes.iter_mut().filter(|node| node.measured.is_none() && node.score > cap) {
        node.score = cap;
        node.capped = Capped::Yes;
    }
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
