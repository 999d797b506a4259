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
    /// Bytes of the input that the processor of this machine did; `None` unless no slot came in time.
    pub processor_bytes: Option<u64>,
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
    /// No slot came in time: the processor of this machine does the job.
    OnProcessor,
    /// The job has ended.
    Ended,
}

impl Status {
    pub(crate) fn new() -> Self {
        let at = Where::Waiting("no broker has answered yet".to_owned());
        Self { at, input_bytes: 0, output_bytes: 0, processor_bytes: None, slots: 0, node: None }
    }
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { input_bytes, output_bytes, processor_bytes, .. } = self;
        match &self.at {
            Where::Waiting(why) => return write!(f, "waiting: {why}"),
            Where::Attaching => return f.write_str("connecting to a board"),
            Where::Running => f.write_str("running")?,
            Where::OnProcessor => f.write_str("running on the processor")?,
            Where::Ended => f.write_str("ended")?,
        }
        write!(f, ", {input_bytes} bytes in, {output_bytes} bytes out")?;
        if let Some(bytes) = processor_bytes {
            write!(f, ", {bytes} bytes by the processor")?;
        }
        Ok(())
    }
}
