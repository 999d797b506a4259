//! The demo's output: its steps with their times, and the picture, which is redrawn in place on a terminal.

use std::io::{IsTerminal as _, Write as _};
use std::time::{Duration, Instant};

/// Writes the demo's output.
#[derive(Debug)]
pub(super) struct Progress {
    start: Instant,
    redraws: bool,
    /// What stays on the terminal below each picture.
    kept: String,
}

impl Progress {
    pub fn new() -> Self {
        Self { start: Instant::now(), redraws: std::io::stdout().is_terminal(), kept: String::new() }
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

    /// Writes lines, and writes them again below each picture that takes their place on a terminal.
    pub fn keep(&mut self, text: &str) {
        self.say(text);
        if self.redraws {
            text.clone_into(&mut self.kept);
        }
    }

    /// Announces the next step.
    pub fn step(&self, what: &str) {
        self.say(&format!("[{:5.1} s] {what}", self.elapsed().as_secs_f64()));
    }

    /// Shows the picture.
    pub fn draw(&self, picture: &str) {
        // Move the cursor home and clear the terminal, so that the new picture replaces the old one.
        let clear = if self.redraws { "\x1b[H\x1b[2J" } else { "" };
        let (seconds, kept) = (self.elapsed().as_secs_f64(), &self.kept);
        self.say(&format!("{clear}[{seconds:5.1} s]\n{picture}{kept}"));
    }
}
