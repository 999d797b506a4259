//! What the layer knows, per process: nothing at all until the environment asks for it and the application uses a
//! device.

use crate::bitstreams::Bitstreams;
use crate::config::{Config, Profiling, Sources};
use crate::fork::PerProcess;
use crate::handles::Handles;
use crate::in_flight::InFlight;
use crate::queues::Hidden;
use crate::reports::Reports;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// How often the progress of long kernels is told, and how long they run before it is.
const PROGRESS: Duration = Duration::from_secs(1);

/// How long the release of the last context may wait for reports to arrive.
const SETTLE: Duration = Duration::from_millis(100);

static CONFIG: OnceLock<Config> = OnceLock::new();
static STATE: PerProcess<Option<Layer>> = PerProcess::new(Layer::start);

/// The layer at work.
#[derive(Debug)]
pub struct Layer {
    pub reports: Reports,
    pub bitstreams: Bitstreams,
    /// Queues that got the profiling property from us.
    pub queues: Handles<Hidden>,
    pub contexts: Handles<()>,
    pub in_flight: InFlight,
    pub profiling: Profiling,
    pub sources: Sources,
    ticks: AtomicBool,
}

/// Sets what every process of this library's image does; the first one counts.
pub fn configure(config: Config) {
    // A second layer of ours in one process has the same environment.
    let _ = CONFIG.set(config);
}

/// The layer, if it is to do anything.
pub fn layer() -> Option<&'static Layer> {
    STATE.get().as_ref()
}

/// Runs code of ours within a call of the application: a bug of ours must not be its problem.
pub fn guard<R>(body: impl FnOnce(&'static Layer) -> R) -> Option<R> {
    catch_unwind(AssertUnwindSafe(|| layer().map(body))).ok().flatten()
}

impl Layer {
    fn start() -> Option<Self> {
        let config = CONFIG.get()?;
        // Without a thread nothing can be reported, and the application goes on as without the layer.
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

    /// The application is done for now: what it did should not be lost should it exit next.
    pub fn settle(&self) {
        self.in_flight.wait_for_none(SETTLE);
        self.reports.settle(SETTLE);
    }

    /// Has the progress of long kernels told from now on.
    pub fn tick(&'static self) {
        if self.ticks.load(Ordering::Relaxed) || self.ticks.swap(true, Ordering::Relaxed) {
            return;
        }
        // Without the thread there is no progress; the ends of commands tell their whole time all the same.
        let _ = without_signals(|| {
            std::thread::Builder::new().name("fpga-layer".to_owned()).spawn(move || {
                loop {
                    std::thread::sleep(PROGRESS);
                    self.in_flight.progress(PROGRESS, |command, so_far| {
                        self.reports.progress(command, so_far);
                    });
                }
            })
        });
    }
}

/// Runs `body`, which makes a thread, so that no signal of the application ever lands on that thread.
fn without_signals<R>(body: impl FnOnce() -> R) -> R {
    // SAFETY: plain data, which sigfillset fills.
    let mut all: libc::sigset_t = unsafe { std::mem::zeroed() };
    // SAFETY: as above.
    let mut before: libc::sigset_t = unsafe { std::mem::zeroed() };
    // SAFETY: both sets are ours.
    unsafe {
        libc::sigfillset(&raw mut all);
        libc::pthread_sigmask(libc::SIG_SETMASK, &raw const all, &raw mut before);
    }
    let result = body();
    // SAFETY: the set is ours.
    unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &raw const before, std::ptr::null_mut()) };
    result
}
