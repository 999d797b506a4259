//! A progress bar for a long run or many runs, on the standard error, only if that is a terminal.

use std::io::{IsTerminal as _, Write as _, stderr};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Number of calls between two looks at the clock.
const EVERY: u32 = 4096;
/// Width of the bar in characters.
const WIDTH: usize = 30;

/// Whether a bar is shown. A terminal has room for one; of nested bars only the outermost is shown.
static TAKEN: AtomicBool = AtomicBool::new(false);

/// A progress bar. It is redrawn from time to time and erased when dropped.
#[derive(Debug)]
pub struct Progress {
    /// Time of the last redraw; `None` if the bar is not shown.
    shown: Option<Instant>,
    calls: u32,
    whole: f64,
    unit: Unit,
}

/// The unit of progress.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unit {
    /// Simulated days, including fractions.
    Days,
    /// Whole runs.
    Runs,
}

impl Progress {
    /// A bar at 0 of `whole`. It stays hidden if the standard error is no terminal or has a bar already.
    #[must_use]
    pub fn new(whole: f64, unit: Unit) -> Self {
        let shown = stderr().is_terminal() && !TAKEN.swap(true, Ordering::Relaxed);
        Self { shown: shown.then(Instant::now), calls: 0, whole, unit }
    }

    /// Sets the progress to `done`. Cheap enough for every event: the bar is redrawn at most every 200 ms.
    pub fn at(&mut self, done: f64) {
        let Some(shown) = &mut self.shown else { return };
        self.calls = self.calls.wrapping_add(1);
        if self.calls.is_multiple_of(EVERY) && shown.elapsed() > Duration::from_millis(200) {
            *shown = Instant::now();
            self.show(done);
        }
    }

    /// Redraws the bar at `done` now.
    pub fn show(&self, done: f64) {
        if self.shown.is_some() {
            // Ignore errors: without a terminal there is nobody to show progress to.
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
