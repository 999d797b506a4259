//! What moves that save cold starts bring: a live cluster with modelled boards, with the registry's moves off and on, and
//! `fpga-sim`, for the same requests.
//!
//! Control plane, scheduler, collectors, device managers, functions and registry are real; the boards are modelled
//! (`fpga-device-manager serve --model`). A function has two pods, of which one serves: a Ready pod goes only where its
//! Deployment goes on without it. At the start half of the nodes have all pods that serve.

mod client;
mod functions;
mod requests;
mod simulation;

use super::modelled::{Boards, Late, Site, Verdict, of_managers};
use anyhow::{Result, ensure};
use fpga_tests::testbed::cluster::Cluster;
use fpga_tests::testbed::registry::{self, Registry, records};
use functions::Functions;
use requests::Requests;
use std::fmt;
use std::time::Duration;
use tokio::time::Instant;

/// Time that a request has its slot, without loading.
const BOARD_TIME: Duration = Duration::from_millis(2);
/// The managers' metric of bitstreams that they have loaded.
const LOADS: &str = "reconfigurations_total";
/// Time until the first request.
const SOON: Duration = Duration::from_millis(200);
/// Seeds of the requests whose simulated results give the interval.
const SEEDS: u64 = 9;

/// Compares cold starts with moves off and on, live and in fpga-sim, for the same requests.
#[derive(Debug, clap::Args)]
#[command(after_help = "Example: fpga-bench moves --seconds 150 --interval 10")]
pub struct Args {
    /// Length of a run, in seconds; the last third is counted.
    #[arg(long, default_value_t = 150, value_parser = clap::value_parser!(u16).range(15..=3600))]
    seconds: u16,
    /// Number of nodes, each with a board.
    #[arg(long, default_value_t = 4, value_parser = clap::value_parser!(u32).range(2..=20))]
    nodes: u32,
    /// Number of slots of each board.
    #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u32).range(1..=64))]
    slots: u32,
    /// Number of functions.
    #[arg(long, default_value_t = 12, value_parser = clap::value_parser!(u16).range(1..=100))]
    functions: u16,
    /// Requests of a function in a second, on average.
    #[arg(long, default_value_t = 2.0)]
    rate: f64,
    /// How requests come.
    #[arg(long, value_enum, default_value_t = Arrivals::Random)]
    arrivals: Arrivals,
    /// Time to load a bitstream, in milliseconds.
    #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u16).range(1..=1000))]
    reconfiguration_ms: u16,
    /// Time between two looks for moves, in seconds.
    #[arg(long, default_value_t = 10)]
    interval: u16,
    /// Least number of cold starts in an hour that a move must save.
    #[arg(long, default_value_t = 60)]
    least_gain: u32,
    /// Seed of the requests.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Only simulate: to see what a run would show.
    #[arg(long)]
    dry_run: bool,
    #[command(flatten)]
    verdict: Verdict,
}

/// How requests come.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Arrivals {
    /// At random, each function for itself.
    Random,
    /// One function after the other, so that each board's functions take turns.
    InTurn,
}

/// Whether pods are moved.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Moves {
    Off,
    On,
}

impl fmt::Display for Moves {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Off => "off",
            Self::On => "on",
        })
    }
}

/// The result of a run.
#[derive(Debug, Clone, Copy)]
struct Counted {
    /// Cold starts in the last third.
    cold: f64,
    /// Functions that were moved.
    moves: usize,
}

/// The simulator's results.
#[derive(Debug, Clone, Copy)]
struct Simulated {
    /// For the requests of the live run.
    same: Counted,
    /// Least and most cold starts of [`SEEDS`] seeds.
    interval: (f64, f64),
}

