//! Bounds that both sides check.

use std::time::Duration;

/// Longest message, in bytes: a state of the 64 KiB that are read, and its introduction.
pub const MAX_MESSAGE_BYTES: usize = 66 * 1024;
/// Longest node name, as Kubernetes has it.
pub const MAX_NODE_NAME_BYTES: usize = 253;
/// Longest UID; Kubernetes' have 36 bytes.
pub const MAX_UID_BYTES: usize = 128;
/// How long the other side may take to connect, to introduce itself or to answer.
pub const PATIENCE: Duration = Duration::from_secs(5);
/// A state is sent this often although nothing changed, so that both sides know that the other is there.
pub const REFRESH: Duration = Duration::from_secs(5);
/// A stream without a word for so long is ended by the extender.
pub const IDLE: Duration = Duration::from_secs(30);
/// How long a stream goes on at most before token and certificate have to be shown again, on a new one.
pub const PROVED_FOR: Duration = Duration::from_secs(3600);
/// A stream asks for an answer when the last one is so old: about one in a second.
pub const ANSWER_EVERY: Duration = Duration::from_millis(900);
/// How long after its last acknowledgement a stream still stands for the annotation.
pub const ACKNOWLEDGED_FOR: Duration = Duration::from_secs(15);
/// Updates of one stream are read this far apart at least, whatever the collector does.
pub const MIN_SPACING: Duration = Duration::from_millis(100);
