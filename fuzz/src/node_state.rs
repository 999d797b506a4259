//! The annotation that a node's state comes in.

use fpga_core::node_state::codec::{EncodeError, MAX_ENCODED_BYTES, decode, encode};
use fpga_core::node_state::{Buckets, NodeState};
use fpga_core::units::Millis;

/// `data` as an annotation: what can be read can be written again, within the limit, and says the same then.
///
/// # Panics
/// If that does not hold.
pub fn node_state(data: &[u8]) {
    let Ok(state) = decode(&String::from_utf8_lossy(data)) else { return };
    for age in [0, 1, state.window.0 / 2, state.window.0, u64::MAX] {
        fades(&state, Millis(age));
    }
    let text = match encode(&state) {
        Ok(text) => text,
        Err(EncodeError::DoesNotFit(_)) => return,
        Err(error) => panic!("what was read can't be written: {error}"),
    };
    assert!(text.len() <= MAX_ENCODED_BYTES, "{} bytes", text.len());
    let again =
        decode(&text).unwrap_or_else(|error| panic!("what was written can't be read: {error}: {text}"));
    if again.truncated == state.truncated {
        let mut trimmed = state;
        trimmed.buckets.trim();
        assert_eq!(again, trimmed);
    }
    assert_eq!(encode(&again).as_deref(), Ok(text.as_str()), "a second writing changes it");
}

/// The use that a state speaks of never grows with its age.
fn fades(state: &NodeState, age: Millis) {
    let Buckets { bucket, usage, .. } = &state.buckets;
    let now = Buckets::sum_at(usage, *bucket, state.window, Millis::ZERO);
    let then = Buckets::sum_at(usage, *bucket, state.window, age);
    assert!(then <= now, "{then:?} after {age:?}, {now:?} before");
}
