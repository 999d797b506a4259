//! Limits of a tenant.

/// Limits of one tenant at a time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Quota {
    /// Bytes of buffers, images and shared segments.
    pub memory: u64,
    /// Number of buffers and images.
    pub buffers: u64,
    /// Number of programs.
    pub programs: u64,
    /// Number of tasks that wait or run.
    pub queued_tasks: u64,
    /// Bytes of one bitstream, or of one transfer that comes in messages.
    pub upload: u64,
    /// Number of sessions.
    pub sessions: u64,
}

impl Default for Quota {
    /// No limits, except those that protect the manager itself.
    fn default() -> Self {
        Self {
            memory: u64::MAX,
            buffers: u64::MAX,
            programs: u64::MAX,
            queued_tasks: 1 << 16,
            upload: 4 << 30,
            sessions: 256,
        }
    }
}
