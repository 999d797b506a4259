//! Builders of node states for the tests of this crate and of others.
#![allow(clippy::unwrap_used, clippy::missing_panics_doc, reason = "in a test a failure is a panic")]

use crate::device::{Health, ReconfiguredPart};
use crate::node_facts::NodeFacts;
use crate::node_state::{
    Buckets, DeviceState, Heartbeat, LeftOut, NodeState, PluginReport, PluginState, RecentBitstream,
};
use crate::requirement::Requirement;
use crate::staleness::{Knowledge, Received};
use crate::units::{Millis, MonotonicTime, WallTime};
use std::collections::BTreeMap;

/// An idle node without boards; heartbeat 60 s, window 300 s.
#[must_use]
pub fn mk_state() -> NodeState {
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
        plugin: None,
        cordons: BTreeMap::new(),
        left_out: LeftOut::default(),
    }
}

/// An idle, healthy Intel board with this id, four slots, and the bitstreams with these indexes in them.
#[must_use]
pub fn mk_board(id: &str, loaded: &[u32]) -> DeviceState {
    DeviceState { id: id.into(), loaded: loaded.to_vec(), ..mk_device("intel", "a10", "1") }
}

/// A plugin that reports in time and can give these boards to containers: id, used instances and limit.
#[must_use]
pub fn mk_plugin(boards: &[(&str, u32, u32)]) -> PluginState {
    let instances = |(id, used, limit): &(&str, u32, u32)| ((*id).to_owned(), (*used, *limit).into());
    let report = PluginReport { boards: boards.iter().map(instances).collect(), ..PluginReport::default() };
    PluginState { heartbeat: Heartbeat::InTime, report }
}

/// A healthy board with four empty slots.
#[must_use]
pub fn mk_device(vendor: &str, board: &str, shell: &str) -> DeviceState {
    DeviceState {
        id: "dm0".into(),
        vendor: vendor.into(),
        platform: String::new(),
        board: board.into(),
        shell: shell.into(),
        slots: 4,
        reconfigured_part: ReconfiguredPart::Slot,
        loaded: Vec::new(),
        usage: Millis::ZERO,
        reconfiguration: Millis::ZERO,
        queued: 0,
        health: Health::Healthy,
    }
}

/// A node with one Intel board and this usage and reconfiguration time in the newest slice, in milliseconds.
#[must_use]
pub fn mk_busy(usage: u64, reconfiguration: u64) -> NodeState {
    let mut state = mk_state();
    state.devices = vec![mk_device("intel", "a10", "1")];
    (state.usage, state.reconfiguration) = (Millis(usage), Millis(reconfiguration));
    state.buckets.usage = vec![Millis(usage)];
    state.buckets.reconfiguration = vec![Millis(reconfiguration)];
    state
}

/// A bitstream last used `ago` milliseconds before the measurement.
#[must_use]
pub fn mk_bitstream(name: &str, ago: u64) -> RecentBitstream {
    RecentBitstream { name: Some(name.into()), digest: None, last_used_ago: Millis(ago) }
}

/// A node without labels whose state was received at 0.
#[must_use]
pub fn mk_node(state: NodeState) -> NodeFacts {
    let received = Received::new(state, MonotonicTime::START, Millis::ZERO);
    NodeFacts { knowledge: Knowledge::Known(Box::new(received)), ..NodeFacts::default() }
}

/// A requirement of any board and these bitstreams.
#[must_use]
pub fn mk_asked(bitstreams: &[&str]) -> Requirement {
    let bitstreams = bitstreams.iter().map(|text| text.parse().unwrap()).collect();
    Requirement { bitstreams, ..Requirement::default() }
}
