//! The two decisions of the extender (S-1, S-2), pure: the same candidates at the same time give the same answer, to
//! the extender and to the simulator alike.
//!
//! Nodes are spoken of by their place in the request; who asks knows their names.

#[cfg(test)]
mod tests;

use crate::boards_now::BoardsNow;
use crate::expected_load::{Expected, loads};
use crate::locality::Wanted;
use crate::matching::{Matcher, Rejection, UnlabelledNodes};
use crate::node_facts::NodeFacts;
use crate::per_slot::PerSlot;
use crate::rank::ranks;
use crate::requirement::Requirement;
use crate::score::{MaxScore, PerSignal, Weights};
use crate::signals::BoardsLoad;
use crate::staleness::{Freshness, Knowledge, StalePolicies, StalePolicy};
use crate::units::{Millis, MonotonicTime};
use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;

/// What the administrator chose.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Rules {
    /// How much each signal counts.
    pub weights: Weights,
    /// The end of the score's scale.
    pub max_score: MaxScore,
    /// What nodes without fresh state are worth.
    pub stale: StalePolicies,
    /// What becomes of nodes with neither state nor label.
    pub unlabelled: UnlabelledNodes,
    /// Whether pods that were just placed count before they are measured.
    pub anti_herd: AntiHerd,
}

/// Whether pods that were just placed count towards the load of their node before they are measured.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum AntiHerd {
    /// They do.
    #[default]
    On,
    /// Only what was measured counts, as in the paper (S-2): pods that come at once go to one node.
    Off,
}

/// What of a node's use is compared with that of others.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Ranking {
    /// What each slot of its boards of the asked kind did. Where every node has one board of equal size, that is the paper's
    /// order (S-2).
    #[default]
    PerSlot,
    /// What the whole node did, however many boards it has and of whatever kind: so it was until recordings of version 2.
    WholeNode,
}

/// A text that is no [`AntiHerd`].
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not a setting of anti-herd; write `on` or `off`")]
pub struct InvalidAntiHerd(String);

/// A node of the request; nothing if it was never seen.
pub type Candidate<'a> = Option<&'a NodeFacts>;

/// Per candidate whether it fits, in the order of the request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FilterDecision {
    /// `Err` has the reason.
    pub verdicts: Vec<Result<(), Rejection>>,
}

/// Per candidate its score, in the order of the request.
#[derive(Debug, Clone, PartialEq)]
pub struct ScoreDecision {
    /// With every term that went into it.
    pub nodes: Vec<NodeScore>,
}

/// A node's score and how it came about.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct NodeScore {
    /// What kube-scheduler is told: 0 to [`Rules::max_score`].
    pub score: u32,
    /// Weighted mean of the terms, 0..=1.
    pub mean: f32,
    /// The terms.
    #[serde(flatten)]
    pub terms: PerSignal<Term>,
    /// Whether what is known of the node was fit to be ranked.
    pub freshness: Freshness,
    /// What was measured; nothing if the state is not fresh.
    pub measured: Option<Measured>,
    /// What was expected beyond that; nothing if that was nothing.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub expected: Option<ExpectedShare>,
    /// Whether the score was lowered so that a node without fresh state doesn't look best.
    pub capped: Capped,
}

/// One signal of one node, 0..=1.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize)]
pub struct Term {
    /// The value, higher is better.
    pub value: f32,
    /// Where it comes from.
    pub basis: Basis,
}

/// Where a [`Term`] comes from.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Basis {
    /// From the node's fresh state.
    Measured,
    /// Its weight is 0, and it was not looked at.
    Unweighted,
    /// The policy says one half.
    Neutral,
    /// The policy says nothing.
    #[default]
    Penalised,
}

/// Whether a score was lowered.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Capped {
    /// It was.
    Yes,
    /// It is what the mean makes of it.
    No,
}

/// What the boards of the asked kind did in the window that ends now, and what they had when their state was measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Measured {
    /// Slot time used. It is ranked by slot.
    #[serde(rename = "usageMs")]
    pub usage: Millis,
    /// Time spent reconfiguring. It is ranked by slot.
    #[serde(rename = "reconfigurationMs")]
    pub reconfiguration: Millis,
    /// Their slots.
    pub slots: u32,
    /// Empty slots, waiting tasks.
    #[serde(flatten)]
    pub now: BoardsNow,
    /// How old the state is.
    #[serde(rename = "ageMs")]
    pub age: Millis,
}

/// What a decision adds to the measured usage of a node, for pods that were placed there a moment ago.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ExpectedShare {
    /// Slot time: for pods that nothing is known of, what it takes to cost one rank each among these candidates.
    #[serde(rename = "usageMs")]
    pub usage: Millis,
    /// How many pods; those that are not bound yet count by the chance that they come here.
    pub pods: f32,
}

