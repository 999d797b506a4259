//! Jobs as programs of the nodes: each sends its pieces through the modelled network to the slot that it was granted, and
//! checks every byte that comes back.

use super::fabric::Fabric;
use super::machines::GRAIN;
use super::text::{COUNTER, KEY, Text};
use crate::testbed::pool::node_name;
use anyhow::{Context as _, Result, ensure};
use fpga_acc::{Pool, Request};
use fpga_cluster::pool::{Bytes as Size, Place};
use fpga_sim::pool::engine::{Arrival, Record};
use std::sync::Arc;
use std::time::Duration;
use tokio::task::JoinSet;
use tokio::time::Instant;

/// Time within which the last job of a run must end.
const PATIENCE: Duration = Duration::from_secs(1800);

/// Plays the jobs from now on, and returns what became of them, in the same order.
pub(super) async fn play(
    jobs: &[Arrival],
    homes: &[Pool],
    fabric: &Fabric,
    piece: u64,
) -> Result<Vec<Record>> {
    let largest = jobs.iter().map(|job| job.size).max().unwrap_or(Size(GRAIN));
    let (text, start) = (Text::of(largest.0)?, Instant::now());
    let mut running = JoinSet::new();
    for (number, job) in jobs.iter().copied().enumerate() {
        let pool = homes.get(job.home.0 as usize).context("a job of no node")?.clone();
        let (text, fabric) = (text.clone(), fabric.clone());
        running.spawn(async move {
            tokio::time::sleep_until(start + Duration::from_nanos(job.at)).await;
            let record = run(job, &pool, &text, &fabric, piece, start).await;
            record.map(|record| (number, record)).with_context(|| format!("job {number}"))
        });
    }
    let mut records = vec![None; jobs.len()];
    while let Some(ended) = tokio::time::timeout_at(start + PATIENCE, running.join_next()).await? {
        let (number, record) = ended??;
        records[number] = Some(record);
    }
    records.into_iter().map(|record| record.context("a job without an end")).collect()
}

async fn run(
    job: Arrival,
    pool: &Pool,
    text: &Text,
    fabric: &Fabric,
    piece: u64,
    start: Instant,
) -> Result<Record> {
    let nanos = || u64::try_from(start.elapsed().as_nanos()).unwrap_or(u64::MAX);
    let home: Arc<str> = node_name(job.home.0).into();
    // A byte more than there is: the slot is the job's until its last output has come home.
    let request =
        Request::new("aes-256-ctr", job.size.0 + 1).argument("key", &KEY).argument("counter", &COUNTER);
    let mut open = pool.open(request).await?;
    let (started, status) = (nanos(), open.status());
    let node = || status.borrow().node.clone().context("a slot of no node");
    let place = if node()? == home { Place::Local } else { Place::Remote };
    let mut at = 0;
    while at < job.size.0 {
        let bytes = piece.min(job.size.0 - at);
        let range = usize::try_from(at)?..usize::try_from(at + bytes)?;
        let of = node()?;
        let board = of.strip_prefix("node-").context("a slot of an unknown node")?.parse()?;
        if of != home {
            fabric.transfer(job.home.0, board, bytes).await;
        }
        let output = open.run(text.plain.slice(range.clone())).await?;
        ensure!(output == text.secret.slice(range), "a wrong result");
        if of != home {
            fabric.transfer(board, job.home.0, bytes).await;
        }
        at += bytes;
    }
    let ended = nanos();
    open.close().await?;
    Ok(Record { job, started, ended, place })
}
