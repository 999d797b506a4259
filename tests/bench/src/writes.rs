//! The annotations that a thousand busy collectors write to a real API server: with streams, where the extender sets
//! the interval between annotations, and without. All collectors are the real program; a watch counts the writes at
//! the API server.

use super::freshness::wait_for_streams;
use anyhow::{Context as _, Result, bail};
use fpga_core::pacing;
use fpga_tests::testbed::memory::memory_mib;
use fpga_tests::testbed::scale::ScaleBed;
use fpga_tests::testbed::scale::collectors::{Collector, Collectors};
use fpga_tests::testbed::scale::nodes::{Advertised, Ground};
use futures::{StreamExt as _, TryStreamExt as _};
use k8s_openapi::api::core::v1::Node;
use kube::Api;
use kube::api::{ListParams, WatchEvent, WatchParams};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};
use tokio::time::{MissedTickBehavior, sleep};

/// Interval at which every node ends a task.
const TASK_EVERY: Duration = Duration::from_secs(2);
/// Time without acknowledgements until collectors consider the streams gone, with some seconds in addition.
const STREAMS_GONE: Duration = Duration::from_secs(30);

/// Measures how many annotations many busy nodes write, with streams and without.
#[derive(Debug, clap::Args)]
#[command(after_help = "Example: fpga-bench writes --nodes 1000 --seconds 80")]
pub struct Args {
    /// Number of nodes, each with a collector, which is a process of about 5 MB.
    #[arg(long, default_value_t = 1_000, value_parser = clap::value_parser!(u16).range(2..=5_000))]
    nodes: u16,
    /// Time for which writes are counted with streams, in seconds: longer than the extender's interval of 60 s.
    /// Without streams it is half as long.
    #[arg(long, default_value_t = 80, value_parser = clap::value_parser!(u64).range(5..=3_600))]
    seconds: u64,
}

impl Args {
    /// Measures and prints the results.
    ///
    /// # Errors
    /// A program does not start, or a step fails.
    pub async fn run(self) -> Result<()> {
        let Self { nodes, seconds } = self;
        let count = usize::from(nodes);
        let ground =
            Ground { nodes: count, boards: 0, wanted: 0, pods_per_node: 110, advertised: Advertised::No };
        let mut bed = ScaleBed::start(ground).await?;
        bed.start_extender(&[]).await?;
        let begin = Instant::now();
        let collectors = Collectors::start(&bed, count, &[bed.stream_url(0)], &[]).await?;
        collectors.have_boards().await?;
        wait_for_streams(&bed, count).await?;
        println!(
            "{count} busy nodes, a collector each, a task every {TASK_EVERY:?}; all stream after {:.0} s",
            begin.elapsed().as_secs_f64()
        );
        let nodes: Api<Node> = Api::all(bed.plane().client().clone());
        let writes = Arc::new(AtomicU64::new(0));
        let counting = tokio::spawn(count_writes(nodes, Arc::clone(&writes)));
        let measure = async {
            // Wait until the writes for new boards and the first interval are over.
            sleep(pacing::write_interval(count).into()).await;
            let states = bed.metric("fpga_extender_states_total").await?;
            let (rate, most) = rate(&writes, Duration::from_secs(seconds)).await;
            let states = bed.metric("fpga_extender_states_total").await? - states;
            let interval = |nodes| Duration::from(pacing::write_interval(nodes));
            println!(
                "with streams:    {rate:>6.1} writes/s (at most {most} in a second); the extender dictates one per {:.0?} and node",
                interval(count)
            );
            println!(
                "                 5,000 such nodes: one per {:.0?} and node, {:.1} writes/s by this measurement",
                interval(5_000),
                rate / count as f64 * 5_000.0 * interval(count).as_secs_f64() / interval(5_000).as_secs_f64()
            );
            let pid = bed.extender_pid().context("there is no extender")?;
            println!(
                "                 {:.0} states/s reach the extender, which has {:.0} MiB",
                states / seconds as f64,
                memory_mib(pid, "VmRSS")?
            );
            bed.kill_extender().await;
            sleep(STREAMS_GONE).await;
            let (rate, most) = self::rate(&writes, Duration::from_secs(seconds / 2)).await;
            println!(
                "without streams: {rate:>6.1} writes/s (at most {most} in a second); stated: one per 10 to 15 s and node, {:.0} to {:.0} writes/s",
                count as f64 / 15.0,
                count as f64 / 10.0
            );
            anyhow::Ok(())
        };
        tokio::select! {
            measured = measure => measured?,
            counted = counting => bail!("the watch on nodes ended: {counted:?}"),
            ended = keep_busy(&collectors.all) => bail!("tasks can't be reported: {ended:?}"),
        }
        collectors.kill().await;
        bed.stop().await;
        Ok(())
    }
}

/// Ends tasks on all nodes at evenly spread times, without end; long and short tasks alternate on each node.
async fn keep_busy(collectors: &[Collector]) -> Result<()> {
    let each = collectors.iter().enumerate().map(|(index, collector)| async move {
        let first = TASK_EVERY.mul_f64(index as f64 / collectors.len() as f64);
        let mut ticks = tokio::time::interval_at(tokio::time::Instant::now() + first, TASK_EVERY);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        for turn in 0_u64.. {
            ticks.tick().await;
            collector.end_task(Duration::from_millis(200 + (turn * 617 + index as u64 * 37) % 3_000)).await?;
        }
        Ok(())
    });
    futures::future::try_join_all(each).await.map(drop)
}

async fn count_writes(nodes: Api<Node>, writes: Arc<AtomicU64>) -> Result<()> {
    let list = nodes.list_metadata(&ListParams::default().limit(1)).await?;
    let mut version = list.metadata.resource_version.context("a list has no version")?;
    loop {
        let mut events = nodes.watch_metadata(&WatchParams::default(), &version).await?.boxed();
        // A busy API server ends watches; the loop continues at the last version.
        while let Some(event) = events.try_next().await? {
            let node = match event {
                WatchEvent::Modified(node) => node,
                WatchEvent::Error(status) => bail!("{status:?}"),
                _ => continue,
            };
            writes.fetch_add(1, Ordering::Relaxed);
            version = node.metadata.resource_version.unwrap_or(version);
        }
    }
}

/// Mean writes per second, and the most in one second.
async fn rate(writes: &AtomicU64, time: Duration) -> (f64, u64) {
    let (begin, first) = (Instant::now(), writes.load(Ordering::Relaxed));
    let (mut before, mut most) = (first, 0);
    while begin.elapsed() < time {
        sleep(Duration::from_secs(1)).await;
        let now = writes.load(Ordering::Relaxed);
        most = most.max(now - before);
        before = now;
    }
    ((before - first) as f64 / begin.elapsed().as_secs_f64(), most)
}
