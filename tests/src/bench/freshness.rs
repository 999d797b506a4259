//! From a task's end to a decision that reflects it: an event is reported to a node's collector, and the extender is
//! asked to prioritize until its answer has changed sides. Real collectors, extender and API server.

use super::report::Sorted;
use crate::testbed::http_client::HttpClient;
use crate::testbed::scale::ScaleBed;
use crate::testbed::scale::collectors::{Collector, Collectors};
use crate::testbed::scale::nodes::{Advertised, Ground};
use crate::testbed::wait;
use anyhow::{Result, ensure};
use serde_json::json;
use std::time::{Duration, Instant};
use tokio::time::sleep;

const LONG: Duration = Duration::from_secs(60);

/// Measures from a task's end to a decision that reflects it, by the stream and by annotations alone.
#[derive(Debug, clap::Args)]
#[command(after_help = "Example: fpga-bench freshness --seconds 60")]
pub struct Args {
    /// Pairs of nodes, each asked about at once.
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u16).range(1..=100))]
    pairs: u16,
    /// For how long, with streams; without, it takes twice as long.
    #[arg(long, default_value_t = 40, value_parser = clap::value_parser!(u64).range(1..=3_600))]
    seconds: u64,
}

/// Two nodes of which the less used is better.
#[derive(Debug)]
pub struct Pair<'a> {
    nodes: [&'a Collector; 2],
    used: [Duration; 2],
    /// The one that is used more.
    fuller: usize,
    http: HttpClient,
    url: String,
    body: String,
    lead: Lead,
}

/// By how much the fuller node leads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Lead {
    /// By a second: a stream tells everything.
    Second,
    /// By a fifth: less may not be worth an annotation.
    Fifth,
}

impl Args {
    /// Measures and prints.
    ///
    /// # Errors
    /// Something does not start, or a decision never changes.
    pub async fn run(self) -> Result<()> {
        let Self { pairs, seconds } = self;
        let pairs = usize::from(pairs);
        let ground = Ground { nodes: 2 * pairs, boards: 0, pods_per_node: 110, advertised: Advertised::No };
        println!("from a task's end to a prioritize answer that reflects it, {pairs} pairs of nodes");
        for streams in [true, false] {
            let mut bed = ScaleBed::start(ground).await?;
            // Nothing is bound here: what is expected of pods would only blur the answers.
            bed.start_extender(&["--anti-herd", "off"]).await?;
            let extenders = if streams { vec![bed.stream_url(0)] } else { Vec::new() };
            let collectors = Collectors::start(&bed, ground.nodes, &extenders, &[]).await?;
            collectors.have_boards().await?;
            // Nobody waits on purpose between two tasks for longer than writes are apart.
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

/// Waits until the extender hears all collectors.
///
/// # Errors
/// It doesn't, in time.
pub async fn wait_for_streams(bed: &ScaleBed, count: usize) -> Result<()> {
    wait::until("all collectors to stream", LONG, async || {
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
    // Somewhere in the collectors' rhythm, and not always at the same place.
    let mut place = (number * 38) % 100;
    while begin.elapsed() < time {
        samples.push(pair.task_to_decision().await?);
        place = (place + 61) % 100;
        sleep(longest_pause * u32::try_from(place).unwrap_or_default() / 100).await;
    }
    Ok(samples)
}

impl<'a> Pair<'a> {
    /// Of two nodes that have done nothing yet.
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

    /// A task ends that makes the emptier node the fuller one; how long it takes until the extender prefers the other.
    ///
    /// # Errors
    /// It never does.
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
        // The window of 5 min and 4 slots has an end.
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
