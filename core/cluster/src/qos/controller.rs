//! The controller of one job: estimates from the job's progress how many devices its goal needs.
//!
//! A controller knows no other job; the [`super::broker`] divides the devices.

use super::Goal;
use super::rules::{ActionTime, GoalRules, Late};
use std::time::Duration;

/// The controller of one job.
#[derive(Debug, Clone, PartialEq)]
pub struct Controller {
    goal: Goal,
    rules: GoalRules,
    started: Duration,
    /// â: estimate of the device seconds per action; `None` until an action has finished.
    action_seconds: Option<f64>,
    last: JobProgress,
    performance: f64,
}

/// The progress of a job at the end of a period.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct JobProgress {
    /// End of the period, on the caller's monotonic clock.
    pub now: Duration,
    /// Number of actions done since the job's start.
    pub done: u64,
    /// Number of devices that the job had in the period.
    pub devices: u32,
    /// Time in which devices were busy with actions since the job's start, all devices together.
    pub busy: Duration,
    /// Whether the job always had an action to start in the period.
    pub queue: ActionQueue,
}

/// The queue of a job's actions within a period.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ActionQueue {
    /// There was an action whenever a device was free.
    Filled,
    /// The queue was empty: the period tells nothing of what the devices can do, and does not count.
    RanEmpty,
}

/// The request of a job.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Request {
    /// r: number of devices that the goal needs.
    pub devices: u32,
    /// p: ratio of the throughput to the goal; above 1 the job exceeds its goal.
    pub performance: f64,
    /// Whether the deadline has passed.
    pub lateness: Lateness,
    /// Number of devices for which the job had actions in its last period, if its queue ran empty then: it can use no
    /// more.
    pub usable: Option<u32>,
}

/// Whether the deadline of a job has passed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Lateness {
    /// There is time left, or the goal has no deadline, or the rules make no difference.
    OnTime,
    /// The deadline has passed: the job asks for one device.
    Late,
}

/// What a job will do with the devices that it has.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Forecast {
    /// The last action is done at this time, on the caller's monotonic clock.
    Done(Duration),
    /// So many actions are done per second.
    PerSecond(f64),
}

impl Request {
    /// The request of a job of which nothing is known as yet. Devices beyond its minimum may be taken back.
    #[must_use]
    pub fn of_new_job(least: u32) -> Self {
        Self { devices: least.max(1), performance: 0.0, lateness: Lateness::OnTime, usable: None }
    }
}

impl Controller {
    /// The controller of a job with this goal that starts `now`.
    #[must_use]
    pub fn new(goal: Goal, rules: GoalRules, now: Duration) -> Self {
        let queue = ActionQueue::Filled;
        let last = JobProgress { now, done: 0, devices: 0, busy: Duration::ZERO, queue };
        Self { goal, rules, started: now, action_seconds: None, last, performance: 0.0 }
    }

    /// g: actions per second that the job must do from now on; 0 if all are done, infinite if the time that the margin
    /// leaves is over.
    #[must_use]
    pub fn goal_rate(&self, now: Duration, done: u64) -> f64 {
        match self.goal {
            Goal::Throughput(rate) => rate.per_second(),
            Goal::Deadline { actions, .. } if done >= actions => 0.0,
            Goal::Deadline { at, actions } => {
                let margin = at.saturating_sub(self.started).mul_f64(self.rules.margin.share());
                let wanted = at.saturating_sub(margin);
                // No time left: the division by 0 gives infinity, as intended.
                (actions - done) as f64 / wanted.saturating_sub(now).as_secs_f64()
            }
        }
    }

    /// The request after a period. Until its first action has finished, a job asks for the devices that it has, at
    /// least one.
    pub fn observe(&mut self, progress: JobProgress) -> Request {
        let before = std::mem::replace(&mut self.last, progress);
        let seconds = progress.now.saturating_sub(before.now).as_secs_f64();
        let actions = progress.done.saturating_sub(before.done);
        let throughput = if seconds > 0.0 { actions as f64 / seconds } else { 0.0 };
        let busy = progress.busy.saturating_sub(before.busy).as_secs_f64();
        let measured = match self.rules.action_time {
            ActionTime::Given if throughput > 0.0 && progress.devices > 0 => {
                Some(f64::from(progress.devices) / throughput)
            }
            ActionTime::Busy if actions > 0 && busy > 0.0 => Some(busy / actions as f64),
            ActionTime::Given | ActionTime::Busy => None,
        };
        let goal = self.goal_rate(progress.now, progress.done);
        if self.counts(progress.queue) {
            if let Some(measured) = measured {
                let smooth = |before| self.rules.smoothing.smooth(before, measured);
                self.action_seconds = Some(self.action_seconds.map_or(measured, smooth));
            }
            self.performance = if goal > 0.0 { throughput / goal } else { f64::INFINITY };
        }
        if self.is_late(&progress) {
            // As if the job met its goal: it is neither ahead nor behind.
            return Request { devices: 1, performance: 1.0, lateness: Lateness::Late, usable: None };
        }
        let devices = match self.action_seconds {
            Some(action_seconds) => whole(action_seconds * goal),
            None => progress.devices.max(1),
        };
        // One device is enough to see that actions come again.
        let usable = (!self.counts(progress.queue) && seconds > 0.0).then(|| whole(busy / seconds).max(1));
        Request { devices, performance: self.performance, lateness: Lateness::OnTime, usable }
    }

