//! The two decisions of the extender (S-1, S-2), pure: the same candidates at the same time give the same answer, to
//! the extender and to the simulator alike.
//!
//! Nodes are spoken of by their place in the request; who asks knows their names.

#[cfg(test)]
mod tests;

use crate::locality::locality;
use crate::matching::{Rejection, UnlabelledNodes, matches};
use crate::node_facts::NodeFacts;
use crate::rank::ranks;
use crate::requirement::Requirement;
use crate::score::{MaxScore, PerSignal, Weights};
use crate::staleness::{Freshness, StalePolicies, StalePolicy};
use crate::units::Millis;
use serde::Serialize;

/// What the administrator chose.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize)]
pub struct Rules {
    /// How much each signal counts.
    pub weights: Weights,
    /// The end of the score's scale.
    pub max_score: MaxScore,
    /// What nodes without fresh state are worth.
    pub stale: StalePolicies,
    /// What becomes of nodes with neither state nor label.
    pub unlabelled: UnlabelledNodes,
}

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
    pub mean: f64,
    /// The terms.
    #[serde(flatten)]
    pub terms: PerSignal<Term>,
    /// Whether what is known of the node was fit to be ranked.
    pub freshness: Freshness,
    /// What was measured; nothing if the state is not fresh.
    pub measured: Option<Measured>,
    /// Whether the score was lowered so that a node without fresh state doesn't look best.
    pub capped: Capped,
}

/// One signal of one node, 0..=1.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize)]
pub struct Term {
    /// The value, higher is better.
    pub value: f64,
    /// Where it comes from.
    pub basis: Basis,
}

/// Where a [`Term`] comes from.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Basis {
    /// From the node's fresh state.
    Measured,
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

/// What the boards of a node did in the window that ends now.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Measured {
    /// Slot time used.
    #[serde(rename = "usageMs")]
    pub usage: Millis,
    /// Time spent reconfiguring.
    #[serde(rename = "reconfigurationMs")]
    pub reconfiguration: Millis,
    /// How old the state is.
    #[serde(rename = "ageMs")]
    pub age: Millis,
}

/// Which of `candidates` have what is asked. What asks for nothing of ours is not brought here: it passes untouched.
#[must_use]
pub fn filter(
    asked: &Requirement,
    candidates: &[Candidate<'_>],
    rules: &Rules,
    now: Millis,
) -> FilterDecision {
    let verdict = |candidate: &Candidate<'_>| match candidate {
        None if rules.unlabelled == UnlabelledNodes::Pass && !rules.stale.exclude() => Ok(()),
        None => Err(Rejection::UnknownNode),
        Some(node) => {
            matches(asked, node, rules.unlabelled)?;
            if rules.stale.exclude() && node.knowledge.fresh(now).is_none() {
                return Err(Rejection::NotFresh);
            }
            Ok(())
        }
    };
    FilterDecision { verdicts: candidates.iter().map(verdict).collect() }
}

/// How good each of `candidates` is for what is asked. Ranks are among the candidates with fresh state only.
#[must_use]
pub fn prioritize(
    asked: &Requirement,
    candidates: &[Candidate<'_>],
    rules: &Rules,
    now: Millis,
) -> ScoreDecision {
    let fresh: Vec<_> =
        candidates.iter().map(|candidate| candidate.and_then(|node| node.knowledge.fresh(now))).collect();
    let measured: Vec<Measured> = fresh
        .iter()
        .flatten()
        .map(|(state, age)| Measured {
            usage: state.usage_at(*age),
            reconfiguration: state.reconfiguration_at(*age),
            age: *age,
        })
        .collect();
    let usage_ranks = ranks(&measured.iter().map(|node| node.usage).collect::<Vec<_>>());
    let reconfiguration_ranks = ranks(&measured.iter().map(|node| node.reconfiguration).collect::<Vec<_>>());

    let is_measured = |value| Term { value, basis: Basis::Measured };
    let mut ranked = measured.iter().zip(usage_ranks.iter().zip(&reconfiguration_ranks));
    let mut nodes: Vec<NodeScore> = Vec::with_capacity(candidates.len());
    for (candidate, state) in candidates.iter().zip(&fresh) {
        // `ranked` has exactly one entry per fresh candidate, in the same order.
        let ranks = state.and_then(|(state, age)| Some((state, age, ranked.next()?)));
        let (terms, measured) = match ranks {
            Some((state, age, (measured, (usage, reconfiguration)))) => (
                PerSignal {
                    locality: is_measured(locality(asked, state, age)),
                    usage: is_measured(*usage),
                    reconfiguration: is_measured(*reconfiguration),
                },
                Some(*measured),
            ),
            None => (unranked(rules.stale), None),
        };
        let mean = rules.weights.mean(PerSignal {
            locality: terms.locality.value,
            usage: terms.usage.value,
            reconfiguration: terms.reconfiguration.value,
        });
        let freshness = candidate.map_or(Freshness::Absent, |node| node.knowledge.freshness(now));
        let score = rules.max_score.score(mean);
        nodes.push(NodeScore { score, mean, terms, freshness, measured, capped: Capped::No });
    }
    cap_unranked(&mut nodes);
    ScoreDecision { nodes }
}

fn unranked(policies: StalePolicies) -> PerSignal<Term> {
    let term = |policy| match policy {
        StalePolicy::Neutral => Term { value: 0.5, basis: Basis::Neutral },
        // The filter excludes; a node that went stale after it must not win.
        StalePolicy::Penalise | StalePolicy::Exclude => Term { value: 0.0, basis: Basis::Penalised },
    };
    PerSignal {
        locality: term(policies.locality),
        usage: term(policies.usage),
        reconfiguration: term(policies.reconfiguration),
    }
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
