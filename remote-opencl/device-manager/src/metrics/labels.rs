//! Labels, from enums.

use prometheus_client::encoding::{EncodeLabelSet, EncodeLabelValue};

/// Labels of [`super::Metrics::buffer_bytes`].
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct StorageLabels {
    /// Where.
    pub storage: Storage,
}

/// Where a buffer lies.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, EncodeLabelValue)]
pub enum Storage {
    /// In memory shared with the client: host access copies once in the client, or not at all by a map.
    Shared,
    /// With the vendor: each transfer is copied here.
    Vendor,
}

/// Labels of [`super::Metrics::quota_refusals`].
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct RefusedLabels {
    /// By which quota.
    pub quota: Refused,
}

/// The quotas.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, EncodeLabelValue)]
pub enum Refused {
    /// Bytes of buffers and segments.
    Memory,
    /// Buffers.
    Buffers,
    /// Programs.
    Programs,
    /// Tasks that wait or run.
    QueuedTasks,
    /// Bytes of one upload.
    Upload,
    /// Sessions.
    Sessions,
}

/// Labels of [`super::Metrics::bytes`].
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct BytesLabels {
    /// Which way.
    pub direction: Direction,
    /// By which path.
    pub path: DataPath,
}

/// How bytes come or go.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, EncodeLabelValue)]
pub enum DataPath {
    /// In messages: copied at both ends and through the socket.
    Messages,
    /// Through shared memory: one copy by the client, one here.
    Shared,
}

/// The way that bytes go.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, EncodeLabelValue)]
pub enum Direction {
    /// From a client.
    Received,
    /// To a client.
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
