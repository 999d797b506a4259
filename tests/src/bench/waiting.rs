//! A pod that waits because no board is healthy: how soon it is bound once one is. Real collector, extender, API server
//! and kube-scheduler.

use super::report::Sorted;
use crate::testbed::control_plane::SchedulerConfig;
use crate::testbed::scale::collectors::{Collectors, Health};
use crate::testbed::scale::nodes::{Advertised, Ground};
use crate::testbed::scale::pods::Kind;
use crate::testbed::scale::{ScaleBed, bound};
use anyhow::{Context as _, Result, ensure};
use serde_json::Value;
use std::time::{Duration, Instant};
use tokio::time::sleep;

const LONG: Duration = Duration::from_secs(60);
/// kube-scheduler tries a pod that it rejected once no earlier than after its backoff, a second the first time.
const BACKOFF: Duration = Duration::from_millis(1_500);

/// Measures how soon a pod is bound that waited for a healthy board.
#[derive(Debug, clap::Args)]
#[command(after_help = "Example: fpga-bench waiting --rounds 10")]
pub struct Args {
    /// Pods, one after the other.
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u16).range(1..=1_000))]
    rounds: u16,
}

impl Args {
    /// Measures and prints.
    ///
    /// # Errors
    /// Something does not start, or a pod is never bound.
    pub async fn run(self) -> Result<()> {
        let ground = Ground { nodes: 2, boards: 0, pods_per_node: 110, advertised: Advertised::No };
        let mut bed = ScaleBed::start(ground).await?;
        bed.start_extender(&[]).await?;
        // What takes boards away is no hurry; here it must not keep the next round waiting.
        let hurry = ["--min-write-interval", "1s"];
        let collectors = Collectors::start(&bed, ground.nodes, &[], &hurry).await?;
        let board = collectors.all.first().context("there is no collector")?;
        board.board("a10", Health::Unhealthy).await?;
        let config = SchedulerConfig::shipped(&bed.extender_url(""))?;
        bed.start_scheduler(&config).await?;
        let mut times = Vec::new();
        for round in 0..self.rounds {
            let unhealthy = |known: &Value| known["known"]["state"]["devices"][0]["healthy"] == false;
            bed.wait_until_known(&board.node, "unhealthy", unhealthy).await?;
            let batch = format!("waiting-{round}");
            bed.create_pods(&batch, Kind::FpgaWithoutAffinity, 1).await?;
            bed.why_pending(&batch).await?;
            // By then its backoff is over: what is measured is ours.
            sleep(BACKOFF).await;
            let (pods, of) = (bed.pods(), batch.clone());
            let watch = tokio::spawn(async move { bound::watch(&pods, &of, 1, LONG).await });
            let healthy = Instant::now();
            board.board("a10", Health::Healthy).await?;
            ensure!(watch.await.context("the watch failed")??.len() == 1, "{batch} was never bound");
            times.push(healthy.elapsed());
            board.board("a10", Health::Unhealthy).await?;
            bed.delete_pods(&batch).await?;
        }
        println!("healthy board → waiting pod bound, its backoff being over: {}", Sorted::new(times).told());
        collectors.kill().await;
        bed.stop().await;
        Ok(())
    }
}
