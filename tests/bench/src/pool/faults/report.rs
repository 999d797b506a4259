//! What the rounds showed.

use super::bundle;
use super::kind::Kind;
use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

/// A round.
#[derive(Debug, Clone, Copy)]
pub(super) struct Round {
    /// Jobs of programs with the right output.
    pub jobs: usize,
    /// Jobs of programs that had not ended when the fault began.
    pub struck: usize,
    /// Jobs of the bundle with the right output.
    pub bundle_jobs: usize,
    /// Jobs of the bundle that had not ended when the fault began.
    pub bundle_struck: usize,
    /// Actions of the group with the right output.
    pub actions: usize,
    /// Actions that were waiting or running at some time of the fault.
    pub actions_struck: usize,
    /// Time for which the fault lasted, with the start of what was killed.
    pub fault: Duration,
    /// Time from its end until the end of the last job or action.
    pub ends_took: Duration,
    /// Time from its end until all slots were free.
    pub free_after: Duration,
}

/// All rounds, by the kind of their fault.
#[derive(Debug, Default)]
pub(super) struct Report(BTreeMap<Kind, Vec<Round>>);

impl Report {
    pub fn add(&mut self, kind: Kind, round: Round) {
        self.0.entry(kind).or_default().push(round);
    }
}

impl fmt::Display for Round {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            jobs,
            struck,
            bundle_jobs,
            bundle_struck,
            actions,
            actions_struck,
            ends_took,
            free_after,
            ..
        } = self;
        let [ends_took, free_after] = [ends_took, free_after].map(Duration::as_secs_f64);
        write!(
            f,
            "{struck} jobs struck, {jobs} right; {bundle_struck} jobs of the bundle struck, {bundle_jobs} right; \
             {actions_struck} actions struck, {actions} right; last end after {ends_took:.1} s, all slots free after \
             {free_after:.1} s"
        )
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "| fault | rounds | jobs that had not ended | jobs with the right output | jobs of bundles that had not ended | jobs of \
             bundles with the right output | actions of groups that waited or ran in the time of the fault | actions \
             with the right output | fault, s, longest | last end after it, s, longest | all slots free after it, s, longest |"
        )?;
        writeln!(f, "|{}", "---|".repeat(11))?;
        for (kind, rounds) in &self.0 {
            let sum = |of: fn(&Round) -> usize| rounds.iter().map(of).sum::<usize>();
            let longest =
                |of: fn(&Round) -> Duration| rounds.iter().map(of).max().unwrap_or_default().as_secs_f64();
            writeln!(
                f,
                "| {kind} | {} | {} | {} | {} | {} | {} | {} | {:.1} | {:.1} | {:.1} |",
                rounds.len(),
                sum(|round| round.struck),
                sum(|round| round.jobs),
                sum(|round| round.bundle_struck),
                sum(|round| round.bundle_jobs),
                sum(|round| round.actions_struck),
                sum(|round| round.actions),
                longest(|round| round.fault),
                longest(|round| round.ends_took),
                longest(|round| round.free_after),
            )?;
        }
        let sum = |of: fn(&Round) -> usize| self.0.values().flatten().map(of).sum::<usize>();
        let (rounds, jobs) = (sum(|_| 1), sum(|round| round.jobs));
        let (bundle_jobs, actions) = (sum(|round| round.bundle_jobs), sum(|round| round.actions));
        write!(
            f,
            "\n{rounds} rounds; {jobs} jobs of programs, {bundle_jobs} jobs of bundles of {}, and {actions} actions of groups \
             with the right output, byte by byte; no job or action was lost whose program lived, no output came twice, no \
             slot was lost. No fault stops or kills the program of the bundles and groups. Modelled boards.",
            bundle::JOBS
        )
    }
}
