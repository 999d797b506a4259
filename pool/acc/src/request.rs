//! What a job asks for.

use std::fmt;
use zeroize::Zeroizing;

/// A job that is to be opened: an accelerator, how many bytes it will process, and the accelerator's arguments.
#[derive(Clone)]
pub struct Request {
    pub(crate) accelerator: String,
    pub(crate) workload_bytes: u64,
    pub(crate) arguments: Vec<(String, Zeroizing<Vec<u8>>)>,
}

impl Request {
    /// A job of so many bytes of input. The pool orders jobs by their size, and [`Job::run`](crate::Job::run) takes the
    /// piece that reaches this number as the last one; a stream may be of another length.
    #[must_use]
    pub fn new(accelerator: impl Into<String>, workload_bytes: u64) -> Self {
        Self { accelerator: accelerator.into(), workload_bytes, arguments: Vec::new() }
    }

    /// Adds an argument, such as `key`. Its value goes to the device manager that has the slot, and to nobody else; the
    /// library overwrites its copies.
    #[must_use]
    pub fn argument(mut self, name: impl Into<String>, value: &[u8]) -> Self {
        self.arguments.push((name.into(), Zeroizing::new(value.to_vec())));
        self
    }
}

/// Leaves the values of the arguments out.
impl fmt::Debug for Request {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<&str> = self.arguments.iter().map(|(name, _)| name.as_str()).collect();
        f.debug_struct("Request")
            .field("accelerator", &self.accelerator)
            .field("workload_bytes", &self.workload_bytes)
            .field("arguments", &names)
            .finish()
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
}
