//! A modelled board: the manager gives each kernel the slot time that it takes on another board, while the runtime
//! computes the results.
//!
//! A task's kernels run when its slots are granted, as always. The ends of its commands are passed on when the
//! modelled time is over, and by a timer, so that a slot in use takes no processor time. Modelled times follow one
//! another without gaps: a task that waited for a slot begins at the modelled end of the task before it, so that late
//! timers don't add up.

mod file;
mod pacer;

pub use file::{BoardModel, LaunchTime, ModelError};

use crate::catalogue::Catalogue;
use crate::clock;
use crate::commands::Launch;
use crate::configuration_port::ConfigurationPort;
use crate::metrics::ModelMetrics;
use crate::moments::Span;
use fpga_board::slots::SlotIndex;
use pacer::Pacer;
use parking_lot::Mutex;
use std::io;
use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

/// A command counts as late if it ends by more than this part of its task's modelled time after the modelled end, and
/// by more than [`LATE_NS`].
const LATE_PART: u64 = 100;
const LATE_NS: u64 = 1_000_000;

/// Longest time by which a task begins before its commands are enqueued. A longer delay, which is the machine's, is
/// not made up for.
const MAX_CATCH_UP_NS: u64 = 100_000_000;

/// The modelled board of a manager.
#[derive(Debug)]
pub struct ModelledBoard {
    model: BoardModel,
    reconfiguration: Duration,
    port: ConfigurationPort,
    /// The DMA engine serves launches as the configuration port serves loads.
    dma: ConfigurationPort,
    catalogue: Arc<Catalogue>,
    /// For each slot, the modelled end of its last task, in ns of the manager's clock.
    busy_until: Mutex<Vec<u64>>,
    pacer: Pacer,
    metrics: ModelMetrics,
}

/// A task whose commands are about to be enqueued.
#[derive(Debug, Clone)]
pub struct Start {
    /// When the task was submitted, in ns of the manager's clock.
    pub submitted: u64,
    /// Slots of the task.
    pub slots: Vec<SlotIndex>,
    /// Number of bitstreams that were loaded for it.
    pub loads: u32,
}

impl ModelledBoard {
    /// A board with `slots` idle slots. Loading a bitstream takes `reconfiguration` at the port.
    ///
    /// # Errors
    /// The timer's thread can't be started.
    pub fn start(
        model: BoardModel,
        slots: NonZeroU32,
        (reconfiguration, port): (Duration, ConfigurationPort),
        catalogue: Arc<Catalogue>,
        metrics: ModelMetrics,
    ) -> io::Result<Self> {
        let busy_until = Mutex::new(vec![0; usize::try_from(slots.get()).unwrap_or(usize::MAX)]);
        let dma = ConfigurationPort::default();
        Ok(Self { model, reconfiguration, port, dma, catalogue, busy_until, pacer: Pacer::start()?, metrics })
    }

    /// Time to load a bitstream into a slot.
    pub fn reconfiguration(&self) -> Duration {
        self.reconfiguration
    }

    /// Time of a launch; zero for a kernel that the model doesn't have.
    fn time_of(&self, launch: &Launch) -> LaunchTime {
        let items = launch.global.iter().fold(1_u64, |items, size| items.saturating_mul(*size as u64));
        let (program, kernel) = {
            let kernel = launch.kernel.lock();
            (kernel.program.clone(), kernel.vendor().name().unwrap_or_default())
        };
        let names: Vec<String> =
            program.digests().iter().filter_map(|digest| self.catalogue.name_of(digest)).collect();
        let time = self.model.time_of(&names, &kernel, items);
        if time.is_none() {
            self.metrics.unknown_kernels.inc();
        }
        time.unwrap_or_default()
    }

    /// The modelled moments at which a task gets its slots, and at which their bitstreams are loaded.
    pub fn begin(&self, start: &Start) -> (u64, u64) {
        let busy_until = self.busy_until.lock();
        let free = start.slots.iter().filter_map(|slot| busy_until.get(slot.0 as usize)).copied().max();
        let loading = self.reconfiguration.saturating_mul(start.loads);
        let (granted, delay) = granted(start.submitted, free.unwrap_or(0), clock::now_ns());
        if delay == Delay::TooLong {
            self.metrics.late_commands.inc();
        }
        (granted, self.port.reserve(granted, loading).until)
    }

    /// The modelled end of a launch that starts at `started`, in ns of the manager's clock.
    pub fn end_of(&self, launch: &Launch, started: u64) -> u64 {
        let time = self.time_of(launch);
        let moved = self.dma.reserve(started, time.dma).until;
        moved.max(started.saturating_add(clock::nanos(time.slot)))
    }

    /// Notes that the slots are in use until `until`.
    pub fn in_use(&self, slots: &[SlotIndex], until: u64) {
        let mut busy_until = self.busy_until.lock();
        for slot in slots {
            if let Some(busy) = busy_until.get_mut(slot.0 as usize) {
                *busy = until.max(*busy);
            }
        }
    }

    /// Calls `ended` at the modelled end of a command's task, on another thread, or now if that is over.
    pub fn at_end(self: &Arc<Self>, span: Span, ended: impl FnOnce() + Send + 'static) {
        let (board, wait) = (Arc::clone(self), span.task_ends);
        self.pacer.at(wait, move |now| {
            let time = span.task_ends.saturating_sub(span.granted);
            board.metrics.commands.inc();
            if now.saturating_sub(span.task_ends) > (time / LATE_PART).max(LATE_NS) {
                board.metrics.late_commands.inc();
            }
            ended();
        });
    }
}

/// Whether a task begins much later than modelled.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Delay {
    MadeUpFor,
    TooLong,
}

/// The modelled moment at which a task gets its slots: when it was submitted, or when the slots got free.
fn granted(submitted: u64, free: u64, now: u64) -> (u64, Delay) {
    let granted = submitted.max(free);
    let earliest = now.saturating_sub(MAX_CATCH_UP_NS);
    if granted < earliest { (earliest, Delay::TooLong) } else { (granted, Delay::MadeUpFor) }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    #[test]
    fn a_task_gets_its_slots_when_they_got_free_however_late_the_timers_are() {
        assert_eq!(
            granted(500 * MS, 400 * MS, 501 * MS),
            (500 * MS, Delay::MadeUpFor),
            "it waited for nobody"
        );
        assert_eq!(granted(500 * MS, 900 * MS, 950 * MS), (900 * MS, Delay::MadeUpFor));
        assert_eq!(granted(500 * MS, 900 * MS, 1_500 * MS), (1_400 * MS, Delay::TooLong));
    }
}
