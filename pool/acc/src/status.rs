//! How far a job is, for people.

use std::fmt;
use std::sync::Arc;

/// How far a job is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Status {
    /// Where the job is.
    pub at: Where,
    /// Bytes of the input that are done.
    pub input_bytes: u64,
    /// Bytes of output that are there.
    pub output_bytes: u64,
    /// Number of slots that the job has had so far.
    pub slots: u32,
    /// Node of the slot that the job has, or had last.
    pub node: Option<Arc<str>>,
}

/// Where a job is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Where {
    /// The job has no slot; the text says why.
    Waiting(String),
    /// The job takes its slot.
    Attaching,
    /// The job has a slot.
    Running,
    /// The job has ended.
    Ended,
}

impl Status {
    pub(crate) fn new() -> Self {
        let at = Where::Waiting("no broker has answered yet".to_owned());
        Self { at, input_bytes: 0, output_bytes: 0, slots: 0, node: None }
    }
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.at {
            Where::Waiting(why) => write!(f, "waiting: {why}"),
            Where::Attaching => f.write_str("connecting to a board"),
            Where::Running => {
                write!(f, "running, {} bytes in, {} bytes out", self.input_bytes, self.output_bytes)
            }
            Where::Ended => {
                write!(f, "ended, {} bytes in, {} bytes out", self.input_bytes, self.output_bytes)
            }
        }
    }
}
