//! The commands that the application has enqueued and that have not ended, for progress reports and for waiting.

use fpga_hook::WholeMillis;
use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use crate::bitstreams::Bitstream;

/// Maximum number of commands in memory; further ones are timed as well, but without progress.
const MAX_COMMANDS: usize = 65_536;

/// A command of the application.
#[derive(Debug)]
pub struct Command {
    /// The task number in events.
    pub task: u64,
    pub kind: Kind,
    pub bitstream: Arc<Bitstream>,
    pub enqueued: Instant,
    /// When the runtime reported that the command runs.
    pub running: OnceLock<Instant>,
    /// The owner of the reference to the event.
    pub reference: Reference,
}

/// The work of a command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    Kernel,
    Transfer,
}

/// The owner of a reference to an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reference {
    /// The application, which asked for the event.
    Application,
    /// The layer, which must release the event.
    Layer,
}

/// The commands that have not ended or have not been reported.
#[derive(Debug)]
pub struct InFlight {
    inner: Mutex<Inner>,
    none: Condvar,
    next_task: AtomicU64,
    origin: Instant,
    /// When a command last ended, in nanoseconds since the origin.
    last_end: AtomicU64,
    /// Converts busy time to whole milliseconds and carries the remainders.
    pub used: WholeMillis,
}

#[derive(Debug, Default)]
struct Inner {
    /// Commands that have not ended, by task.
    running: HashMap<u64, Arc<Command>>,
    /// Commands that have not ended, or whose end has not been reported.
    unreported: usize,
}

impl Default for InFlight {
    fn default() -> Self {
        Self {
            inner: Mutex::default(),
            none: Condvar::new(),
            next_task: AtomicU64::new(1),
            origin: Instant::now(),
            last_end: AtomicU64::new(0),
            used: WholeMillis::default(),
        }
    }
}

impl InFlight {
    /// Adds a command that was just enqueued.
    pub fn begin(
        &self,
        kind: Kind,
        bitstream: Arc<Bitstream>,
        enqueued: Instant,
        reference: Reference,
    ) -> Arc<Command> {
        let task = self.next_task.fetch_add(1, Ordering::Relaxed);
        let command =
            Arc::new(Command { task, kind, bitstream, enqueued, running: OnceLock::new(), reference });
        let mut inner = self.lock();
        inner.unreported += 1;
        if inner.running.len() < MAX_COMMANDS {
            inner.running.insert(task, Arc::clone(&command));
        }
        command
    }

    /// Removes a command that has ended, so that no progress of it is reported.
    pub fn ended(&self, command: &Command) {
        self.lock().running.remove(&command.task);
    }

    /// Counts a command whose end has been reported, or never will be.
    pub fn reported(&self) {
        let mut inner = self.lock();
        inner.unreported = inner.unreported.saturating_sub(1);
        if inner.unreported == 0 {
            self.none.notify_all();
        }
    }

    /// The moment at which a command that ended at `now` began to run, by the host's clock.
    pub fn began(&self, command: &Command, now: Instant) -> Instant {
        let end = u64::try_from((now - self.origin).as_nanos()).unwrap_or(u64::MAX);
        let before = self.origin + Duration::from_nanos(self.last_end.fetch_max(end, Ordering::Relaxed));
        // Without a report that it ran: not before the command was enqueued, nor before the previous command ended.
        command.running.get().copied().unwrap_or_else(|| command.enqueued.max(before)).min(now)
    }

    /// Calls `tell` for each kernel that has run for at least `least`. The lock is held, so that no kernel counts as
    /// ended before its call: progress after the end would count twice.
    pub fn progress(&self, least: Duration, mut tell: impl FnMut(&Command, Duration)) {
        let inner = self.lock();
        for command in inner.running.values().filter(|command| command.kind == Kind::Kernel) {
            if let Some(so_far) = command.running.get().map(Instant::elapsed)
                && so_far >= least
            {
                tell(command, so_far);
            }
        }
    }

    /// Waits until everything that was enqueued is reported, at most for `timeout`.
    pub fn wait_for_none(&self, timeout: Duration) {
        let waited = self.none.wait_timeout_while(self.lock(), timeout, |inner| inner.unreported > 0);
        drop(waited);
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bitstreams::Bitstreams;
    use std::collections::BTreeMap;

    fn begin(in_flight: &InFlight, enqueued: Instant) -> Arc<Command> {
        let bitstream = Bitstreams::new(BTreeMap::new()).last();
        in_flight.begin(Kind::Kernel, bitstream, enqueued, Reference::Layer)
    }

    #[test]
    fn a_command_that_never_said_when_it_ran_ran_after_the_one_before() {
        let in_flight = InFlight::default();
        let start = in_flight.origin;
        let at = |ms| start + Duration::from_millis(ms);
        let (first, second, third) =
            (begin(&in_flight, start), begin(&in_flight, start), begin(&in_flight, at(50)));
        assert_eq!(in_flight.began(&first, at(10)), start);
        assert_eq!(in_flight.began(&second, at(30)), at(10));
        assert_eq!(in_flight.began(&third, at(60)), at(50));
    }

    #[test]
    fn only_what_runs_long_makes_progress() {
        let in_flight = InFlight::default();
        let told = |least| {
            let mut count = 0;
            in_flight.progress(least, |_, _| count += 1);
            count
        };
        let command = begin(&in_flight, Instant::now());
        assert_eq!(told(Duration::ZERO), 0, "nobody said that it runs");
        command.running.set(Instant::now()).unwrap();
        assert_eq!(told(Duration::ZERO), 1);
        assert_eq!(told(Duration::from_secs(3600)), 0);
        in_flight.ended(&command);
        assert_eq!(told(Duration::ZERO), 0);
    }

    #[test]
    fn who_waits_does_so_until_the_end_is_reported_and_not_for_long() {
        let in_flight = InFlight::default();
        let command = begin(&in_flight, Instant::now());
        in_flight.ended(&command);
        let before = Instant::now();
        in_flight.wait_for_none(Duration::from_millis(20));
        assert!(before.elapsed() >= Duration::from_millis(20));
        in_flight.reported();
        let before = Instant::now();
        in_flight.wait_for_none(Duration::from_secs(60));
        assert!(before.elapsed() < Duration::from_secs(30));
    }
}
