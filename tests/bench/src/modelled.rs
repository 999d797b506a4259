//! Clusters whose boards are modelled, and functions that hold a slot of such a board for as long as a request says.

mod late;
mod verdict;

pub(super) use late::Late;
pub(super) use verdict::Verdict;

use anyhow::{Context as _, Result};
use fpga_sim::time::{Micros, SimTime};
use fpga_sim::trace::Request;
use fpga_tests::testbed::artifacts;
use fpga_tests::testbed::cluster::{BoardSpec, Cluster, ClusterSpec, ExtenderAway, NodeCache, Runtime};
use fpga_tests::testbed::workload::Workload;
use std::path::PathBuf;
use std::time::Duration;

/// Time of a work item on the modelled boards. Times of requests are multiples of it.
pub(super) const ITEM: Duration = Duration::from_micros(100);

/// Programs and bitstreams of the functions.
#[derive(Debug)]
pub(super) struct Site {
    runtime: Runtime,
    programs: PathBuf,
    bitstreams: PathBuf,
}

/// Nodes with a modelled board each.
#[derive(Debug)]
pub(super) struct Boards {
    /// Number of nodes.
    pub nodes: u32,
    /// Number of slots of each board.
    pub slots: u32,
    /// Time to load a bitstream, in whole microseconds.
    pub reconfiguration: Duration,
    /// Additional arguments of the collectors.
    pub collector_args: &'static [&'static str],
}

impl Site {
    /// Builds what so many functions need.
    pub fn build(functions: u16) -> Result<Self> {
        let runtime = Runtime::from_env()?;
        let bitstreams = artifacts::hold_bitstreams(runtime, functions)?;
        Ok(Self { runtime, programs: artifacts::functions()?, bitstreams })
    }

    /// A function with a bitstream of its own, which serves `workers` requests at a time.
    pub fn function(&self, function: usize, workers: usize) -> Workload {
        let bitstream = bitstream(function);
        let path = self.bitstreams.join(format!("{bitstream}.bitstream"));
        Workload::function(&name(function), &self.programs.join("hold"), &path)
            .requires("fpga-vendor", self.runtime.vendor())
            .env("OCL_PROFILE", "1")
            .env("WORKERS", workers.to_string())
    }

    /// Starts a cluster with empty boards.
    pub async fn start(&self, boards: &Boards) -> Result<Cluster> {
        // A device manager reads its model when it starts.
        let folder = tempfile::tempdir().context("can't make a temporary folder")?;
        let model = folder.path().join("board.toml");
        std::fs::write(&model, boards.model()).with_context(|| format!("can't write {}", model.display()))?;
        let board = |index| BoardSpec {
            slots: boards.slots,
            bitstreams: Some(self.bitstreams.clone()),
            collector_args: boards.collector_args.iter().copied().map(str::to_owned).collect(),
            device_manager_args: vec!["--model".to_owned(), model.display().to_string()],
            ..BoardSpec::new(&node_name(index), Some(self.runtime))
        };
        eprintln!("starting {} nodes with modelled boards", boards.nodes);
        Cluster::start(ClusterSpec {
            boards: (0..boards.nodes).map(board).collect(),
            weights: "0.5-2-2-1".to_owned(),
            node_cache: NodeCache::Capable,
            extender_away: ExtenderAway::Wait,
            extender_args: Vec::new(),
        })
        .await
    }
}

impl Boards {
    fn model(&self) -> String {
        format!(
            "board = \"a board of fpga-bench\"\nreconfiguration = \"{}us\"\n\n[[kernel]]\nname = \"hold\"\n\
             items_per_second = {:.1}\n",
            self.reconfiguration.as_micros(),
            1.0 / ITEM.as_secs_f64(),
        )
    }
}

/// Name of a node.
pub(super) fn node_name(index: u32) -> String {
    format!("board-{index}")
}

/// Name of a function.
pub(super) fn name(function: usize) -> String {
    format!("function-{function}")
}

/// Name of the bitstream of a function.
pub(super) fn bitstream(function: usize) -> String {
    format!("hold-{function}")
}

/// The sum of a metric over all device managers.
pub(super) async fn of_managers(cluster: &Cluster, metric: &str) -> Result<f64> {
    let mut sum = 0.0;
    for board in &cluster.boards {
        let metrics = cluster.http().get(&board.manager_metrics_url()).await?;
        sum += metrics.metric(&format!("fpga_device_manager_{metric}"));
    }
    Ok(sum)
}

/// A request for fpga-sim; `at` and `board`, the time on the board, have whole microseconds.
pub(super) fn simulated(at: Duration, function: usize, board: Duration) -> Result<Request> {
    let micros = |duration: Duration| u64::try_from(duration.as_micros()).context("a time is too long");
    let function = u32::try_from(function)?;
    Ok(Request { at: SimTime(micros(at)?), duration: Micros(micros(board)?), function, app: function })
}
