//! Whose the bytes of a buffer in shared memory are: this process's while no command uses the buffer, and otherwise the
//! manager's, but for a read in place, whose bytes are this process's until it has copied them.
//!
//! Only the counting, without locks and memory; `model.rs` tries every order of threads and manager over it.

use std::collections::BTreeMap;

/// The commands that use the buffer or a sub-buffer of it and haven't ended.
#[derive(Debug, Default)]
pub(crate) struct Users(usize);

/// The reads in place that haven't ended, by event, and the user event of each that later commands wait for.
#[derive(Debug, Default)]
pub(crate) struct Reads(BTreeMap<u64, Option<u64>>);

impl Users {
    /// A command uses the buffer from now on; before anybody is told of the command.
    pub(crate) fn begin(&mut self) {
        self.0 += 1;
    }

    /// It has ended.
    pub(crate) fn end(&mut self) {
        self.0 -= 1;
    }

    /// Accesses the bytes if no command uses them. What is around this value has to stay locked for so long, to which the
    /// borrow sees: a command that begins meanwhile comes after.
    pub(crate) fn if_none(&self, access: impl FnOnce() -> bool) -> bool {
        self.0 == 0 && access()
    }
}

impl Reads {
    /// A read was put into the order of commands.
    pub(crate) fn begin(&mut self, event: u64) {
        self.0.insert(event, None);
    }

    /// It has copied what it read, or never will. The user event that others wait for.
    pub(crate) fn end(&mut self, event: u64) -> Option<u64> {
        self.0.remove(&event).flatten()
    }

    /// Adds what the reads will set to the wait list of a command that comes after them in the order and may change the
    /// bytes; `new_event` makes a user event where there is none yet.
    pub(crate) fn precede(&mut self, wait: &mut Vec<u64>, new_event: impl Fn() -> Option<u64>) {
        for user_event in self.0.values_mut() {
            *user_event = user_event.or_else(&new_event);
            wait.extend(*user_event);
        }
    }
}
