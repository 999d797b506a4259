//! Counters that one process tells another.

use serde::{Deserialize, Serialize};

/// Counters of a tenant process for the manager's metrics.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counted {
    /// Bytes in messages and in shared memory, received and sent.
    pub bytes: [[u64; 2]; 2],
    /// Bytes of buffers in shared memory and with the vendor.
    pub buffer_bytes: [u64; 2],
    /// Refusals, by quota.
    pub refused: [u64; 6],
}

impl Counted {
    /// The increments from `before` to `self`.
    #[must_use]
    pub fn since(&self, before: &Self) -> Self {
        let less = |now: u64, then: u64| now.saturating_sub(then);
        let mut news = *self;
        for (now, then) in news.bytes.iter_mut().flatten().zip(before.bytes.iter().flatten()) {
            *now = less(*now, *then);
        }
        for (now, then) in news.buffer_bytes.iter_mut().zip(before.buffer_bytes) {
            *now = less(*now, then);
        }
        for (now, then) in news.refused.iter_mut().zip(before.refused) {
            *now = less(*now, then);
        }
        news
    }
}
