//! Compares both policies with all static splits of the devices.
//!
//! The throughput policy gets the ends of the jobs under each split as deadlines: it must achieve what the split did.
//! EDF uses only the order of these deadlines.

use super::Scenario;
use super::engine::{Policy, simulate};
use super::options::{PolicyName, seconds};
use crate::error::ScenarioError;
use crate::outcome::{Outcome, Table};
use fpga_cluster::qos::Goal;

/// Runs all splits.
///
/// # Errors
/// As [`super::run`].
pub fn run(scenario: &Scenario) -> Result<Outcome, ScenarioError> {
    let machine = scenario.machine()?;
    let all = scenario.jobs()?;
    let count = u32::try_from(all.len()).unwrap_or(u32::MAX);
    if count > 6 || count > machine.devices || machine.devices > 16 {
        return Err(ScenarioError::invalid(
            "`splits` are for up to 6 jobs on up to 16 devices, with a device for each",
        ));
    }
    let throughput = scenario.policy(PolicyName::Throughput)?;
    let heads = ["split", "static: ends, s", "throughput: ends, s", "EDF: ends, s"];
    let mut columns = heads.map(str::to_owned).to_vec();
    columns.extend(["static", "throughput", "EDF"].map(|name| format!("{name}: mean, s")));
    columns.extend(["static", "throughput", "EDF"].map(|name| format!("{name}: last, s")));
    columns.push("throughput: most over a deadline, %".to_owned());
    let mut table = Table { title: scenario.title.clone(), columns, rows: Vec::new() };
    let mut rows: Vec<[(f64, f64); 3]> = Vec::new();
    let mut most_late = 0.0_f64;
    for split in splits(machine.devices, count, machine.devices) {
        let mut jobs = all.clone();
        for (job, fixed) in jobs.iter_mut().zip(&split) {
            job.fixed = *fixed;
        }
        let ended = |run: &[Option<f64>]| -> Result<Vec<f64>, ScenarioError> {
            run.iter().map(|end| end.ok_or_else(|| ScenarioError::invalid("a job was rejected"))).collect()
        };
        let fixed = ended(&simulate(&machine, Policy::Fixed, &jobs)?.ends)?;
        for (job, end) in jobs.iter_mut().zip(&fixed) {
            job.goal = Goal::Deadline { at: seconds(*end, "deadline_s")?, actions: job.actions };
        }
        let by_throughput = ended(&simulate(&machine, throughput, &jobs)?.ends)?;
        let by_deadline = ended(&simulate(&machine, Policy::EarliestDeadline, &jobs)?.ends)?;
        let late = by_throughput.iter().zip(&fixed).map(|(end, due)| 100.0 * (end / due - 1.0));
        let late = late.fold(f64::NEG_INFINITY, f64::max);
        most_late = most_late.max(late);
        let of = [&fixed, &by_throughput, &by_deadline].map(|ends| {
            (ends.iter().sum::<f64>() / ends.len() as f64, ends.iter().copied().fold(0.0, f64::max))
        });
        rows.push(of);
        let list = |ends: &[f64]| ends.iter().map(|end| format!("{end:.1}")).collect::<Vec<_>>().join(", ");
        let mut row = vec![split.iter().map(u32::to_string).collect::<Vec<_>>().join("-")];
        row.extend([list(&fixed), list(&by_throughput), list(&by_deadline)]);
        row.extend(of.iter().map(|one| format!("{:.1}", one.0)));
        row.extend(of.iter().map(|one| format!("{:.1}", one.1)));
        row.push(format!("{late:.1}"));
        table.rows.push(row);
    }
    let mut outcome = Outcome::default();
    outcome
        .remarks
        .push("Actions of one length on devices that are alike; invariants held in all runs.".to_owned());
    for (index, name) in ["static", "throughput", "edf"].into_iter().enumerate() {
        let least = |of: &dyn Fn(&(f64, f64)) -> f64| {
            rows.iter().filter_map(|row| row.get(index)).map(of).fold(f64::INFINITY, f64::min)
        };
        outcome.push(&format!("{name}_least_mean_end_s"), least(&|one| one.0));
        outcome.push(&format!("{name}_least_last_end_s"), least(&|one| one.1));
    }
    outcome.push("throughput_most_over_deadline_percent", most_late);
    outcome.tables.push(table);
    Ok(outcome)
}

/// All ways to split `devices` into `parts` of 1 to `most` devices, in descending order.
fn splits(devices: u32, parts: u32, most: u32) -> Vec<Vec<u32>> {
    if parts == 0 {
        return if devices == 0 { vec![Vec::new()] } else { Vec::new() };
    }
    let mut all = Vec::new();
    for first in (1..=most.min(devices)).rev() {
        for mut rest in splits(devices - first, parts - 1, first) {
            rest.insert(0, first);
            all.push(rest);
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_splits_are_found() {
        let found = splits(8, 3, 8);
        let expected: [[u32; 3]; 5] = [[6, 1, 1], [5, 2, 1], [4, 3, 1], [4, 2, 2], [3, 3, 2]];
        assert_eq!(found, expected);
    }
}
