//! Prioritize (S-2): ranks the candidates with fresh state by each signal, and scores them by the weighted mean.

use super::{
    Basis, Candidate, Capped, DecisionRules, ExpectedShare, MeasuredBoards, NodeScore, Ranking, Term,
};
use crate::expected_load::{Expected, loads};
use crate::locality::Wanted;
use crate::per_slot::PerSlot;
use crate::rank::ranks;
use crate::requirement::Requirement;
use crate::score::PerSignal;
use crate::signals::BoardsLoad;
use crate::staleness::{Freshness, StalePolicies, StalePolicy};
use crate::units::{Millis, MonotonicTime};

/// The answer to prioritize: the scores, and what they follow from. The terms of each score are computed when someone
/// asks for them, since kube-scheduler waits for the scores alone.
#[derive(Debug, Clone, PartialEq)]
pub struct ScoreDecision {
    rules: DecisionRules,
    ranking: Ranking,
    scores: Vec<u32>,
    freshness: Vec<Freshness>,
    /// The candidates with fresh state, in the order of the request.
    fresh: Vec<FreshNode>,
}

/// A candidate with fresh state.
#[derive(Debug, Clone, Copy, PartialEq)]
struct FreshNode {
    measured: MeasuredBoards,
    /// The usage by which it is ranked: the measured one, raised by what is expected.
    usage: PerSlot,
    locality: f64,
    /// 0 if the signal has no weight.
    loaded: f64,
    /// Number of pods that are expected to add usage.
    pods: f32,
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
    let loaded_counts = rules.weights.per_signal().loaded > 0.0;
    let mut freshness = Vec::with_capacity(candidates.len());
    let mut fresh = Vec::with_capacity(candidates.len());
    let mut costs_ranks = false;
    for (index, candidate) in candidates.iter().enumerate() {
        let Some(brief) = candidate.and_then(|node| node.fresh(now)) else {
            freshness.push(candidate.map_or(Freshness::Absent, |node| node.freshness(now)));
            continue;
        };
        freshness.push(Freshness::Fresh);
        let age = brief.age(now);
        let BoardsLoad { mut load, slots, now } = wanted.load_on(brief, age);
        if ranking == Ranking::WholeNode {
            load = brief.signals().load_at(age);
        }
        let measured =
            MeasuredBoards { usage: load.usage, reconfiguration: load.reconfiguration, slots, now, age };
        let expected = expected.get(index).copied().unwrap_or_default();
        costs_ranks |= expected.costs_ranks();
        fresh.push(FreshNode {
            measured,
            usage: ranking.per_slot(measured.usage, slots) + ranking.per_slot(expected.usage, slots),
            locality: wanted.share_on(brief, age),
            loaded: if loaded_counts { wanted.loaded_share_on(brief) } else { 0.0 },
            pods: shown(expected.pods),
        });
    }
    if costs_ranks {
        let of_fresh = expected.iter().zip(&freshness).filter(|(_, is)| **is == Freshness::Fresh);
        cost_ranks(ranking, &mut fresh, of_fresh.map(|(expected, _)| expected));
    }
    let mean = rules.weights.ready();
    let mut decision = ScoreDecision { rules: *rules, ranking, scores: Vec::new(), freshness, fresh };
    decision.scores = decision.values().map(|values| rules.max_score.score(mean.of(values))).collect();
    if let Some(cap) = decision.cap() {
        let of_others = decision.scores.iter_mut().zip(&decision.freshness);
        of_others
            .filter(|(_, freshness)| **freshness != Freshness::Fresh)
            .for_each(|(score, _)| *score = cap.min(*score));
    }
    decision
}

/// Adds the expected usage of pods without a known mean, which depends on the usage of all nodes.
fn cost_ranks<'e>(ranking: Ranking, fresh: &mut [FreshNode], expected: impl Iterator<Item = &'e Expected>) {
    let per_slot = |node: &FreshNode, amount| ranking.per_slot(amount, node.measured.slots);
    let measured: Vec<PerSlot> = fresh.iter().map(|node| per_slot(node, node.measured.usage)).collect();
    let expected = expected.zip(&*fresh);
    let expected: Vec<_> =
        expected.map(|(expected, node)| expected.per_slot(|amount| per_slot(node, amount))).collect();
    for (node, load) in fresh.iter_mut().zip(loads(&measured, &expected)) {
        node.usage = load;
    }
}

impl ScoreDecision {
    /// The score of each candidate, in the order of the request.
    #[must_use]
    pub fn scores(&self) -> &[u32] {
        &self.scores
    }

    /// The indexes of the candidates with fresh state and the greatest score of all.
    pub fn best(&self) -> impl Iterator<Item = usize> {
        let greatest = self.scores.iter().max();
        let all = self.scores.iter().zip(&self.freshness).enumerate();
        let best = all.filter(move |(_, (score, freshness))| {
            Some(*score) == greatest && **freshness == Freshness::Fresh
        });
        best.map(|(index, _)| index)
    }

