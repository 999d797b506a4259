//! What a job asks for.

use crate::asked::Asked;
use crate::error::Error;
use crate::fallback::{Fallback, OrElse};
use std::time::Duration;

/// Longest wait before a fallback: clocks end somewhere.
const LONGEST_WAIT: Duration = Duration::from_secs(365 * 24 * 3600);

/// A job that is to be opened: an accelerator, how many bytes it will process, and the accelerator's arguments.
#[derive(Debug, Clone)]
pub struct Request {
    pub(crate) asked: Asked,
    pub(crate) workload_bytes: u64,
    pub(crate) or_else: Option<OrElse>,
}

impl Request {
    /// A job of so many bytes of input. The pool orders jobs by their size, and [`Job::run`](crate::Job::run) takes the
    /// piece that reaches this number as the last one; a stream may be of another length. What it has beyond waits as
    /// another job, when others want the slot.
    #[must_use]
    pub fn new(accelerator: impl Into<String>, workload_bytes: u64) -> Self {
        Self { asked: Asked::new(accelerator.into()), workload_bytes, or_else: None }
    }

    /// Adds an argument, such as `key`. Its value goes to the device manager that has the slot, and to nobody else; the
    /// library overwrites its copies.
    #[must_use]
    pub fn argument(mut self, name: impl Into<String>, value: &[u8]) -> Self {
        self.asked.add(name.into(), value);
        self
    }

    /// Lets the processor of this machine do the job, or the rest of it, when it has waited for a slot for so long, be it the
    /// first one or another one after a loss; and at once when the broker gives no slot. The job leaves the pool then. Without
    /// this call a job waits on.
    #[must_use]
    pub fn or_else(mut self, after: Duration, fallback: Fallback) -> Self {
        self.or_else = Some(OrElse { after: after.min(LONGEST_WAIT), fallback });
        self
    }

    pub(crate) fn check(&self) -> Result<(), Error> {
        match &self.or_else {
            Some(OrElse { fallback, .. }) => fallback.check(&self.asked.accelerator),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_argument_shows_in_debug() {
        let shown = format!("{:?}", Request::new("aes-256-ctr", 5).argument("key", &[171; 32]));
        assert!(shown.contains("key") && !shown.contains("171"), "{shown}");
    }

    #[test]
    fn the_library_has_code_for_the_processor_of_what_is_shipped_only() {
        let request = |name: &str, fallback| Request::new(name, 5).or_else(Duration::ZERO, fallback).check();
        assert!(request("fft", Fallback::shipped()).is_ok());
        assert!(matches!(request("own", Fallback::shipped()), Err(Error::NoFallback(name)) if name == "own"));
        assert!(request("own", Fallback::function(|_, _| Err("no".to_owned()))).is_ok());
    }
}
