//! A live cluster with modelled boards against `fpga-sim`, for the same requests: an hour of a trace, compressed in
//! time, of functions with several replicas each. Control plane, scheduler, collectors, device managers, functions, Envoy
//! and the endpoint picker are real; the boards are modelled (`fpga-device-manager serve --model`).
//!
//! The simulator gets the replicas' nodes as kube-scheduler chose them, and the time that a request takes beside its
//! board, so that both differ in nothing but how requests are served.

mod client;
mod front_door;
mod functions;
pub(crate) mod plan;
mod report;
mod simulation;

use super::modelled::{Boards, Late, Site, of_managers};
use anyhow::{Context as _, Result, ensure};
use fpga_tests::testbed::cluster::Cluster;
use front_door::FrontDoor;
use functions::Functions;
use plan::Plan;
use report::{Comparison, Totals};
use simulation::Turns;
use std::fmt;
use std::path::PathBuf;
use std::time::Duration;
use tokio::time::Instant;

/// Time until the first request may be sent.
const SOON: Duration = Duration::from_millis(200);

/// Compares cold starts and waits for a slot of a live cluster with modelled boards with fpga-sim, for the same requests.
#[derive(Debug, clap::Args)]
#[command(after_help = "Example: fpga-bench live-model --seconds 180 --csv requests.csv")]
pub struct Args {
    /// Length of the compressed hour, in seconds.
    #[arg(long, default_value_t = 180, value_parser = clap::value_parser!(u16).range(10..=3600))]
    seconds: u16,
    /// First part of that in which requests are served, but not counted, in seconds: at the start the boards have what
    /// the functions loaded for themselves, and those of fpga-sim nothing.
    #[arg(long, default_value_t = 60, value_name = "SECONDS")]
    warm_up: u16,
    /// Number of nodes, each with a board.
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u8).range(1..=40))]
    nodes: u8,
    /// Number of slots of each board.
    #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u32).range(1..=64))]
    slots: u32,
    /// Number of functions: those that are called most in the hour.
    #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u16).range(1..=400))]
    functions: u16,
    /// Number of replicas of each function.
    #[arg(long, default_value_t = 4, value_parser = clap::value_parser!(u8).range(1..=40))]
    replicas: u8,
    /// Time to load a bitstream, in milliseconds of the trace.
    #[arg(long, default_value_t = 400)]
    reconfiguration_ms: u32,
    /// The trace, in the Azure Functions 2021 schema [default: the synthetic trace].
    #[arg(long, value_name = "FILE")]
    trace: Option<PathBuf>,
    /// The hour of the trace, from 0.
    #[arg(long, default_value_t = 60)]
    hour: u32,
    /// Share of the requests that use a board.
    #[arg(long, default_value_t = 0.5)]
    share: f64,
    /// How requests are sent to replicas; several, one after the other, each in a cluster of its own.
    #[arg(long, value_delimiter = ',', default_value = "in-turn,picker")]
    routing: Vec<Routing>,
    /// Only simulate, with replicas spread evenly: to see what a run would show.
    #[arg(long)]
    dry_run: bool,
    /// For the simulator: time of a request beside its board, in microseconds; half of it is before the board
    /// [default: as the live run has it; 0 with --dry-run].
    #[arg(long, value_name = "MICROSECONDS")]
    way_us: Option<u32>,
    /// File for the single requests, live and simulated.
    #[arg(long, value_name = "FILE")]
    csv: Option<PathBuf>,
}

/// How requests are sent to replicas.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Routing {
    /// Envoy sends to each replica in turn: no router.
    InTurn,
    /// Envoy asks the endpoint picker.
    Picker,
}

impl Routing {
    /// The setting of the simulator.
    fn policy(self) -> &'static str {
        match self {
            Self::InTurn => "round-robin",
            Self::Picker => "tracked",
        }
    }
}

impl fmt::Display for Routing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::InTurn => "replicas in turn",
            Self::Picker => "by the endpoint picker",
        })
    }
}

