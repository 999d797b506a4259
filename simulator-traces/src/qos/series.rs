//! The devices and the progress of each job, second by second, for figures.

use super::engine::{Job, Run, Sample};
use super::options::PolicyName;
use crate::outcome::Table;

/// Length of the window of throughputs, in seconds.
pub(super) const WINDOW: usize = 5;

/// The series `jobs` without rows.
pub(super) fn jobs() -> Table {
    Table::series("jobs", &["policy", "at_s", "job", "devices", "done", "throughput_per_s"], Vec::new())
}

/// Adds a row for each whole second from a job's arrival to the first one at or after its end.
pub(super) fn add(table: &mut Table, name: PolicyName, jobs: &[Job], run: &Run) {
    for (index, job) in jobs.iter().enumerate() {
        let came = job.at.as_secs_f64();
        let end = run.ends.get(index).copied().flatten().unwrap_or(came);
        let there: Vec<&Sample> = whole_seconds(run)
            .into_iter()
            .filter(|sample| sample.at >= came && sample.at <= end.ceil())
            .collect();
        for (second, sample) in there.iter().enumerate() {
            let done = |sample: &Sample| sample.done.get(index).copied().unwrap_or(0);
            // No throughput after the job's end.
            let before = second.checked_sub(WINDOW).and_then(|before| there.get(before));
            let before = before.filter(|_| sample.at <= end);
            let throughput = before.map_or_else(String::new, |before| {
                ((done(sample) - done(before)) as f64 / (sample.at - before.at)).to_string()
            });
            table.rows.push(vec![
                name.to_string(),
                sample.at.to_string(),
                (index + 1).to_string(),
                sample.given.get(index).copied().unwrap_or(0).to_string(),
                done(sample).to_string(),
                throughput,
            ]);
        }
    }
}

/// The samples at whole seconds; of several at the same time the last one.
pub(super) fn whole_seconds(run: &Run) -> Vec<&Sample> {
    let mut each: Vec<&Sample> = Vec::new();
    for sample in run.samples.iter().filter(|sample| sample.at == sample.at.trunc()) {
        match each.last_mut() {
            Some(last) if last.at == sample.at => *last = sample,
            _ => each.push(sample),
        }
    }
    each
}
