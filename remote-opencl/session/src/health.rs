//! Health of the device: signs from the sessions, a probe every second, and reports to the collector.
//!
//! The rules are in `fpga_board::health`. A probe is a marker in a queue of the manager's own. The probe has a
//! thread of its own: a runtime that hangs makes it wait, and other threads find that it takes too long. With
//! `--isolate process`, each tenant process records how the kernels of a task ended and reports it with the
//! task's end; the manager's rules decide.

use crate::isolate::Isolate;
use crate::quiesce::QuiesceLock;
use crate::reporting::Reports;
use fpga_board::dispatch::{TaskId, Tenant};
use fpga_board::health::{DeviceHealth, Fault};
use fpga_core::bitstream::Digest;
use fpga_core::device;
use fpga_vendor::{self as vendor, ClResult, Context, DeviceId, Queue};
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use std::collections::HashMap;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::channel;
use std::thread;
use std::time::{Duration, Instant};

/// Pause between two probes.
const PROBE_INTERVAL: Duration = Duration::from_secs(1);

/// Interval at which changes are looked for.
const WATCH_INTERVAL: Duration = Duration::from_millis(250);

/// The device's health. Clones share it.
#[derive(Debug, Clone)]
pub struct Health(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    state: Mutex<DeviceHealth>,
    epoch: Instant,
    /// Whether a launch has failed since the last one that succeeded.
    launches_fail: AtomicBool,
    /// Time when a kernel last succeeded, in ns since the epoch.
    last_launch_ns: AtomicU64,
    /// In a tenant process, which decides nothing: how the kernels of its tasks ended.
    outcomes: Option<Mutex<HashMap<TaskId, LaunchOutcome>>>,
}

/// A killed process that does not end. Dropping this notes that it has ended.
#[derive(Debug)]
pub struct Lingering(Health);

impl Drop for Lingering {
    fn drop(&mut self) {
        self.0.0.state.lock().lingering_process_ended();
    }
}

/// How the last kernel of a task ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum LaunchOutcome {
    /// The kernel succeeded.
    Ran,
    /// The kernel failed or was refused, by what may be a fault of the device.
    Failed,
}

impl Health {
    /// A healthy device. A probe that takes longer than `stuck_timeout` means that the runtime is stuck.
    #[must_use]
    pub fn new(stuck_timeout: Duration) -> Self {
        Self::with(stuck_timeout, None)
    }

    /// The health of a tenant process, which only records outcomes for the manager.
    #[must_use]
    pub fn of_tenant_process() -> Self {
        Self::with(Duration::MAX, Some(Mutex::default()))
    }

    fn with(stuck_timeout: Duration, outcomes: Option<Mutex<HashMap<TaskId, LaunchOutcome>>>) -> Self {
        Self(Arc::new(Inner {
            state: Mutex::new(DeviceHealth::new(stuck_timeout)),
            epoch: Instant::now(),
            launches_fail: AtomicBool::new(false),
            last_launch_ns: AtomicU64::new(0),
            outcomes,
        }))
    }

    /// The fault that the device has now.
    #[must_use]
    pub fn fault(&self) -> Option<Fault> {
        let now = self.now();
        let mut state = self.0.state.lock();
        state.progressed(Duration::from_nanos(self.0.last_launch_ns.load(Ordering::Relaxed)));
        state.fault(now)
    }

    /// Notes that the board was loaded with these bitstreams, or that loading failed.
    pub fn load_ended<E>(&self, bitstreams: &[Digest], loaded: &Result<(), E>) {
        self.load_told(bitstreams, loaded, None);
    }

    /// Notes that a tenant process reported such a load.
    pub fn load_said_to_end<E>(&self, tenant: &Tenant, bitstreams: &[Digest], loaded: &Result<(), E>) {
        self.load_told(bitstreams, loaded, Some(tenant));
    }

    fn load_told<E>(&self, bitstreams: &[Digest], loaded: &Result<(), E>, told_by: Option<&Tenant>) {
        let now = self.now();
        let mut state = self.0.state.lock();
        for bitstream in bitstreams {
            match loaded {
                Ok(()) => state.loaded(*bitstream),
                Err(_) => state.load_failed(*bitstream, told_by, now),
            }
        }
    }

    /// Notes that a kernel of a task ended or was refused with this status.
    pub fn launch_ended(&self, tenant: &Tenant, task: TaskId, status: i32) {
        let outcome = if status == opencl_sys::CL_SUCCESS {
            LaunchOutcome::Ran
        } else if may_be_the_devices(status) {
            LaunchOutcome::Failed
        } else {
            return;
        };
        if let Some(outcomes) = &self.0.outcomes {
            outcomes.lock().insert(task, outcome);
            return;
        }
        if outcome == LaunchOutcome::Ran {
            let now = u64::try_from(self.now().as_nanos()).unwrap_or(u64::MAX);
            self.0.last_launch_ns.fetch_max(now, Ordering::Relaxed);
        }
        self.count_launch(tenant, outcome);
    }

