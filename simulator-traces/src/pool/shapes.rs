//! The thresholds that the closed form chooses (P-5), compared with the paper's choice, one queue, and other
//! structures.

use super::Scenario;
use super::compare::points;
use crate::error::ScenarioError;
use crate::outcome::{Outcome, Table, number_short};
use fpga_cluster::pool::model::{Best, Formula, Linear, Search};

/// The paper's optimum for exponential and for power-law sizes: q and k1.
const PAPER: [(f64, u32); 2] = [(1.41, 5), (1.8, 10)];

/// Computes the thresholds at all points of the scenario, by both formulas.
///
/// # Errors
/// [`ScenarioError::Invalid`] if options are out of range or the model finds no thresholds.
pub fn run(scenario: &Scenario) -> Result<Outcome, ScenarioError> {
    let mut columns: Vec<String> = scenario.vary.iter().map(|vary| vary.parameter.to_string()).collect();
    let heads = ["formula", "structure", "E, MB", "q", "k1", "k2", "JCT, s", "over the best, %"];
    columns.extend(heads.map(str::to_owned));
    let mut table = Table { title: scenario.title.clone(), columns, rows: Vec::new() };
    let mut worst_paper = 0.0_f64;
    for (values, scenario) in points(scenario)? {
        let load = scenario.model_load()?;
        let search = scenario.search()?;
        let (growth, from) =
            if scenario.jobs.sizes == super::options::SizesName::Exponential { PAPER[0] } else { PAPER[1] };
        for (name, formula) in [("paper", Formula::Paper), ("exact", Formula::Exact)] {
            let find = |search: &Search| load.best(search, formula);
            let with = |linear: Linear| find(&Search { linear, ..search.clone() });
            let paper = (from..search.queues)
                .filter_map(|to| {
                    find(&Search {
                        growth: vec![growth],
                        linear: Linear::Between { from, to },
                        ..search.clone()
                    })
                })
                .min_by(|a, b| a.completion.total_cmp(&b.completion));
            let all: [(&str, Option<Best>); 5] = [
                ("any", find(&search)),
                ("geometric", with(Linear::Never)),
                ("linear", with(Linear::All)),
                ("the paper's q, k1", paper),
                ("one queue", find(&Search { queues: 1, linear: Linear::Never, ..search.clone() })),
            ];
            let Some(least) =
                all.iter().flat_map(|(_, best)| best).map(|best| best.completion).reduce(f64::min)
            else {
                return Err(ScenarioError::Invalid("the model finds no thresholds".to_owned()));
            };
            for (structure, best) in all {
                let Some(Best { shape, completion }) = best else { continue };
                let above = 100.0 * (completion / least - 1.0);
                if structure == "the paper's q, k1" {
                    worst_paper = worst_paper.max(above);
                }
                let mut row: Vec<String> = values.iter().map(|value| number_short(*value)).collect();
                row.extend([name.to_owned(), structure.to_owned()]);
                row.extend([format!("{:.1}", shape.first / 1e6), number_short(shape.growth)]);
                row.extend([shape.linear_from.to_string(), shape.linear_to.to_string()]);
                row.extend([format!("{completion:.4}"), format!("{above:.2}")]);
                table.rows.push(row);
            }
        }
    }
    let mut outcome = Outcome::default();
    outcome.remarks.push("Closed form for one board; nothing was simulated.".to_owned());
    outcome.push("paper_over_best_percent_most", worst_paper);
    outcome.tables.push(table);
    Ok(outcome)
}
