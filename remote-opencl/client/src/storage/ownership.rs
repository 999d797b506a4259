//! Whose the bytes of a buffer in shared memory are: this process's while no command uses the buffer, and otherwise the
//! manager's, but for a read in place, whose bytes are this process's until it has copied them.
//!
//! Only the counting, without locks and memory; `model.rs` tries every order of threads and manager over it.

use std::collections::BTreeMap;

/// The commands that use the buffer or a sub-buffer of it and haven't ended.
#[derive(Debug, Default)]
pub(crate) struct Users(usize);

/// The reads in place that haven't ended. All are of in-order queues, so that the last one of a queue copies last.
#[derive(Debug, Default)]
pub(crate) struct Reads {
    /// By event.
    open: BTreeMap<u64, Read>,
    /// The last one of each queue.
    last: BTreeMap<u64, u64>,
}

#[derive(Debug)]
struct Read {
    queue: u64,
    /// What later commands wait for.
    user_event: Option<u64>,
}

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
    pub(crate) fn begin(&mut self, queue: u64, event: u64) {
        self.open.insert(event, Read { queue, user_event: None });
        self.last.insert(queue, event);
    }

    /// It has copied what it read, or never will. The user event that others wait for.
    pub(crate) fn end(&mut self, event: u64) -> Option<u64> {
        let Read { queue, user_event } = self.open.remove(&event)?;
        if self.last.get(&queue) == Some(&event) {
            self.last.remove(&queue);
        }
        user_event
    }

    /// Adds what the last read of each queue will set to the wait list of a command that comes after it in the order and may
    /// change the bytes; `new_event` makes a user event where there is none yet.
    pub(crate) fn precede(&mut self, wait: &mut Vec<u64>, new_event: impl Fn() -> Option<u64>) {
        for event in self.last.values() {
            let Some(read) = self.open.get_mut(event) else { continue };
            read.user_event = read.user_event.or_else(&new_event);
            wait.extend(read.user_event);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_waits_for_the_last_read_of_each_queue_however_many_there_are() {
        let mut reads = Reads::default();
        for event in 1..=1000 {
            reads.begin(event % 2, event);
        }
        let mut wait = Vec::new();
        reads.precede(&mut wait, || Some(5000));
        assert_eq!(wait, [5000, 5000]);
        for event in 1..=998 {
            assert_eq!(reads.end(event), None);
        }
        assert_eq!((reads.end(999), reads.end(1000)), (Some(5000), Some(5000)));
        wait.clear();
        reads.precede(&mut wait, || Some(5001));
        assert!(wait.is_empty(), "all have ended");
    }
}
