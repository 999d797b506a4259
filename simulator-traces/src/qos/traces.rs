//! Whether each policy meets the goals of a scenario, and its allocations over time.

use super::Scenario;
use super::engine::{Job, Run, simulate};
use super::options::PolicyName;
use super::series::{self, WINDOW, whole_seconds};
use crate::error::ScenarioError;
use crate::outcome::{Outcome, Table};
use fpga_cluster::qos::Goal;

/// Most rows of a table of allocations; the title says if rows are left out.
const MOST_ROWS: usize = 60;

/// Runs all policies of the scenario.
///
/// # Errors
/// As [`super::run`].
pub fn run(scenario: &Scenario) -> Result<Outcome, ScenarioError> {
    let machine = scenario.machine()?;
    let jobs = scenario.jobs()?;
    let heads = ["policy", "job", "goal", "end, s", "mean, /s", "least over 5 s, /s", "met"];
    let columns = heads.map(str::to_owned).to_vec();
    let mut goals = Table { title: scenario.title.clone(), columns, rows: Vec::new() };
    let mut outcome = Outcome::default();
    outcome
        .remarks
        .push("Actions of one length on devices that are alike; invariants held in all runs.".to_owned());
    let mut allocations = Vec::new();
    let mut each_second = series::jobs();
    for name in &scenario.policies {
        let run = simulate(&machine, scenario.policy(*name)?, &jobs)?;
        let mut met_count = 0_u32;
        for (index, job) in jobs.iter().enumerate() {
            let (row, met) = goal_row(*name, index, job, &run);
            met_count += u32::from(met);
            goals.rows.push(row);
        }
        let key = name.to_string().to_lowercase();
        outcome.push(&format!("{key}_met_share"), f64::from(met_count) / jobs.len() as f64);
        let last = run.ends.iter().flatten().copied().fold(0.0, f64::max);
        outcome.push(&format!("{key}_last_end_s"), last);
        allocations.push(allocation_table(*name, jobs.len(), &run));
        series::add(&mut each_second, *name, &jobs, &run);
    }
    outcome.tables.push(goals);
    outcome.tables.extend(allocations);
    outcome.series.push(each_second);
    Ok(outcome)
}

/// What became of a job and its goal.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Reached {
    /// When the job ended, in seconds.
    pub end: f64,
    /// Actions per second from its arrival to its end.
    pub mean: f64,
    /// The lowest throughput over 5 successive whole seconds; `None` if the job took less.
    pub least: Option<f64>,
    /// Whether its deadline was met, or its mean throughput reached the goal.
    pub is_met: bool,
}

impl Reached {
    /// What became of the job with this index; `None` if it was rejected.
    #[must_use]
    pub fn of(index: usize, job: &Job, run: &Run) -> Option<Self> {
        let came = job.at.as_secs_f64();
        let end = run.ends.get(index).copied().flatten()?;
        let mean = job.actions as f64 / (end - came).max(1e-9);
        let is_met = match job.goal {
            Goal::Deadline { at, .. } => end <= at.as_secs_f64(),
            Goal::Throughput(rate) => mean >= rate.per_second(),
        };
        Some(Self { end, mean, least: least_window(index, came, end, run), is_met })
    }
}

/// A goal as people write it.
#[must_use]
pub fn goal_text(goal: Goal) -> String {
    match goal {
        Goal::Deadline { at, .. } => format!("by {} s", at.as_secs_f64()),
        Goal::Throughput(rate) => format!("{}/s", rate.per_second()),
    }
}

fn goal_row(name: PolicyName, index: usize, job: &Job, run: &Run) -> (Vec<String>, bool) {
    let mut row = vec![name.to_string(), (index + 1).to_string(), goal_text(job.goal)];
    let Some(Reached { end, mean, least, is_met }) = Reached::of(index, job, run) else {
        row.extend(["rejected", "-", "-", "no"].map(str::to_owned));
        return (row, false);
    };
    row.extend([format!("{end:.1}"), format!("{mean:.1}")]);
    row.push(least.map_or("-".to_owned(), |rate| format!("{rate:.1}")));
    row.push(if is_met { "yes" } else { "no" }.to_owned());
    (row, is_met)
}

/// The lowest throughput of a job over [`WINDOW`] successive whole seconds between its arrival and its end.
fn least_window(index: usize, came: f64, end: f64, run: &Run) -> Option<f64> {
    let seconds = whole_seconds(run).into_iter().filter(|sample| sample.at >= came && sample.at <= end);
    let each: Vec<(f64, u64)> =
        seconds.filter_map(|sample| sample.done.get(index).map(|done| (sample.at, *done))).collect();
    let windows = each.windows(WINDOW + 1).filter_map(|window| match window {
        [first, .., last] => Some((last.1 - first.1) as f64 / (last.0 - first.0)),
        _ => None,
    });
    windows.reduce(f64::min)
}

fn allocation_table(name: PolicyName, jobs: usize, run: &Run) -> Table {
    let mut columns = vec!["from, s".to_owned()];
    columns.extend((1..=jobs).map(|job| format!("job {job}")));
    let mut table = Table { title: format!("Devices given by {name}"), columns, rows: Vec::new() };
    let mut before: Option<&[u32]> = None;
    let mut samples = run.samples.iter().peekable();
    while let Some(sample) = samples.next() {
        let settled = samples.peek().is_none_or(|next| next.at > sample.at);
        if !settled || before == Some(&sample.given) {
            continue;
        }
        before = Some(&sample.given);
        let mut row = vec![format!("{:.1}", sample.at)];
        row.extend(sample.given.iter().map(u32::to_string));
        table.rows.push(row);
    }
    if table.rows.len() > MOST_ROWS {
        table.title.push_str(&format!(" (the first {MOST_ROWS} of {} changes)", table.rows.len()));
        table.rows.truncate(MOST_ROWS);
    }
    table
}
