//! The generation of a process: how it differs from the processes that it was forked from.

use crate::registration::Registration;
use std::sync::atomic::{AtomicU64, Ordering};

static GENERATION: AtomicU64 = AtomicU64::new(0);
static HANDLER: Registration = Registration::new();

/// Number that is greater in a forked child than in its parent, provided that the parent has called this function
/// before the fork. It costs two loads, while the process id would cost a system call.
pub fn generation() -> u64 {
    HANDLER.ensure(after_fork_in_child);
    GENERATION.load(Ordering::Relaxed)
}

/// Runs in the child, where only async-signal-safe functions are allowed.
extern "C" fn after_fork_in_child() {
    GENERATION.fetch_add(1, Ordering::Relaxed);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::forked::succeeds_in_child;

    #[test]
    fn a_child_and_its_child_have_greater_generations() {
        let parents = generation();
        assert!(succeeds_in_child(|| {
            let childs = generation();
            childs > parents && succeeds_in_child(|| generation() > childs)
        }));
        assert_eq!(generation(), parents);
    }
}
