//! Counts the inner steps of what a state from outside sets in motion, so that a test can bound them without a clock.
//! Nothing is counted outside tests.

#[cfg(test)]
thread_local! {
    static STEPS: std::cell::Cell<usize> = const { std::cell::Cell::new(0) };
}

/// So many steps are done.
#[inline]
pub(crate) fn count(steps: usize) {
    #[cfg(test)]
    STEPS.set(STEPS.get().saturating_add(steps));
    let _ = steps;
}

/// The steps that `work` does on this thread.
#[cfg(test)]
pub(crate) fn of(work: impl FnOnce()) -> usize {
    let before = STEPS.get();
    work();
    STEPS.get() - before
}
