//! The policy by which enqueued commands are sent; no I/O.
//!
//! Commands of all queues of a session collect in one batch, in the order of the enqueue calls, and travel as one
//! flush: one task (B-2). A flush point of OpenCL sends the batch. It is also sent in these cases, never by a timer:
//! - The batch reaches a limit of the protocol (bounded queues, T-5).
//! - A write of [`LARGE_UPLOAD`] bytes or more is enqueued; the commands before it are sent first.
//! - The manager is idle and the batch has [`SPECULATIVE_COMMANDS`] commands. So a write, a kernel and the blocking
//!   read that follows stay one message and one round trip, while a program that enqueues hundreds of commands has
//!   the first ones running before it flushes.
//! - The manager becomes idle while a batch waits; then a batch of any size is sent.

use crate::wire::outgoing::Upload;
use fpga_protocol::{limits, v1};
use prost::Message;
use std::sync::Arc;

/// Number of commands that are sent to an idle manager without a flush point.
pub(crate) const SPECULATIVE_COMMANDS: usize = 8;

/// A write of at least this many bytes begins a new batch, so that the commands before it don't wait for its bytes.
pub(crate) const LARGE_UPLOAD: u64 = 1024 * 1024;

/// The commands that were enqueued but not sent, each with what the session keeps of it.
#[derive(Debug)]
pub(crate) struct Batch<C> {
    commands: Vec<v1::Command>,
    pending: Vec<C>,
    uploads: Vec<Arc<Upload>>,
    bytes: usize,
}

/// The content of a batch. The uploads are sent before the flush.
#[derive(Debug)]
pub(crate) struct BatchContent<C> {
    pub(crate) uploads: Vec<Arc<Upload>>,
    pub(crate) flush: v1::Flush,
    pub(crate) pending: Vec<C>,
}

impl<C> Default for Batch<C> {
    fn default() -> Self {
        Self { commands: Vec::new(), pending: Vec::new(), uploads: Vec::new(), bytes: 0 }
    }
}

impl<C> Batch<C> {
    /// Whether the batch must be sent before `command` and its upload are enqueued.
    pub(crate) fn must_go_before(&self, command: &v1::Command, upload: Option<&Upload>) -> bool {
        !self.is_empty()
            && (self.commands.len() >= limits::MAX_BATCHED_COMMANDS
                || self.bytes + command.encoded_len() > limits::MAX_BATCHED_BYTES
                || upload.is_some_and(|upload| upload.length >= LARGE_UPLOAD))
    }

    pub(crate) fn push(&mut self, command: v1::Command, pending: C, upload: Option<Arc<Upload>>) {
        self.bytes += command.encoded_len();
        self.commands.push(command);
        self.pending.push(pending);
        self.uploads.extend(upload);
    }

    /// Whether to send without a flush point, given that `at_manager` commands of this session are at the manager.
    pub(crate) fn is_due(&self, at_manager: usize) -> bool {
        self.commands.len() >= limits::MAX_BATCHED_COMMANDS
            || self.bytes >= limits::MAX_BATCHED_BYTES
            || (at_manager == 0 && self.commands.len() >= SPECULATIVE_COMMANDS)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.commands.is_empty()
    }

    /// Takes the content and leaves an empty batch.
    pub(crate) fn take(&mut self) -> BatchContent<C> {
        let Self { commands, pending, uploads, bytes: _ } = std::mem::take(self);
        BatchContent { uploads, flush: v1::Flush { commands }, pending }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::host_memory::HostSource;
    use v1::command::Operation;
    use v1::data::Form;

    fn marker(event: u64) -> v1::Command {
        let operation = Some(Operation::Marker(v1::Marker {}));
        v1::Command { event, queue: 1, operation, ..v1::Command::default() }
    }

    fn write(event: u64, bytes: usize) -> v1::Command {
        let data = Some(v1::Data { form: Some(Form::Inline(vec![0; bytes].into())) });
        let write = v1::WriteBuffer { buffer: 1, offset: 0, data };
        v1::Command { operation: Some(Operation::WriteBuffer(write)), ..marker(event) }
    }

    #[test]
    fn a_short_iteration_stays_together_even_when_the_manager_is_idle() {
        let mut batch = Batch::default();
        for event in 1..4 {
            batch.push(marker(event), event, None);
            assert!(!batch.is_due(0));
        }
        assert_eq!(batch.take().pending, [1, 2, 3]);
        assert!(batch.is_empty());
    }

    #[test]
    fn many_commands_go_to_an_idle_manager_but_wait_for_a_busy_one() {
        let mut batch = Batch::default();
        for event in 1..=SPECULATIVE_COMMANDS as u64 {
            batch.push(marker(event), event, None);
        }
        assert!(batch.is_due(0));
        assert!(!batch.is_due(1));
    }

    #[test]
    fn the_number_of_unsent_commands_is_bounded() {
        let mut batch = Batch::default();
        for event in 1..=limits::MAX_BATCHED_COMMANDS as u64 {
            assert!(!batch.is_due(1));
            batch.push(marker(event), event, None);
        }
        assert!(batch.is_due(1));
    }

    #[test]
    fn a_message_never_gets_larger_than_allowed() {
        let mut batch = Batch::default();
        let mut sent = Vec::new();
        for event in 1..200 {
            let command = write(event, limits::MAX_INLINE_BYTES);
            if batch.must_go_before(&command, None) {
                sent.push(batch.take());
            }
            batch.push(command, event, None);
        }
        assert!(!sent.is_empty());
        for taken in sent {
            assert!(taken.flush.encoded_len() <= limits::MAX_BATCHED_BYTES);
        }
    }

    #[test]
    fn a_large_upload_does_not_hold_up_what_was_enqueued_before() {
        let large = Upload::new(2, HostSource::owned(vec![0; 1 << 20]));
        let small = Upload::new(3, HostSource::owned(vec![0; 1 << 16]));
        let mut batch = Batch::default();
        assert!(!batch.must_go_before(&marker(1), Some(&large)));
        batch.push(marker(1), 1, None);
        assert!(batch.must_go_before(&marker(2), Some(&large)));
        assert!(!batch.must_go_before(&marker(2), Some(&small)));
    }
}
