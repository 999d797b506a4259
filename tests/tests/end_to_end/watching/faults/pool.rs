//! Faults of the pool.

use super::Watched;
use crate::watching::LONG;
use fpga_acc::{Goal, Group, GroupRequest};
use fpga_tests::testbed::pool::{PoolBed, TENANTS};
use fpga_tests::testbed::wait;
use std::collections::VecDeque;
use std::convert::Infallible;
use std::time::Duration;
use tokio::io::AsyncWriteExt as _;
use tokio::process::Child;

/// Actions of a group that no board can do in a second, and bytes of each.
const ACTIONS: u64 = 100_000;
const ACTION_BYTES: usize = 200_000;
/// Actions of the group that wait at a time.
const IN_FLIGHT: usize = 8;
/// Looks at a job that has its slot until its task has most likely begun.
const LOOKS: usize = 20;

/// Submits actions to a group, and takes their output.
async fn submit_for_ever(group: &Group) -> Infallible {
    let mut actions = VecDeque::new();
    loop {
        actions.push_back(group.submit(vec![7; ACTION_BYTES]).await.unwrap());
        if actions.len() == IN_FLIGHT
            && let Some(first) = actions.pop_front()
        {
            first.await.unwrap();
        }
    }
}

impl Watched {
    pub(super) async fn the_pool_lacks_its_parts(&mut self) {
        self.site.pool.kill_manager(0).await;
        self.fires("FpgaPoolJobsWaitLong").await;
        self.site.pool.restart_manager(0).await.unwrap();
        self.calms_down().await;

        self.site.pool.kill_broker().await;
        self.fires("FpgaPoolHasNoBroker").await;
        self.site.pool.start_broker().await.unwrap();
        self.calms_down().await;
    }

    pub(super) async fn a_goal_is_out_of_reach(&self) {
        let pool = self.site.pool_of(TENANTS[1]);
        let goal = Goal::Deadline { actions: ACTIONS, within: Duration::from_secs(1) };
        // The other slot is left to jobs.
        let group = pool.open_group(GroupRequest::new("sha-256", goal, 0..=1)).unwrap();
        tokio::select! {
            () = self.fires("FpgaPoolGoalWillBeMissed") => {}
            never = submit_for_ever(&group) => match never {},
        }
        drop(group);
        // Closing blocks: it waits for the last message to the broker.
        tokio::time::timeout(LONG, tokio::task::spawn_blocking(move || pool.close())).await.unwrap().unwrap();
        self.calms_down().await;
    }

    pub(super) async fn a_task_of_a_lease_does_not_end(&mut self) {
        self.site.pool_controls.never_end(true);
        self.a_job_is_killed_in_its_task().await;
        // The manager gives the task half a minute.
        self.fires("FpgaPoolSlotsBad").await;
        self.site.pool_controls.never_end(false);
        self.site.pool.kill_manager(0).await;
        self.site.pool.restart_manager(0).await.unwrap();
        self.calms_down().await;
    }

    /// Starts jobs and kills them, until one of them leaves a task behind.
    async fn a_job_is_killed_in_its_task(&self) {
        let http = self.site.cluster.http();
        let url = self.site.pool.manager_metrics_url(0);
        let (mut job, mut looks) = (None, 0);
        let left = wait::until_within("a task of a lease that has ended", LONG, async || {
            let answer = http.get(&url).await?;
            let slots =
                |state| answer.sample(&format!("fpga_device_manager_pool_slots{{state=\"{state}\"}}"));
            if slots("draining") > 0.0 {
                return Ok(Some(()));
            }
            // The other slot is that of the load's job.
            looks = if slots("held") < 2.0 { 0 } else { looks + 1 };
            if job.is_none() {
                job = Some(start_job(&self.site.pool).await?);
            } else if looks > LOOKS {
                // A job that has not begun its task yet leaves none behind. Its drop kills it.
                job = None;
            }
            Ok(None)
        });
        left.await.unwrap();
    }
}

/// Starts a job that has all of its input, which it computes in one step.
async fn start_job(pool: &PoolBed) -> anyhow::Result<Child> {
    let mut job = pool.job(TENANTS[1], "office", &["sha-256"])?.spawn()?;
    let mut input = job.stdin.take().unwrap();
    input.write_all(&[7; ACTION_BYTES]).await?;
    Ok(job)
}
