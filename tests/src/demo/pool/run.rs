//! The jobs as they run: each has a thread's worth of a program that uses the library, with its tenant's token.

use super::check::check;
use super::jobs::{DemoJob, JOBS};
use crate::testbed::pool::PoolBed;
use anyhow::{Context as _, Result};
use fpga_acc::{Config, Pool, Status, Where};
use futures::future::join_all;
use futures::io::Cursor;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::Instant;

/// The jobs of the demo, under way.
pub(super) struct Running {
    jobs: Vec<(DemoJob, Arc<Mutex<Record>>)>,
    all: JoinHandle<()>,
}

/// How far a job is.
#[derive(Debug, Default)]
struct Record {
    arrived: Option<Instant>,
    granted: Option<Instant>,
    /// When the last output came; a check of all outputs follows.
    done: Option<Instant>,
    status: Option<watch::Receiver<Status>>,
    ended: Option<Result<(), String>>,
}

/// A job as the picture shows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct JobLine {
    pub job: DemoJob,
    pub done_bytes: u64,
    pub state: JobState,
}

/// Where a job is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum JobState {
    ToCome,
    /// The job has no slot, for this reason.
    Waits(String),
    HasSlot,
    /// The output is there, and is compared with what a processor computes.
    IsVerified,
    Verified,
    Failed(String),
}

/// What became of the jobs.
#[derive(Debug)]
pub(super) struct Summary(Vec<Outcome>);

#[derive(Debug)]
struct Outcome {
    job: DemoJob,
    waited: Duration,
    took: Duration,
    result: Result<(), String>,
}

impl Running {
    /// Starts all jobs, each of which comes in its time, in a demo that is so many times as fast.
    pub fn start(bed: &PoolBed, speed: f64) -> Result<Self> {
        let mut jobs = Vec::new();
        let mut all = Vec::new();
        for job in JOBS {
            let config = Config {
                token_file: Some(bed.token_file(job.tenant)),
                node: Some(job.home.to_owned()),
                ..Config::of(&bed.broker_address())?
            };
            let record = Arc::default();
            jobs.push((job, Arc::clone(&record)));
            all.push(work(job, job.comes_after.div_f64(speed), config, record));
        }
        let all = tokio::spawn(async {
            join_all(all).await;
        });
        Ok(Self { jobs, all })
    }

    /// Waits until all jobs have ended, at most for `time`. Returns whether they have.
    pub async fn are_over_within(&mut self, time: Duration) -> bool {
        tokio::time::timeout(time, &mut self.all).await.is_ok()
    }

    /// How far each job is.
    pub fn lines(&self) -> Vec<JobLine> {
        let line = |(job, record): &(DemoJob, Arc<Mutex<Record>>)| {
            let record = record.lock().unwrap_or_else(PoisonError::into_inner);
            let status = record.status.as_ref().map(|status| status.borrow().clone());
            let done_bytes = status.as_ref().map_or(0, |status| status.input_bytes);
            let state = match (&record.ended, status.map(|status| status.at)) {
                (Some(Ok(())), _) => JobState::Verified,
                (Some(Err(why)), _) => JobState::Failed(why.clone()),
                (None, _) if record.done.is_some() => JobState::IsVerified,
                (None, None) => JobState::ToCome,
                (None, Some(Where::Waiting(why))) => JobState::Waits(why),
                (None, Some(Where::Attaching | Where::Running | Where::Ended)) => JobState::HasSlot,
            };
            JobLine { job: *job, done_bytes, state }
        };
        self.jobs.iter().map(line).collect()
    }

    /// What became of the jobs, which have ended.
    pub fn summary(&self) -> Summary {
        let outcome = |(job, record): &(DemoJob, Arc<Mutex<Record>>)| {
            let record = record.lock().unwrap_or_else(PoisonError::into_inner);
            let result = record.ended.clone().unwrap_or_else(|| Err("it has not ended".to_owned()));
            let between = |from: Option<Instant>, to: Option<Instant>| match (from, to) {
                (Some(from), Some(to)) => to - from,
                _ => Duration::ZERO,
            };
            let waited = between(record.arrived, record.granted);
            let took = between(record.arrived, record.done);
            Outcome { job: *job, waited, took, result }
        };
        Summary(self.jobs.iter().map(outcome).collect())
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.all.abort();
    }
}

/// A program of a tenant on a node: waits for its time, then for a slot, and verifies what comes out.
async fn work(job: DemoJob, comes_after: Duration, config: Config, record: Arc<Mutex<Record>>) {
    // A job that holds a slot without using it is asked to give it back: its input is ready before it comes.
    let Ok(input) = tokio::task::spawn_blocking(move || job.input()).await else { return };
    tokio::time::sleep(comes_after).await;
    let note = |change: &dyn Fn(&mut Record)| {
        change(&mut record.lock().unwrap_or_else(PoisonError::into_inner));
    };
    note(&|record| record.arrived = Some(Instant::now()));
    let result = async {
        let pool = Pool::connect(config)?;
        let opening = pool.open(job.request()?);
        let status = opening.status();
        note(&|record| record.status = Some(status.clone()));
        let mut slot = opening.await.context("no slot")?;
        note(&|record| record.granted = Some(Instant::now()));
        let mut output = Vec::new();
        slot.stream(Cursor::new(&input), &mut output).await?;
        slot.close().await?;
        note(&|record| record.done = Some(Instant::now()));
        tokio::task::spawn_blocking(move || check(&job, &input, &output)).await?.map_err(anyhow::Error::msg)
    };
    let result = result.await.map_err(|error| format!("{error:#}"));
    note(&|record| record.ended = Some(result.clone()));
}

impl Summary {
    /// Whether all results are right.
    pub fn is_good(&self) -> bool {
        self.0.iter().all(|outcome| outcome.result.is_ok())
    }
}

impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let verified = self.0.iter().filter(|outcome| outcome.result.is_ok()).count();
        let megabytes: u32 = self.0.iter().map(|outcome| outcome.job.megabytes).sum();
        writeln!(f, "Summary: {verified} of {} jobs verified, {megabytes} MB", self.0.len())?;
        for (at, Outcome { job, waited, took, result }) in self.0.iter().enumerate() {
            let name = job.accelerator.name();
            let DemoJob { tenant, home, megabytes, .. } = job;
            let result = match result {
                Ok(()) => "verified",
                Err(why) => why,
            };
            let (waited, took) = (waited.as_secs_f64(), took.as_secs_f64());
            let line = format!(
                "    {tenant:<5} {name:<14} {megabytes:>3} MB from {home:<7} waited {waited:>4.1} s of {took:>4.1} s  {result}"
            );
            f.write_str(&line)?;
            if at + 1 < self.0.len() {
                writeln!(f)?;
            }
        }
        Ok(())
    }
}
