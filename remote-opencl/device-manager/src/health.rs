//! Whether the device works: what the sessions see of it, a probe every second, and who is told.
//!
//! The rules are `fpga_core::health`. A probe is a marker in a queue of the manager's own; what makes a runtime wait for ever
//! makes the probe wait, on a thread of its own, and the others find that it takes too long. With `--isolate process` each
//! tenant's process notes how its tasks' kernels ended and says so with the task's end; the manager's rules decide.

use crate::board::Board;
use crate::dispatcher::{TaskId, Tenant};
use crate::isolation::Isolate;
use crate::objects::lock;
use crate::reporting::Reports;
use crate::vendor::{self, ClResult, Context, DeviceId, Queue};
use fpga_core::bitstream::Digest;
use fpga_core::device;
use fpga_core::health::{DeviceHealth, Fault};
use serde::{Deserialize, Serialize};
use std::collections::HashMap;
use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

/// How long after a probe the next one begins.
const PROBE_INTERVAL: Duration = Duration::from_secs(1);

/// How often it is looked whether there is something to tell.
const WATCH_INTERVAL: Duration = Duration::from_millis(250);

/// What is known of the device's health. Clones share it.
#[derive(Debug, Clone)]
pub struct Health(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    state: Mutex<DeviceHealth>,
    epoch: Instant,
    /// Whether a launch has failed since the last one that succeeded.
    launches_fail: AtomicBool,
    /// When a kernel ended well last, in ns since the epoch.
    last_launch_ns: AtomicU64,
    /// In a tenant's process, which decides nothing: how the kernels of its tasks ended.
    outcomes: Option<Mutex<HashMap<TaskId, LaunchOutcome>>>,
}

/// How the last kernel of a task ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum LaunchOutcome {
    /// Well.
    Ran,
    /// It failed, or was refused, by what may be the device's fault.
    Failed,
}

impl Health {
    /// A healthy device, whose probes may take so long.
    #[must_use]
    pub fn new(stuck_timeout: Duration) -> Self {
        Self::with(stuck_timeout, None)
    }

    /// In a tenant's process: the manager is told how tasks ended, and decides.
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

    /// What is wrong with the device now.
    #[must_use]
    pub fn fault(&self) -> Option<Fault> {
        let now = self.now();
        let mut state = lock(&self.0.state);
        state.progressed(Duration::from_nanos(self.0.last_launch_ns.load(Ordering::Relaxed)));
        state.fault(now)
    }

    /// The board was loaded with these bitstreams, or could not be.
    pub fn load_ended<E>(&self, bitstreams: &[Digest], loaded: &Result<(), E>) {
        self.load_told(bitstreams, loaded, None);
    }

    /// A tenant's process says that the board was loaded with these bitstreams, or could not be.
    pub fn load_said_to_end<E>(&self, tenant: &Tenant, bitstreams: &[Digest], loaded: &Result<(), E>) {
        self.load_told(bitstreams, loaded, Some(tenant));
    }

    fn load_told<E>(&self, bitstreams: &[Digest], loaded: &Result<(), E>, told_by: Option<&Tenant>) {
        let now = self.now();
        let mut state = lock(&self.0.state);
        for bitstream in bitstreams {
            match loaded {
                Ok(()) => state.loaded(*bitstream),
                Err(_) => state.load_failed(*bitstream, told_by, now),
            }
        }
    }

    /// A kernel of that tenant's task has ended with this status, or was refused with it.
    pub fn launch_ended(&self, tenant: &Tenant, task: TaskId, status: i32) {
        let outcome = if status == opencl_sys::CL_SUCCESS {
            LaunchOutcome::Ran
        } else if may_be_the_devices(status) {
            LaunchOutcome::Failed
        } else {
            return;
        };
        if let Some(outcomes) = &self.0.outcomes {
            lock(outcomes).insert(task, outcome);
            return;
        }
        if outcome == LaunchOutcome::Ran {
            let now = u64::try_from(self.now().as_nanos()).unwrap_or(u64::MAX);
            self.0.last_launch_ns.fetch_max(now, Ordering::Relaxed);
        }
        self.count_launch(tenant, outcome);
    }

