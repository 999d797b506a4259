//! `fpga-sim run`: runs one scenario once.

use crate::outcome::Format;
use crate::output::print;
use crate::scenario::Scenario;
use anyhow::{Context as _, bail};
use clap::Args;
use std::path::PathBuf;

/// Runs a scenario and prints its outcome.
#[derive(Debug, Args)]
#[command(
    after_help = "Example:\n  fpga-sim run --scenario scenario.toml --set cluster.nodes=20 --format json"
)]
pub struct Run {
    /// The scenario, a TOML file with `kind = "placement"`, `"pool"` or `"qos"`.
    #[arg(long, env = "FPGA_SIM_SCENARIO", value_name = "FILE")]
    scenario: PathBuf,
    /// Changes one value of the scenario, `PATH=VALUE`; may be given again.
    #[arg(long = "set", env = "FPGA_SIM_SET", value_name = "PATH=VALUE", value_delimiter = ';')]
    set: Vec<String>,
    /// Format of the outcome.
    #[arg(long, env = "FPGA_SIM_FORMAT", value_enum, default_value_t = Format::Markdown)]
    format: Format,
    /// A folder for the series of figures, as comma-separated values: `nodes.csv` and `samples.csv` of a placement,
    /// `runs.csv` of a pool, `jobs.csv` of QoS.
    #[arg(long, env = "FPGA_SIM_SERIES", value_name = "FOLDER")]
    series: Option<PathBuf>,
}

impl Run {
    /// Runs the command.
    ///
    /// # Errors
    /// If the scenario can't be read, is invalid, or has no requests; if an invariant of the simulation was broken;
    /// if a file can't be written.
    pub fn run(&self) -> anyhow::Result<()> {
        let outcome = Scenario::read(&self.scenario, &self.set)?.run()?;
        if outcome.metric("requests") == Some(0.0) {
            bail!(
                "{} No request lies within the scenario's days; look at trace.from_day and trace.to_day",
                outcome.remarks.join(" ")
            );
        }
        if let Some(folder) = &self.series {
            std::fs::create_dir_all(folder).with_context(|| folder.display().to_string())?;
            for series in &outcome.series {
                let path = folder.join(format!("{}.csv", series.title));
                std::fs::write(&path, series.csv()?).with_context(|| path.display().to_string())?;
            }
        }
        Ok(print(&outcome.render(self.format)?)?)
    }
}
