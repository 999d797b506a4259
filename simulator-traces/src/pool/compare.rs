//! Runs all policies on the same jobs, for all values and seeds, and compares the measures.

use super::Scenario;
use super::engine::{Shared, simulate_shared};
use super::goals;
use super::measures::{Estimate, Measures};
use super::options::PolicyName;
use super::series::{self, OfPoint};
use super::tenants::{self, TenantMeasures};
use crate::error::ScenarioError;
use crate::outcome::{Outcome, Table, number_short};
use crate::parallel::in_parallel;
use fpga_cluster::pool::thresholds::Thresholds;

/// Most runs of a scenario; more are considered a mistake.
const MOST_RUNS: usize = 200_000;

/// The scenario with one value for each varied parameter.
struct Point {
    values: Vec<f64>,
    scenario: Scenario,
    thresholds: Thresholds,
}

/// The points of the scenario: all combinations of the parameters' values.
pub(super) fn points(scenario: &Scenario) -> Result<Vec<(Vec<f64>, Scenario)>, ScenarioError> {
    let mut points = vec![(Vec::new(), scenario.clone())];
    for vary in &scenario.vary {
        let mut next = Vec::new();
        for (values, scenario) in &points {
            for value in &vary.values {
                let mut values = values.clone();
                values.push(*value);
                next.push((values, scenario.with(vary.parameter, *value)?));
            }
        }
        points = next;
    }
    Ok(points)
}

/// Runs a scenario and compares its policies.
///
/// # Errors
/// As [`super::run`].
pub fn run(scenario: &Scenario) -> Result<Outcome, ScenarioError> {
    if scenario.seeds == 0 || scenario.policies.is_empty() {
        return Err(ScenarioError::Invalid("`seeds` must be at least 1 and `policies` name one".to_owned()));
    }
    let mut points_of = Vec::new();
    for (values, scenario) in points(scenario)? {
        let queues = scenario
            .policies
            .iter()
            .any(|name| matches!(name, PolicyName::Wa | PolicyName::Wra | PolicyName::WraIdle));
        let thresholds = if queues { scenario.best()?.shape.thresholds().ok() } else { None };
        let thresholds = thresholds.map_or_else(|| Thresholds::new(Vec::new()), Ok);
        let thresholds = thresholds.map_err(|error| ScenarioError::Invalid(error.to_string()))?;
        points_of.push(Point { values, scenario, thresholds });
    }
    let mut policies = scenario.policies.clone();
    if !policies.contains(&scenario.baseline) {
        policies.insert(0, scenario.baseline);
    }
    let seeds = usize::try_from(scenario.seeds).unwrap_or(usize::MAX);
    let runs = points_of.len().saturating_mul(policies.len()).saturating_mul(seeds);
    if runs > MOST_RUNS {
        return Err(ScenarioError::Invalid(format!("these are {runs} runs: at most {MOST_RUNS} are done")));
    }
    let (tenants, goals, groups) = (scenario.tenants_of_pool()?, scenario.goals()?, scenario.groups()?);
    let shared = Shared { tenants: &tenants, goals, groups: &groups };
    // Runs are in the order of points, policies, seeds.
    let runs = in_parallel(runs, None, |index| {
        let (rest, seed) = (index / seeds, index % seeds);
        let (Some(point), Some(policy)) =
            (points_of.get(rest / policies.len()), policies.get(rest % policies.len()))
        else {
            return Err(ScenarioError::Invariant("a run of no point".to_owned()));
        };
        let policy = point.scenario.policy(*policy, &point.thresholds)?;
        let jobs = point.scenario.arrivals(seed as u64 + 1)?;
        let course = simulate_shared(&point.scenario.cluster()?, policy, &shared, &jobs)?;
        Ok((Measures::of(&course.jobs), TenantMeasures::of_all(&course.jobs, tenants.len()), course.groups))
    })?;
    let (all, of_tenants, of_groups): (Vec<_>, Vec<_>, Vec<_>) = runs.into_iter().collect();
    let mut outcome = outcome(scenario, &points_of, &policies, seeds, &all);
    let values: Vec<&[f64]> = points_of.iter().map(|point| point.values.as_slice()).collect();
    if !tenants.is_empty() {
        outcome.tables.push(tenants::table(scenario, &values, &policies, seeds, &of_tenants));
    }
    if !groups.is_empty() {
        outcome.tables.push(goals::table(scenario, &groups, &values, &policies, seeds, &of_groups));
    }
    Ok(outcome)
}

