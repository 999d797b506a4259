//! Builders for the tests of this crate.

use crate::device::Health;
use crate::node_facts::NodeFacts;
use crate::node_labels::NodeLabels;
use crate::node_state::{Buckets, DeviceState, LeftOut, NodeState, RecentBitstream};
use crate::requirement::Requirement;
use crate::staleness::{Knowledge, Received};
use crate::units::{Millis, MonotonicTime, WallTime};

/// An idle node without boards; heartbeat 60 s, window 300 s.
pub(crate) fn mk_state() -> NodeState {
    NodeState {
        boot: 1,
        seq: 1,
        heartbeat: Millis::from_secs(60),
        measured_at: WallTime(1_760_000_000_000),
        window: Millis::from_secs(300),
        usage: Millis::ZERO,
        reconfiguration: Millis::ZERO,
        devices: Vec::new(),
        bitstreams: Vec::new(),
        buckets: Buckets { bucket: Millis::from_secs(10), usage: Vec::new(), reconfiguration: Vec::new() },
        left_out: LeftOut::default(),
    }
}

/// A healthy board with four empty slots.
pub(crate) fn mk_device(vendor: &str, board: &str, shell: &str) -> DeviceState {
    DeviceState {
        id: "dm0".into(),
        vendor: vendor.into(),
        platform: String::new(),
        board: board.into(),
        shell: shell.into(),
        slots: 4,
        loaded: Vec::new(),
        usage: Millis::ZERO,
        reconfiguration: Millis::ZERO,
        queued: 0,
        health: Health::Healthy,
    }
}

/// A node with one Intel board and this usage and reconfiguration time in the newest slice, in milliseconds.
pub(crate) fn mk_busy(usage: u64, reconfiguration: u64) -> NodeState {
    let mut state = mk_state();
    state.devices = vec![mk_device("intel", "a10", "1")];
    (state.usage, state.reconfiguration) = (Millis(usage), Millis(reconfiguration));
    state.buckets.usage = vec![Millis(usage)];
    state.buckets.reconfiguration = vec![Millis(reconfiguration)];
    state
}

/// A bitstream last used `ago` milliseconds before the measurement.
pub(crate) fn mk_bitstream(name: &str, ago: u64) -> RecentBitstream {
    RecentBitstream { name: Some(name.into()), digest: None, last_used_ago: Millis(ago) }
}

/// A node without labels whose state was received at 0.
pub(crate) fn mk_node(state: NodeState) -> NodeFacts {
    let received = Received::new(state, MonotonicTime::START, Millis::ZERO);
    NodeFacts { labels: NodeLabels::default(), knowledge: Knowledge::Known(Box::new(received)) }
}

/// A requirement of any board and these bitstreams.
pub(crate) fn mk_asked(bitstreams: &[&str]) -> Requirement {
    let bitstreams = bitstreams.iter().map(|text| text.parse().unwrap()).collect();
    Requirement { bitstreams, ..Requirement::default() }
}
