//! The only place that reads clocks, so that a test can say what time it is. Ages are counted on the clock that only goes
//! forward; the wall clock is compared with dates of the API server, and shown to people.

pub use fpga_core::units::Moment;
use fpga_core::units::{MonotonicTime, WallTime};
use std::fmt;
use std::sync::Arc;
use std::time::{Instant, SystemTime};

/// Where a [`Moment`] comes from.
#[derive(Clone)]
pub struct Clock(Arc<dyn Fn() -> Moment + Send + Sync>);

impl Clock {
    /// The machine's clocks.
    #[must_use]
    pub fn system() -> Self {
        let started = Instant::now();
        Self::new(move || Moment {
            now: MonotonicTime::after(started.elapsed()),
            wall: WallTime::of(SystemTime::now()),
        })
    }

    /// A clock that shows what `read` says.
    #[must_use]
    pub fn new(read: impl Fn() -> Moment + Send + Sync + 'static) -> Self {
        Self(Arc::new(read))
    }

    /// What it shows.
    #[must_use]
    pub fn read(&self) -> Moment {
        (self.0)()
    }
}

impl fmt::Debug for Clock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.read().fmt(f)
    }
}