    /// Whether an action has finished, so that the job asks for what its goal needs.
    #[must_use]
    pub fn has_measured(&self) -> bool {
        self.action_seconds.is_some()
    }

    /// Changes the goal, of which more is known now.
    pub fn set_goal(&mut self, goal: Goal) {
        self.goal = goal;
    }

    /// What the job will do with this number of devices; `None` until an action has finished, or without devices.
    #[must_use]
    pub fn forecast(&self, now: Duration, done: u64, devices: u32) -> Option<Forecast> {
        let seconds = self.action_seconds.filter(|_| devices > 0)? / f64::from(devices);
        match self.goal {
            Goal::Deadline { actions, .. } => {
                let left = Duration::try_from_secs_f64(actions.saturating_sub(done) as f64 * seconds);
                Some(Forecast::Done(now.saturating_add(left.unwrap_or(Duration::MAX))))
            }
            Goal::Throughput(_) => Some(Forecast::PerSecond(1.0 / seconds)),
        }
    }

    /// Whether a period counts. The printed formula knows no empty queue.
    fn counts(&self, queue: ActionQueue) -> bool {
        queue == ActionQueue::Filled || self.rules.action_time == ActionTime::Given
    }

    fn is_late(&self, progress: &JobProgress) -> bool {
        let Goal::Deadline { at, actions } = self.goal else { return false };
        self.rules.late == Late::Minimum && progress.now >= at && progress.done < actions
    }
}

/// Rounds up, with a tolerance for rounding errors.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "not negative; `as` saturates")]
fn whole(devices: f64) -> u32 {
    (devices - 1e-9).ceil() as u32
}

#[cfg(test)]
mod tests {
    use super::super::Rate;
    use super::super::rules::{Margin, Smoothing};
    use super::*;
    use proptest::prelude::*;

