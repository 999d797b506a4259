//! The time from a board's recovery until a pod that waited for a healthy board is bound. Collector, extender, API
//! server and kube-scheduler are real.

use super::report::Sorted;
use anyhow::{Context as _, Result, ensure};
use fpga_tests::testbed::control_plane::SchedulerConfig;
use fpga_tests::testbed::scale::collectors::{Collectors, Health};
use fpga_tests::testbed::scale::nodes::{Advertised, Ground};
use fpga_tests::testbed::scale::pods::Kind;
use fpga_tests::testbed::scale::{ScaleBed, bound};
use serde_json::Value;
use std::time::{Duration, Instant};
use tokio::time::sleep;

const LONG: Duration = Duration::from_secs(60);
/// A wait beyond kube-scheduler's first backoff of 1 s, during which it doesn't try a rejected pod again.
const BACKOFF: Duration = Duration::from_millis(1_500);

/// Measures how soon a pod that waits for a healthy board is bound.
#[derive(Debug, clap::Args)]
#[command(after_help = "Example: fpga-bench waiting --rounds 10")]
pub struct Args {
    /// Number of pods, one after the other.
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u16).range(1..=1_000))]
    rounds: u16,
}

impl Args {
    /// Measures and prints the results.
    ///
    /// # Errors
    /// A program does not start, or a pod is never bound.
    pub async fn run(self) -> Result<()> {
        let ground =
            Ground { nodes: 2, boards: 0, wanted: 0, pods_per_node: 110, advertised: Advertised::No };
        let mut bed = ScaleBed::start(ground).await?;
        bed.start_extender(&[]).await?;
        // An unhealthy board is not published at once; a short interval keeps the rounds short.
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
            // Wait until the pod's backoff is over, so that it isn't part of the measured time.
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
