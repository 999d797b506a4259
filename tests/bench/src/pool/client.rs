//! Jobs as programs of the nodes: each sends its pieces through the modelled network to the slot that it was granted, and
//! checks every byte that comes back.

mod overlapped;

use super::fabric::Fabric;
use super::machines::{GRAIN, Machines, PieceOrder};
use super::text::{COUNTER, KEY, Text};
use anyhow::{Context as _, Result, ensure};
use fpga_acc::{Job, Pool, Request};
use fpga_cluster::pool::{Bytes as Size, Place};
use fpga_sim::pool::engine::{Arrival, Record};
use std::ops::Range;
use std::time::Duration;
use tokio::task::JoinSet;
use tokio::time::Instant;

/// Time within which the last job of a run must end.
const PATIENCE: Duration = Duration::from_secs(1800);

/// The way of a job's bytes: from its node to its slot and back.
#[derive(Debug, Clone)]
struct Route {
    fabric: Fabric,
    home: u32,
    board: u32,
}

/// Plays the jobs from now on, and returns what became of them, in the same order.
pub(super) async fn play(
    jobs: &[Arrival],
    homes: &[Pool],
    fabric: &Fabric,
    machines: &Machines,
) -> Result<Vec<Record>> {
    let largest = jobs.iter().map(|job| job.size).max().unwrap_or(Size(GRAIN));
    let (text, start, machines) = (Text::of(largest.0)?, Instant::now(), *machines);
    let mut running = JoinSet::new();
    for (number, job) in jobs.iter().copied().enumerate() {
        let pool = homes.get(job.home.0 as usize).context("a job of no node")?.clone();
        let (text, fabric) = (text.first(job.size.0)?, fabric.clone());
        running.spawn(async move {
            tokio::time::sleep_until(start + Duration::from_nanos(job.at)).await;
            let record = run(job, &pool, text, fabric, &machines, start).await;
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
    text: Text,
    fabric: Fabric,
    machines: &Machines,
    start: Instant,
) -> Result<Record> {
    let nanos = || u64::try_from(start.elapsed().as_nanos()).unwrap_or(u64::MAX);
    // A byte more than there is: the slot is the job's until its last output has come home.
    let request =
        Request::new("aes-256-ctr", job.size.0 + 1).argument("key", &KEY).argument("counter", &COUNTER);
    let mut open = pool.open(request).await?;
    let started = nanos();
    let node = open.status().borrow().node.clone().context("a slot of no node")?;
    let board = node.strip_prefix("node-").context("a slot of an unknown node")?.parse()?;
    let route = Route { fabric, home: job.home.0, board };
    let place = route.place();
    match machines.order {
        PieceOrder::InTurn => in_turn(&mut open, &text, &route, machines.piece()).await?,
        PieceOrder::Overlapped => overlapped::stream(&mut open, text, route, machines.piece()).await?,
    }
    let ended = nanos();
    open.close().await?;
    Ok(Record { job, started, ended, place })
}

/// Sends, processes and takes back one piece after the other.
async fn in_turn(open: &mut Job, text: &Text, route: &Route, piece: u64) -> Result<()> {
    for range in pieces(text.plain.len(), piece)? {
        let bytes = range.len() as u64;
        route.there(bytes).await;
        let output = open.run(text.plain.slice(range.clone())).await?;
        ensure!(output == text.secret.slice(range), "a wrong result");
        route.back(bytes).await;
    }
    Ok(())
}

/// The ranges of the pieces of so many bytes.
fn pieces(bytes: usize, piece: u64) -> Result<impl Iterator<Item = Range<usize>>> {
    let piece = usize::try_from(piece)?;
    Ok((0..bytes).step_by(piece).map(move |at| at..bytes.min(at + piece)))
}

impl Route {
    fn place(&self) -> Place {
        if self.home == self.board { Place::Local } else { Place::Remote }
    }

    /// Waits until bytes of the job's node are at its slot.
    async fn there(&self, bytes: u64) {
        if self.place() == Place::Remote {
            self.fabric.transfer(self.home, self.board, bytes).await;
        }
    }

    /// Waits until bytes of the slot are at the job's node.
    async fn back(&self, bytes: u64) {
        if self.place() == Place::Remote {
            self.fabric.transfer(self.board, self.home, bytes).await;
        }
    }
}
