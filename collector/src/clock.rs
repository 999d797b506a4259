//! The node's wall clock, compared with the monotonic clock to detect steps.

use crate::timeline::ClockStep;
use fpga_core::units::{Millis, WallTime};
use fpga_core::window::TOLERANCE;
use std::time::{Instant, SystemTime};

/// The wall clock and its last reading.
#[derive(Debug)]
pub struct Clock {
    anchor: Instant,
    wall: WallTime,
}

impl Clock {
    /// Takes the first reading.
    pub fn start() -> Self {
        Self { anchor: Instant::now(), wall: wall_clock() }
    }

    /// The wall time now, and the step that the wall clock made since the last call, if any.
    pub fn now(&mut self) -> (WallTime, Option<ClockStep>) {
        let (anchor, wall) = (Instant::now(), wall_clock());
        let expected = self.wall + Millis::from(anchor.duration_since(self.anchor));
        (self.anchor, self.wall) = (anchor, wall);
        (wall, step(expected, wall))
    }
}

/// The step between the expected wall time and the one that the clock shows; `None` within [`TOLERANCE`].
fn step(expected: WallTime, wall: WallTime) -> Option<ClockStep> {
    if wall > expected + TOLERANCE {
        Some(ClockStep::Forward(wall - expected))
    } else if wall + TOLERANCE < expected {
        Some(ClockStep::Back(expected - wall))
    } else {
        None
    }
}

fn wall_clock() -> WallTime {
    WallTime::of(SystemTime::now())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_step_is_told_apart_from_time_that_passes() {
        let at = WallTime(1_000_000);
        assert_eq!(step(at, at + Millis(900)), None);
        assert_eq!(step(at, at + Millis(5_000)), Some(ClockStep::Forward(Millis(5_000))));
        assert_eq!(step(at, at - Millis(5_000)), Some(ClockStep::Back(Millis(5_000))));
        let mut clock = Clock::start();
        assert_eq!(clock.now().1, None);
    }
}
