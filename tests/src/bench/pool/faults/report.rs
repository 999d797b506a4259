//! What the rounds showed.

use super::kind::Kind;
use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

/// A round.
#[derive(Debug, Clone, Copy)]
pub(super) struct Round {
    /// Jobs with the right output.
    pub jobs: usize,
    /// Jobs that had not ended when the fault began.
    pub struck: usize,
    /// Time for which the fault lasted, with the start of what was killed.
    pub fault: Duration,
    /// Time from its end until the last job's end.
    pub jobs_took: Duration,
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
        let Self { jobs, struck, jobs_took, free_after, .. } = self;
        let [jobs_took, free_after] = [jobs_took, free_after].map(Duration::as_secs_f64);
        write!(
            f,
            "{struck} jobs struck, {jobs} right after {jobs_took:.1} s, all slots free after {free_after:.1} s"
        )
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "| fault | rounds | jobs that had not ended | jobs with the right output | fault, s, longest | jobs' ends after it, s, longest | all slots \
             free after it, s, longest |"
        )?;
        writeln!(f, "|---|---|---|---|---|---|---|")?;
        for (kind, rounds) in &self.0 {
            let longest =
                |of: fn(&Round) -> Duration| rounds.iter().map(of).max().unwrap_or_default().as_secs_f64();
            writeln!(
                f,
                "| {kind} | {} | {} | {} | {:.1} | {:.1} | {:.1} |",
                rounds.len(),
                rounds.iter().map(|round| round.struck).sum::<usize>(),
                rounds.iter().map(|round| round.jobs).sum::<usize>(),
                longest(|round| round.fault),
                longest(|round| round.jobs_took),
                longest(|round| round.free_after),
            )?;
        }
        let rounds: usize = self.0.values().map(Vec::len).sum();
        let jobs: usize = self.0.values().flatten().map(|round| round.jobs).sum();
        write!(
            f,
            "\n{rounds} rounds, {jobs} jobs with the right output, byte by byte; no job was lost whose program lived, no output \
             came twice, no slot was lost. Modelled boards."
        )
    }
}
