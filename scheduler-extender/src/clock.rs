//! The clock of states and decisions, which tests replace. Ages are counted on the monotonic clock. The wall clock is
//! compared with dates of the API server, and shown to people.

pub use fpga_core::units::Moment;
use fpga_core::units::{MonotonicTime, WallTime};
use std::fmt;
use std::sync::Arc;
use std::time::{Instant, SystemTime};

/// A source of [`Moment`]s.
#[derive(Clone)]
pub struct Clock(Arc<dyn Fn() -> Moment + Send + Sync>);

impl Clock {
    /// The system's clocks; the monotonic one starts at 0.
    #[must_use]
    pub fn system() -> Self {
        let started = Instant::now();
        Self::new(move || Moment {
            now: MonotonicTime::after(started.elapsed()),
            wall: WallTime::of(SystemTime::now()),
        })
    }

    /// A clock that calls `read`.
    #[must_use]
    pub fn new(read: impl Fn() -> Moment + Send + Sync + 'static) -> Self {
        Self(Arc::new(read))
    }

    /// The current time.
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
