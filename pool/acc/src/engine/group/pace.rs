//! How fast a group is, and when it will be done. Pure: moments are arguments.
//!
//! The forecast is that of the controller by which the broker divides slots, fed with what this client sees: the
//! time in which slots had actions, which counts the transfers as well.

use crate::goal::Goal;
use crate::statistics::Forecast;
use fpga_cluster::qos::controller::{self, ActionQueue, Controller, JobProgress};
use fpga_cluster::qos::rules::GoalRules;
use fpga_cluster::qos::{self, Rate};
use fpga_core::units::{Millis, MonotonicTime};
use fpga_pool_leases::ids::JobUuid;
use std::collections::HashMap;
use std::time::Duration;

/// The pace of a group.
pub(super) struct Pace {
    goal: Goal,
    /// `None` before the broker has heard of the group.
    run: Option<Run>,
    /// Since when the slots that have actions have some.
    working: HashMap<JobUuid, MonotonicTime>,
    /// Time for which slots had actions, but for those that have some now.
    busy: Millis,
}

struct Run {
    since: MonotonicTime,
    controller: Controller,
    /// When the last action was done that the deadline asks for.
    reached_at: Option<MonotonicTime>,
}

impl Pace {
    pub(super) fn new(goal: Goal) -> Self {
        Self { goal, run: None, working: HashMap::new(), busy: Millis::ZERO }
    }

    /// The broker has heard of the group: its time runs.
    pub(super) fn start(&mut self, now: MonotonicTime) {
        let goal = match self.goal {
            Goal::Deadline { actions, within } => {
                qos::Goal::Deadline { at: of(now).saturating_add(within), actions }
            }
            Goal::Throughput { actions_per_hour } => match Rate::new(actions_per_hour as f64 / 3600.0) {
                Ok(rate) => qos::Goal::Throughput(rate),
                // Goals are checked when groups are opened.
                Err(_) => return,
            },
        };
        self.run.get_or_insert_with(|| Run {
            since: now,
            controller: Controller::new(goal, GoalRules::default(), of(now)),
            reached_at: None,
        });
    }

    /// The slot of a job has an action.
    pub(super) fn works(&mut self, job: JobUuid, now: MonotonicTime) {
        self.working.entry(job).or_insert(now);
    }

    /// The slot of a job has no action.
    pub(super) fn pauses(&mut self, job: JobUuid, now: MonotonicTime) {
        if let Some(since) = self.working.remove(&job) {
            self.busy += now - since;
        }
    }

    /// So many actions are done.
    pub(super) fn done(&mut self, done: u64, now: MonotonicTime) {
        if let (Goal::Deadline { actions, .. }, Some(run)) = (self.goal, &mut self.run)
            && done >= actions
        {
            run.reached_at.get_or_insert(now);
        }
    }

    /// Ends a period.
    pub(super) fn end_period(&mut self, done: u64, slots: u32, now: MonotonicTime) {
        let of_now = self.working.values().fold(Millis::ZERO, |sum, since| sum + (now - *since));
        let busy = self.busy + of_now;
        if let Some(run) = &mut self.run {
            // Only time with actions counts, so that an empty queue changes no estimate.
            let queue = ActionQueue::Filled;
            let progress = JobProgress { now: of(now), done, devices: slots, busy: busy.into(), queue };
            run.controller.observe(progress);
        }
    }

    /// Time since the start.
    pub(super) fn elapsed(&self, now: MonotonicTime) -> Duration {
        self.run.as_ref().map_or(Duration::ZERO, |run| (now - run.since).into())
    }

    /// What the group will do with so many slots.
    pub(super) fn forecast(&self, done: u64, slots: u32, now: MonotonicTime) -> Option<Forecast> {
        let run = self.run.as_ref()?;
        if let (Goal::Deadline { within, .. }, Some(at)) = (self.goal, run.reached_at) {
            return Some(Forecast::Done { after: (at - run.since).into(), within });
        }
        match (run.controller.forecast(of(now), done, slots)?, self.goal) {
            (controller::Forecast::Done(at), Goal::Deadline { within, .. }) => {
                Some(Forecast::Done { after: at.saturating_sub(of(run.since)), within })
            }
            (controller::Forecast::PerSecond(rate), Goal::Throughput { actions_per_hour }) => {
                Some(Forecast::Throughput {
                    actions_per_hour: whole(rate * 3600.0),
                    wanted: actions_per_hour,
                })
            }
            _ => None,
        }
    }
}

/// A moment on the controller's clock.
fn of(moment: MonotonicTime) -> Duration {
    (moment - MonotonicTime::START).into()
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "not negative; `as` saturates")]
fn whole(number: f64) -> u64 {
    number.round() as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: JobUuid = JobUuid(1);
    const B: JobUuid = JobUuid(2);

    fn at(millis: u64) -> MonotonicTime {
        MonotonicTime(1_000 + millis)
    }

    #[test]
    fn a_deadline_is_forecast_by_the_time_that_actions_took() {
        let mut pace = Pace::new(Goal::Deadline { actions: 40, within: Duration::from_secs(10) });
        assert_eq!(pace.forecast(0, 2, at(0)), None, "the broker knows nothing of it");
        pace.start(at(0));
        pace.start(at(900));
        pace.works(A, at(0));
        pace.works(B, at(0));
        pace.pauses(B, at(500));
        // A second and a half for 15 actions, 0.1 s each: the other 25 take two slots 1.25 s.
        pace.end_period(15, 2, at(1_000));
        let done = |millis| {
            let within = Duration::from_secs(10);
            Some(Forecast::Done { after: Duration::from_millis(millis), within })
        };
        assert_eq!(pace.forecast(15, 2, at(1_000)), done(2_250));
        assert_eq!(pace.forecast(15, 1, at(1_000)), done(3_500));
        assert_eq!(pace.forecast(15, 0, at(1_000)), None);
        pace.done(40, at(3_000));
        pace.done(41, at(3_500));
        assert_eq!(pace.forecast(41, 0, at(9_000)), done(3_000), "what is reached stays");
        assert_eq!(pace.elapsed(at(9_000)), Duration::from_secs(9));
    }

    #[test]
    fn a_throughput_is_that_of_the_slots_also_while_they_have_nothing_to_do() {
        let mut pace = Pace::new(Goal::Throughput { actions_per_hour: 36_000 });
        pace.start(at(0));
        pace.works(A, at(0));
        pace.end_period(5, 1, at(1_000));
        let hour = |actions_per_hour| Some(Forecast::Throughput { actions_per_hour, wanted: 36_000 });
        assert_eq!(pace.forecast(5, 2, at(1_000)), hour(36_000));
        pace.pauses(A, at(1_000));
        pace.end_period(5, 1, at(2_000));
        assert_eq!(pace.forecast(5, 2, at(2_000)), hour(36_000));
    }
}
