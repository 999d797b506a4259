//! State that exists once per process. It is never dropped: at exit its memory goes away with the process. A forked
//! child gets new state, since it must not touch its parent's.

use crate::base::fork;
use std::sync::OnceLock;

/// A value that each process makes on first use.
#[derive(Debug)]
pub(crate) struct PerProcess<T> {
    first: OnceLock<Generation<T>>,
}

/// The value of one process, and of its forked child.
#[derive(Debug)]
struct Generation<T> {
    number: u32,
    value: OnceLock<T>,
    child: OnceLock<Box<Self>>,
}

impl<T> PerProcess<T> {
    pub(crate) const fn new() -> Self {
        Self { first: OnceLock::new() }
    }

    /// The value of the calling process.
    pub(crate) fn get_or_init(&'static self, make: impl FnOnce() -> T) -> &'static T {
        fork::install();
        let number = fork::generation();
        let mut generation = self.first.get_or_init(|| Generation::new(number));
        while generation.number != number {
            generation = generation.child.get_or_init(|| Box::new(Generation::new(number)));
        }
        generation.value.get_or_init(make)
    }
}

impl<T> Generation<T> {
    fn new(number: u32) -> Self {
        Self { number, value: OnceLock::new(), child: OnceLock::new() }
    }
}
