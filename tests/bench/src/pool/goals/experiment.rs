//! The experiments: files of `fpga-sim`, by the rules of a shared pool.

use anyhow::{Result, bail};
use fpga_sim::qos;
use fpga_sim::qos::engine::{Job, Machine, Run, simulate};
use fpga_sim::qos::options::PolicyName;
use fpga_sim::scenario::Scenario as File;
use fpga_tests::testbed::programs::repository;

/// One experiment.
#[derive(Debug, Clone, Copy)]
pub(super) struct Experiment {
    /// What it shows.
    pub title: &'static str,
    /// Name of the file in `simulator-traces/scenarios/qos`.
    file: &'static str,
    /// Share of its time by which a group wants to be done before its deadline.
    pub margin: f64,
}

/// All experiments (Q-7, Figures 4 to 7).
pub(super) const EXPERIMENTS: [Experiment; 5] = [
    Experiment { title: "deadlines, margin of 3 %", file: "deadlines-margin", margin: 0.03 },
    Experiment { title: "deadlines, no margin", file: "deadlines-margin", margin: 0.0 },
    Experiment { title: "30/s alone", file: "throughput-30", margin: 0.03 },
    Experiment { title: "60/s alone", file: "throughput-60", margin: 0.03 },
    Experiment { title: "60/s and 20/s together", file: "throughput-together", margin: 0.03 },
];

/// The machine and the requests of an experiment.
#[derive(Debug)]
pub(super) struct Scenario {
    /// The devices.
    pub machine: Machine,
    /// The requests, all of which come at the beginning.
    pub jobs: Vec<Job>,
    of_simulator: Box<qos::Scenario>,
}

impl Experiment {
    /// The machine and the requests.
    pub fn scenario(&self) -> Result<Scenario> {
        let path = repository().join(format!("simulator-traces/scenarios/qos/{}.toml", self.file));
        let changes = ["control.rules=\"pool\"".to_owned(), format!("control.margin={}", self.margin)];
        let File::Qos(of_simulator) = File::read(&path, &changes)? else {
            bail!("{} is no scenario of kind qos", path.display());
        };
        Ok(Scenario { machine: of_simulator.machine()?, jobs: of_simulator.jobs()?, of_simulator })
    }
}

impl Scenario {
    /// What `fpga-sim` makes of the requests.
    pub fn simulate(&self) -> Result<Run> {
        let policy = self.of_simulator.policy(PolicyName::Throughput)?;
        Ok(simulate(&self.machine, policy, &self.jobs)?)
    }
}
