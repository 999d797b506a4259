//! Bounds that both sides check.

use std::time::Duration;

/// Maximum length of a message, in bytes: a state of at most 64 KiB and its introduction.
pub const MAX_MESSAGE_BYTES: usize = 66 * 1024;
/// Maximum length of a node name, as in Kubernetes.
pub const MAX_NODE_NAME_BYTES: usize = 253;
/// Maximum length of a UID; those of Kubernetes have 36 bytes.
pub const MAX_UID_BYTES: usize = 128;
/// Time that the other side has to connect, to introduce itself, or to answer.
pub const ANSWER_TIMEOUT: Duration = Duration::from_secs(5);
/// Interval at which a state is sent although nothing changed, so that both sides know that the other is there.
pub const REFRESH_INTERVAL: Duration = Duration::from_secs(5);
/// The server ends a stream on which no message has come for this time.
pub const IDLE_TIMEOUT: Duration = Duration::from_secs(30);
/// Age of the last answer from which on a stream asks for another: about one answer a second.
pub const ANSWER_EVERY: Duration = Duration::from_millis(900);
/// Time after its last acknowledgement for which a stream still stands in for the annotation.
pub const ACKNOWLEDGED_FOR: Duration = Duration::from_secs(15);
/// Minimum time between two updates of one stream that the server reads, even if the collector sends more.
pub const MIN_SPACING: Duration = Duration::from_millis(100);
