//! Limits that the client keeps and the device manager enforces.

/// Version of the protocol; a manager refuses a client of another major version with a clear status.
pub const PROTOCOL_VERSION: u32 = 1;

/// Data up to this many bytes rides in the command or completion itself; more travels in chunks.
pub const MAX_INLINE_BYTES: usize = 16 * 1024;

/// Largest chunk of a transfer.
pub const MAX_CHUNK_BYTES: usize = 1024 * 1024;

/// Largest encoded message either side accepts: a chunk and its envelope, or a full batch.
pub const MAX_MESSAGE_BYTES: usize = 4 * 1024 * 1024;

/// The client sends unflushed commands at this number (bounded queues, T-5).
pub const MAX_BATCHED_COMMANDS: usize = 512;

/// The client sends unflushed commands when their inline data reaches this size.
pub const MAX_BATCHED_BYTES: usize = 1024 * 1024;

/// Window of a stream and of the connection: large and fixed, since adaptive windows are slow on loopback.
pub const WINDOW_BYTES: u32 = 32 * 1024 * 1024;

/// Largest HTTP/2 frame that both sides announce: one system call per frame, so much larger than the default 16 KiB.
pub const MAX_FRAME_BYTES: u32 = 1024 * 1024;
