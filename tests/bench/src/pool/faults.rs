//! Faults under load, round by round: something is killed, stopped or cut while jobs, a bundle and a group run, and after
//! each round every job and action whose program lives has ended with the right output, and every slot is free.
//!
//! An output is held against a reference byte by byte: what is lost, or comes twice, is seen. The run has a network
//! of its own, in which it may cut connections without harm to anybody.

mod bundle;
mod cut;
mod group;
mod job;
mod kind;
mod own_client;
mod reference;
mod report;

use super::draw;
use super::text::Text;
use anyhow::{Context as _, Result, ensure};
use fpga_tests::testbed::pool::{PoolBed, Sharing};
use fpga_tests::testbed::wait;
use job::{End, Jobs};
use kind::{Fault, Kind};
use own_client::OwnClient;
use report::{Report, Round};
use std::time::{Duration, Instant};

/// Managers, and the slots that each lends.
const MANAGERS: u8 = 3;
const SLOTS: u32 = 2;
/// Time for the jobs and actions of a round, from its last fault on.
const LAST_END: Duration = Duration::from_secs(120);
/// Time after the last byte of a client until its slot is free (I4). No slot is bad after these faults.
const SLOTS_FREE: Duration = Duration::from_secs(35);
/// A board on which a piece of 4 MB takes 400 ms, so that jobs run when something happens.
const MODEL: &str = "board = \"a board of fpga-bench pool\"\nreconfiguration = \"10ms\"\n\n[[kernel]]\nname = \"aes_256_ctr\"\n\
                     items_per_second = 6.25e5\n";

/// Kills, stops and cuts off parts of the pool under load, and checks that no job, no action and no slot is lost.
#[derive(Debug, clap::Args)]
#[command(after_help = "Example: fpga-bench pool faults --rounds 10 --seed 2")]
pub(super) struct Args {
    /// Number of rounds.
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u64).range(1..=10_000))]
    rounds: u64,
    /// Seed of all that is drawn.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Programs of a round, each with a job, beside the bundle and the group.
    #[arg(long, default_value_t = 8, value_parser = clap::value_parser!(u64).range(1..=64))]
    jobs: u64,
    /// Only faults of these kinds.
    #[arg(long, value_enum, value_delimiter = ',')]
    kinds: Vec<Kind>,
}

impl Args {
    /// Plays the rounds and prints what was seen.
    ///
    /// # Errors
    /// A job or an action that should have ended has not, an output is wrong, or a slot is not free in time.
    pub async fn run(self) -> Result<()> {
        if cut::enter_own_network()? == cut::Network::OfCaller {
            return cut::run_again_in_own_network().await;
        }
        let folder = tempfile::tempdir()?;
        let tenants = folder.path().join("tenants.toml");
        let guarantee = format!("guaranteed-slots = {}", group::GUARANTEED_SLOTS);
        std::fs::write(&tenants, format!("[tenants.{}]\n{guarantee}\n", own_client::TENANT))?;
        let flags = vec!["--tenants".to_owned(), tenants.display().to_string()];
        let mut bed = PoolBed::start_for(0, flags).await?;
        for _ in 0..MANAGERS {
            let sharing = Sharing { slots: SLOTS, lent: SLOTS, model: Some(MODEL.to_owned()) };
            bed.start_manager_with(&sharing).await?;
        }
        all_free(&bed).await?;
        let text = job::text()?;
        let mut report = Report::default();
        for number in 1..=self.rounds {
            let fault = self.fault(number);
            let round = self.round(&mut bed, &text, number, fault).await;
            let round = round.with_context(|| {
                format!("round {number} (seed {}), {fault}; logs in {}", self.seed, bed.logs().display())
            });
            let round = round.inspect_err(|_| bed.keep_logs())?;
            println!("round {number}: {fault}: {round}");
            report.add(fault.kind, round);
        }
        println!("\n{report}");
        Ok(())
    }

    fn fault(&self, round: u64) -> Fault {
        let kinds = if self.kinds.is_empty() { &Kind::ALL[..] } else { &self.kinds };
        Fault::draw(kinds, (self.seed, round))
    }

    async fn round(&self, bed: &mut PoolBed, text: &Text, number: u64, fault: Fault) -> Result<Round> {
        let drawn = (self.seed, number);
        let own = OwnClient::start(bed, text, drawn)?;
        let mut jobs = Jobs::start(bed, text, self.jobs, drawn)?;
        tokio::time::sleep(fault.after).await;
        let (began, struck) = (Instant::now(), jobs.running());
        fault.happen(bed, &mut jobs).await?;
        let healed = Instant::now();
        own.mended();
        let all = async { tokio::try_join!(jobs.ends(), own.ends()) };
        let (ends, own) =
            tokio::time::timeout(LAST_END, all).await.context("jobs or actions do not end")??;
        let (ended, lost) = (ends.iter().filter(|end| **end == End::Right).count(), ends.len());
        // The client that was killed is the only one that may have no output.
        let may_miss = usize::from(fault.kind == Kind::ClientKilled);
        ensure!(lost - ended <= may_miss, "{} of {lost} jobs have no output", lost - ended);
        let took = healed.elapsed();
        all_free(bed).await?;
        Ok(Round {
            jobs: ended,
            struck,
            bundle_jobs: own.bundle.len(),
            bundle_struck: own.bundle.iter().filter(|end| **end >= began).count(),
            actions: own.actions.len(),
            actions_struck: own.actions.iter().filter(|span| span.meets(began, healed)).count(),
            fault: healed - began,
            ends_took: took,
            free_after: healed.elapsed(),
        })
    }
}

/// Waits until all slots are free, at the managers and for the broker.
async fn all_free(bed: &PoolBed) -> Result<()> {
    let slots = u32::from(MANAGERS) * SLOTS;
    wait::until_within("all slots to be free", SLOTS_FREE, async || {
        bed.check_running()?;
        let pool = bed.look().await?;
        let of_broker: Vec<&str> =
            pool.boards.iter().flat_map(|board| &board.slots).map(|slot| slot.state.as_str()).collect();
        let held = bed.metric_of_managers("fpga_device_manager_pool_slots").await?;
        let free = bed.free_slots().await?;
        ensure!(
            of_broker.len() == slots as usize && of_broker.iter().all(|state| *state == "free"),
            "the broker knows {of_broker:?}"
        );
        ensure!(free == f64::from(slots) && held == free, "{free} of {held} slots are free at the managers");
        Ok(Some(()))
    })
    .await
}
