//! Counts the steps of loops over an untrusted state, so that a test can bound them without a clock. Outside tests
//! nothing is counted.

#[cfg(test)]
thread_local! {
    static STEPS: std::cell::Cell<usize> = const { std::cell::Cell::new(0) };
}

/// Counts `steps` steps.
#[inline]
pub(crate) fn count(steps: usize) {
    #[cfg(test)]
    STEPS.set(STEPS.get().saturating_add(steps));
    let _ = steps;
}

/// The number of steps that `work` does on this thread.
#[cfg(test)]
pub(crate) fn of(work: impl FnOnce()) -> usize {
    let before = STEPS.get();
    work();
    STEPS.get() - before
}
