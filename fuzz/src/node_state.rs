//! The annotation with a node's state.

use fpga_core::node_state::codec::{
    EncodeError, Encoded, decode, encode, encode_whole, max_annotation_bytes,
};
use fpga_core::node_state::{Buckets, NodeState};
use fpga_core::signals::Signals;
use fpga_core::units::Millis;

/// Takes `data` as an annotation. A state that can be decoded can be encoded again within the size limit, and then
/// decodes to the same state.
///
/// # Panics
/// If this does not hold.
pub fn node_state(data: &[u8]) {
    let Ok(state) = decode(&String::from_utf8_lossy(data)) else { return };
    for age in [0, 1, state.window.0 / 2, state.window.0, u64::MAX] {
        fades(&state, Millis(age));
    }
    let _ = Signals::of(&state);
    if let Some(annotation) = written(&state, encode) {
        assert!(
            annotation.text.len() <= max_annotation_bytes(state.devices.len()),
            "{}",
            annotation.text.len()
        );
    }
    let _ = written(&state, encode_whole);
}

/// Encodes a state, and checks that decoding and encoding the text again changes nothing. `None` if the state does
/// not fit.
fn written(state: &NodeState, write: fn(&NodeState) -> Result<Encoded, EncodeError>) -> Option<Encoded> {
    let encoded = match write(state) {
        Ok(encoded) => encoded,
        Err(EncodeError::DoesNotFit { .. }) => return None,
        Err(error) => panic!("what was read can't be written: {error}"),
    };
    let text = &encoded.text;
    let again =
        decode(text).unwrap_or_else(|error| panic!("what was written can't be read: {error}: {text}"));
    assert_eq!(again.left_out, encoded.left_out);
    if encoded.left_out == state.left_out {
        let mut trimmed = state.clone();
        trimmed.buckets.trim();
        assert_eq!(again, trimmed);
    }
    assert_eq!(write(&again).as_ref(), Ok(&encoded), "a second writing changes it");
    Some(encoded)
}

/// Checks that the usage in a state does not grow with the state's age.
fn fades(state: &NodeState, age: Millis) {
    let Buckets { bucket, usage, .. } = &state.buckets;
    let now = Buckets::sum_at(usage, *bucket, state.window, Millis::ZERO);
    let then = Buckets::sum_at(usage, *bucket, state.window, age);
    assert!(then <= now, "{then:?} after {age:?}, {now:?} before");
}
