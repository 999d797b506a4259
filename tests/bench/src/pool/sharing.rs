//! Every node for itself against one pool (P-7, Figures 7 and 8): two nodes with a board each, the same jobs, live and in
//! `fpga-sim`.

use super::client;
use super::fabric::Fabric;
use super::machines::{Machines, PieceOrder};
use super::policy::Policy;
use super::site::Site;
use crate::modelled::Late;
use anyhow::{Result, ensure};
use fpga_acc::Pool;
use fpga_cluster::pool::NodeIndex;
use fpga_cluster::pool::policy::PoolPolicy;
use fpga_sim::pool::engine::{Arrival, Record, simulate};
use fpga_sim::pool::measures::{Estimate, Measures};

/// Number of nodes, each with a board.
const NODES: u32 = 2;

/// Compares one pool under WRA with boards that serve their own node by SJF, live on modelled boards and in fpga-sim.
#[derive(Debug, clap::Args)]
#[command(after_help = "Example: fpga-bench pool sharing --seeds 2 --loads 0.7,0.9")]
pub(super) struct Args {
    /// Number of seeds, from 1.
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u64).range(1..=100))]
    seeds: u64,
    /// Bytes that come per second, over what the boards can process.
    #[arg(long, value_delimiter = ',', default_values_t = [0.3, 0.5, 0.7, 0.9, 1.1, 1.5, 2.0])]
    loads: Vec<f64>,
    /// Slots of each board.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=16))]
    slots: u32,
    /// Speed of the accelerator in a slot, in GB/s; that of the DMA engine is 2.1.
    #[arg(long, default_value_t = 0.25)]
    slot_gbyte: f64,
    /// Number of jobs of each node.
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..=1000))]
    jobs: u32,
    /// Divisor of the paper's sizes of jobs.
    #[arg(long, default_value_t = 1000.0)]
    smaller: f64,
    /// Divisor of the paper's rates. Less than --smaller makes a run shorter: the paper's jobs take seconds.
    #[arg(long, default_value_t = 200.0)]
    slower: f64,
}

/// What sharing changed for the jobs of a seed, in hundredths of the time without it.
#[derive(Debug, Clone, Copy)]
struct Change {
    act: f64,
    tct: f64,
}

impl Args {
    /// Runs the comparison and prints it.
    ///
    /// # Errors
    /// A prerequisite is missing, a job fails, or a result is wrong.
    pub async fn run(self) -> Result<()> {
        ensure!(
            self.smaller >= 1.0 && self.slower >= 1.0,
            "--smaller and --slower are divisors of at least 1"
        );
        let pooled = self.machines(NODES, 1.0);
        println!(
            "Modelled boards. {NODES} nodes with a board of {} slots each, {} GB/s in a slot, {} jobs of each node; sizes are \
             1/{} of the paper's, rates 1/{}.\n",
            self.slots, self.slot_gbyte, self.jobs, self.smaller, self.slower
        );
        let alone = self.machines(1, 1.0);
        let mut shared = Site::start(&pooled, Policy::Wra.flags(&pooled)).await?;
        let mut own = Vec::new();
        for _ in 0..NODES {
            own.push(Site::start(&alone, Policy::Sjf.flags(&alone)).await?);
        }
        println!(
            "| load | ACT, %: live | fpga-sim | best seed: live | fpga-sim | TCT, %: live | fpga-sim | best seed: live | fpga-sim | \
             late commands |"
        );
        println!("|---|---|---|---|---|---|---|---|---|---|");
        for load in &self.loads {
            self.load(*load, &mut shared, &mut own).await?;
        }
        println!(
            "\nChange of ACT and TCT by one pool under WRA against SJF on each board for its own node; the paper has up to \
                  −45.35 % and −56.05 %. ± is half of the 95 % interval over {} seeds.",
            self.seeds
        );
        Ok(())
    }

    async fn load(&self, load: f64, shared: &mut Site, own: &mut [Site]) -> Result<()> {
        let machines = self.machines(NODES, load);
        let (mut live, mut simulated, mut late) = (Vec::new(), Vec::new(), Late::default());
        for seed in 1..=self.seeds {
            let jobs = machines.arrivals(seed)?;
            let cluster = machines.cluster()?;
            let wra = Policy::Wra.of_broker(&machines)?;
            let local = simulate(&cluster, PoolPolicy::local_shortest_first(), &jobs)?;
            simulated.push(Change::of(&simulate(&cluster, wra, &jobs)?, &local));
            let before = shared.late().await?;
            shared.replace_broker(Policy::Wra.flags(&machines)).await?;
            let together = play(shared, &jobs, &machines).await?;
            late += shared.late().await? - before;
            let mut apart = Vec::new();
            for site in own.iter_mut() {
                site.replace_broker(Policy::Sjf.flags(&machines)).await?;
            }
            let of_node = |node: u32| {
                let own = jobs.iter().filter(move |job| job.home == NodeIndex(node));
                own.map(|job| Arrival { home: NodeIndex(0), ..*job }).collect::<Vec<_>>()
            };
            let [first, second] = [of_node(0), of_node(1)];
            if let [one, other] = own {
                let (one, other) =
                    tokio::join!(play(one, &first, &machines), play(other, &second, &machines));
                apart.extend(one?.into_iter().chain(other?));
            }
            live.push(Change::of(&together, &apart));
        }
        let cells = |of: fn(&Change) -> f64| {
            let text = |changes: &[Change]| Estimate::of(&changes.iter().map(of).collect::<Vec<_>>()).text(1);
            let best = |changes: &[Change]| changes.iter().map(of).fold(f64::INFINITY, f64::min);
            let (live, simulated) = (&live[..], &simulated[..]);
            format!("{} | {} | {:.1} | {:.1}", text(live), text(simulated), best(live), best(simulated))
        };
        let void = if late.is_void() { "VOID: " } else { "" };
        println!(
            "| {load} | {} | {} | {void}{late} |",
            cells(|change| change.act),
            cells(|change| change.tct)
        );
        Ok(())
    }

    fn machines(&self, nodes: u32, load: f64) -> Machines {
        Machines {
            nodes,
            boards: nodes,
            slots: self.slots,
            slot_speed: Some(self.slot_gbyte / 2.1),
            jobs: self.jobs,
            load,
            smaller: self.smaller,
            slower: self.slower,
            pieces: 16,
            order: PieceOrder::Overlapped,
        }
    }
}

impl Change {
    fn of(shared: &[Record], apart: &[Record]) -> Self {
        let (shared, apart) = (Measures::of(shared), Measures::of(apart));
        let change = |is: f64, was: f64| 100.0 * (is / was - 1.0);
        Self { act: change(shared.act, apart.act), tct: change(shared.tct, apart.tct) }
    }
}

async fn play(site: &Site, jobs: &[Arrival], machines: &Machines) -> Result<Vec<Record>> {
    let (fabric, homes) = (Fabric::start(NODES, machines.nic())?, site.homes()?);
    let records = client::play(jobs, &homes, &fabric, machines).await;
    // Closing blocks: it waits for the last message to the broker.
    tokio::task::spawn_blocking(move || homes.into_iter().for_each(Pool::close)).await?;
    records
}
