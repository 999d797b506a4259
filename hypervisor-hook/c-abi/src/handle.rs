//! The handle: a reporter, its device, and the process that made the handle.

use crate::entry::{failure, invalid};
use crate::hold::{Bitstream, Held};
use fpga_core::device::{DeviceStatus, Health};
use fpga_core::event::{Event, Phase};
use fpga_core::units::{Millis, WallTime};
use fpga_foreign_process::c_boundary::Failure;
use fpga_foreign_process::generation;
use hook::{Config, Endpoint, Reporter, WholeMillis};
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Reports for one device; made by fpga_hook_start().
#[derive(Debug)]
pub struct FpgaHook {
    /// The process that made the handle; see [`generation`].
    generation: u64,
    reporter: Reporter,
    /// The device's status, with the properties that never change.
    device: DeviceStatus,
    /// Origin of the times in holds.
    origin: Instant,
    tasks: AtomicU64,
    used: WholeMillis,
    reconfigured: WholeMillis,
}

impl FpgaHook {
    /// Starts reporting for `device`, whose status is sent at once; over TCP with the token in `token_file`.
    pub fn start(endpoint: &str, token_file: Option<PathBuf>, device: DeviceStatus) -> Result<Self, Failure> {
        let endpoint: Endpoint =
            endpoint.parse().map_err(|error: hook::InvalidEndpoint| invalid(error.to_string()))?;
        let generation = generation();
        let reporter = Reporter::start(Config { token_file, ..Config::new(endpoint) })
            .map_err(|error| failure(libc::EAGAIN, error.to_string()))?;
        reporter.device(device.clone());
        Ok(Self {
            generation,
            reporter,
            device,
            origin: Instant::now(),
            tasks: AtomicU64::new(1),
            used: WholeMillis::default(),
            reconfigured: WholeMillis::default(),
        })
    }

    /// Checks that this process made the handle; an error in a forked child.
    pub fn check_process(&self) -> Result<(), Failure> {
        if self.generation == generation() {
            return Ok(());
        }
        Err(failure(libc::ECHILD, "this hook is the parent's; after a fork the child needs one of its own"))
    }

    /// The reporter of this handle.
    pub fn reporter(&self) -> &Reporter {
        &self.reporter
    }

    /// Time since the handle was made.
    pub fn now(&self) -> Duration {
        self.origin.elapsed()
    }

    /// The number of a new task.
    pub fn next_task(&self) -> u64 {
        self.tasks.fetch_add(1, Ordering::Relaxed)
    }

    /// Reports a task that has released its slot.
    pub fn released(&self, held: Held) {
        let took = self.now().saturating_sub(held.started);
        let duration_ms = self.used.take(took);
        let task = Some(held.task);
        self.report(Event { duration_ms, task, ..self.event(held.slot, held.bitstream, held.tenant) });
    }

    /// Reports the progress of a task that still holds its slot.
    pub fn progress(&self, held: Held) {
        let duration_ms = self.now().saturating_sub(held.started).into();
        let (task, phase) = (Some(held.task), Phase::Running);
        self.report(Event { duration_ms, task, phase, ..self.event(held.slot, held.bitstream, held.tenant) });
    }

    /// Reports a task that has ended now and took `took` by the caller's clock.
    pub fn task_ended(&self, slot: u32, bitstream: Bitstream, tenant: String, took: Duration) {
        let duration_ms = self.used.take(took);
        let task = Some(self.next_task());
        self.report(Event { duration_ms, task, ..self.event(slot, bitstream, tenant) });
    }

    /// Reports that a slot has been loaded.
    pub fn reconfigured(&self, slot: u32, bitstream: Bitstream, took: Duration) {
        let reconfiguration_ms = self.reconfigured.take(took);
        self.report(Event { reconfiguration_ms, ..self.event(slot, bitstream, String::new()) });
    }

    /// Reports a changed status of the device.
    pub fn status(&self, loaded: Vec<fpga_core::device::LoadedBitstream>, queued: u32, health: Health) {
        self.reporter.device(DeviceStatus { loaded, queued, health, ..self.device.clone() });
    }

    /// Reports that the device is gone, and ends the reporter; an error if not everything was acknowledged in time.
    pub fn stop(self, deadline: Duration) -> Result<(), Failure> {
        self.reporter.device_gone(&self.device.id);
        self.reporter.shutdown(deadline).map_err(unsent)
    }

    /// Number of slots of the device.
    pub fn slots(&self) -> u32 {
        self.device.slots
    }

    fn report(&self, event: Event) {
        self.reporter.report(event);
    }

    fn event(&self, slot: u32, bitstream: Bitstream, tenant: String) -> Event {
        Event {
            timestamp_ms: wall_clock(),
            duration_ms: Millis::ZERO,
            reconfiguration_ms: Millis::ZERO,
            bitstream_identifier: bitstream.id,
            digest: bitstream.digest,
            identity: None,
            task: None,
            phase: Phase::Final,
            merged: None,
            device: Some(self.device.id.clone()),
            slot: Some(slot),
            tenant: (!tenant.is_empty()).then_some(tenant),
        }
    }
}

/// The time of day to within some milliseconds, which is precise enough, at a fifth of the cost of the exact time.
fn wall_clock() -> WallTime {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `time` is writable. The call cannot fail for this clock; if it did, the time would be the epoch, which
    // the collector corrects.
    unsafe { libc::clock_gettime(libc::CLOCK_REALTIME_COARSE, &raw mut time) };
    let (seconds, nanos) = (u64::try_from(time.tv_sec), u32::try_from(time.tv_nsec));
    let since_epoch = Duration::new(seconds.unwrap_or_default(), nanos.unwrap_or_default());
    WallTime::UNIX_EPOCH + since_epoch.into()
}

/// The C error for a deadline that passed.
pub fn unsent(unsent: hook::Unsent) -> Failure {
    failure(libc::ETIMEDOUT, unsent.to_string())
}
