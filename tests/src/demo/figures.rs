//! The figures by which runs with and without the router are compared. Each run writes them beside the picture, and the
//! next run the other way shows both.

use super::invoker::Counts;
use super::stage::Routing;
use crate::functions::Function;
use anyhow::{Context as _, Result};
use serde::{Deserialize, Serialize};
use std::fmt;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// What must be equal in runs that are compared.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Settings {
    /// The nodes, in words.
    pub nodes: String,
    pub weights: String,
    pub trace: String,
    pub seconds: u16,
}

/// The figures of a run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct Figures {
    settings: Settings,
    routing: Routing,
    /// Loads of bitstreams while the trace was followed.
    cold_starts: f64,
    /// Waits for a slot, from submitting a kernel to its start.
    waits: Quantiles,
    functions: Vec<FunctionFigures>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct FunctionFigures {
    name: String,
    took: Quantiles,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
struct Quantiles {
    p50: Duration,
    p99: Duration,
}

/// A run beside one that went the other way.
pub(super) struct Comparison<'f> {
    router: &'f Figures,
    in_turn: &'f Figures,
}

impl Routing {
    fn other(self) -> Self {
        match self {
            Self::Router => Self::InTurn,
            Self::InTurn => Self::Router,
        }
    }

    fn file(self, folder: &Path) -> PathBuf {
        folder.join(match self {
            Self::Router => "figures-router.json",
            Self::InTurn => "figures-in-turn.json",
        })
    }
}

impl Quantiles {
    fn of(values: impl Iterator<Item = Duration>) -> Self {
        let mut values: Vec<Duration> = values.collect();
        Self { p50: percentile(&mut values, 50), p99: percentile(&mut values, 99) }
    }
}

impl Figures {
    pub fn new(settings: Settings, routing: Routing, cold_starts: f64, counts: &Counts) -> Self {
        let calls = |function| counts.verified.get(&function).into_iter().flatten();
        let all = Function::WITH_ONE_KERNEL.into_iter().flat_map(calls);
        let functions = Function::WITH_ONE_KERNEL.into_iter().map(|function| FunctionFigures {
            name: function.name().to_owned(),
            took: Quantiles::of(calls(function).map(|call| call.took)),
        });
        Self {
            settings,
            routing,
            cold_starts,
            waits: Quantiles::of(all.filter_map(|call| call.waited)),
            functions: functions.collect(),
        }
    }

    /// Writes the figures into `folder`.
    pub fn write(&self, folder: &Path) -> Result<()> {
        let path = self.routing.file(folder);
        std::fs::create_dir_all(folder).with_context(|| format!("can't make {}", folder.display()))?;
        std::fs::write(&path, serde_json::to_vec(self)?)
            .with_context(|| format!("can't write {}", path.display()))
    }

    /// The figures of the last run that went the other way and was else the same, if there was one.
    pub fn of_other(&self, folder: &Path) -> Option<Self> {
        let text = std::fs::read(self.routing.other().file(folder)).ok()?;
        let other: Self = serde_json::from_slice(&text).ok()?;
        (other.settings == self.settings).then_some(other)
    }

    /// Both runs side by side.
    pub fn beside<'f>(&'f self, other: &'f Self) -> Comparison<'f> {
        match self.routing {
            Routing::Router => Comparison { router: self, in_turn: other },
            Routing::InTurn => Comparison { router: other, in_turn: self },
        }
    }
}

impl fmt::Display for Figures {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "    cold starts          {} while the trace was followed", self.cold_starts)?;
        let Quantiles { p50, p99 } = self.waits;
        write!(f, "    waits for a slot     p50 {p50:.1?}, p99 {p99:.1?}")
    }
}

impl fmt::Display for Comparison<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { router, in_turn } = self;
        writeln!(f, "\nThe same trace with the router and with replicas in turn (the last run of each)")?;
        writeln!(f, "    {:<26} {:>12} {:>12}", "", "router", "in turn")?;
        write!(f, "    {:<26} {:>12} {:>12}", "cold starts", router.cold_starts, in_turn.cold_starts)?;
        let mut line = |what: &str, a: Duration, b: Duration| {
            // Duration's own text ignores a width.
            let [a, b] = [a, b].map(|duration| format!("{duration:.1?}"));
            write!(f, "\n    {what:<26} {a:>12} {b:>12}")
        };
        line("wait for a slot, p50", router.waits.p50, in_turn.waits.p50)?;
        line("wait for a slot, p99", router.waits.p99, in_turn.waits.p99)?;
        for (with, without) in router.functions.iter().zip(&in_turn.functions) {
            line(&format!("{}, p50", with.name), with.took.p50, without.took.p50)?;
            line(&format!("{}, p99", with.name), with.took.p99, without.took.p99)?;
        }
        Ok(())
    }
}

/// A percentile of the values, which are sorted.
pub(super) fn percentile(values: &mut [Duration], percent: usize) -> Duration {
    values.sort_unstable();
    values
        .get((values.len() * percent / 100).min(values.len().saturating_sub(1)))
        .copied()
        .unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn figures(routing: Routing, weights: &str, cold_starts: f64) -> Figures {
        let settings = Settings {
            nodes: "3 nodes".to_owned(),
            weights: weights.to_owned(),
            trace: "a sample".to_owned(),
            seconds: 60,
        };
        Figures::new(settings, routing, cold_starts, &Counts::default())
    }

    #[test]
    fn runs_with_the_same_settings_are_compared_and_others_are_not() {
        let folder = tempfile::tempdir().unwrap();
        let folder = folder.path().join("demo");
        let router = figures(Routing::Router, "1-2-2", 11.0);
        assert_eq!(router.of_other(&folder), None);
        router.write(&folder).unwrap();
        assert_eq!(router.of_other(&folder), None, "a run the same way is no other");
        let in_turn = figures(Routing::InTurn, "1-2-2", 27.0);
        let other = in_turn.of_other(&folder).unwrap();
        assert_eq!(other, router);
        let text = in_turn.beside(&other).to_string();
        let line = text.lines().find(|line| line.contains("cold starts")).unwrap();
        assert_eq!(line.split_whitespace().collect::<Vec<_>>(), ["cold", "starts", "11", "27"]);
        assert_eq!(figures(Routing::InTurn, "0-0-0", 27.0).of_other(&folder), None);
    }

    #[test]
    fn percentiles_of_few_values_exist() {
        assert_eq!(percentile(&mut [], 99), Duration::ZERO);
        assert_eq!(percentile(&mut [Duration::from_secs(1)], 99), Duration::from_secs(1));
    }
}
