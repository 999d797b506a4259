//! Bounds of messages and of their fields. The broker checks what managers and clients send, and they check what the
//! broker sends.

use fpga_core::units::Millis;
use std::time::Duration;

/// Version of the protocol.
pub const PROTOCOL_VERSION: u32 = 1;
/// Maximum length of a message to or from a manager, in bytes: a Register of [`MAX_SLOTS`] slots has the most.
pub const MAX_MANAGER_MESSAGE_BYTES: usize = 64 * 1024;
/// Maximum length of a message to or from a client, in bytes: a Hello with a token has the most.
pub const MAX_CLIENT_MESSAGE_BYTES: usize = 20 * 1024;
/// Maximum length of the view of a pool, in bytes.
pub const MAX_VIEW_BYTES: usize = 16 * 1024 * 1024;
/// Maximum number of slots that a manager lends.
pub const MAX_SLOTS: usize = 64;
/// Maximum number of jobs of a client's stream that wait at the same time.
pub const MAX_WAITING_JOBS_OF_CLIENT: usize = 1024;
/// Maximum number of slots that a group may ask for.
pub const MAX_GROUP_SLOTS: u32 = 1024;
/// Maximum number of jobs of a bundle.
pub const MAX_BUNDLE_JOBS: u32 = 256;
/// Maximum number of jobs in the view of a pool.
pub const MAX_VIEW_JOBS: usize = 1000;
/// Maximum length of a token, in bytes; that of a service account has one or two thousand.
pub const MAX_TOKEN_BYTES: usize = 16 * 1024;
/// Maximum length of a name (node, board, kind, shell, region, tenant), in bytes, as in Kubernetes.
pub const MAX_NAME_BYTES: usize = 253;
/// Maximum length of an accelerator's name, in bytes.
pub const MAX_ACCELERATOR_BYTES: usize = fpga_core::bitstream::MAX_NAME_BYTES;
/// Maximum length of an accelerator's interface, in bytes of JSON: one with 16 parameters has less than half of it.
pub const MAX_INTERFACE_BYTES: usize = 4 * 1024;
/// Maximum length of a network address, in bytes: a name, a colon, and a port.
pub const MAX_ADDRESS_BYTES: usize = 253 + 6;
/// Maximum length of a Unix socket's path, in bytes, without the final zero (`sun_path`).
pub const MAX_SOCKET_BYTES: usize = 107;
/// Maximum length of a text for people, in bytes. The sender cuts what is longer.
pub const MAX_TEXT_BYTES: usize = 512;
/// Shortest time between two reports of a lease's usage. A broker that asks for a shorter one gets this one.
pub const MIN_USAGE_INTERVAL: Millis = Millis(10);
/// Time that the other side has to connect, and to send its Hello and its Register.
pub const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(5);
/// Time without traffic on a connection after which an HTTP/2 ping checks whether the other side lives.
pub const KEEP_ALIVE_INTERVAL: Duration = Duration::from_secs(5);
/// Time that the other side has to answer the ping. Then the connection counts as cut.
pub const KEEP_ALIVE_TIMEOUT: Duration = Duration::from_secs(5);
