//! The demo's output: its steps with their times, and the picture, which is redrawn in place on a terminal.

use std::io::{IsTerminal as _, Write as _};
use std::time::{Duration, Instant};

/// Writes the demo's output.
#[derive(Debug)]
pub(super) struct Progress {
    start: Instant,
    redraws: bool,
}

impl Progress {
    pub fn new() -> Self {
        Self { start: Instant::now(), redraws: std::io::stdout().is_terminal() }
    }

    /// Time since the start of the demo.
    pub fn elapsed(&self) -> Duration {
        self.start.elapsed()
    }

    /// Writes a line.
    pub fn say(&self, text: &str) {
        let mut out = std::io::stdout().lock();
        // The demo continues if nobody reads its output.
        let _ = writeln!(out, "{text}").and_then(|()| out.flush());
    }

    /// Announces the next step.
    pub fn step(&self, what: &str) {
        self.say(&format!("[{:5.1} s] {what}", self.elapsed().as_secs_f64()));
    }

    /// Shows the picture.
    pub fn draw(&self, picture: &str) {
        // Move the cursor home and clear the terminal, so that the new picture replaces the old one.
        let clear = if self.redraws { "\x1b[H\x1b[2J" } else { "" };
        self.say(&format!("{clear}[{:5.1} s]\n{picture}", self.elapsed().as_secs_f64()));
    }
}
