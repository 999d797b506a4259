//! The only place that reads clocks, so that a test can say what time it is.

use fpga_core::units::Millis;
use std::fmt;
use std::sync::Arc;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

/// One reading.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Moment {
    /// Time that only goes forward: ages are counted on it.
    pub now: Millis,
    /// Time since the Unix epoch: compared with dates of the API server, shown to people.
    pub wall: Millis,
}

/// Where a [`Moment`] comes from.
#[derive(Clone)]
pub struct Clock(Arc<dyn Fn() -> Moment + Send + Sync>);

impl Clock {
    /// The machine's clocks.
    #[must_use]
    pub fn system() -> Self {
        let started = Instant::now();
        Self::new(move || Moment {
            now: started.elapsed().into(),
            // A clock before 1970 reads as 1970.
            wall: SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().into(),
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