    /// The score of each candidate with all terms, in the order of the request.
    #[must_use]
    pub fn nodes(&self) -> Vec<NodeScore> {
        let mut fresh = self.fresh.iter();
        let mut nodes = Vec::with_capacity(self.scores.len());
        let (mean, measured, other) = (self.rules.weights.ready(), self.bases(), unranked(self.rules.stale));
        for (values, (score, freshness)) in self.values().zip(self.scores.iter().zip(&self.freshness)) {
            let node = if *freshness == Freshness::Fresh { fresh.next() } else { None };
            let bases = if node.is_some() { measured } else { other.map(|(_, basis)| basis) };
            let mean = mean.of(values);
            nodes.push(NodeScore {
                score: *score,
                mean: shown(mean),
                terms: values.zip(bases).map(|(value, basis)| Term { value: shown(value), basis }),
                freshness: *freshness,
                measured: node.map(|node| node.measured),
                expected: node.and_then(|node| self.expected(node)),
                capped: if *score < self.rules.max_score.score(mean) { Capped::Yes } else { Capped::No },
            });
        }
        nodes
    }

    /// Number of bytes that the decision takes beside itself.
    #[must_use]
    pub fn bytes(&self) -> usize {
        size_of_val(&*self.scores) + size_of_val(&*self.freshness) + size_of_val(&*self.fresh)
    }

    /// The values of each candidate.
    fn values(&self) -> impl Iterator<Item = PerSignal<f64>> {
        let unranked = unranked(self.rules.stale).map(|(value, _)| value);
        let ranks = Ranks::of(self);
        let mut place = 0;
        self.freshness.iter().map(move |freshness| match freshness {
            Freshness::Fresh => {
                place += 1;
                ranks.at(place - 1)
            }
            Freshness::Stale | Freshness::Absent | Freshness::Unreadable => unranked,
        })
    }

    /// The origin of the values of candidates with fresh state.
    fn bases(&self) -> PerSignal<Basis> {
        let weights = self.rules.weights.per_signal();
        let if_weighted = |weight: f64| if weight > 0.0 { Basis::Measured } else { Basis::Unweighted };
        PerSignal {
            locality: Basis::Measured,
            usage: Basis::Measured,
            reconfiguration: Basis::Measured,
            free_slots: if_weighted(weights.free_slots),
            queue: if_weighted(weights.queue),
            loaded: if_weighted(weights.loaded),
        }
    }

    /// The greatest score of a candidate without fresh state, so that it doesn't look best.
    fn cap(&self) -> Option<u32> {
        let fresh = self.scores.iter().zip(&self.freshness);
        let fresh = fresh.filter(|(_, freshness)| **freshness == Freshness::Fresh);
        fresh.map(|(score, _)| score.saturating_sub(1)).max()
    }

    /// What was expected beyond the measured usage.
    fn expected(&self, node: &FreshNode) -> Option<ExpectedShare> {
        let FreshNode { measured, usage, pods, .. } = *node;
        let usage = self.ranking.slot_time(usage, measured.slots) - measured.usage;
        (pods > 0.0).then_some(ExpectedShare { usage, pods })
    }
}

/// The values of the candidates with fresh state. Signals without weight have no ranks.
struct Ranks<'d> {
    fresh: &'d [FreshNode],
    usage: Vec<f64>,
    reconfiguration: Vec<f64>,
    free_slots: Vec<f64>,
    queue: Vec<f64>,
}

impl<'d> Ranks<'d> {
    fn of(ScoreDecision { rules, ranking, fresh, .. }: &'d ScoreDecision) -> Self {
        fn by(fresh: &[FreshNode], value: impl Fn(&FreshNode) -> u64) -> Vec<f64> {
            ranks(&fresh.iter().map(value).collect::<Vec<_>>())
        }
        let if_weighted = |weight: f64, value: fn(&FreshNode) -> u64| {
            if weight > 0.0 { by(fresh, value) } else { Vec::new() }
        };
        let reconfiguration =
            |measured: &MeasuredBoards| ranking.per_slot(measured.reconfiguration, measured.slots).0;
        let weights = rules.weights.per_signal();
        Self {
            fresh,
            usage: by(fresh, |node| node.usage.0),
            reconfiguration: by(fresh, |node| reconfiguration(&node.measured)),
            // More free slots are better, but `ranks` puts the least value first: rank the complement.
            free_slots: if_weighted(weights.free_slots, |node| {
                u64::from(u32::MAX - node.measured.now.free_slots)
            }),
            queue: if_weighted(weights.queue, |node| node.measured.now.queued.into()),
        }
    }

    /// The values of the candidate at this place among those with fresh state.
    fn at(&self, place: usize) -> PerSignal<f64> {
        let at = |ranks: &[f64]| ranks.get(place).copied().unwrap_or_default();
        let (locality, loaded) =
            self.fresh.get(place).map_or((0.0, 0.0), |node| (node.locality, node.loaded));
        PerSignal {
            locality,
            usage: at(&self.usage),
            reconfiguration: at(&self.reconfiguration),
            free_slots: at(&self.free_slots),
            queue: at(&self.queue),
            loaded,
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

fn unranked(policies: StalePolicies) -> PerSignal<(f64, Basis)> {
    policies.map(|policy| match policy {
        StalePolicy::Neutral => (0.5, Basis::Neutral),
        // The filter rejects with `exclude`; a node whose state became stale after the filter must not win.
        StalePolicy::Penalise | StalePolicy::Exclude => (0.0, Basis::Penalised),
    })
}

/// Rounds a value for an explanation, which needs no more digits.
fn shown(value: f64) -> f32 {
    #[expect(clippy::cast_possible_truncation, reason = "it is small and only shown")]
    let value = value as f32;
    value
}
