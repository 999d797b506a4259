//! The controller of one job: estimates from the job's progress how many devices its goal needs.
//!
//! A controller knows no other job; the [`super::broker`] divides the devices.

use super::Goal;
use std::time::Duration;

/// The controller of one job.
#[derive(Debug, Clone, PartialEq)]
pub struct Controller {
    goal: Goal,
    smoothing: Smoothing,
    /// â: estimate of the device seconds per action; `None` until an action has finished.
    action_seconds: Option<f64>,
    last: Option<(Duration, u64)>,
}

/// α: weight of the last period in the estimate, above 0 and at most 1.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Smoothing(f64);

/// The progress of a job at the end of a period.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct JobProgress {
    /// End of the period, on the caller's monotonic clock.
    pub now: Duration,
    /// Number of actions done since the job's start.
    pub done: u64,
    /// Number of devices that the job had in the period.
    pub devices: u32,
}

/// The request of a job.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Request {
    /// r: number of devices that the goal needs.
    pub devices: u32,
    /// p: ratio of the throughput to the goal; above 1 the job exceeds its goal.
    pub performance: f64,
}

/// The smoothing factor is out of range.
#[derive(Debug, Clone, Copy, PartialEq, thiserror::Error)]
#[error("{0} is no smoothing factor: it must be above 0 and at most 1")]
pub struct SmoothingError(f64);

impl Smoothing {
    /// A smoothing factor.
    ///
    /// # Errors
    /// [`SmoothingError`] unless `alpha` is above 0 and at most 1.
    pub fn new(alpha: f64) -> Result<Self, SmoothingError> {
        if alpha > 0.0 && alpha <= 1.0 { Ok(Self(alpha)) } else { Err(SmoothingError(alpha)) }
    }
}

impl Controller {
    /// The controller of a job with this goal that starts `now`.
    #[must_use]
    pub fn new(goal: Goal, smoothing: Smoothing, now: Duration) -> Self {
        Self { goal, smoothing, action_seconds: None, last: Some((now, 0)) }
    }

    /// g: actions per second that the job must do from now on; 0 if all are done, infinite if the deadline has passed.
    #[must_use]
    pub fn goal_rate(&self, now: Duration, done: u64) -> f64 {
        match self.goal {
            Goal::Throughput(rate) => rate.per_second(),
            Goal::Deadline { actions, .. } if done >= actions => 0.0,
            Goal::Deadline { at, actions } => {
                // No time left: the division by 0 gives infinity, as intended.
                (actions - done) as f64 / at.saturating_sub(now).as_secs_f64()
            }
        }
    }

    /// The request after a period. Until its first action has finished, a job asks for the devices that it has, at
    /// least one.
    pub fn observe(&mut self, progress: JobProgress) -> Request {
        let (since, before) = self.last.unwrap_or((progress.now, progress.done));
        let seconds = progress.now.saturating_sub(since).as_secs_f64();
        let actions = progress.done.saturating_sub(before);
        self.last = Some((progress.now, progress.done));
        let throughput = if seconds > 0.0 { actions as f64 / seconds } else { 0.0 };
        if throughput > 0.0 && progress.devices > 0 {
            let measured = f64::from(progress.devices) / throughput;
            let Smoothing(alpha) = self.smoothing;
            let smooth = self.action_seconds.map_or(measured, |old| alpha * measured + (1.0 - alpha) * old);
            self.action_seconds = Some(smooth);
        }
        let goal = self.goal_rate(progress.now, progress.done);
        let devices = match self.action_seconds {
            Some(action_seconds) => whole(action_seconds * goal),
            None => progress.devices.max(1),
        };
        let performance = if goal > 0.0 { throughput / goal } else { f64::INFINITY };
        Request { devices, performance }
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
    use super::*;
    use proptest::prelude::*;

    fn secs(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    fn progress(now: u64, done: u64, devices: u32) -> JobProgress {
        JobProgress { now: secs(now), done, devices }
    }

    fn controller(goal: Goal, alpha: f64) -> Controller {
        Controller::new(goal, Smoothing::new(alpha).unwrap(), secs(0))
    }

    #[test]
    fn a_throughput_goal_worked_by_hand() {
        let mut controller = controller(Goal::Throughput(Rate::new(60.0).unwrap()), 0.5);
        // 2 devices did 40 actions in 2 s: 20/s, so 0.1 device seconds each; 60/s take 6; p = 20/60.
        assert_eq!(controller.observe(progress(2, 40, 2)), Request { devices: 6, performance: 20.0 / 60.0 });
        // 6 devices did 150 in 2 s: 75/s, 0.08 s; smoothed 0.09: 5.4, so 6; p = 75/60.
        assert_eq!(controller.observe(progress(4, 190, 6)), Request { devices: 6, performance: 1.25 });
        // The same again: 0.085 s: 5.1, so 6. And again: 0.0825: 4.95, so 5.
        assert_eq!(controller.observe(progress(6, 340, 6)).devices, 6);
        assert_eq!(controller.observe(progress(8, 490, 6)).devices, 5);
    }

    #[test]
    fn a_deadline_is_a_throughput_that_changes() {
        let mut controller = controller(Goal::Deadline { at: secs(100), actions: 1000 }, 1.0);
        // 100 done in 20 s by one device: 0.2 s each; 900 in 80 s are 11.25/s: 2.25, so 3; p = 5 / 11.25.
        assert_eq!(
            controller.observe(progress(20, 100, 1)),
            Request { devices: 3, performance: 5.0 / 11.25 }
        );
        // Paused for 60 s: the estimate stays, 900 in 20 s are 45/s: 9.
        assert_eq!(controller.observe(progress(80, 100, 0)), Request { devices: 9, performance: 0.0 });
        // The deadline has passed: the job asks for all devices.
        assert_eq!(
            controller.observe(progress(100, 500, 9)),
            Request { devices: u32::MAX, performance: 0.0 }
        );
        assert_eq!(
            controller.observe(progress(130, 1000, 9)),
            Request { devices: 0, performance: f64::INFINITY }
        );
    }

    #[test]
    fn a_job_keeps_its_devices_until_its_first_action_has_finished() {
        let mut controller = controller(Goal::Throughput(Rate::new(5.0).unwrap()), 0.5);
        assert_eq!(controller.observe(progress(1, 0, 4)), Request { devices: 4, performance: 0.0 });
        assert_eq!(controller.observe(progress(2, 0, 0)), Request { devices: 1, performance: 0.0 });
        // Time does not advance.
        assert_eq!(controller.observe(progress(2, 9, 1)), Request { devices: 1, performance: 0.0 });
        assert!(Smoothing::new(0.0).is_err() && Smoothing::new(1.1).is_err());
    }

    proptest! {
        #[test]
        fn a_request_is_never_nan_whatever_the_progress(
            deadline in any::<u32>(), actions in any::<u64>(),
            steps in prop::collection::vec((any::<u32>(), any::<u64>(), any::<u32>()), 1..20),
        ) {
            let mut controller =
                controller(Goal::Deadline { at: secs(deadline.into()), actions }, 0.3);
            for (now, done, devices) in steps {
                let request = controller.observe(JobProgress { now: secs(now.into()), done, devices });
                prop_assert!(request.performance >= 0.0, "{request:?}");
            }
        }
    }
}
