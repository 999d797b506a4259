//! The owner of the bytes of a buffer in shared memory. They belong to this process while no command uses the
//! buffer, and to the manager otherwise; a read in place owns them for this process until it has copied them.
//!
//! This module only counts, without locks and memory, so that `model.rs` can try every order of threads and manager.

use std::collections::BTreeMap;

/// Number of commands that use the buffer or a sub-buffer of it and haven't ended.
#[derive(Debug, Default)]
pub(crate) struct Users(usize);

/// The reads in place that haven't ended. They belong to in-order queues, so the last read of a queue copies last.
#[derive(Debug, Default)]
pub(crate) struct Reads {
    /// Reads by the ids of their events.
    open: BTreeMap<u64, Read>,
    /// Id of the last read's event for each queue.
    last: BTreeMap<u64, u64>,
}

#[derive(Debug)]
struct Read {
    queue: u64,
    /// The user event that later commands wait for.
    user_event: Option<u64>,
}

impl Users {
    /// Notes that a command uses the buffer. To be called before the command is sent.
    pub(crate) fn begin(&mut self) {
        self.0 += 1;
    }

    /// Notes that a command which used the buffer has ended.
    pub(crate) fn end(&mut self) {
        self.0 -= 1;
    }

    /// Accesses the bytes if no command uses the buffer. The borrow keeps the lock around this value held during
    /// the access, so a command that begins meanwhile comes after it.
    pub(crate) fn if_none(&self, access: impl FnOnce() -> bool) -> bool {
        self.0 == 0 && access()
    }
}

impl Reads {
    /// Notes that a read was put into the order of commands.
    pub(crate) fn begin(&mut self, queue: u64, event: u64) {
        self.open.insert(event, Read { queue, user_event: None });
        self.last.insert(queue, event);
    }

    /// Notes that a read has copied the bytes or never will. Returns the user event that later commands wait for,
    /// if any.
    pub(crate) fn end(&mut self, event: u64) -> Option<u64> {
        let Read { queue, user_event } = self.open.remove(&event)?;
        if self.last.get(&queue) == Some(&event) {
            self.last.remove(&queue);
        }
        user_event
    }

    /// Adds the user event of each queue's last read to the wait list of a later command that may change the bytes.
    /// `new_event` creates the user event of a read that has none yet.
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
