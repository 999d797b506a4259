//! How far a run is, or of several runs which are done: a bar on the standard error, on a terminal only.

use std::io::{IsTerminal as _, Write as _, stderr};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Calls between looks at the clock.
const EVERY: u32 = 4096;
/// Characters of the bar.
const WIDTH: usize = 30;

/// Whether the line is taken: a terminal has one, and of runs within runs the outermost has it.
static TAKEN: AtomicBool = AtomicBool::new(false);

/// A line that is written anew from time to time, and goes in the end.
#[derive(Debug)]
pub struct Progress {
    /// Where it is shown: when it was written last.
    shown: Option<Instant>,
    calls: u32,
    whole: f64,
    unit: Unit,
}

/// What is counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unit {
    /// Simulated days, with parts of them.
    Days,
    /// Whole runs.
    Runs,
}

impl Progress {
    /// Nothing is done yet of so many. Nothing is shown where nobody looks.
    #[must_use]
    pub fn new(whole: f64, unit: Unit) -> Self {
        let shown = stderr().is_terminal() && !TAKEN.swap(true, Ordering::Relaxed);
        Self { shown: shown.then(Instant::now), calls: 0, whole, unit }
    }

    /// So much is done. May be called often: it is shown from time to time.
    pub fn at(&mut self, done: f64) {
        let Some(shown) = &mut self.shown else { return };
        self.calls = self.calls.wrapping_add(1);
        if self.calls.is_multiple_of(EVERY) && shown.elapsed() > Duration::from_millis(200) {
            *shown = Instant::now();
            self.show(done);
        }
    }

    /// So much is done, and that is shown now.
    pub fn show(&self, done: f64) {
        if self.shown.is_some() {
            // A terminal that is gone needs no progress.
            let _ = write!(stderr(), "\r\x1b[K{}", line(done, self.whole, self.unit));
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        if self.shown.is_some() {
            let _ = write!(stderr(), "\r\x1b[K");
            TAKEN.store(false, Ordering::Relaxed);
        }
    }
}

fn line(done: f64, whole: f64, unit: Unit) -> String {
    let share = if whole > 0.0 { (done / whole).clamp(0.0, 1.0) } else { 1.0 };
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "between nothing and WIDTH")]
    let full = (share * WIDTH as f64) as usize;
    let bar = format!("[{:<WIDTH$}]", "=".repeat(full));
    match unit {
        Unit::Days => format!("{bar} day {done:.1} of {whole:.0} "),
        Unit::Runs => format!("{bar} {done:.0} of {whole:.0} runs "),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bar_grows_with_what_is_done_and_never_beyond_its_end() {
        assert_eq!(
            line(7.04, 14.0, Unit::Days),
            format!("[{}{}] day 7.0 of 14 ", "=".repeat(15), " ".repeat(15))
        );
        assert_eq!(line(0.0, 3.0, Unit::Runs), format!("[{}] 0 of 3 runs ", " ".repeat(30)));
        assert_eq!(line(5.0, 3.0, Unit::Runs), format!("[{}] 5 of 3 runs ", "=".repeat(30)));
        assert!(line(0.0, 0.0, Unit::Runs).starts_with("[==="));
    }
}