impl Args {
    /// Runs the comparison and prints it.
    ///
    /// # Errors
    /// A prerequisite is missing, a part of the cluster fails, or a live run is outside the simulator's interval or shows
    /// nothing.
    pub async fn run(self) -> Result<()> {
        ensure!(self.rate > 0.0 && self.rate <= 50.0, "--rate {} can't be; write 0.1 to 50", self.rate);
        let requests = Requests::new(&self, self.seed);
        println!(
            "The boards are MODELLED: the times of kernels and loads are those of a model, none is measured on a board.\n\
             {} nodes with {} slots, {} ms per load; {} functions, {} requests in {} s, of which the last third is \
             counted; a look for moves every {} s.\n",
            self.nodes,
            self.slots,
            self.reconfiguration_ms,
            self.functions,
            requests.all.len(),
            self.seconds,
            self.interval,
        );
        let site = if self.dry_run { None } else { Some(Site::build(self.functions)?) };
        println!("| moves | live, cold starts/h | moved | fpga-sim, cold starts/h | moved | its interval |");
        println!("|---|---|---|---|---|---|");
        let (mut notes, mut faults) = (Vec::new(), Vec::new());
        for moves in [Moves::Off, Moves::On] {
            let Simulated { same, interval: (least, most) } = self.simulated(moves, &requests)?;
            let mut live_cells = " | ".to_owned();
            if let Some(site) = &site {
                let (live, late) = self.live(moves, &requests, site).await?;
                let is_within = (least..=most).contains(&live.cold);
                let told = if is_within { "within" } else { "OUTSIDE" };
                notes.push(format!("Moves {moves}: the live run is {told} the interval; {late}."));
                if !is_within {
                    faults.push(format!(
                        "OUTSIDE: moves {moves}: the live run is not in the simulator's interval"
                    ));
                }
                if late.is_void() {
                    faults.push(format!("VOID: moves {moves}: {late}"));
                    notes.push(
                        "The machine was too slow for the model's times: it may be for its cold starts."
                            .to_owned(),
                    );
                }
                live_cells = format!("{:.0} | {}", self.per_hour(live.cold), live.moves);
            }
            println!(
                "| {moves} | {live_cells} | {:.0} | {} | {:.0} to {:.0} |",
                self.per_hour(same.cold),
                same.moves,
                self.per_hour(least),
                self.per_hour(most),
            );
        }
        println!("\nThe interval: the least and the most of {SEEDS} seeds of the requests.");
        notes.iter().for_each(|note| println!("{note}"));
        self.verdict.judge(&faults)
    }

    fn simulated(&self, moves: Moves, requests: &Requests) -> Result<Simulated> {
        let same = simulation::run(self, moves, requests)?;
        let (mut least, mut most) = (same.cold, same.cold);
        for seed in 1..=SEEDS {
            let other = simulation::run(self, moves, &Requests::new(self, seed))?;
            (least, most) = (least.min(other.cold), most.max(other.cold));
        }
        Ok(Simulated { same, interval: (least, most) })
    }

    /// Plays the requests once, in a cluster whose boards are empty.
    async fn live(&self, moves: Moves, requests: &Requests, site: &Site) -> Result<(Counted, Late)> {
        let cluster = site.start(&self.boards()).await?;
        registry::install(cluster.plane()).await?;
        eprintln!("deploying {} functions with two pods each", self.functions);
        let functions = Functions::deploy(&cluster, self, site).await?;
        let registry = match moves {
            Moves::Off => None,
            Moves::On => Some(self.start_registry(&cluster).await?),
        };
        eprintln!("playing {} requests in {} s, moves {moves}", requests.all.len(), self.seconds);
        let begin = Late::read(&cluster).await?;
        let start = Instant::now() + SOON;
        let counted = async {
            tokio::time::sleep_until(start + self.counted_from()).await;
            of_managers(&cluster, LOADS).await
        };
        let ((), before) = tokio::try_join!(client::play(requests, start, &functions, &cluster), counted)?;
        let cold = of_managers(&cluster, LOADS).await? - before;
        let late = Late::read(&cluster).await? - begin;
        let moved = records(cluster.plane().client(), "moves.json").await?.len();
        registry.iter().try_for_each(|registry| registry.process().check_running())?;
        drop(registry);
        cluster.check_running()?;
        cluster.stop().await;
        Ok((Counted { cold, moves: moved }, late))
    }

    async fn start_registry(&self, cluster: &Cluster) -> Result<Registry> {
        let (least, interval) = (self.least_gain.to_string(), format!("{}s", self.interval));
        let args = [
            "--moves",
            "evict",
            "--moves-per-hour",
            "200",
            "--moves-cool-down",
            "0",
            "--moves-least-gain",
            &least,
            "--rebalance-interval",
            &interval,
        ];
        Registry::start(cluster.plane(), cluster.http(), "registry", &args).await
    }

    fn counted_from(&self) -> Duration {
        Duration::from_secs(self.seconds.into()) * 2 / 3
    }

    /// Cold starts in an hour, of those in the last third.
    fn per_hour(&self, cold: f64) -> f64 {
        cold / (f64::from(self.seconds) / 3.0) * 3_600.0
    }

    /// The nodes of each function's pods: of the one that serves, and of the one that stands by.
    fn placed(&self) -> Vec<(u32, u32)> {
        let crowded = self.nodes / 2;
        let functions = 0..u32::from(self.functions);
        functions.map(|function| (function % crowded, crowded + function % (self.nodes - crowded))).collect()
    }

    fn boards(&self) -> Boards {
        Boards {
            nodes: self.nodes,
            slots: self.slots,
            reconfiguration: Duration::from_millis(self.reconfiguration_ms.into()),
            collector_args: &["--min-write-interval", "1s", "--heartbeat", "2s"],
        }
    }
}