fn outcome(
    scenario: &Scenario,
    points: &[Point],
    policies: &[PolicyName],
    seeds: usize,
    all: &[Measures],
) -> Outcome {
    let base = policies.iter().position(|name| *name == scenario.baseline).unwrap_or(0);
    let mut columns: Vec<String> = scenario.vary.iter().map(|vary| vary.parameter.to_string()).collect();
    let over = |what: &str| format!("{what} {} is × of it", scenario.baseline);
    let heads = [
        "policy".into(),
        "ACT, s".into(),
        "TCT, s".into(),
        "SAR".into(),
        "DLR".into(),
        over("ACT:"),
        over("TCT:"),
    ];
    columns.extend(heads);
    columns.push("ACT change, %".to_owned());
    columns.push("TCT change, %".to_owned());
    columns.push("best seed: ACT, TCT change, %".to_owned());
    let mut table = Table { title: scenario.title.clone(), columns, rows: Vec::new() };
    let mut gains: Vec<Vec<(f64, f64)>> = vec![Vec::new(); policies.len()];
    for (point, of_point) in points.iter().zip(all.chunks(policies.len() * seeds)) {
        let of_policies: Vec<&[Measures]> = of_point.chunks(seeds).collect();
        let Some(baseline) = of_policies.get(base) else { continue };
        for ((name, measures), gains) in policies.iter().zip(&of_policies).zip(&mut gains) {
            let each =
                |of: &dyn Fn(&Measures) -> f64| Estimate::of(&measures.iter().map(of).collect::<Vec<_>>());
            let paired = |of: &dyn Fn(&Measures, &Measures) -> f64| {
                Estimate::of(&measures.iter().zip(*baseline).map(|(is, was)| of(is, was)).collect::<Vec<_>>())
            };
            let act_gain = paired(&|is, was| was.act / is.act);
            let tct_gain = paired(&|is, was| was.tct / is.tct);
            gains.push((act_gain.mean, tct_gain.mean));
            let mut row: Vec<String> = point.values.iter().map(|value| number_short(*value)).collect();
            let changes = |of: &dyn Fn(&Measures) -> f64| {
                let change = |(is, was): (&Measures, &Measures)| 100.0 * (of(is) / of(was) - 1.0);
                measures.iter().zip(*baseline).map(change).fold(f64::INFINITY, f64::min)
            };
            row.extend([
                name.to_string(),
                each(&|one| one.act).text(3),
                each(&|one| one.tct).text(3),
                each(&|one| one.sar).text(3),
                each(&|one| one.dlr).text(3),
                act_gain.text(2),
                tct_gain.text(2),
                paired(&|is, was| 100.0 * (is.act / was.act - 1.0)).text(1),
                paired(&|is, was| 100.0 * (is.tct / was.tct - 1.0)).text(1),
                format!("{:.1}, {:.1}", changes(&|one| one.act), changes(&|one| one.tct)),
            ]);
            table.rows.push(row);
        }
    }
    let mut outcome = Outcome::default();
    outcome.remarks.push(format!(
        "Synthetic jobs, seeds 1 to {seeds}, the same for all policies; mean ± half of the 95 % interval over seeds. \
         Invariants held in all {} runs.",
        all.len()
    ));
    for (name, gains) in policies.iter().zip(&gains) {
        let prefix = name.to_string().to_lowercase().replace(' ', "_");
        for (what, of) in [("act", 0), ("tct", 1)] {
            let values = || gains.iter().map(|gain| if of == 0 { gain.0 } else { gain.1 });
            outcome.push(&format!("{prefix}_{what}_gain_most"), values().fold(0.0, f64::max));
            outcome.push(&format!("{prefix}_{what}_gain_least"), values().fold(f64::INFINITY, f64::min));
        }
    }
    outcome.tables.push(table);
    let of_points = points.iter().zip(all.chunks(policies.len() * seeds));
    let of_points = of_points.map(|(point, measures)| OfPoint { values: &point.values, measures });
    outcome.series.push(series::runs(&scenario.vary, policies, base, seeds, of_points));
    outcome
}
