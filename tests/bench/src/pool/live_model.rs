//! The same jobs in the live pool and in `fpga-sim`, for each policy and several seeds.

use super::client;
use super::fabric::{Fabric, Lateness};
use super::machines::{Machines, PieceOrder};
use super::policy::Policy;
use super::report::{Compared, Report};
use super::site::Site;
use anyhow::{Result, ensure};
use fpga_sim::pool::engine::simulate;
use fpga_sim::pool::measures::Measures;
use futures::future::try_join_all;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};

/// Compares completion times and locality of the live pool on modelled boards with fpga-sim, for the same jobs.
#[derive(Debug, clap::Args)]
#[command(after_help = "Example: fpga-bench pool live-model --seeds 2 --policies fifo,wra")]
pub(super) struct Args {
    /// Number of seeds, from 1.
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u64).range(1..=100))]
    seeds: u64,
    /// The policies.
    #[arg(long, value_enum, value_delimiter = ',', default_values_t = [Policy::Fifo, Policy::Sjf, Policy::Ra, Policy::Wa, Policy::Wra])]
    policies: Vec<Policy>,
    /// Number of nodes with a board.
    #[arg(long, default_value_t = 8, value_parser = clap::value_parser!(u32).range(1..=16))]
    boards: u32,
    /// Number of nodes without one.
    #[arg(long, default_value_t = 8, value_parser = clap::value_parser!(u32).range(0..=48))]
    bare: u32,
    /// Slots of each board.
    #[arg(long, default_value_t = 4, value_parser = clap::value_parser!(u32).range(1..=16))]
    slots: u32,
    /// Number of jobs of each node.
    #[arg(long, default_value_t = 50, value_parser = clap::value_parser!(u32).range(1..=1000))]
    jobs: u32,
    /// Bytes that come per second, over what the boards can process.
    #[arg(long, default_value_t = 1.2)]
    load: f64,
    /// Divisor of the paper's sizes of jobs.
    #[arg(long, default_value_t = 1000.0)]
    smaller: f64,
    /// Divisor of the paper's rates of network cards and boards; the same as --smaller leaves all times as they are.
    #[arg(long, default_value_t = 3000.0)]
    slower: f64,
    /// Pieces of a job of mean size.
    #[arg(long, default_value_t = 8, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pieces: u32,
    /// Number of seeds that are played at once, each on machines of its own.
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u64).range(1..=100))]
    at_once: u64,
    /// Only simulate: to see what a run would show, and how long it would take.
    #[arg(long)]
    dry_run: bool,
}

impl Args {
    /// Runs the comparison and prints it.
    ///
    /// # Errors
    /// A prerequisite is missing, a job fails, or a result is wrong.
    pub async fn run(self) -> Result<()> {
        let machines = self.machines();
        ensure!(
            self.smaller >= 1.0 && self.slower >= 1.0,
            "--smaller and --slower are divisors of at least 1"
        );
        let mut report = Report::new(&machines);
        println!("{}", report.head());
        let next = AtomicU64::new(1);
        let sites = (0..self.at_once.min(self.seeds)).map(|_| self.play(&report, &machines, &next));
        let played = try_join_all(sites).await?;
        let all: BTreeMap<_, _> = played.into_iter().flatten().collect();
        for ((_, policy), compared) in all {
            report.add(policy, compared);
        }
        println!("\n{report}");
        Ok(())
    }

    /// Plays the seeds that no one else plays, on machines of their own.
    async fn play(
        &self,
        report: &Report,
        machines: &Machines,
        next: &AtomicU64,
    ) -> Result<Vec<((u64, Policy), Compared)>> {
        let (mut site, mut played) = (None, Vec::new());
        loop {
            let seed = next.fetch_add(1, Ordering::Relaxed);
            if seed > self.seeds {
                return Ok(played);
            }
            for policy in self.policies.iter().copied() {
                if site.is_none() && !self.dry_run {
                    site = Some(Site::start(machines, policy.flags(machines)).await?);
                }
                let compared = compare(machines, policy, seed, site.as_mut()).await?;
                println!("{}", report.line(policy, seed, &compared));
                played.push(((seed, policy), compared));
            }
        }
    }

    fn machines(&self) -> Machines {
        Machines {
            nodes: self.boards + self.bare,
            boards: self.boards,
            slots: self.slots,
            slot_speed: None,
            jobs: self.jobs,
            load: self.load,
            smaller: self.smaller,
            slower: self.slower,
            pieces: self.pieces,
            order: PieceOrder::InTurn,
        }
    }
}

/// Plays the jobs of a seed in the simulator, and live if there is a site.
async fn compare(
    machines: &Machines,
    policy: Policy,
    seed: u64,
    site: Option<&mut Site>,
) -> Result<Compared> {
    let jobs = machines.arrivals(seed)?;
    let simulated = simulate(&machines.cluster()?, policy.of_broker(machines)?, &jobs)?;
    let simulated = Measures::of(&simulated);
    let Some(site) = site else {
        return Ok(Compared { live: simulated, simulated, void: false, told: "not run".to_owned() });
    };
    site.replace_broker(policy.flags(machines)).await?;
    let (fabric, homes) = (Fabric::start(machines.nodes, machines.nic())?, site.homes()?);
    let before = site.late().await?;
    let records = client::play(&jobs, &homes, &fabric, machines).await?;
    let late = site.late().await? - before;
    let Lateness { late: transfers_late, all } = fabric.lateness();
    let void = late.is_void() || transfers_late * 100 > all;
    let told = format!("{late}; {transfers_late} of {all} transfers late");
    // Closing blocks: it waits for the last message to the broker.
    tokio::task::spawn_blocking(move || homes.into_iter().for_each(fpga_acc::Pool::close)).await?;
    Ok(Compared { live: Measures::of(&records), simulated, void, told })
}
