//! What became of the goals, live and simulated.

use super::board::Played;
use super::experiment::{Experiment, Scenario};
use fpga_sim::pool::measures::Estimate;
use fpga_sim::qos::engine::Run;
use fpga_sim::qos::traces::{Reached, goal_text};
use std::fmt;

/// The table of all experiments.
#[derive(Debug)]
pub(super) struct Report {
    faster: f64,
    runs: u32,
    rows: Vec<String>,
}

impl Report {
    pub fn new(faster: f64, runs: u32) -> Self {
        Self { faster, runs, rows: Vec::new() }
    }

    /// What runs.
    pub fn head(&self) -> String {
        format!(
            "A modelled board: times are those of a model, none is measured on a board. Everything is {} times as fast as \
             in the paper; all figures are in the paper's time.",
            self.faster
        )
    }

    pub fn add(&mut self, experiment: &Experiment, scenario: &Scenario, simulated: &Run, live: &[Played]) {
        let void = live.iter().filter(|run| run.is_void).count();
        for (index, job) in scenario.jobs.iter().enumerate() {
            let Some(model) = Reached::of(index, job, simulated) else { continue };
            let reached: Vec<Reached> =
                live.iter().filter_map(|played| Reached::of(index, job, &played.run)).collect();
            let over =
                |of: fn(&Reached) -> f64| Estimate::of(&reached.iter().map(of).collect::<Vec<_>>()).text(1);
            let latest = reached.iter().map(|reached| reached.end).fold(0.0, f64::max);
            let least = |reached: &Reached| reached.least.unwrap_or(f64::NAN);
            let lowest = reached.iter().map(least).fold(f64::INFINITY, f64::min);
            let met = reached.iter().filter(|reached| reached.is_met).count();
            self.rows.push(format!(
                "| {} | {} | {} | {:.1} | {latest:.1} | {} | {:.1} | {lowest:.1} | {:.1} | {met} of {} | {} | {void} |",
                experiment.title,
                goal_text(job.goal),
                over(|reached| reached.end),
                model.end,
                over(|reached| reached.mean),
                model.mean,
                least(&model),
                live.len(),
                if model.is_met { "yes" } else { "no" },
            ));
        }
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "| experiment | goal | end live, s | end fpga-sim, s | latest end live, s | mean live, /s | mean fpga-sim, /s | \
             least over 5 s live, /s | least over 5 s fpga-sim, /s | met live | met in fpga-sim | void runs |"
        )?;
        writeln!(f, "|---|---|---|---|---|---|---|---|---|---|---|---|")?;
        for row in &self.rows {
            writeln!(f, "{row}")?;
        }
        write!(f, "\n± is half of the 95 % interval over {} runs.", self.runs)
    }
}
