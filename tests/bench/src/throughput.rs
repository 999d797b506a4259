//! Pods per second of a real kube-scheduler, as a scheduler of our own and as the cluster's. A correctness gate comes
//! first, because a configuration that loses candidates is fast and useless.

mod cluster;
mod own;

use super::report::median;
use super::start_do_nothing_extender;
use anyhow::{Context as _, Result, ensure};
use fpga_tests::testbed::control_plane::SchedulerConfig;
use fpga_tests::testbed::process::Process;
use fpga_tests::testbed::scale::ScaleBed;
use fpga_tests::testbed::scale::bound;
use fpga_tests::testbed::scale::nodes::Ground;
use fpga_tests::testbed::scale::pods::Kind;
use std::io::IsTerminal as _;
use std::time::Duration;

const NOTHING_PORT: u16 = 9471;
/// Longest time for all pods of a run.
const LONG: Duration = Duration::from_secs(120);
const GATE_PODS: usize = 100;

const EXAMPLES: &str = "Examples:
  fpga-bench throughput --pods 1500 --rounds 3
  fpga-bench throughput --wiring own --nodes 200,1000,5000 --boards 300
  fpga-bench throughput --wiring cluster --only ordinary";

/// Measures how many pods per second kube-scheduler places, with and without extenders.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// Number of pods that wait when kube-scheduler starts.
    #[arg(long, default_value_t = 1_500, value_parser = clap::value_parser!(u16).range(100..=20_000))]
    pods: u16,
    /// Number of rounds; the table has the medians.
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u16).range(1..=20))]
    rounds: u16,
    /// The wiring that is measured: a scheduler of our own, the cluster's, or both.
    #[arg(long, value_enum, default_value_t = Wiring::Both)]
    wiring: Wiring,
    /// Sizes of the cluster for a scheduler of our own, in nodes.
    #[arg(long, value_delimiter = ',', default_value = "200,1000,5000", value_parser = clap::value_parser!(u16).range(10..=10_000))]
    nodes: Vec<u16>,
    /// Nodes with boards for a scheduler of our own; at most all.
    #[arg(long, default_value_t = 300, value_parser = clap::value_parser!(u16).range(1..=300))]
    boards: u16,
    /// For the cluster's scheduler: percentageOfNodesToScore with both extenders instead of the shipped value; 0 lets kube-scheduler choose.
    #[arg(long, value_name = "PERCENT", value_parser = clap::value_parser!(u8).range(0..=100))]
    sampling: Option<u8>,
    /// For the cluster's scheduler: only rows whose title contains this text, such as `--only ordinary`.
    #[arg(long, value_name = "TEXT", default_value = "")]
    only: String,
}

/// Which kube-scheduler calls the extender.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Wiring {
    /// A scheduler of our own, for pods that ask for boards, which nodes advertise.
    Own,
    /// The cluster's scheduler, which ignores the resource.
    Cluster,
    Both,
}

impl Args {
    /// Checks the correctness gates, measures, and prints the tables.
    ///
    /// # Errors
    /// A gate fails, or a program does not start.
    pub async fn run(self) -> Result<()> {
        if self.wiring != Wiring::Cluster {
            self.measure_own().await?;
        }
        if self.wiring != Wiring::Own {
            self.measure_cluster().await?;
        }
        Ok(())
    }
}

/// A cluster with both extenders.
struct Bench {
    bed: ScaleBed,
    _nothing: Process,
}

/// What is measured: kube-scheduler with this configuration places pods of this kind.
struct Arm {
    name: &'static str,
    config: SchedulerConfig,
    kind: Kind,
}

impl Bench {
    async fn start(ground: Ground) -> Result<Self> {
        let mut bed = ScaleBed::start(ground).await?;
        bed.start_extender(&[]).await?;
        let address = format!("{}:{NOTHING_PORT}", bed.plane().network().control_plane());
        let nothing = start_do_nothing_extender(&address, bed.plane().run_dir()).await?;
        Ok(Self { bed, _nothing: nothing })
    }

    /// The URL of the do-nothing extender.
    fn nothing(&self) -> String {
        format!("http://{}:{NOTHING_PORT}", self.bed.plane().network().control_plane())
    }

    /// The URL of our extender.
    fn ours(&self) -> String {
        self.bed.extender_url("")
    }

    /// The medians of the arms' rates in pods per second.
    async fn rates<const N: usize>(&mut self, args: &Args, title: &str, arms: [Arm; N]) -> Result<[f64; N]> {
        let mut rates = [const { Vec::new() }; N];
        for round in 0..usize::from(args.rounds) {
            for turn in 0..N {
                // Each arm comes first in some round.
                let turn = (turn + round) % N;
                let Arm { name, config, kind } = &arms[turn];
                progress(&format!("{title}, round {}, {name}", round + 1));
                let config = config.clone().unthrottled()?;
                rates[turn].push(one_run(&mut self.bed, &config, *kind, args.pods.into()).await?);
            }
        }
        progress("");
        Ok(rates.map(median))
    }

    async fn stop(self) -> Result<()> {
        let errors = self.bed.metric("fpga_extender_errors_total").await?;
        ensure!(errors < 0.5, "{errors} requests to our extender failed; the figures are worth nothing");
        self.bed.stop().await;
        Ok(())
    }
}

/// Shows the current step, on a terminal only.
fn progress(text: &str) {
    if std::io::stderr().is_terminal() {
        eprint!("\r{text:80}\r");
    }
}

/// Pods per second of one run, from the first bound pod to the last.
async fn one_run(bed: &mut ScaleBed, config: &SchedulerConfig, kind: Kind, count: usize) -> Result<f64> {
    const THE_BATCH: &str = "load";
    bed.create_pods(THE_BATCH, kind, count).await?;
    let pods = bed.pods();
    let watch = tokio::spawn(async move { bound::watch(&pods, THE_BATCH, count, LONG).await });
    bed.start_scheduler(config).await?;
    let seen = watch.await.context("the watch failed")??;
    bed.stop_scheduler().await;
    bed.delete_pods(THE_BATCH).await?;
    ensure!(seen.len() == count, "only {} of {count} pods were placed in {LONG:?}", seen.len());
    Ok(bound::rate(&seen))
}
