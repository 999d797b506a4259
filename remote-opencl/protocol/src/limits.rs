//! Limits that the client keeps and the device manager enforces.

/// Version of the protocol. A manager refuses a client of another version.
pub const PROTOCOL_VERSION: u32 = 1;

/// Greatest length in bytes of the token that a client shows.
pub const MAX_TOKEN_BYTES: usize = 16 * 1024;

/// Greatest size of data inside a command or completion; larger data travels in chunks or through shared memory.
pub const MAX_INLINE_BYTES: usize = 16 * 1024;

/// Greatest size of a chunk's data.
pub const MAX_CHUNK_BYTES: usize = 1024 * 1024;

/// Greatest size of an encoded message that either side accepts.
pub const MAX_MESSAGE_BYTES: usize = 4 * 1024 * 1024;

/// The client sends unflushed commands when there are this many (bounded queues, T-5).
pub const MAX_BATCHED_COMMANDS: usize = 512;

/// The client sends unflushed commands when their encoded size reaches this.
pub const MAX_BATCHED_BYTES: usize = 1024 * 1024;

/// HTTP/2 flow-control window of a stream and of the connection. Large and fixed, since adaptive windows are slow
/// on loopback.
pub const WINDOW_BYTES: u32 = 32 * 1024 * 1024;

/// Greatest HTTP/2 frame that both sides announce. Much larger than the default of 16 KiB, since each frame costs a
/// system call.
pub const MAX_FRAME_BYTES: u32 = 1024 * 1024;

/// Greatest length in bytes of a program's source or intermediate language.
pub const MAX_SOURCE_BYTES: usize = 16 << 20;
