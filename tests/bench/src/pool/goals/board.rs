//! The live pool with one modelled board, and the groups of an experiment on it.

use super::experiment::Scenario;
use crate::modelled::Late;
use crate::pool::machines::GRAIN;
use crate::pool::priority;
use crate::pool::text::{COUNTER, KEY, Text};
use anyhow::{Result, bail, ensure};
use fpga_acc::{Config, Goal as Asked, Group, GroupRequest, Pool, Request, Statistics};
use fpga_cluster::qos::Goal;
use fpga_sim::qos::engine::{Job, Run, Sample};
use fpga_tests::testbed::pool::{PoolBed, Sharing, TENANTS, node_name};
use fpga_tests::testbed::wait;
use std::time::Duration;
use tempfile::TempDir;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::Instant;

const START: Duration = Duration::from_secs(60);
/// Time within which the groups of a run must end.
const PATIENCE: Duration = Duration::from_secs(1800);
/// Work items of AES in an action.
const ITEMS: f64 = GRAIN as f64 / 16.0;

/// A broker and a manager with a modelled board.
#[derive(Debug)]
pub(super) struct Board {
    bed: PoolBed,
    faster: f64,
    slots: u32,
    /// The file of what tenants may have.
    _tenants: TempDir,
}

/// What became of the groups.
#[derive(Debug)]
pub(super) struct Played {
    /// Ends and progress, in seconds of the paper.
    pub run: Run,
    /// Whether the run shows nothing, since the machine was too slow for the model.
    pub is_void: bool,
    /// How exact the model's times were kept.
    pub told: String,
}

impl Board {
    /// Starts the board of a scenario, and a broker that leaves all slots to groups.
    pub async fn start(scenario: &Scenario, margin: f64, faster: f64) -> Result<Self> {
        let (machine, folder) = (&scenario.machine, tempfile::tempdir()?);
        let tenants = folder.path().join("tenants.toml");
        std::fs::write(
            &tenants,
            format!("[tenants.{}]\nguaranteed-slots = {}\n", TENANTS[0], machine.devices),
        )?;
        let flags = [
            "--floor".to_owned(),
            "none".to_owned(),
            "--goal-period".to_owned(),
            format!("{:.0}ms", 1000.0 / faster),
            "--margin".to_owned(),
            margin.to_string(),
            "--tenants".to_owned(),
            tenants.display().to_string(),
        ];
        let mut bed = PoolBed::start_for(1, flags.to_vec()).await?;
        let model = format!(
            "board = \"a board of fpga-bench pool goals\"\nreconfiguration = \"0ms\"\n\n[[kernel]]\n\
             items_per_second = {:.3}\ndma_items_per_second = {:.3}\n",
            faster * ITEMS / machine.action,
            faster * ITEMS * machine.most_per_second,
        );
        let slots = machine.devices;
        bed.start_manager_with(&Sharing { slots, lent: slots, model: Some(model) }).await?;
        wait::until_within("all slots at the broker", START, async || {
            let is_active = bed.metric("fpga_pool_active").await? == 1.0;
            let is_there = bed.metric("fpga_pool_slots").await? == f64::from(slots);
            Ok((is_active && is_there).then_some(()))
        })
        .await?;
        priority::raise(bed.manager_processes())?;
        Ok(Self { bed, faster, slots, _tenants: folder })
    }

    /// Opens the groups and runs all their actions.
    pub async fn play(&self, scenario: &Scenario) -> Result<Played> {
        let config = Config {
            token_file: Some(self.bed.home_token(0)),
            node: Some(node_name(0)),
            ..Config::of(&self.bed.broker_address())?
        };
        let (pool, text) = (Pool::connect(config)?, Text::of(GRAIN)?);
        self.connect(&pool, &text).await?;
        let (before, start) = (self.late().await?, Instant::now());
        let (mut groups, mut shown) = (JoinSet::<Result<_>>::new(), Vec::new());
        for (index, job) in scenario.jobs.iter().copied().enumerate() {
            let group = pool.open_group(self.request(&job))?;
            shown.push(group.statistics());
            let text = text.clone();
            groups.spawn(async move { Ok((index, end_of(group, job.actions, text, start).await?)) });
        }
        let mut run = Run { ends: vec![None; scenario.jobs.len()], samples: Vec::new() };
        let mut seconds = tokio::time::interval_at(start, Duration::from_secs_f64(1.0 / self.faster));
        while !groups.is_empty() {
            tokio::select! {
                ended = groups.join_next() => {
                    if let Some(ended) = ended {
                        let (index, end) = ended??;
                        run.ends[index] = Some(Duration::as_secs_f64(&end) * self.faster);
                    }
                }
                _ = seconds.tick() => run.samples.push(sample(run.samples.len(), &shown)),
                () = tokio::time::sleep_until(start + PATIENCE) => bail!("the groups do not end"),
            }
        }
        // The second in which the last group ended.
        seconds.tick().await;
        run.samples.push(sample(run.samples.len(), &shown));
        let late = self.late().await? - before;
        // Closing blocks: it waits for the last message to the broker.
        tokio::task::spawn_blocking(move || pool.close()).await?;
        Ok(Played { run, is_void: late.is_void(), told: late.to_string() })
    }

    /// Runs a job, so that the client is connected: a program connects once, and on a clock that runs so many times as fast
    /// connecting would count as often.
    async fn connect(&self, pool: &Pool, text: &Text) -> Result<()> {
        let request = Request::new("aes-256-ctr", GRAIN).argument("key", &KEY).argument("counter", &COUNTER);
        let mut job = pool.open(request).await?;
        ensure!(job.run(text.plain.clone()).await? == text.secret, "a wrong result");
        job.close().await?;
        let all = f64::from(self.slots);
        wait::until_within("all slots free", START, async || {
            Ok((self.bed.free_slots().await? == all).then_some(()))
        })
        .await
    }

    /// The request of a job, which is as much faster as the board is.
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "positive; `as` saturates")]
    fn request(&self, job: &Job) -> GroupRequest {
        let goal = match job.goal {
            Goal::Deadline { at, actions } => Asked::Deadline { actions, within: at.div_f64(self.faster) },
            Goal::Throughput(rate) => {
                let actions_per_hour = (rate.per_second() * self.faster * 3600.0).round() as u64;
                Asked::Throughput { actions_per_hour }
            }
        };
        let slots = job.limits.least()..=job.limits.most().min(self.slots);
        GroupRequest::new("aes-256-ctr", goal, slots).argument("key", &KEY).argument("counter", &COUNTER)
    }

    async fn late(&self) -> Result<Late> {
        Late::of(async |metric| self.bed.metric_of_managers(&format!("fpga_device_manager_{metric}")).await)
            .await
    }
}

/// Runs the actions of a group, and returns the time from the start to the end of the last one.
async fn end_of(group: Group, actions: u64, text: Text, start: Instant) -> Result<Duration> {
    let mut outputs = Vec::new();
    for _ in 0..actions {
        outputs.push(group.submit(text.plain.clone()).await?);
    }
    for output in outputs {
        ensure!(output.await? == text.secret, "a wrong result");
    }
    let end = start.elapsed();
    group.close().await?;
    Ok(end)
}

/// What the groups have done at the end of a second of the paper.
fn sample(second: usize, shown: &[watch::Receiver<Statistics>]) -> Sample {
    let given = shown.iter().map(|shown| shown.borrow().slots).collect();
    Sample { at: second as f64, given, done: shown.iter().map(|shown| shown.borrow().done).collect() }
}
