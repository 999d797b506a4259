//! Intervals between the publications of a node, so that the load on the API server and on each extender is bounded
//! whatever the number of nodes.
//!
//! The extender computes the intervals from the number of nodes that it knows and sends them to the collectors.

use crate::node_state::codec::MAX_HEARTBEAT;
use crate::units::Millis;

/// Writes of annotations per second in the whole cluster while collectors stream. Each write wakes all watchers of
/// nodes. For comparison: kubelets write 17 times a second in a cluster of 5,000 nodes.
pub const WRITES_PER_SECOND: u64 = 20;
/// Minimum interval between writes that the extender sends.
pub const MIN_WRITE_INTERVAL: Millis = Millis::from_secs(60);
/// Maximum interval between writes that the extender sends. Its [`heartbeat`] is [`MAX_HEARTBEAT`].
pub const MAX_WRITE_INTERVAL: Millis = Millis(MAX_HEARTBEAT.0 / 5 * 4);
/// Streamed updates per second to one replica.
pub const UPDATES_PER_SECOND: u64 = 12_000;
/// Minimum interval between updates of one node: a little more than two updates a second.
pub const MIN_UPDATE_INTERVAL: Millis = Millis(450);
/// Maximum interval between updates that the extender sends and a collector accepts.
pub const MAX_UPDATE_INTERVAL: Millis = Millis::from_secs(10);

/// The interval between writes of one node's annotation while the node streams, in a cluster of `nodes` nodes.
#[must_use]
pub fn write_interval(nodes: usize) -> Millis {
    believed_write_interval(share_of(nodes, WRITES_PER_SECOND))
}

/// The minimum interval between updates of one node, on a replica that `nodes` nodes stream to.
#[must_use]
pub fn update_interval(nodes: usize) -> Millis {
    believed_update_interval(share_of(nodes, UPDATES_PER_SECOND))
}

/// The interval between writes that a collector uses when an extender sends `told`. The bounds keep an extender from
/// silencing a node.
#[must_use]
pub fn believed_write_interval(told: Millis) -> Millis {
    told.clamp(MIN_WRITE_INTERVAL, MAX_WRITE_INTERVAL)
}

/// The interval between updates that a collector uses when an extender sends `told`.
#[must_use]
pub fn believed_update_interval(told: Millis) -> Millis {
    told.clamp(MIN_UPDATE_INTERVAL, MAX_UPDATE_INTERVAL)
}

/// The heartbeat that an annotation declares for an interval between writes. It is a quarter longer than the interval:
/// writes are jittered by up to a fifth, and a late write must not count as a missed heartbeat.
#[must_use]
pub fn heartbeat(write_interval: Millis) -> Millis {
    Millis(write_interval.0.saturating_add(write_interval.0 / 4)).min(MAX_HEARTBEAT)
}

/// The interval per node at which `nodes` nodes together act `per_second` times a second.
fn share_of(nodes: usize, per_second: u64) -> Millis {
    let nodes = u64::try_from(nodes).unwrap_or(u64::MAX);
    Millis(nodes.saturating_mul(1000).div_ceil(per_second))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn five_thousand_busy_nodes_write_twenty_times_a_second() {
        assert_eq!(write_interval(5_000), Millis::from_secs(250));
        assert_eq!(heartbeat(write_interval(5_000)), Millis(312_500));
    }

    #[test]
    fn a_small_cluster_writes_once_a_minute_and_node() {
        for nodes in [0, 1, 3, 1_200] {
            assert_eq!(write_interval(nodes), Millis::from_secs(60), "{nodes} nodes");
        }
        assert_eq!(write_interval(1_201), Millis(60_050));
    }

    #[test]
    fn five_thousand_nodes_may_update_twice_a_second_and_more_of_them_less_often() {
        assert!(update_interval(5_000) <= Millis(500));
        assert_eq!(update_interval(24_000), Millis::from_secs(2));
    }

    #[test]
    fn intervals_that_a_hostile_extender_sends_stay_within_bounds() {
        assert_eq!(believed_write_interval(Millis(0)), MIN_WRITE_INTERVAL);
        assert_eq!(believed_write_interval(Millis(u64::MAX)), MAX_WRITE_INTERVAL);
        assert_eq!(believed_update_interval(Millis(0)), MIN_UPDATE_INTERVAL);
        assert_eq!(believed_update_interval(Millis(u64::MAX)), MAX_UPDATE_INTERVAL);
    }

    proptest! {
        #[test]
        fn the_cluster_never_bears_more_than_its_budget(nodes in 1_usize..48_000) {
            let writes = nodes as f64 * 1000.0 / write_interval(nodes).0 as f64;
            prop_assert!(writes <= WRITES_PER_SECOND as f64);
            let updates = nodes as f64 * 1000.0 / update_interval(nodes).0 as f64;
            prop_assert!(updates <= UPDATES_PER_SECOND as f64);
        }

        #[test]
        fn an_annotation_that_is_written_as_dictated_is_never_stale(nodes in 0_usize..1_000_000) {
            let interval = write_interval(nodes);
            prop_assert!(heartbeat(interval) > interval && heartbeat(interval) <= MAX_HEARTBEAT);
        }
    }
}
