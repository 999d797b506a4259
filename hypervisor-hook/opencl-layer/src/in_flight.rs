//! The commands that the application has enqueued and that have not ended: for progress, and to wait for them.

use fpga_hook::WholeMillis;
use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use crate::bitstreams::Bitstream;

/// Commands that are remembered at once; more are timed all the same, without progress.
const MAX_COMMANDS: usize = 65_536;

/// A command of the application.
#[derive(Debug)]
pub struct Command {
    /// Its number in events.
    pub task: u64,
    pub kind: Kind,
    pub bitstream: Arc<Bitstream>,
    pub enqueued: Instant,
    /// When the runtime said that it runs.
    pub running: OnceLock<Instant>,
    /// Whose the reference to its event is.
    pub reference: Reference,
}

/// What a command does with the device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// It runs a kernel.
    Kernel,
    /// It moves data.
    Transfer,
}

/// Who asked for an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reference {
    /// The application; the reference is its.
    Application,
    /// The layer, which gives it back.
    Layer,
}

/// The commands.
#[derive(Debug)]
pub struct InFlight {
    commands: Mutex<HashMap<u64, Arc<Command>>>,
    none: Condvar,
    next_task: AtomicU64,
    origin: Instant,
    /// When a command last ended, in nanoseconds since the origin.
    last_end: AtomicU64,
    /// Carries what is shorter than a millisecond.
    pub used: WholeMillis,
}

impl Default for InFlight {
    fn default() -> Self {
        Self {
            commands: Mutex::default(),
            none: Condvar::new(),
            next_task: AtomicU64::new(1),
            origin: Instant::now(),
            last_end: AtomicU64::new(0),
            used: WholeMillis::default(),
        }
    }
}

impl InFlight {
    /// A command begins.
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
        let mut commands = self.lock();
        if commands.len() < MAX_COMMANDS {
            commands.insert(task, Arc::clone(&command));
        }
        command
    }

    /// A command is done with.
    pub fn end(&self, command: &Command) {
        let mut commands = self.lock();
        commands.remove(&command.task);
        let none = commands.is_empty();
        drop(commands);
        if none {
            self.none.notify_all();
        }
    }

    /// When, at the latest, a command that ended just now began to run by the host's clock.
    pub fn began(&self, command: &Command, now: Instant) -> Instant {
        let end = u64::try_from((now - self.origin).as_nanos()).unwrap_or(u64::MAX);
        let before = self.origin + Duration::from_nanos(self.last_end.fetch_max(end, Ordering::Relaxed));
        // Who never said when it ran: not before it was enqueued, nor before the one before it ended.
        command.running.get().copied().unwrap_or_else(|| command.enqueued.max(before)).min(now)
    }

    /// Kernels that have run for at least so long.
    pub fn running_for(&self, least: Duration) -> Vec<(Arc<Command>, Duration)> {
        let commands = self.lock();
        let kernels = commands.values().filter(|command| command.kind == Kind::Kernel);
        let running = kernels.filter_map(|command| {
            let so_far = command.running.get()?.elapsed();
            (so_far >= least).then(|| (Arc::clone(command), so_far))
        });
        running.collect()
    }

    /// Waits until nothing is in flight, but not for long.
    pub fn wait_for_none(&self, timeout: Duration) {
        let waited = self.none.wait_timeout_while(self.lock(), timeout, |commands| !commands.is_empty());
        drop(waited);
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<u64, Arc<Command>>> {
        self.commands.lock().unwrap_or_else(PoisonError::into_inner)
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
        [first, second, third].iter().for_each(|command| in_flight.end(command));
        in_flight.wait_for_none(Duration::from_secs(60));
    }

    #[test]
    fn only_what_runs_long_makes_progress() {
        let in_flight = InFlight::default();
        let command = begin(&in_flight, Instant::now());
        assert!(in_flight.running_for(Duration::ZERO).is_empty(), "nobody said that it runs");
        command.running.set(Instant::now()).unwrap();
        assert_eq!(in_flight.running_for(Duration::ZERO).len(), 1);
        assert!(in_flight.running_for(Duration::from_secs(3600)).is_empty());
        in_flight.end(&command);
        assert!(in_flight.running_for(Duration::ZERO).is_empty());
    }
}