    /// Removes the outcome of a finished task, in a tenant process; `None` if the task had no kernel, or if the
    /// outcome is not a sign of the device's health.
    #[must_use]
    pub fn outcome_of(&self, task: TaskId) -> Option<LaunchOutcome> {
        self.0.outcomes.as_ref().and_then(|outcomes| outcomes.lock().remove(&task))
    }

    /// Notes that a tenant process reported how the kernels of a task ended. Kernels that run in another
    /// process do not show that the runtime works in this process, where the probe is.
    pub fn launch_said_to_end(&self, tenant: &Tenant, outcome: LaunchOutcome) {
        self.count_launch(tenant, outcome);
    }

    fn count_launch(&self, tenant: &Tenant, outcome: LaunchOutcome) {
        match outcome {
            LaunchOutcome::Ran => {
                // Only the first success after a failure takes the lock, so that launches normally take none.
                if self.0.launches_fail.swap(false, Ordering::Relaxed) {
                    self.0.state.lock().launched();
                }
            }
            LaunchOutcome::Failed => {
                let now = self.now();
                self.0.launches_fail.store(true, Ordering::Relaxed);
                self.0.state.lock().launch_failed(tenant, now);
            }
        }
    }

    /// Notes that commands of a client that has gone do not end.
    pub fn abandoned(&self) {
        self.0.state.lock().abandoned();
    }

    /// Notes that a killed process does not end, until the result is dropped.
    #[must_use]
    pub fn process_lingers(&self) -> Lingering {
        self.0.state.lock().process_lingers();
        Lingering(self.clone())
    }

    /// Notes that the manager drains: the device takes no new sessions.
    pub fn draining(&self) {
        self.0.state.lock().draining();
    }

    /// Starts a thread that reports changes to the collector.
    ///
    /// # Errors
    /// The thread can't be started.
    pub fn report_to(&self, reports: Reports) -> io::Result<()> {
        let health = self.clone();
        thread::Builder::new().name("health".to_owned()).spawn(move || {
            let mut said = None;
            loop {
                let fault = health.fault();
                if fault != said {
                    match fault {
                        Some(Fault::Draining) => {
                            tracing::info!(
                                "The collector hears that the device is unhealthy while it drains"
                            );
                        }
                        Some(fault) => tracing::error!(reason = %fault, "The device is unhealthy"),
                        None => tracing::info!("The device is healthy again"),
                    }
                    said = fault;
                }
                reports.health(match fault {
                    Some(_) => device::Health::Unhealthy,
                    None => device::Health::Healthy,
                });
                thread::sleep(WATCH_INTERVAL);
            }
        })?;
        Ok(())
    }

    /// Starts a thread that probes a device every second, except while the board is being reconfigured. With
    /// tenant processes, a probe that fails before this process has ever made a queue is not a sign of a fault.
    ///
    /// # Errors
    /// The thread can't be started.
    pub fn probe(&self, device: DeviceId, board: QuiesceLock, isolate: Isolate) -> io::Result<()> {
        let health = self.clone();
        thread::Builder::new().name("probe".to_owned()).spawn(move || {
            let mut made = None;
            loop {
                thread::sleep(PROBE_INTERVAL);
                let Some(_used) = board.enter() else { continue };
                let now = health.now();
                health.0.state.lock().probe_begun(now);
                let probed = probe(device, &mut made);
                if let Err(error) = &probed {
                    tracing::debug!(%error, "A probe of the device failed");
                }
                let is_kept_out = isolate == Isolate::Process && made.is_none();
                health.0.state.lock().probe_ended(probed.is_ok() || is_kept_out);
            }
        })?;
        Ok(())
    }

    fn now(&self) -> Duration {
        self.0.epoch.elapsed()
    }
}

/// Whether a launch with this status may have failed by a fault of the device. All other codes are errors of
/// the program.
fn may_be_the_devices(status: i32) -> bool {
    const DEVICE_NOT_AVAILABLE: i32 = -2;
    const OUT_OF_RESOURCES: i32 = -5;
    const OUT_OF_HOST_MEMORY: i32 = -6;
    [DEVICE_NOT_AVAILABLE, OUT_OF_RESOURCES, OUT_OF_HOST_MEMORY].contains(&status)
}

/// Waits for a marker in a queue, which is made at the first call.
fn probe(device: DeviceId, made: &mut Option<(Context, Queue)>) -> ClResult<()> {
    if made.is_none() {
        let context = Context::new(&[device])?;
        let queue = Queue::new(&context, device, 0)?;
        *made = Some((context, queue));
    }
    let Some((_, queue)) = made else { return Ok(()) };
    let marker = queue.marker(&[])?;
    let (sender, ended) = channel();
    // A thread that waits in a runtime of processors works for the runtime. The probe waits for a callback
    // instead.
    vendor::on_end(marker.event(), move |status| {
        // Sending can't fail: the probe waits for the message.
        let _ = sender.send(status);
    })?;
    queue.flush()?;
    match ended.recv() {
        Ok(status) if status < 0 => Err(vendor::ClError(status)),
        _ => Ok(()),
    }
}
