//! The client's clock, and a manager's clock as the client sees it.
//!
//! The clock is monotonic like `CLOCK_MONOTONIC`, but its epoch is the Unix epoch, since programs print its values
//! as times of day.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::{Instant, SystemTime, UNIX_EPOCH};

/// Current time in ns.
pub(crate) fn now_ns() -> u64 {
    static EPOCH: OnceLock<(Instant, u64)> = OnceLock::new();
    let (instant, ns) = EPOCH.get_or_init(|| {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        (Instant::now(), u64::try_from(since.as_nanos()).unwrap_or(0))
    });
    ns.saturating_add(u64::try_from(instant.elapsed().as_nanos()).unwrap_or(u64::MAX))
}

/// A manager's clock, as the client's clock sees it.
///
/// The offset between the clocks is not known, but the Welcome and each command bound it: a command is sent before the
/// manager queues it, and has ended before the client hears of it. The offset moves no more than these bounds ask for.
#[derive(Debug)]
pub(crate) struct ManagerClock {
    /// Nanoseconds to add to the manager's times.
    offset_ns: AtomicI64,
}

/// What is known of a command's times: `sent` and `heard` on the client's clock, the others on the manager's.
#[derive(Debug, Clone, Copy)]
pub(crate) struct CommandTimes {
    /// The client sent the command at or before this time.
    pub(crate) sent: u64,
    pub(crate) queued: u64,
    pub(crate) started: u64,
    pub(crate) ended: u64,
    /// The client had heard of the end at this time.
    pub(crate) heard: u64,
}

impl ManagerClock {
    /// The clock, given that a message with the manager's time `manager_ns` was received at `heard_ns`.
    pub(crate) fn new(manager_ns: u64, heard_ns: u64) -> Self {
        Self { offset_ns: AtomicI64::new(difference(heard_ns, manager_ns)) }
    }

    /// When a command started and ended on the client's clock. The duration between both stays exact, and no command
    /// starts before it was sent.
    pub(crate) fn span(&self, times: CommandTimes) -> (u64, u64) {
        let most = difference(times.heard, times.ended);
        let least = difference(times.sent, times.queued);
        // Threads may each move the offset a little; each result is within the bounds of its own command.
        let offset = self.offset_ns.load(Ordering::Relaxed).min(most).max(least);
        self.offset_ns.store(offset, Ordering::Relaxed);
        let ours = |moment: u64| moment.wrapping_add_signed(offset);
        (ours(times.started), ours(times.ended))
    }
}

/// `to - from`. A manager can send any numbers, which then give any result.
fn difference(to: u64, from: u64) -> i64 {
    to.wrapping_sub(from).cast_signed()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The client's clock is ahead of the manager's by this time.
    const AHEAD: u64 = 1_000_000_000;

    /// A command that is sent at `sent` and starts `travel` later for 100 ns; the client hears of it 50 ns after its end.
    fn span(clock: &ManagerClock, sent: u64, travel: u64) -> (u64, u64) {
        let queued = sent + travel - AHEAD;
        let heard = sent + travel + 150;
        clock.span(CommandTimes { sent, queued, started: queued, ended: queued + 100, heard })
    }

    #[test]
    fn a_welcome_that_travelled_for_long_moves_no_command_beyond_the_moment_at_which_its_end_was_heard() {
        let clock = ManagerClock::new(1_000, AHEAD + 1_000 + 7_000_000);
        assert_eq!(span(&clock, 2_000_000_000, 30), (2_000_000_080, 2_000_000_180));
        // The bound of the first command serves the second, of whose end the client hears late.
        let queued = 3_000_000_000 - AHEAD;
        let late = CommandTimes {
            sent: 3_000_000_000,
            queued,
            started: queued,
            ended: queued + 100,
            heard: 3_009_000_000,
        };
        assert_eq!(clock.span(late), (3_000_000_050, 3_000_000_150));
    }

    #[test]
    fn no_command_starts_before_it_was_sent_where_the_managers_clock_runs_slow() {
        let clock = ManagerClock::new(1_000, AHEAD + 1_000);
        let queued = 2_000_000_000 - AHEAD - 400;
        let times = CommandTimes {
            sent: 2_000_000_000,
            queued,
            started: queued + 10,
            ended: queued + 110,
            heard: 2_000_000_900,
        };
        assert_eq!(clock.span(times), (2_000_000_010, 2_000_000_110));
    }

    #[test]
    fn any_numbers_of_a_manager_are_taken() {
        let clock = ManagerClock::new(u64::MAX, 0);
        let times = CommandTimes { sent: 5, queued: u64::MAX, started: 0, ended: 1 << 63, heard: 7 };
        let (started, ended) = clock.span(times);
        assert_eq!(ended.wrapping_sub(started), 1 << 63);
    }

    #[test]
    fn the_clock_never_goes_back() {
        let first = now_ns();
        assert!(now_ns() >= first);
    }
}
