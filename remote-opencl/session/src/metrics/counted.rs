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
    /// Spans of traces that were dropped.
    pub spans_dropped: u64,
    /// Contexts that were destroyed for reconfigurations of the whole board.
    pub contexts_destroyed: u64,
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
        news.spans_dropped = less(self.spans_dropped, before.spans_dropped);
        news.contexts_destroyed = less(self.contexts_destroyed, before.contexts_destroyed);
        news
    }
}

#[cfg(test)]
mod tests {
    use super::super::Metrics;
    use fpga_traces::tracer::Tracer;

    #[test]
    fn what_a_process_counts_comes_to_the_managers_counters_once() {
        let (process, manager) = (Metrics::default(), Metrics::default());
        let (of_process, of_manager) = (Tracer::off(), Tracer::off());
        let mut told = super::Counted::default();
        for dropped in [3, 4] {
            of_process.dropped_before(dropped);
            let now = process.counted(&of_process);
            manager.add(&now.since(&told), &of_manager);
            told = now;
        }
        assert_eq!(of_manager.dropped(), 7);
        assert_eq!(manager.counted(&of_manager), told);
    }
}
