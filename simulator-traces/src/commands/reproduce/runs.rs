//! The runs that a document needs, each done once. The document is rendered twice: first to collect the runs, then
//! with their outcomes.

use super::kept::Kept;
use crate::commands::grid::{mean_and_half, run_each};
use crate::outcome::Outcome;
use std::cell::RefCell;
use std::collections::HashMap;

/// Changes of one run.
type Changes = Vec<String>;

/// The requested runs and the outcomes so far.
#[derive(Default)]
pub(super) struct Runs {
    asked: RefCell<Vec<Changes>>,
    outcomes: HashMap<Changes, Vec<Outcome>>,
}

/// How to treat runs without a kept outcome.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Rest {
    /// Run them, with this number of threads or one per core.
    Run(Option<usize>),
    /// Leave them out.
    LeftOut,
}

/// The values of a metric, one per seed; empty before the runs are done.
#[derive(Debug, Clone)]
pub(super) struct Values(pub(super) Vec<f64>);

/// The change of a metric from one run to another.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Change {
    /// Mean over seeds, in per cent.
    pub(super) percent: f64,
    /// Half of the 95 % interval; not finite for fewer than two seeds.
    pub(super) half: f64,
}

impl Runs {
    /// The values of a metric in the runs with these changes, times `factor`. Requests the runs if they are missing.
    pub(super) fn values(&self, changes: &[String], metric: &str, factor: f64) -> Values {
        let Some(outcomes) = self.outcomes.get(changes) else {
            let mut asked = self.asked.borrow_mut();
            if !asked.iter().any(|known| known == changes) {
                asked.push(changes.to_vec());
            }
            return Values(Vec::new());
        };
        Values(outcomes.iter().filter_map(|outcome| Some(outcome.metric(metric)? * factor)).collect())
    }

    /// Does the requested runs that are not kept. `seeds` returns the number of seeds of a run, and `with_seed` its
    /// complete changes for a seed. All runs with the first seed come first, so that the outcomes of an interrupted
    /// command are useful. Returns how many outcomes there are, and of how many runs.
    ///
    /// # Errors
    /// The first error.
    pub(super) fn run(
        &mut self,
        base: &str,
        seeds: impl Fn(&[String]) -> u64,
        rest: Rest,
        kept: &Kept,
        with_seed: impl Fn(u64, &[String]) -> Changes,
    ) -> anyhow::Result<(usize, usize)> {
        let asked = std::mem::take(&mut *self.asked.borrow_mut());
        let most = asked.iter().map(|changes| seeds(changes)).max().unwrap_or(0);
        let pairs = (1..=most).flat_map(|seed| asked.iter().map(move |changes| (seed, changes)));
        let pairs: Vec<(u64, &Changes)> = pairs.filter(|(seed, changes)| *seed <= seeds(changes)).collect();
        let all: Vec<Changes> = pairs.iter().map(|(seed, changes)| with_seed(*seed, changes)).collect();
        let known = all.iter().map(|changes| kept.read(changes)).collect::<anyhow::Result<Vec<_>>>()?;
        let open: Vec<Changes> = all
            .iter()
            .zip(&known)
            .filter(|(_, known)| known.is_none())
            .map(|(changes, _)| changes.clone())
            .collect();
        let done = |index: usize, outcome: &Outcome| {
            open.get(index).map_or(Ok(()), |changes| kept.write(changes, outcome))
        };
        let mut new = match rest {
            Rest::Run(threads) => run_each(base, &open, threads, &done)?.into_iter(),
            Rest::LeftOut => Vec::new().into_iter(),
        };
        let (mut there, count) = (0, pairs.len());
        for ((_, changes), known) in pairs.into_iter().zip(known) {
            let of_changes = self.outcomes.entry(changes.clone()).or_default();
            if let Some(outcome) = known.or_else(|| new.next()) {
                of_changes.push(outcome);
                there += 1;
            }
        }
        Ok((there, count))
    }

    /// The remarks of an arbitrary run.
    pub(super) fn remarks(&self) -> &[String] {
        self.outcomes.values().flatten().next().map_or(&[], |outcome| &outcome.remarks)
    }
}

impl Values {
    /// Mean over seeds.
    pub(super) fn mean(&self) -> f64 {
        mean_and_half(&self.0).0
    }

    /// The value of the first seed; NaN if there is none.
    pub(super) fn first(&self) -> f64 {
        self.0.first().copied().unwrap_or(f64::NAN)
    }

    /// The change from `self` to `after`, computed seed by seed.
    pub(super) fn change_to(&self, after: &Self) -> Change {
        let changes: Vec<f64> = self
            .0
            .iter()
            .zip(&after.0)
            .filter(|(before, _)| **before != 0.0)
            .map(|(before, after)| (after / before - 1.0) * 100.0)
            .collect();
        let (percent, half) = mean_and_half(&changes);
        Change { percent, half }
    }
}

impl Change {
    /// Whether the change has the sign of `paper`; `None` if its interval includes zero. Without an interval the sign
    /// of the mean decides.
    pub(super) fn goes_like(&self, paper: f64) -> Option<bool> {
        let surely = self.percent.abs() > if self.half.is_finite() { self.half } else { 0.0 };
        surely.then_some(self.percent * paper > 0.0)
    }
}

impl std::fmt::Display for Change {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if self.half.is_finite() {
            write!(f, "{:+.1} ± {:.1} %", self.percent, self.half)
        } else {
            write!(f, "{:+.1} %", self.percent)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_asked_for_often_runs_once_and_is_there_afterwards() {
        let base = "kind = \"placement\"\n[trace]\nrequests = 20000\nto_day = 1\n";
        let mut runs = Runs::default();
        let few = ["cluster.nodes=2".to_owned()];
        assert!(runs.values(&few, "requests", 1.0).0.is_empty());
        assert!(runs.values(&few, "cold_starts", 1.0).0.is_empty());
        assert_eq!(runs.asked.borrow().len(), 1);
        let with_seed = |seed: u64, changes: &[String]| [&[format!("trace.seed={seed}")], changes].concat();
        let folder = tempfile::tempdir().unwrap();
        let kept = Kept::new(Some(folder.path().to_owned())).unwrap();
        let there = runs.run(base, |_| 2, Rest::Run(Some(1)), &kept, with_seed).unwrap();
        assert_eq!(there, (2, 2));
        let cold = runs.values(&few, "cold_starts", 1.0);
        assert!(cold.0.len() == 2 && cold.0[0] != cold.0[1], "{cold:?}");
        // Kept outcomes are read, not run: the scenario is invalid.
        let mut again = Runs::default();
        assert!(again.values(&few, "cold_starts", 1.0).0.is_empty());
        again.run("kind = \"none\"", |_| 2, Rest::Run(Some(1)), &kept, with_seed).unwrap();
        assert_eq!(again.values(&few, "cold_starts", 1.0).0, cold.0);
        assert!(runs.remarks()[0].contains("synthetic"), "{:?}", runs.remarks());
    }

    #[test]
    fn a_change_within_its_interval_has_no_direction() {
        let change = Values(vec![100.0, 100.0, 100.0]).change_to(&Values(vec![90.0, 91.0, 89.0]));
        assert_eq!(change.goes_like(-18.9), Some(true));
        assert_eq!(change.goes_like(18.9), Some(false));
        let change = Values(vec![100.0, 100.0]).change_to(&Values(vec![90.0, 105.0]));
        assert_eq!(change.goes_like(-18.9), None);
    }
}
