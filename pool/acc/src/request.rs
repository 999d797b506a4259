//! What a job asks for.

use crate::asked::Asked;

/// A job that is to be opened: an accelerator, how many bytes it will process, and the accelerator's arguments.
#[derive(Debug, Clone)]
pub struct Request {
    pub(crate) asked: Asked,
    pub(crate) workload_bytes: u64,
}

impl Request {
    /// A job of so many bytes of input. The pool orders jobs by their size, and [`Job::run`](crate::Job::run) takes the
    /// piece that reaches this number as the last one; a stream may be of another length.
    #[must_use]
    pub fn new(accelerator: impl Into<String>, workload_bytes: u64) -> Self {
        Self { asked: Asked::new(accelerator.into()), workload_bytes }
    }

    /// Adds an argument, such as `key`. Its value goes to the device manager that has the slot, and to nobody else; the
    /// library overwrites its copies.
    #[must_use]
    pub fn argument(mut self, name: impl Into<String>, value: &[u8]) -> Self {
        self.asked.add(name.into(), value);
        self
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
