//! Where a client's messages come from.

use bytes::Bytes;
use tonic::Status;

/// A source of a client's messages.
pub trait Incoming: Send {
    /// The next message, encoded, in memory of its own; `None` at the end. A call may be cancelled without losing a
    /// message.
    fn next(&mut self) -> impl Future<Output = Result<Option<Bytes>, Status>> + Send;
}
