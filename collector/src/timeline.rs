//! The collector's own time line, which only goes forward, and its distance to the node's wall clock.
//!
//! **Every moment in the state lies on this time line.** Wall times appear only at the interfaces: in incoming
//! events, in the annotation, and with each record of the checkpoint. When the wall clock steps, only the distance
//! changes. So the contents of the window, the last reports of devices, and the silence of reporters keep their age.
//!
//! After a restart the time line goes on by as much as the wall clock has advanced. If the wall clock went back while
//! no collector ran, the time line does not advance for that restart, since the time that passed is unknown.

use fpga_core::units::{Millis, Moment, MonotonicTime, WallTime};
use fpga_core::window::TOLERANCE;
use serde::{Deserialize, Serialize};

/// The distance of the wall clock from the time line.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Timeline {
    /// Milliseconds by which the wall clock is ahead of the time line.
    wall_ahead: i64,
    steps: u64,
    last_forward: Option<Forward>,
}

/// The last forward step, for events that were under way during it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
struct Forward {
    /// The wall time just before the step: the wall clock skipped the times between `from` and `from + by`.
    from: WallTime,
    by: Millis,
}

/// The direction and size of a step of the wall clock.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ClockStep {
    /// Forward, by this much more than time passed.
    Forward(Millis),
    /// Back by this much.
    Back(Millis),
}

impl Timeline {
    /// The moment at which the wall clock shows `wall`, but not before `latest`.
    pub fn moment(&self, wall: WallTime, latest: MonotonicTime) -> Moment {
        Moment { now: self.on_line(wall).max(latest), wall }
    }

    /// Records a step of the wall clock, which shows `wall` after it.
    pub fn step(&mut self, step: ClockStep, wall: WallTime) {
        self.steps += 1;
        let signed = |by: Millis| i64::try_from(by.0).unwrap_or(i64::MAX);
        match step {
            ClockStep::Forward(by) => {
                self.wall_ahead = self.wall_ahead.saturating_add(signed(by));
                self.last_forward = Some(Forward { from: wall - by, by });
            }
            ClockStep::Back(by) => {
                self.wall_ahead = self.wall_ahead.saturating_sub(signed(by));
                // The wall clock shows these times a second time, so a wall time no longer tells on which side of the
                // step it was read.
                self.last_forward = None;
            }
        }
    }

    /// Compares `wall` with `latest`. If the wall clock is behind by up to [`TOLERANCE`], the time line waits for it;
    /// if by more, a step back is recorded.
    pub fn advance(&mut self, wall: WallTime, latest: MonotonicTime) {
        let now = self.on_line(wall);
        if now + TOLERANCE < latest {
            self.step(ClockStep::Back(latest - now), wall);
        }
    }

    /// The moment `at` with the wall time of the clock that stamped `stamped`: a stamp from before the last forward
    /// step needs a wall time without that step.
    pub fn as_then(&self, stamped: WallTime, at: Moment) -> Moment {
        match self.last_forward {
            Some(Forward { from, by }) if stamped <= from => Moment { wall: at.wall - by, ..at },
            _ => at,
        }
    }

    /// Number of steps of the wall clock.
    pub fn steps(&self) -> u64 {
        self.steps
    }

    fn on_line(&self, wall: WallTime) -> MonotonicTime {
        MonotonicTime(wall.0.saturating_add_signed(self.wall_ahead.saturating_neg()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WALL: WallTime = WallTime(1_760_000_000_000);
    const HOUR: Millis = Millis::from_secs(3600);

    #[test]
    fn a_step_of_the_wall_clock_is_no_time_that_passes() {
        let mut line = Timeline::default();
        let before = line.moment(WALL, MonotonicTime::START).now;
        line.step(ClockStep::Forward(HOUR), WALL + HOUR);
        assert_eq!(line.moment(WALL + HOUR, before).now, before);
        line.step(ClockStep::Back(HOUR + HOUR), WALL - HOUR);
        assert_eq!(line.moment(WALL - HOUR + Millis(5), before).now, before + Millis(5));
        assert_eq!(line.steps(), 2);
    }

    #[test]
    fn a_wall_clock_that_went_back_unseen_stops_the_line_and_no_more() {
        let mut line = Timeline::default();
        let latest = line.moment(WALL, MonotonicTime::START).now;
        line.advance(WALL - Millis(900), latest);
        assert_eq!((line.steps(), line.moment(WALL - Millis(900), latest).now), (0, latest));
        line.advance(WALL - HOUR, latest);
        assert_eq!((line.steps(), line.moment(WALL - HOUR + Millis(7), latest).now), (1, latest + Millis(7)));
    }

    #[test]
    fn what_was_stamped_before_a_step_ahead_has_its_age_by_the_clock_of_then() {
        let mut line = Timeline::default();
        line.step(ClockStep::Forward(HOUR), WALL + HOUR);
        let at = line.moment(WALL + HOUR + Millis(3_000), MonotonicTime::START);
        let age = |stamped: WallTime| line.as_then(stamped, at).wall - stamped;
        assert_eq!(age(WALL - Millis(2_000)), Millis(5_000));
        assert_eq!(age(WALL + HOUR + Millis(1_000)), Millis(2_000));
    }

    #[test]
    fn no_step_is_too_far() {
        let mut line = Timeline::default();
        for _ in 0..3 {
            line.step(ClockStep::Forward(Millis(u64::MAX)), WallTime(u64::MAX));
        }
        assert_eq!(line.moment(WALL, MonotonicTime::START).now, MonotonicTime::START);
        for _ in 0..3 {
            line.step(ClockStep::Back(Millis(u64::MAX)), WallTime::UNIX_EPOCH);
        }
        assert!(line.moment(WALL, MonotonicTime::START).now > MonotonicTime(WALL.0));
    }
}
