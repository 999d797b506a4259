//! Labels of the metrics.

use prometheus_client::encoding::{EncodeLabelSet, EncodeLabelValue};

/// Labels of [`super::Metrics::buffer_bytes`].
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct StorageLabels {
    /// Place of the buffer's storage.
    pub storage: Storage,
}

/// The place of a buffer's storage.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, EncodeLabelValue)]
pub enum Storage {
    /// Memory shared with the client. Host access needs one copy, in the client; maps need none.
    Shared,
    /// Memory of the vendor's runtime. The manager copies each transfer.
    Vendor,
}

/// Labels of [`super::Metrics::quota_refusals`].
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct RefusedLabels {
    /// The quota that refused.
    pub quota: Refused,
}

/// A quota.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, EncodeLabelValue)]
pub enum Refused {
    /// Bytes of buffers and segments.
    Memory,
    /// Number of buffers.
    Buffers,
    /// Number of programs.
    Programs,
    /// Number of tasks that wait or run.
    QueuedTasks,
    /// Bytes of one upload.
    Upload,
    /// Number of sessions.
    Sessions,
}

/// Labels of [`super::Metrics::bytes`].
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct BytesLabels {
    /// Direction of the transfer.
    pub direction: Direction,
    /// Path of the transfer.
    pub path: DataPath,
}

/// The path of a transfer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, EncodeLabelValue)]
pub enum DataPath {
    /// Messages: bytes are copied at both ends and through the socket.
    Messages,
    /// Shared memory: the client copies once, and the manager copies once.
    Shared,
}

/// The direction of a transfer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, EncodeLabelValue)]
pub enum Direction {
    /// From the client.
    Received,
    /// To the client.
    Sent,
}

pub(super) const DIRECTIONS: [Direction; 2] = [Direction::Received, Direction::Sent];
pub(super) const PATHS: [DataPath; 2] = [DataPath::Messages, DataPath::Shared];
pub(super) const STORAGES: [Storage; 2] = [Storage::Shared, Storage::Vendor];
pub(super) const REFUSALS: [Refused; 6] = [
    Refused::Memory,
    Refused::Buffers,
    Refused::Programs,
    Refused::QueuedTasks,
    Refused::Upload,
    Refused::Sessions,
];
