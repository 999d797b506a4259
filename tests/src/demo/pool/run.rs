//! The jobs as they run: each has a thread's worth of a program that uses the library, with its tenant's token.

use super::check::check;
use super::jobs::{DemoJob, Form, JOBS};
use crate::testbed::pool::PoolBed;
use anyhow::{Context as _, Result};
use fpga_acc::{Config, Forecast, Goal, Pool, Statistics, Status, Where};
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
    library: Option<Library>,
    /// When the goal was reached, of a job that has one.
    reached: Option<Forecast>,
    ended: Option<Result<(), String>>,
}

/// What the library says of a job.
#[derive(Debug)]
enum Library {
    Job(watch::Receiver<Status>),
    Group(watch::Receiver<Statistics>),
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
    reached: Option<Forecast>,
    result: Result<(), String>,
}

impl Library {
    /// Bytes of the input that are done, and where the job is.
    fn look(&self) -> (u64, JobState) {
        match self {
            Self::Job(status) => {
                let status = status.borrow();
                let state = match &status.at {
                    Where::Waiting(why) => JobState::Waits(why.clone()),
                    Where::Attaching | Where::Running | Where::OnProcessor | Where::Ended => {
                        JobState::HasSlot
                    }
                };
                (status.input_bytes, state)
            }
            Self::Group(statistics) => {
                let statistics = statistics.borrow();
                let waits = statistics.slots == 0 && !statistics.waits.is_empty();
                let state = if waits { JobState::Waits(statistics.waits.clone()) } else { JobState::HasSlot };
                (statistics.input_bytes, state)
            }
        }
    }
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
            all.push(Program { job, speed, config, record }.work());
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
            let (done_bytes, state) = record.library.as_ref().map_or((0, JobState::ToCome), Library::look);
            let state = match &record.ended {
                Some(Ok(())) => JobState::Verified,
                Some(Err(why)) => JobState::Failed(why.clone()),
                None if record.done.is_some() => JobState::IsVerified,
                None => state,
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
            Outcome { job: *job, waited, took, reached: record.reached, result }
        };
        Summary(self.jobs.iter().map(outcome).collect())
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.all.abort();
    }
}

/// A program of a tenant on a node, in a demo that is so many times as fast.
struct Program {
    job: DemoJob,
    speed: f64,
    config: Config,
    record: Arc<Mutex<Record>>,
}

impl Program {
    /// Waits for its time, then for a slot, and verifies what comes out.
    async fn work(self) {
        let job = self.job;
        // A job that holds a slot without using it is asked to give it back: its input is ready before it comes.
        let Ok(input) = tokio::task::spawn_blocking(move || job.input()).await else { return };
        tokio::time::sleep(job.comes_after.div_f64(self.speed)).await;
        self.note(|record| record.arrived = Some(Instant::now()));
        let result = self.compute(input).await.map_err(|error| format!("{error:#}"));
        self.note(|record| record.ended = Some(result));
    }

    async fn compute(&self, input: Vec<u8>) -> Result<()> {
        let (job, pool) = (self.job, Pool::connect(self.config.clone())?);
        let output = match job.form {
            Form::Stream => self.stream(&pool, &input).await?,
            Form::Actions { number, within } => {
                let goal = Goal::Deadline { actions: number.into(), within: within.div_f64(self.speed) };
                self.act(&pool, goal, input.chunks(input.len() / number as usize)).await?
            }
        };
        self.note(|record| record.done = Some(Instant::now()));
        tokio::task::spawn_blocking(move || check(&job, &input, &output)).await?.map_err(anyhow::Error::msg)
    }

    async fn stream(&self, pool: &Pool, input: &[u8]) -> Result<Vec<u8>> {
        let opening = pool.open(self.job.request()?);
        self.note(|record| record.library = Some(Library::Job(opening.status())));
        let mut slot = opening.await.context("no slot")?;
        self.note(|record| record.granted = Some(Instant::now()));
        let mut output = Vec::new();
        slot.stream(Cursor::new(input), &mut output).await?;
        slot.close().await?;
        Ok(output)
    }

    /// The outputs of a group's actions, one after another.
    async fn act(&self, pool: &Pool, goal: Goal, inputs: impl Iterator<Item = &[u8]>) -> Result<Vec<u8>> {
        let group = pool.open_group(self.job.group_request(goal)?)?;
        let mut statistics = group.statistics();
        self.note(|record| record.library = Some(Library::Group(group.statistics())));
        let mut actions = Vec::new();
        for input in inputs {
            actions.push(group.submit(input.to_vec()).await?);
        }
        statistics.wait_for(|statistics| statistics.slots > 0 || statistics.ended() > 0).await?;
        self.note(|record| record.granted = Some(Instant::now()));
        let mut output = Vec::new();
        for action in actions {
            output.extend(action.await?);
        }
        let reached = group.close().await?.forecast;
        self.note(|record| record.reached = reached);
        Ok(output)
    }

    fn note(&self, change: impl FnOnce(&mut Record)) {
        change(&mut self.record.lock().unwrap_or_else(PoisonError::into_inner));
    }
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
        for (at, Outcome { job, waited, took, reached, result }) in self.0.iter().enumerate() {
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
            if let Some(reached) = reached {
                write!(f, ", {reached}")?;
            }
            if at + 1 < self.0.len() {
                writeln!(f)?;
            }
        }
        Ok(())
    }
}
