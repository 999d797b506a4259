//! The time from a task's end to a decision that reflects it. An event is reported to a node's collector, and the
//! extender gets prioritize requests until its answer prefers the other node. Collectors, extender and API server are
//! real.

use super::report::Sorted;
use anyhow::{Result, ensure};
use fpga_tests::testbed::http_client::HttpClient;
use fpga_tests::testbed::scale::ScaleBed;
use fpga_tests::testbed::scale::collectors::{Collector, Collectors};
use fpga_tests::testbed::scale::nodes::{Advertised, Ground};
use fpga_tests::testbed::wait;
use serde_json::json;
use std::time::{Duration, Instant};
use tokio::time::sleep;

const LONG: Duration = Duration::from_secs(60);

/// Measures the time from a task's end to a decision that reflects it, by the stream and by annotations alone.
#[derive(Debug, clap::Args)]
#[command(after_help = "Example: fpga-bench freshness --seconds 60")]
pub struct Args {
    /// Number of pairs of nodes, which are measured at the same time.
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u16).range(1..=100))]
    pairs: u16,
    /// Length of the measurement with streams in seconds; without streams it is twice as long.
    #[arg(long, default_value_t = 40, value_parser = clap::value_parser!(u64).range(1..=3_600))]
    seconds: u64,
}

/// Two nodes, of which the extender prefers the less used one.
#[derive(Debug)]
pub struct Pair<'a> {
    nodes: [&'a Collector; 2],
    used: [Duration; 2],
    /// Index of the node that is used more.
    fuller: usize,
    http: HttpClient,
    url: String,
    body: String,
    lead: Lead,
}

/// The difference in usage by which the fuller node leads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Lead {
    /// One second: the stream reports every difference.
    Second,
    /// A fifth of the usage: a smaller change may not cause an annotation.
    Fifth,
}

impl Args {
    /// Measures and prints the results.
    ///
    /// # Errors
    /// A program does not start, or a decision never changes.
    pub async fn run(self) -> Result<()> {
        let Self { pairs, seconds } = self;
        let pairs = usize::from(pairs);
        let ground =
            Ground { nodes: 2 * pairs, boards: 0, wanted: 0, pods_per_node: 110, advertised: Advertised::No };
        println!("from a task's end to a prioritize answer that reflects it, {pairs} pairs of nodes");
        for streams in [true, false] {
            let mut bed = ScaleBed::start(ground).await?;
            // No pod is bound here, so expected usage would only blur the answers.
            bed.start_extender(&["--anti-herd", "off"]).await?;
            let extenders = if streams { vec![bed.stream_url(0)] } else { Vec::new() };
            let collectors = Collectors::start(&bed, ground.nodes, &extenders, &[]).await?;
            collectors.have_boards().await?;
            // Pauses are up to the time between two writes: longer ones would make no difference.
            let (title, time, longest_pause, lead) = if streams {
                wait_for_streams(&bed, ground.nodes).await?;
                ("by the stream", Duration::from_secs(seconds), Duration::from_millis(500), Lead::Second)
            } else {
                (
                    "by annotations alone",
                    Duration::from_secs(2 * seconds),
                    Duration::from_secs(12),
                    Lead::Fifth,
                )
            };
            let measured = collectors.all.chunks_exact(2).enumerate().map(|(number, nodes)| {
                let pair = Pair::new(&bed, [&nodes[0], &nodes[1]], lead);
                sample(pair, number, time, longest_pause)
            });
            let mut all = Vec::new();
            for samples in futures::future::join_all(measured).await {
                all.extend(samples?);
            }
            println!("{title:<22} {}", Sorted::new(all).told());
            collectors.kill().await;
            bed.stop().await;
        }
        Ok(())
    }
}

/// Waits until all collectors stream to the extender.
///
/// # Errors
/// The time is over.
pub async fn wait_for_streams(bed: &ScaleBed, count: usize) -> Result<()> {
    wait::until_within("all collectors to stream", LONG, async || {
        let streams = bed.metric("fpga_extender_streams").await?;
        Ok((streams > count as f64 - 0.5).then_some(()))
    })
    .await
}

async fn sample(
    mut pair: Pair<'_>,
    number: usize,
    time: Duration,
    longest_pause: Duration,
) -> Result<Vec<Duration>> {
    let begin = Instant::now();
    let mut samples = Vec::new();
    // Start at different times within the collectors' intervals.
    let mut place = (number * 38) % 100;
    while begin.elapsed() < time {
        samples.push(pair.task_to_decision().await?);
        place = (place + 61) % 100;
        sleep(longest_pause * u32::try_from(place).unwrap_or_default() / 100).await;
    }
    Ok(samples)
}

impl<'a> Pair<'a> {
    /// A pair of nodes that have not been used yet.
    #[must_use]
    pub fn new(bed: &ScaleBed, nodes: [&'a Collector; 2], lead: Lead) -> Self {
        let names = nodes.map(|node| node.node.clone());
        let body = json!({
            "Pod": {"metadata": {"name": "p", "namespace": "default", "uid": "u"},
                    "spec": {"containers": [{"resources": {"requests": {"fpga-scheduling.io/accelerated": "1"}}}]}},
            "Nodes": null, "NodeNames": names,
        });
        Self {
            nodes,
            used: [Duration::ZERO; 2],
            fuller: 0,
            http: HttpClient::new(Duration::from_secs(5)),
            url: bed.extender_url("/prioritize"),
            body: body.to_string(),
            lead,
        }
    }

    /// Ends a task that makes the emptier node the fuller one, and returns the time until the extender prefers the
    /// other node.
    ///
    /// # Errors
    /// The extender never does.
    pub async fn task_to_decision(&mut self) -> Result<Duration> {
        let emptier = 1 - self.fuller;
        let lead = self.used[self.fuller] - self.used[emptier];
        let second = Duration::from_secs(1);
        let task = lead
            + match self.lead {
                Lead::Second => second,
                Lead::Fifth => second.max(self.used[self.fuller] / 5),
            };
        self.used[emptier] += task;
        self.fuller = emptier;
        // The usage of 4 slots in a window of 5 min is bounded.
        ensure!(self.used[emptier] < Duration::from_secs(1_000), "the boards are full");
        let ended = Instant::now();
        self.nodes[emptier].end_task(task).await?;
        loop {
            let scores = self.http.post(&self.url, self.body.clone()).await?.json()?;
            let score = |index: usize| scores[index]["Score"].as_u64().unwrap_or_default();
            if score(1 - emptier) > score(emptier) {
                return Ok(ended.elapsed());
            }
            ensure!(ended.elapsed() < LONG, "no decision reflects a task that ended {LONG:?} ago: {scores}");
            sleep(Duration::from_millis(10)).await;
        }
    }
}