/// Which of `candidates` have what is asked. What asks for nothing of ours is not brought here: it passes untouched.
#[must_use]
pub fn filter(
    asked: &Requirement,
    candidates: &[Candidate<'_>],
    rules: &Rules,
    now: MonotonicTime,
) -> FilterDecision {
    let matcher = Matcher::of(asked);
    let verdict = |candidate: &Candidate<'_>| match candidate {
        // What boards it has nobody knows: what is valid somewhere only is not valid there.
        None if rules.unlabelled == UnlabelledNodes::Pass
            && !rules.stale.exclude()
            && asked.valid_on.is_empty() =>
        {
            Ok(())
        }
        None => Err(Rejection::UnknownNode),
        Some(node) => {
            matcher.matches(node, rules.unlabelled)?;
            if rules.stale.exclude() && node.knowledge.fresh(now).is_none() {
                return Err(Rejection::NotFresh);
            }
            Ok(())
        }
    };
    FilterDecision { verdicts: candidates.iter().map(verdict).collect() }
}

/// How good each of `candidates` is for what is asked, by what was measured alone. Ranks are among the candidates with
/// fresh state only.
#[must_use]
pub fn prioritize(
    asked: &Requirement,
    candidates: &[Candidate<'_>],
    rules: &Rules,
    now: MonotonicTime,
) -> ScoreDecision {
    prioritize_expecting(asked, candidates, &[], rules, now)
}

/// The same, where pods that were placed a moment ago count towards the usage of their nodes: per candidate what is
/// expected there, or nothing at all.
#[must_use]
pub fn prioritize_expecting(
    asked: &Requirement,
    candidates: &[Candidate<'_>],
    expected: &[Expected],
    rules: &Rules,
    now: MonotonicTime,
) -> ScoreDecision {
    prioritize_ranking(Ranking::PerSlot, asked, candidates, expected, rules, now)
}

/// The same by another ranking than today's, for decisions that were made so.
#[must_use]
pub fn prioritize_ranking(
    ranking: Ranking,
    asked: &Requirement,
    candidates: &[Candidate<'_>],
    expected: &[Expected],
    rules: &Rules,
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
        Some(Measured { usage: load.usage, reconfiguration: load.reconfiguration, slots, now, age })
    };
    let measured: Vec<Option<Measured>> = candidates.iter().map(fresh).collect();
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

/// The ranks of the measured candidates, one candidate after the other.
struct Ranked {
    place: usize,
    usage: Vec<f64>,
    reconfiguration: Vec<f64>,
    free_slots: Option<Vec<f64>>,
    queue: Option<Vec<f64>>,
}

/// What a signal without weight is worth: nothing, to nobody.
const UNWEIGHTED: (f64, Basis) = (0.0, Basis::Unweighted);

impl Ranked {
    fn of(
        ranking: Ranking,
        usage: &[PerSlot],
        measured: &[Option<Measured>],
        weights: PerSignal<f64>,
    ) -> Self {
        fn by(measured: &[Option<Measured>], value: impl Fn(&Measured) -> u64) -> Vec<f64> {
            ranks(&measured.iter().flatten().map(value).collect::<Vec<_>>())
        }
        Self {
            place: 0,
            usage: ranks(&usage.iter().map(|usage| usage.0).collect::<Vec<_>>()),
            reconfiguration: by(measured, |measured| {
                ranking.per_slot(measured.reconfiguration, measured.slots).0
            }),
            // The more slots are free the better: what is missing to the most that there can be is ranked.
            free_slots: (weights.free_slots > 0.0)
                .then(|| by(measured, |measured| u64::from(u32::MAX - measured.now.free_slots))),
            queue: (weights.queue > 0.0).then(|| by(measured, |measured| measured.now.queued.into())),
        }
    }

    /// Those of the next measured candidate; locality and loaded are shares, not ranks, and left open.
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
    /// What is compared of an amount of slot time of so many slots.
    fn per_slot(self, amount: Millis, slots: u32) -> PerSlot {
        match self {
            Self::PerSlot => PerSlot::of(amount, slots),
            // In milliseconds: whatever the unit, it is the same for all.
            Self::WholeNode => PerSlot(amount.0),
        }
    }

    /// The amount of slot time of so many slots of which this is compared.
    fn slot_time(self, compared: PerSlot, slots: u32) -> Millis {
        match self {
            Self::PerSlot => compared.times(slots),
            Self::WholeNode => Millis(compared.0),
        }
    }
}

/// The usage of the measured candidates, raised by what is expected on them.
fn usage_loads(ranking: Ranking, measured: &[Option<Measured>], expected: &[Expected]) -> Vec<PerSlot> {
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
        // The filter excludes; a node that went stale after it must not win.
        StalePolicy::Penalise | StalePolicy::Exclude => (0.0, Basis::Penalised),
    })
}

/// Explanations are kept by the hundred thousand and need no more digits than this.
fn shown(value: f64) -> f32 {
    #[expect(clippy::cast_possible_truncation, reason = "it is small and only shown")]
    let value = value as f32;
    value
}

/// A node without fresh state stays below the best one that has it.
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