impl Args {
    /// Runs the comparison and prints it.
    ///
    /// # Errors
    /// A prerequisite is missing, or a part of the cluster fails.
    pub async fn run(self) -> Result<()> {
        ensure!(
            self.warm_up < self.seconds,
            "--warm-up {} is not below --seconds {}: nothing would be counted",
            self.warm_up,
            self.seconds
        );
        let plan = Plan::read(&self)?;
        println!("{}", plan.told(&self));
        if self.dry_run {
            for routing in &self.routing {
                let placed = simulation::spread(self.functions.into(), self.replicas, self.nodes);
                let way = Duration::from_micros(self.way_us.unwrap_or(0).into());
                let draws = simulation::draws(&self, *routing, &plan, (&placed, Turns::Any), way)?;
                let counted = plan.requests.iter().filter(|planned| planned.at >= self.warm_up()).count();
                println!("{}", report::summary(&format!("fpga-sim, {routing}"), counted, &draws));
            }
            return Ok(());
        }
        let site = Site::build(self.functions)?;
        let mut csv = String::new();
        for routing in &self.routing {
            let comparison = self.compare(*routing, &plan, &site).await?;
            println!("\n{comparison}");
            csv.push_str(&comparison.csv());
        }
        if let Some(path) = &self.csv {
            std::fs::write(path, csv).with_context(|| format!("can't write {}", path.display()))?;
        }
        Ok(())
    }

    /// Plays the plan once, in a cluster whose boards are empty.
    async fn compare(&self, routing: Routing, plan: &Plan, site: &Site) -> Result<Comparison> {
        let cluster = site.start(&self.boards()).await?;
        eprintln!("deploying {} functions with {} replicas each", self.functions, self.replicas);
        let functions = Functions::deploy(&cluster, plan, self.replicas, site).await?;
        let door = FrontDoor::open(&cluster, &functions, routing).await?;
        eprintln!("playing {} requests in {} s, {routing}", plan.requests.len(), self.seconds);
        let start = Instant::now() + SOON;
        let (live, warm) = tokio::try_join!(client::play(plan, start, &functions, &door), async {
            tokio::time::sleep_until(start + self.warm_up()).await;
            figures(&cluster).await
        })?;
        door.check_running()?;
        cluster.check_running()?;
        let (totals, late) = figures(&cluster).await?;
        let (totals, late) = (totals - warm.0, late - warm.1);
        let (placed, turns) = match routing {
            Routing::InTurn => (simulation::in_order_of_turns(&live, functions.placed()), Turns::Live),
            Routing::Picker => (functions.placed(), Turns::Any),
        };
        let live: Vec<_> = live.into_iter().filter(|served| served.planned.at >= self.warm_up()).collect();
        drop(door);
        cluster.stop().await;
        let way = self.way_us.map_or_else(
            || report::way(&live, self.reconfiguration()),
            |way| Duration::from_micros(way.into()),
        );
        let draws = simulation::draws(self, routing, plan, (&placed, turns), way)?;
        let (simulated, _) = simulation::run(self, routing, plan, placed, way)?;
        Ok(Comparison { routing, way, live: (live, totals), simulated, draws, late })
    }

    /// Compressed time divided by the trace's time.
    fn scale(&self) -> f64 {
        f64::from(self.seconds) / 3600.0
    }

    fn warm_up(&self) -> Duration {
        Duration::from_secs(self.warm_up.into())
    }

    /// Compressed time to load a bitstream, in whole microseconds.
    fn reconfiguration(&self) -> Duration {
        let time = Duration::from_millis(self.reconfiguration_ms.into()).mul_f64(self.scale());
        Duration::from_micros(u64::try_from(time.as_micros()).unwrap_or(u64::MAX))
    }

    fn boards(&self) -> Boards {
        Boards {
            nodes: self.nodes.into(),
            slots: self.slots,
            reconfiguration: self.reconfiguration(),
            collector_args: &[],
        }
    }
}

/// The figures of all device managers.
async fn figures(cluster: &Cluster) -> Result<(Totals, Late)> {
    let totals = Totals {
        cold: of_managers(cluster, "reconfigurations_total").await?,
        wait_seconds: of_managers(cluster, "tenant_queue_seconds_total").await?,
    };
    Ok((totals, Late::read(cluster).await?))
}
