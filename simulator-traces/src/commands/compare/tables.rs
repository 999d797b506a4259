//! Tables that compare policies. Differences are computed seed by seed: both policies get the same requests.

use super::policies::{BASELINE, BOUND, Policy, Table};
use crate::commands::grid::mean_and_half;
use crate::outcome::{self, Outcome};

/// One table; `outcomes` has the outcomes of each policy, one per seed.
pub(super) fn table(table: Table, policies: &[&Policy], outcomes: &[&[Outcome]]) -> outcome::Table {
    let columns = [
        "policy",
        "cold starts, % of board requests",
        "against 0-0-0",
        "gap closed",
        "wait mean ms",
        "against 0-0-0",
        "wait p99 ms",
        "against 0-0-0",
        "variation of usage",
        "usage median s",
        "usage p95 s",
    ];
    let find = |name: &str| policies.iter().position(|policy| policy.name == name);
    let all = |index: Option<usize>, metric: &str| -> Vec<f64> {
        let outcomes = index.and_then(|index| outcomes.get(index)).copied().unwrap_or_default();
        outcomes.iter().filter_map(|outcome| outcome.metric(metric)).collect()
    };
    let baseline = |metric: &str| all(find(BASELINE), metric);
    let (cold_of_baseline, cold_of_bound) = (baseline("cold_starts"), all(find(BOUND), "cold_starts"));
    let shown =
        policies.iter().enumerate().filter(|(_, policy)| policy.table == Table::All || policy.table == table);
    let rows = shown.map(|(index, policy)| {
        let of = |metric: &str| all(Some(index), metric);
        let cold = of("cold_starts");
        let change = percent(cold.iter().zip(&cold_of_baseline).map(|(cold, of)| cold / of - 1.0));
        let closed = percent(
            cold.iter()
                .zip(cold_of_baseline.iter().zip(&cold_of_bound))
                .map(|(cold, (baseline, bound))| (baseline - cold) / (baseline - bound)),
        );
        vec![
            policy.name.to_owned(),
            with_width(&percent(of("cold_share_of_board_requests").into_iter()), 2),
            format!("{} %", with_width(&change, 1)),
            format!("{} %", with_width(&closed, 0)),
            with_width(&of("wait_mean_ms"), 1),
            difference(&of("wait_mean_ms"), &baseline("wait_mean_ms")),
            with_width(&of("wait_p99_ms"), 0),
            difference(&of("wait_p99_ms"), &baseline("wait_p99_ms")),
            with_width(&of("usage_variation"), 2),
            with_width(&of("usage_median_s"), 2),
            with_width(&of("usage_p95_s"), 1),
        ]
    });
    outcome::Table {
        title: String::new(),
        columns: columns.iter().map(|column| (*column).to_owned()).collect(),
        rows: rows.collect(),
    }
}

fn percent(shares: impl Iterator<Item = f64>) -> Vec<f64> {
    shares.map(|share| 100.0 * share).collect()
}

fn with_width(values: &[f64], digits: usize) -> String {
    let (mean, half) = mean_and_half(values);
    if half.is_finite() { format!("{mean:.digits$} ± {half:.digits$}") } else { format!("{mean:.digits$}") }
}

/// The mean difference over the seeds, and its share of the baseline's mean.
fn difference(values: &[f64], baseline: &[f64]) -> String {
    let differences: Vec<f64> = values.iter().zip(baseline).map(|(value, of)| value - of).collect();
    let ((mean, _), (of, _)) = (mean_and_half(&differences), mean_and_half(baseline));
    let part = if of > 0.0 { format!(" ({:+.0} %)", 100.0 * mean / of) } else { String::new() };
    format!("{}{part}", with_width(&differences, 0))
}

#[cfg(test)]
mod tests {
    use super::super::policies::POLICIES;
    use super::*;

    fn outcome(cold: f64, wait: f64) -> Outcome {
        let mut outcome = Outcome::default();
        for (name, value) in
            [("cold_starts", cold), ("cold_share_of_board_requests", cold / 1e3), ("wait_mean_ms", wait)]
        {
            outcome.push(name, value);
        }
        outcome
    }

    #[test]
    fn differences_are_those_of_equal_seeds() {
        let policies: Vec<&Policy> = POLICIES.iter().take(3).collect();
        let baseline = [outcome(200.0, 1_000.0), outcome(100.0, 2_000.0)];
        let bound = [outcome(100.0, 0.0), outcome(50.0, 0.0)];
        let policy = [outcome(150.0, 900.0), outcome(75.0, 1_900.0)];
        let made = table(Table::A, &policies, &[&baseline, &bound, &policy]);
        let [_, _, row] = &made.rows[..] else { panic!("{:?}", made.rows) };
        assert_eq!(
            row[1..6],
            ["11.25 ± 47.65", "-25.0 ± 0.0 %", "50 ± 0 %", "1400.0 ± 6353.0", "-100 ± 0 (-7 %)"]
        );
        assert_eq!(made.rows[0][5], "0 ± 0 (+0 %)");
    }
}
