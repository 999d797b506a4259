//! What a session tells the commands that it has sent.

use crate::base::clock::ManagerClock;
use crate::error::ClError;
use fpga_protocol::v1;
use std::fmt::Debug;

/// A command that has not ended. The session calls its methods without a lock held, except [`Self::submitted`].
pub(crate) trait PendingCommand: Debug + Send + Sync {
    /// The command is sent to the manager at `at`.
    fn submitted(&self, at: u64);

    /// Whether nobody waits for the end of this very command, given that only the session has the command. The answer
    /// is asked for once, before the command is sent; after yes, the event is not released.
    fn goes_unwatched(&self) -> bool;

    /// A chunk of the command's data came. Returns false if it isn't the next chunk.
    fn receive(&self, length: u64, offset: u64, bytes: &[u8]) -> bool;

    /// The manager has completed the command; `offset` is that of the manager's clock.
    fn completed(&self, completion: v1::Completion, clock: &ManagerClock);

    /// The command won't run, or its outcome is unknown.
    fn fail(&self, error: ClError);
}

/// A command that may use unified shared memory.
pub(crate) trait User: Debug + Send + Sync {
    /// Whether the command has ended.
    fn has_ended(&self) -> bool;
    /// Waits until the command has ended.
    fn wait_for_end(&self);
}
