//! The state of the layer in a process. It is made only if the environment asks for it and the application uses a
//! device.

use crate::bitstreams::Bitstreams;
use crate::config::{Config, Profiling, Sources};
use crate::handles::Handles;
use crate::in_flight::InFlight;
use crate::property_list::Hidden;
use crate::reports::Reports;
use fpga_foreign_process::PerProcess;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Interval of progress reports, and the time that a kernel runs before the first one.
const PROGRESS_INTERVAL: Duration = Duration::from_secs(1);

/// Maximum time for which the release of the last context waits, first for commands to end and then for reports to
/// arrive.
const SETTLE_TIMEOUT: Duration = Duration::from_millis(100);

static CONFIG: OnceLock<Config> = OnceLock::new();
static STATE: PerProcess<Option<Layer>> = PerProcess::new(|_parents| Layer::start());

/// The state of an active layer.
#[derive(Debug)]
pub struct Layer {
    pub reports: Reports,
    pub bitstreams: Bitstreams,
    /// Queues that the layer created with the profiling property.
    pub queues: Handles<Hidden>,
    pub contexts: Handles<()>,
    pub in_flight: InFlight,
    pub profiling: Profiling,
    pub sources: Sources,
    ticks: AtomicBool,
}

/// Sets the configuration for this process and its forked children; only the first call has an effect.
pub fn configure(config: Config) {
    // A second copy of the layer in one process has the same environment.
    let _ = CONFIG.set(config);
}

/// The state, if the layer is active.
pub fn layer() -> Option<&'static Layer> {
    STATE.get().as_ref()
}

/// Runs the layer's own code within a call of the application. A panic of it does not reach the application.
pub fn guard<R>(body: impl FnOnce(&'static Layer) -> R) -> Option<R> {
    catch_unwind(AssertUnwindSafe(|| layer().map(body))).ok().flatten()
}

impl Layer {
    fn start() -> Option<Self> {
        let config = CONFIG.get()?;
        // Without a thread nothing can be reported; the application runs as without the layer.
        let reports = Reports::start(config).ok()?;
        Some(Self {
            reports,
            bitstreams: Bitstreams::new(config.names.clone()),
            queues: Handles::default(),
            contexts: Handles::default(),
            in_flight: InFlight::default(),
            profiling: config.profiling,
            sources: config.sources,
            ticks: AtomicBool::new(false),
        })
    }

    /// Waits for commands and reports, since the application may exit next.
    pub fn settle(&self) {
        self.in_flight.wait_for_none(SETTLE_TIMEOUT);
        self.reports.settle(SETTLE_TIMEOUT);
    }

    /// Starts the thread that reports the progress of long kernels, unless it runs already.
    pub fn tick(&'static self) {
        if self.ticks.load(Ordering::Relaxed) || self.ticks.swap(true, Ordering::Relaxed) {
            return;
        }
        // Without the thread there is no progress; the ends of commands still report the whole time.
        let _ = without_signals(|| {
            std::thread::Builder::new().name("fpga-layer".to_owned()).spawn(move || {
                loop {
                    std::thread::sleep(PROGRESS_INTERVAL);
                    self.in_flight.progress(PROGRESS_INTERVAL, |command, so_far| {
                        self.reports.progress(command, so_far);
                    });
                }
            })
        });
    }
}

/// Runs `body`, which creates a thread, with all signals blocked, so that no signal of the application is delivered
/// to that thread.
fn without_signals<R>(body: impl FnOnce() -> R) -> R {
    // SAFETY: `sigset_t` is plain data, for which zeroes are valid; `sigfillset` fills it.
    let mut all: libc::sigset_t = unsafe { std::mem::zeroed() };
    // SAFETY: as above.
    let mut before: libc::sigset_t = unsafe { std::mem::zeroed() };
    // SAFETY: both sets are local variables.
    unsafe {
        libc::sigfillset(&raw mut all);
        libc::pthread_sigmask(libc::SIG_SETMASK, &raw const all, &raw mut before);
    }
    let result = body();
    // SAFETY: the set is a local variable.
    unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &raw const before, std::ptr::null_mut()) };
    result
}
