//! What the demo says while it runs: steps with their time, and the picture, which replaces itself on a terminal.

use std::io::{IsTerminal as _, Write as _};
use std::time::{Duration, Instant};

/// The demo's voice.
#[derive(Debug)]
pub(super) struct Progress {
    start: Instant,
    redraws: bool,
}

impl Progress {
    pub fn new() -> Self {
        Self { start: Instant::now(), redraws: std::io::stdout().is_terminal() }
    }

    /// The time since the start.
    pub fn elapsed(&self) -> Duration {
        self.start.elapsed()
    }

    /// Says something.
    pub fn say(&self, text: &str) {
        let mut out = std::io::stdout().lock();
        // If nobody listens any more the demo goes on all the same.
        let _ = writeln!(out, "{text}").and_then(|()| out.flush());
    }

    /// Says what comes next.
    pub fn step(&self, what: &str) {
        self.say(&format!("[{:5.1} s] {what}", self.elapsed().as_secs_f64()));
    }

    /// Shows the picture.
    pub fn draw(&self, picture: &str) {
        // Home and clear, so that the new picture takes the old one's place.
        let clear = if self.redraws { "\x1b[H\x1b[2J" } else { "" };
        self.say(&format!("{clear}[{:5.1} s]\n{picture}", self.elapsed().as_secs_f64()));
    }
}
