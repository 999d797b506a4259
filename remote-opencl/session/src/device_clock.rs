//! The clock by which the vendor's runtime tells when the commands of a device ran.

use crate::moments::Moments;
use fpga_vendor::CommandProfile;
use parking_lot::Mutex;

/// The vendor's clock of a device, as the manager's clock sees it. All queues of the device share it, so that the times
/// of their commands can be compared.
///
/// The offset between the clocks is not known, but each command bounds it: the vendor's queued time is after the call
/// that enqueued the command, and the command had ended when the manager looked. The offset moves no more than these
/// bounds ask for, so a call that took long, or a manager that looked late, does not disturb it.
#[derive(Debug, Default)]
pub struct DeviceClock {
    /// Nanoseconds to add to the vendor's times; `None` before the first command.
    offset_ns: Mutex<Option<i64>>,
}

impl DeviceClock {
    /// Translates the vendor's times of a command to the manager's clock. The durations between them stay exact.
    ///
    /// `enqueued_at` is a time before the call that enqueued the command, `seen_at` one after its end; both are
    /// nanoseconds on the manager's clock.
    #[must_use]
    pub fn moments(&self, enqueued_at: u64, profile: CommandProfile, seen_at: u64) -> Moments {
        let least = enqueued_at.wrapping_sub(profile.queued).cast_signed();
        let most = seen_at.wrapping_sub(profile.ended).cast_signed();
        let mut kept = self.offset_ns.lock();
        // The upper bound gives way if both contradict each other, as they do over a clock that is not steady.
        let offset = kept.map_or(least, |kept| kept.min(most).max(least));
        *kept = Some(offset);
        let ours = |moment: u64| moment.wrapping_add_signed(offset);
        let queued = ours(profile.queued);
        let submitted = ours(profile.submitted).max(queued);
        let started = ours(profile.started).max(submitted);
        Moments { queued, submitted, started, ended: ours(profile.ended).max(started) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The vendor's clock is behind the manager's by this time.
    const OFFSET: u64 = 1_000_000_000;

    /// A command of 100 ns on the manager's clock, whose call took `late` ns before the runtime noted its time.
    fn moments(clock: &DeviceClock, enqueued_at: u64, late: u64, seen_after: u64) -> Moments {
        let queued = enqueued_at + late - OFFSET;
        let profile = CommandProfile { queued, submitted: queued, started: queued, ended: queued + 100 };
        clock.moments(enqueued_at, profile, enqueued_at + late + 100 + seen_after)
    }

    #[test]
    fn commands_keep_their_order_where_the_calls_of_some_took_milliseconds() {
        let clock = DeviceClock::default();
        let starts = [(2_000_000_000, 5_000_000), (2_006_000_000, 0), (2_007_000_000, 900_000)];
        let told = starts.map(|(at, late)| moments(&clock, at, late, 10).started);
        assert!(told.is_sorted(), "{told:?}");
        // From the first prompt call on, the times are exact.
        assert_eq!(told[1..], [2_006_000_000, 2_007_900_000]);
    }

    #[test]
    fn a_clock_that_runs_fast_is_followed_by_the_time_at_which_commands_were_seen_to_end() {
        let clock = DeviceClock::default();
        let exact = moments(&clock, 2_000_000_000, 0, 0);
        assert_eq!(exact.started, 2_000_000_000);
        // The vendor's clock has gained 3 ms.
        let queued = 3_000_000_000 - OFFSET + 3_000_000;
        let profile = CommandProfile { queued, submitted: queued, started: queued, ended: queued + 100 };
        let told = clock.moments(3_000_000_000 - 50, profile, 3_000_000_000 + 100);
        assert_eq!((told.started, told.ended), (3_000_000_000, 3_000_000_100));
    }
}
