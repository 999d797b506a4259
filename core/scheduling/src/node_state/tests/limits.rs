//! Limits on a hostile node's state: no more usage than the slots allow, and a bounded number of steps per reader.

use super::*;
use crate::fixtures::{mk_asked, mk_node};
use crate::locality::Wanted;
use crate::matching::{Matcher, UnlabelledNodes};
use crate::node_state::codec::{MAX_BITSTREAMS, MAX_DEVICES, MAX_LOADED};
use crate::requirement::{MAX_BITSTREAMS as MAX_ASKED, Requirement};
use crate::signals::Signals;
use crate::staleness::Received;
use crate::steps;
use crate::units::MonotonicTime;

#[test]
fn no_slot_is_believed_to_be_used_for_longer_than_time_passes() {
    let with = |from: &str, to: &str| decode(&TEXT.replace(from, to));
    let refused = |what| Err(Unreadable::OutOfRange(what));
    // Four slots, a window of 300 s, slices of 10 s.
    assert!(with(r#""usageMs":12345"#, r#""usageMs":1200000"#).is_ok());
    assert_eq!(with(r#""usageMs":12345"#, r#""usageMs":1200001"#), refused("usageMs"));
    assert_eq!(with("Ms\":120,", "Ms\":1200001,"), refused("reconfigurationMs"));
    assert_eq!(with(r#""usageMs":1,"#, r#""usageMs":1200001,"#), refused("devices.usageMs"));
    assert_eq!(with("Ms\":1,\"queued", "Ms\":1200001,\"queued"), refused("devices.reconfigurationMs"));
    assert!(with("[100,200]", "[40000,40000]").is_ok());
    assert_eq!(with("[100,200]", "[100,40001]"), refused("window.usageMs"));
    assert_eq!(with(":[10]", ":[40001]"), refused("window.reconfigurationMs"));
}

#[test]
fn a_node_of_which_no_board_is_known_has_the_slots_of_the_papers_board() {
    let text = |usage: u64| {
        format!(
            r#"{{"v":1,"boot":1,"seq":1,"heartbeatMs":1,"measuredAtMs":1,"windowMs":1000,"usageMs":{usage},"reconfigurationMs":0,"window":{{"bucketMs":1000}}}}"#
        )
    };
    assert!(decode(&text(4_000)).is_ok());
    assert_eq!(decode(&text(4_001)), Err(Unreadable::OutOfRange("usageMs")));
}

/// A state whose text has almost 64 KiB and costs many steps: few bitstreams in many slots, or many of both.
fn hostile(devices: usize, bitstreams: usize) -> NodeState {
    let mut state = state();
    let slots = MAX_LOADED / devices;
    let bitstream = |number: usize| RecentBitstream {
        name: Some(format!("b{number}")),
        digest: None,
        last_used_ago: Millis::ZERO,
    };
    state.bitstreams = (0..bitstreams).map(bitstream).collect();
    let device = |number: usize| DeviceState {
        id: number.to_string(),
        vendor: format!("v{number}"),
        slots: slots.try_into().unwrap(),
        loaded: (0..slots).map(|slot| u32::try_from((number * slots + slot) % bitstreams).unwrap()).collect(),
        ..state.devices[0].clone()
    };
    state.devices = (0..devices).map(device).collect();
    state
}

#[test]
fn the_steps_that_a_hostile_state_costs_grow_with_its_size_and_not_with_products_of_it() {
    for (devices, bitstreams) in
        [(1, 1), (1, MAX_BITSTREAMS), (MAX_DEVICES, 1), (MAX_DEVICES, MAX_BITSTREAMS)]
    {
        let state = hostile(devices, bitstreams);
        validate_is_ok(&state);
        // Two passes over the bitstreams in slots: one for all boards, one by kind.
        let arrival = steps::of(|| drop(Signals::of(&state)));
        assert!(arrival <= 2 * MAX_LOADED, "{arrival} steps at arrival");

        let names: Vec<String> = (0..MAX_ASKED).map(|number| format!("b{number}")).collect();
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        let bitstreams = mk_asked(&names).bitstreams;
        let digests = (0..MAX_ASKED).map(|number| format!("sha256:{number:064x}").parse().unwrap());
        let asked =
            Requirement { loaded: bitstreams, bitstreams: digests.collect(), ..Requirement::default() };
        let node = mk_node(state.clone());
        let filter = steps::of(|| {
            let _ = Matcher::of(&asked).matches(&node, UnlabelledNodes::Reject);
        });
        // One pass over the slots, and per board one row with a cell per requested bitstream.
        assert!(filter <= MAX_LOADED + MAX_DEVICES * 2 * MAX_ASKED, "{filter} steps of a filter");

        let received = Received::new(state, MonotonicTime::START, Millis::ZERO);
        let asked = mk_asked(&names);
        let score = steps::of(|| {
            let wanted = Wanted::by(&asked);
            let _ = (wanted.share_on(&received, Millis::ZERO), wanted.loaded_share_on(&received));
        });
        assert_eq!(score, 0, "what slots hold is not gone through by a decision");
    }
}

fn validate_is_ok(state: &NodeState) {
    assert_eq!(codec::validate(state), Ok(()));
}
