//! How far a run is, on a terminal only.

use crate::time::Micros;
use std::io::{IsTerminal as _, Write as _, stderr};
use std::time::{Duration, Instant};

/// Requests between looks at the clock.
const EVERY: u32 = 4096;

/// A line on the standard error, written anew from time to time.
#[derive(Debug)]
pub struct Progress {
    shown: Option<Instant>,
    calls: u32,
}

impl Progress {
    /// Nothing is shown where nobody looks.
    #[must_use]
    pub fn new() -> Self {
        Self { shown: stderr().is_terminal().then(Instant::now), calls: 0 }
    }

    /// The simulated time.
    pub fn at(&mut self, now: Micros) {
        let Some(shown) = &mut self.shown else { return };
        self.calls = self.calls.wrapping_add(1);
        if self.calls.is_multiple_of(EVERY) && shown.elapsed() > Duration::from_millis(200) {
            *shown = Instant::now();
            // A terminal that is gone needs no progress.
            let _ = write!(stderr(), "\rday {:.2} ", now.secs() / 86_400.0);
        }
    }

    /// It is over.
    pub fn end(&mut self) {
        if self.shown.is_some() {
            let _ = write!(stderr(), "\r{:20}\r", "");
        }
    }
}

impl Default for Progress {
    fn default() -> Self {
        Self::new()
    }
}