    /// How the kernels of a task ended that is over, in a tenant's process; nothing where it has had none.
    #[must_use]
    pub fn outcome_of(&self, task: TaskId) -> Option<LaunchOutcome> {
        self.0.outcomes.as_ref().and_then(|outcomes| lock(outcomes).remove(&task))
    }

    /// A tenant's process says that the kernels of a task ended so. That kernels ran there does not show that the runtime
    /// works here, where the probe is.
    pub fn launch_said_to_end(&self, tenant: &Tenant, outcome: LaunchOutcome) {
        self.count_launch(tenant, outcome);
    }

    fn count_launch(&self, tenant: &Tenant, outcome: LaunchOutcome) {
        match outcome {
            LaunchOutcome::Ran => {
                // Seldom otherwise: a launch costs no lock.
                if self.0.launches_fail.swap(false, Ordering::Relaxed) {
                    lock(&self.0.state).launched();
                }
            }
            LaunchOutcome::Failed => {
                let now = self.now();
                self.0.launches_fail.store(true, Ordering::Relaxed);
                lock(&self.0.state).launch_failed(tenant, now);
            }
        }
    }

    /// Commands of a client that has gone don't end.
    pub fn abandoned(&self) {
        lock(&self.0.state).abandoned();
    }

    /// The manager drains: the device is for nobody new.
    pub fn draining(&self) {
        lock(&self.0.state).draining();
    }

    /// Tells the collector of changes, on a thread of its own.
    ///
    /// # Errors
    /// The system's, if it has no thread.
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

    /// Probes a device every second, on a thread of its own, but not while the board is being reconfigured. Where tenants
    /// have processes of their own, a board that never lets this process in, too, tells nothing.
    ///
    /// # Errors
    /// The system's, if it has no thread.
    pub fn probe(&self, device: DeviceId, board: Board, isolate: Isolate) -> io::Result<()> {
        let health = self.clone();
        thread::Builder::new().name("probe".to_owned()).spawn(move || {
            let mut made = None;
            loop {
                thread::sleep(PROBE_INTERVAL);
                let Some(_used) = board.enter() else { continue };
                let now = health.now();
                lock(&health.0.state).probe_begun(now);
                let probed = probe(device, &mut made);
                if let Err(error) = &probed {
                    tracing::debug!(%error, "A probe of the device failed");
                }
                let is_kept_out = isolate == Isolate::Process && made.is_none();
                lock(&health.0.state).probe_ended(probed.is_ok() || is_kept_out);
            }
        })?;
        Ok(())
    }

    fn now(&self) -> Duration {
        self.0.epoch.elapsed()
    }
}

/// Whether a launch that failed so may be the device's fault: all other codes are for what a program asked for.
fn may_be_the_devices(status: i32) -> bool {
    const DEVICE_NOT_AVAILABLE: i32 = -2;
    const OUT_OF_RESOURCES: i32 = -5;
    const OUT_OF_HOST_MEMORY: i32 = -6;
    [DEVICE_NOT_AVAILABLE, OUT_OF_RESOURCES, OUT_OF_HOST_MEMORY].contains(&status)
}

/// Has a marker come to its end, in a queue that is made at the first time.
fn probe(device: DeviceId, made: &mut Option<(Context, Queue)>) -> ClResult<()> {
    if made.is_none() {
        let context = Context::new(&[device])?;
        let queue = Queue::new(&context, device, 0)?;
        *made = Some((context, queue));
    }
    let Some((_, queue)) = made else { return Ok(()) };
    let marker = queue.marker(&[])?;
    let (sender, ended) = channel();
    // Whoever waits in a runtime of processors works for it: the probe doesn't.
    vendor::on_end(marker.event(), move |status| {
        // The probe waits for it.
        let _ = sender.send(status);
    })?;
    queue.flush()?;
    match ended.recv() {
        Ok(status) if status < 0 => Err(vendor::ClError(status)),
        _ => Ok(()),
    }
}