    fn secs(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    fn progress(now: u64, done: u64, devices: u32) -> JobProgress {
        let now = secs(now);
        JobProgress { now, done, devices, busy: Duration::ZERO, queue: ActionQueue::Filled }
    }

    fn request(devices: u32, performance: f64) -> Request {
        Request { devices, performance, lateness: Lateness::OnTime, usable: None }
    }

    fn controller(goal: Goal, alpha: f64) -> Controller {
        let smoothing = Smoothing::new(alpha).unwrap();
        Controller::new(goal, GoalRules { smoothing, ..GoalRules::printed() }, secs(0))
    }

    #[test]
    fn a_throughput_goal_worked_by_hand() {
        let mut controller = controller(Goal::Throughput(Rate::new(60.0).unwrap()), 0.5);
        // 2 devices did 40 actions in 2 s: 20/s, so 0.1 device seconds each; 60/s take 6; p = 20/60.
        assert_eq!(controller.observe(progress(2, 40, 2)), request(6, 20.0 / 60.0));
        // 6 devices did 150 in 2 s: 75/s, 0.08 s; smoothed 0.09: 5.4, so 6; p = 75/60.
        assert_eq!(controller.observe(progress(4, 190, 6)), request(6, 1.25));
        // The same again: 0.085 s: 5.1, so 6. And again: 0.0825: 4.95, so 5.
        assert_eq!(controller.observe(progress(6, 340, 6)).devices, 6);
        assert_eq!(controller.observe(progress(8, 490, 6)).devices, 5);
    }

    #[test]
    fn a_deadline_is_a_throughput_that_changes() {
        let mut controller = controller(Goal::Deadline { at: secs(100), actions: 1000 }, 1.0);
        // 100 done in 20 s by one device: 0.2 s each; 900 in 80 s are 11.25/s: 2.25, so 3; p = 5 / 11.25.
        assert_eq!(controller.observe(progress(20, 100, 1)), request(3, 5.0 / 11.25));
        // Paused for 60 s: the estimate stays, 900 in 20 s are 45/s: 9.
        assert_eq!(controller.observe(progress(80, 100, 0)), request(9, 0.0));
        // The deadline has passed: the job asks for all devices.
        assert_eq!(controller.observe(progress(100, 500, 9)), request(u32::MAX, 0.0));
        assert_eq!(controller.observe(progress(130, 1000, 9)), request(0, f64::INFINITY));
    }

    #[test]
    fn a_job_keeps_its_devices_until_its_first_action_has_finished() {
        let mut controller = controller(Goal::Throughput(Rate::new(5.0).unwrap()), 0.5);
        assert_eq!(controller.observe(progress(1, 0, 4)), request(4, 0.0));
        assert_eq!(controller.observe(progress(2, 0, 0)), request(1, 0.0));
        // Time does not advance.
        assert_eq!(controller.observe(progress(2, 9, 1)), request(1, 0.0));
    }

    /// The controller of a pool's group, which is due at 100 s.
    fn due_at_100(margin: f64) -> Controller {
        let rules = GoalRules { margin: Margin::new(margin).unwrap(), ..GoalRules::default() };
        Controller::new(Goal::Deadline { at: secs(100), actions: 1000 }, rules, secs(0))
    }

    fn busy(now: u64, done: u64, devices: u32, busy: u64) -> JobProgress {
        JobProgress { busy: secs(busy), ..progress(now, done, devices) }
    }

    #[test]
    fn the_margin_moves_the_deadline_and_0_is_the_printed_formula() {
        // 1000 actions in 97 s.
        assert!((due_at_100(0.03).goal_rate(secs(0), 0) - 1000.0 / 97.0).abs() < 1e-9);
        assert!((due_at_100(0.03).goal_rate(secs(87), 900) - 10.0).abs() < 1e-9);
        assert_eq!(due_at_100(0.0).goal_rate(secs(0), 0), 10.0);
        // Within the margin the group asks for all that it can get.
        assert_eq!(due_at_100(0.03).goal_rate(secs(98), 999), f64::INFINITY);
        assert_eq!(due_at_100(0.03).goal_rate(secs(98), 1000), 0.0);
        // The margin is a share of the time from the start.
        let goal = Goal::Deadline { at: secs(200), actions: 1000 };
        let later = Controller::new(goal, GoalRules::default(), secs(100));
        assert!((later.goal_rate(secs(100), 0) - 1000.0 / 97.0).abs() < 1e-9);
    }

    #[test]
    fn the_action_time_is_busy_slot_time_per_action() {
        let mut controller = due_at_100(0.0);
        // 8 devices were given, but 2 busy: 20 s for 100 actions, 0.2 s each. 900 in 90 s are 10/s: 2 devices.
        assert_eq!(controller.observe(busy(10, 100, 8, 20)).devices, 2);
        // By what it was given the job would ask for 8.
        let given = GoalRules { action_time: ActionTime::Given, ..controller.rules };
        let mut given = Controller::new(controller.goal, given, secs(0));
        assert_eq!(given.observe(busy(10, 100, 8, 20)).devices, 8);
    }

    #[test]
    fn periods_with_an_empty_queue_do_not_count() {
        let mut controller = due_at_100(0.0);
        let before = controller.observe(busy(10, 100, 2, 20));
        let empty = JobProgress { queue: ActionQueue::RanEmpty, ..busy(20, 101, 2, 60) };
        let after = controller.observe(empty);
        // 899 in 80 s, still at 0.2 s: 2.2, so 3; the low throughput is not the devices' fault.
        assert_eq!((after.devices, after.performance), (3, before.performance));
        // In 10 s devices were busy for 40 s together: there were actions for four of them. Without any, for one.
        assert_eq!((before.usable, after.usable), (None, Some(4)));
        assert_eq!(controller.observe(JobProgress { now: secs(25), ..empty }).usable, Some(1));
        // The next period is measured from the end of the empty one.
        assert_eq!(controller.observe(busy(30, 201, 2, 80)).devices, 3);
    }

    #[test]
    fn a_late_job_asks_for_one_device() {
        let mut controller = due_at_100(0.03);
        controller.observe(busy(90, 100, 2, 180));
        let late = Request { devices: 1, performance: 1.0, lateness: Lateness::Late, usable: None };
        assert_eq!(controller.observe(busy(99, 120, 2, 198)).devices, u32::MAX);
        assert_eq!(controller.observe(busy(100, 122, 2, 200)), late);
        assert_eq!(controller.observe(busy(101, 1000, 2, 202)).lateness, Lateness::OnTime);
    }

    #[test]
    fn a_forecast_is_what_the_devices_will_do() {
        let mut controller = due_at_100(0.0);
        assert_eq!(controller.forecast(secs(0), 0, 4), None);
        controller.observe(busy(10, 100, 2, 20));
        assert_eq!(controller.forecast(secs(10), 100, 2), Some(Forecast::Done(secs(100))));
        assert_eq!(controller.forecast(secs(10), 100, 0), None);
        let goal = Goal::Throughput(Rate::new(5.0).unwrap());
        let mut controller = Controller::new(goal, GoalRules::default(), secs(0));
        controller.observe(busy(10, 100, 2, 20));
        assert_eq!(controller.forecast(secs(10), 100, 2), Some(Forecast::PerSecond(10.0)));
    }

    proptest! {
        #[test]
        fn a_request_is_never_nan_whatever_the_progress(
            deadline in any::<u32>(), actions in any::<u64>(),
            rules in prop::sample::select(vec![GoalRules::printed(), GoalRules::default()]),
            steps in prop::collection::vec((any::<u32>(), any::<u64>(), any::<u32>(), any::<u32>()), 1..20),
        ) {
            let goal = Goal::Deadline { at: secs(deadline.into()), actions };
            let mut controller = Controller::new(goal, rules, secs(0));
            for (now, done, devices, busy_for) in steps {
                let request = controller.observe(busy(now.into(), done, devices, busy_for.into()));
                prop_assert!(request.performance >= 0.0, "{request:?}");
            }
        }
    }
}
