//! The summary: calls, verified results, reconfigurations and placements.

use super::figures::percentile;
use super::invoker::{Counts, Tally};
use super::snapshot::{Decision, Snapshot};
use crate::functions::Function;
use std::fmt;
use std::time::Duration;

/// The summary of a run.
pub(super) struct Summary {
    weights: String,
    counts: Counts,
    reconfigurations: f64,
    tasks: f64,
    usage_ms: Vec<(String, u64)>,
    placements: Placements,
}

/// Numbers of placements by where the pod's bitstream was.
#[derive(Debug, Default, PartialEq, Eq)]
struct Placements {
    all: usize,
    /// Placements on a node that had the bitstream.
    local: usize,
    /// Placements elsewhere, though some node had it.
    elsewhere: usize,
    /// Placements when no node had it.
    nowhere: usize,
}

impl Summary {
    pub fn new(weights: &str, last: &Snapshot, decisions: &[Decision], tally: &Tally) -> Self {
        Self {
            weights: weights.to_owned(),
            counts: tally.counts(),
            reconfigurations: last.reconfigurations(),
            tasks: last.nodes.iter().map(|node| node.tasks).sum(),
            usage_ms: last.nodes.iter().map(|node| (node.name.clone(), node.usage_ms)).collect(),
            placements: Placements::of(decisions),
        }
    }

    /// Whether no call failed and at least one was verified.
    pub fn is_good(&self) -> bool {
        self.counts.failed == 0 && self.counts.verified.values().any(|calls| !calls.is_empty())
    }
}

impl Placements {
    fn of(decisions: &[Decision]) -> Self {
        let mut placements = Self::default();
        for decision in decisions {
            let has = |locality: f64| locality > 0.0;
            placements.all += 1;
            match decision.chosen() {
                Some(score) if has(score.locality) => placements.local += 1,
                _ if decision.scores.iter().any(|score| has(score.locality)) => placements.elsewhere += 1,
                _ => placements.nowhere += 1,
            }
        }
        placements
    }
}

impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Counts { verified, failed, retried, first_failure, scaled, .. } = &self.counts;
        let Placements { all, local, elsewhere, nowhere } = self.placements;
        let calls: usize = verified.values().map(Vec::len).sum();
        writeln!(f, "\nSummary, weights {} (locality-usage-reconfiguration)", self.weights)?;
        writeln!(
            f,
            "    invocations          {} ({retried} tries repeated, their pod being gone)",
            calls + failed
        )?;
        writeln!(f, "    verified results     {calls}, wrong or failed {failed}")?;
        if let Some(failure) = first_failure {
            writeln!(f, "    first failure        {failure}")?;
        }
        for function in Function::WITH_ONE_KERNEL {
            let calls = verified.get(&function).map(Vec::as_slice).unwrap_or_default();
            let mut took: Vec<Duration> = calls.iter().map(|call| call.took).collect();
            let mut opencl: Vec<Duration> = calls.iter().filter_map(|call| call.opencl).collect();
            let (p50, p99) = (percentile(&mut took, 50), percentile(&mut took, 99));
            let board = percentile(&mut opencl, 50);
            writeln!(
                f,
                "      {:<18} {:>5} calls, p50 {p50:.1?}, p99 {p99:.1?}, OpenCL part p50 {board:.1?}",
                function.name(),
                calls.len()
            )?;
        }
        writeln!(f, "    tasks on the boards  {}", self.tasks)?;
        writeln!(f, "    reconfigurations     {}", self.reconfigurations)?;
        writeln!(
            f,
            "    placements           {all}: {local} where the bitstream was, {elsewhere} elsewhere, {nowhere} before any node had it"
        )?;
        writeln!(f, "    scaled               {} times up, {} times down", scaled.0, scaled.1)?;
        let usage: Vec<String> =
            self.usage_ms.iter().map(|(node, usage)| format!("{node} {usage} ms")).collect();
        write!(f, "    usage at the end     {}", usage.join(", "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::demo::snapshot::Score;

    #[test]
    fn placements_are_told_apart_by_where_the_bitstream_was() {
        let score = |node: &str, locality| Score {
            node: node.into(),
            score: 1,
            locality,
            usage: 0.0,
            reconfiguration: 0.0,
        };
        let decision = |node: &str, localities: [f64; 2]| Decision {
            node: node.into(),
            scores: vec![score("a", localities[0]), score("b", localities[1])],
        };
        let decisions = [decision("a", [1.0, 0.0]), decision("a", [0.0, 1.0]), decision("a", [0.0, 0.0])];
        let expected = Placements { all: 3, local: 1, elsewhere: 1, nowhere: 1 };
        assert_eq!(Placements::of(&decisions), expected);
    }
}
