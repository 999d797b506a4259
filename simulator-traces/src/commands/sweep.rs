//! `fpga-sim sweep`: runs a scenario with all combinations of some values.

use super::grid::{combinations, run_all};
use crate::outcome::{Table, number};
use crate::output::print;
use anyhow::{Context as _, bail};
use clap::Args;
use std::path::PathBuf;

/// Runs a scenario with all combinations of some values, on all cores.
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  fpga-sim sweep --scenario scenario.toml --vary cluster.nodes=10,20,40 \
                  --vary placement.weights=0-0-0,1-2-2 --metric cold_share_of_all --csv sweep.csv")]
pub struct Sweep {
    /// The scenario, a TOML file.
    #[arg(long, env = "FPGA_SIM_SCENARIO", value_name = "FILE")]
    scenario: PathBuf,
    /// A parameter and its values, `PATH=VALUE,VALUE…`; may be given again, once for each parameter.
    #[arg(long, env = "FPGA_SIM_VARY", value_name = "PATH=VALUES", value_delimiter = ';', required = true)]
    vary: Vec<String>,
    /// Metrics in the printed table; all if not given. The CSV file has all of them.
    #[arg(long, env = "FPGA_SIM_METRIC", value_name = "NAME", value_delimiter = ',')]
    metric: Vec<String>,
    /// File for all numbers as comma-separated values; each row names its trace.
    #[arg(long, env = "FPGA_SIM_CSV", value_name = "FILE")]
    csv: Option<PathBuf>,
    /// Number of runs at a time; as many as there are cores if not given.
    #[arg(long, env = "FPGA_SIM_THREADS")]
    threads: Option<usize>,
}

impl Sweep {
    /// Runs the command.
    ///
    /// # Errors
    /// If the scenario can't be read or one of its variants can't be run.
    pub fn run(&self) -> anyhow::Result<()> {
        let base =
            std::fs::read_to_string(&self.scenario).with_context(|| self.scenario.display().to_string())?;
        crate::scenario::Scenario::parse(&base)?;
        let parameters = self.vary.iter().map(|text| parameter(text)).collect::<anyhow::Result<Vec<_>>>()?;
        let runs = combinations(&parameters);
        let outcomes = run_all(&base, &runs, self.threads)?;
        let names: Vec<String> = outcomes
            .first()
            .map(|outcome| outcome.metrics.iter().map(|(name, _)| name.clone()).collect())
            .unwrap_or_default();
        let table = |shown: &dyn Fn(&str) -> bool, text: &dyn Fn(f64) -> String, remarks: Remarks| {
            let shown: Vec<&String> = names.iter().filter(|name| shown(name)).collect();
            let heads = parameters.iter().map(|(path, _)| path.clone());
            let rows = runs.iter().zip(&outcomes).map(|(changes, outcome)| {
                let values =
                    changes.iter().map(|change| change.split_once('=').map_or("", |(_, value)| value));
                let numbers = shown.iter().map(|name| outcome.metric(name).map_or_else(String::new, text));
                let remarks = (remarks == Remarks::InRows).then(|| outcome.remarks.join(" "));
                values.map(str::to_owned).chain(numbers).chain(remarks).collect()
            });
            let last = (remarks == Remarks::InRows).then(|| "remarks".to_owned());
            Table {
                title: String::new(),
                rows: rows.collect(),
                columns: heads.chain(shown.iter().map(|name| (*name).clone())).chain(last).collect(),
            }
        };
        if let Some(path) = &self.csv {
            let all = table(&|_| true, &|value| value.to_string(), Remarks::InRows).csv()?;
            std::fs::write(path, all).with_context(|| path.display().to_string())?;
        }
        // Runs may use several traces; print each remark once.
        let mut told: Vec<&String> = Vec::new();
        for remark in outcomes.iter().flat_map(|outcome| &outcome.remarks) {
            if !told.contains(&remark) {
                print(&format!("{remark}\n\n"))?;
                told.push(remark);
            }
        }
        if let Some(unknown) = self.metric.iter().find(|metric| !names.contains(metric)) {
            bail!("there is no metric {unknown:?}; write some of {}", names.join(", "));
        }
        let wanted = |name: &str| self.metric.is_empty() || self.metric.iter().any(|metric| metric == name);
        Ok(print(&table(&wanted, &number, Remarks::Before).markdown())?)
    }
}

/// The place of the remarks on traces.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Remarks {
    /// Before the table, each remark once.
    Before,
    /// In a last column, because rows may be taken out of files.
    InRows,
}

fn parameter(text: &str) -> anyhow::Result<(String, Vec<String>)> {
    let (path, values) = text.split_once('=').with_context(|| {
        format!("{text:?} varies nothing; write PATH=VALUE,VALUE, for example cluster.nodes=10,20")
    })?;
    Ok((path.to_owned(), values.split(',').map(str::to_owned).collect()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_row_of_the_file_says_of_which_trace_it_is() {
        let dir = tempfile::tempdir().unwrap();
        let (scenario, csv) = (dir.path().join("scenario.toml"), dir.path().join("sweep.csv"));
        std::fs::write(&scenario, "kind = \"placement\"\n[trace]\nrequests = 20000\nto_day = 0.05\n")
            .unwrap();
        let vary = vec!["trace.seed=1,2".to_owned()];
        let sweep = Sweep { scenario, vary, metric: Vec::new(), csv: Some(csv.clone()), threads: Some(1) };
        sweep.run().unwrap();
        let mut reader = csv::Reader::from_path(csv).unwrap();
        assert_eq!(reader.headers().unwrap().iter().next_back(), Some("remarks"));
        for (seed, row) in ["1", "2"].into_iter().zip(reader.records()) {
            let row = row.unwrap();
            let remark = format!("Trace: synthetic, seed {seed}, 20000 requests");
            assert!(row[0] == *seed && row[row.len() - 1].starts_with(&remark), "{row:?}");
        }
    }

    #[test]
    fn what_varies_nothing_is_told_with_what_to_write() {
        let error = parameter("cluster.nodes").unwrap_err().to_string();
        assert!(error.contains("write PATH=VALUE,VALUE"), "{error}");
    }
}
