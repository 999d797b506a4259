//! The measures of each run as a row, for figures.

use super::measures::Measures;
use super::options::PolicyName;
use super::vary::Vary;
use crate::outcome::{Table, number_short};

/// The runs of all policies and seeds at one point.
pub(super) struct OfPoint<'a> {
    /// The values of the varied parameters.
    pub(super) values: &'a [f64],
    /// The measures in the order of policies, then seeds.
    pub(super) measures: &'a [Measures],
}

/// The series `runs`: parameters, policy, seed and measures. A gain is the baseline's measure divided by the
/// policy's.
pub(super) fn runs<'a>(
    vary: &[Vary],
    policies: &[PolicyName],
    baseline: usize,
    seeds: usize,
    points: impl Iterator<Item = OfPoint<'a>>,
) -> Table {
    let mut columns: Vec<String> = vary.iter().map(|vary| vary.parameter.column()).collect();
    let measured = ["policy", "seed", "act_s", "tct_s", "sar", "dlr", "act_gain", "tct_gain"];
    columns.extend(measured.map(str::to_owned));
    let mut rows = Vec::new();
    for point in points {
        let of_policies: Vec<&[Measures]> = point.measures.chunks(seeds.max(1)).collect();
        let Some(before) = of_policies.get(baseline) else { continue };
        for (policy, measures) in policies.iter().zip(&of_policies) {
            for (seed, (is, was)) in measures.iter().zip(*before).enumerate() {
                let mut row: Vec<String> = point.values.iter().map(|value| number_short(*value)).collect();
                row.extend([policy.to_string(), (seed + 1).to_string()]);
                let numbers = [is.act, is.tct, is.sar, is.dlr, was.act / is.act, was.tct / is.tct];
                row.extend(numbers.map(|number| number.to_string()));
                rows.push(row);
            }
        }
    }
    Table { title: "runs".to_owned(), columns, rows }
}
