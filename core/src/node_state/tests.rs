use super::*;
use crate::node_state::codec::{MAX_DECODED_BYTES, MAX_HEARTBEAT};
use proptest::prelude::*;

const TEXT: &str = r#"{"v":1,"boot":7,"seq":1234,"heartbeatMs":60000,"measuredAtMs":1760000000000,"windowMs":300000,"usageMs":12345,"reconfigurationMs":120,"devices":[{"id":"dm0","vendor":"intel","platform":"PoCL","board":"a10","shell":"s1","slots":4,"loaded":[0,2],"usageMs":1,"reconfigurationMs":1,"queued":0,"healthy":true}],"bitstreams":[{"name":"sobel","digest":"000102030405060708090a0b0c0d0e0f","lastUsedAgoMs":1500},{"name":"mm","lastUsedAgoMs":2000},{"digest":"ffffffffffffffffffffffffffffffff","lastUsedAgoMs":9000}],"window":{"bucketMs":10000,"usageMs":[100,200],"reconfigurationMs":[10]},"truncated":0}"#;

fn state() -> NodeState {
    decode(TEXT).unwrap()
}

#[test]
fn the_agreed_text_survives_a_round_trip() {
    assert_eq!(encode(&state()).unwrap(), TEXT);
}

#[test]
fn unknown_fields_are_ignored_and_optional_ones_may_be_missing() {
    let text = r#"{"v":1,"boot":1,"seq":1,"heartbeatMs":1,"measuredAtMs":1,"windowMs":1,"usageMs":0,"reconfigurationMs":0,"window":{"bucketMs":1,"later":[]},"later":{"a":null}}"#;
    assert!(decode(text).unwrap().devices.is_empty());
}

#[test]
fn what_is_not_a_node_state_is_refused_with_the_reason() {
    let with = |from: &str, to: &str| decode(&TEXT.replace(from, to)).unwrap_err();
    assert_eq!(with(r#""v":1"#, r#""v":2"#), Unreadable::Version(2));
    assert_eq!(with("[0,2]", "[0,3]"), Unreadable::UnknownBitstream);
    assert_eq!(with("[0,2]", "[0,1,2,0,1]"), Unreadable::TooMany("loaded bitstreams"));
    assert_eq!(with(r#""name":"mm","#, ""), Unreadable::NamelessBitstream);
    assert_eq!(with(r#""name":"mm""#, r#""name":"a b""#), Unreadable::NamelessBitstream);
    assert_eq!(with(r#""bucketMs":10000"#, r#""bucketMs":0"#), Unreadable::OutOfRange("window.bucketMs"));
    assert_eq!(with("Ms\":60000,", "Ms\":18446744073709551615,"), Unreadable::OutOfRange("heartbeatMs"));
    assert_eq!(with("a10", &"x".repeat(257)), Unreadable::TextTooLong("devices.board"));
    assert!(matches!(with("12345", "-1"), Unreadable::Malformed(_)));
    assert!(matches!(with("12345", "1.5"), Unreadable::Malformed(_)));
    assert!(matches!(decode("{"), Err(Unreadable::Malformed(_))));
    assert!(matches!(decode(""), Err(Unreadable::Malformed(_))));
    let long = " ".repeat(MAX_DECODED_BYTES + 1);
    assert_eq!(decode(&long), Err(Unreadable::TooLong(long.len())));
}

#[test]
fn a_state_that_would_not_be_read_back_is_not_written() {
    let mut state = state();
    state.heartbeat = MAX_HEARTBEAT + Millis(1);
    assert_eq!(encode(&state), Err(EncodeError::Invalid(Unreadable::OutOfRange("heartbeatMs"))));
}

#[test]
fn usage_fades_by_the_age_of_the_state() {
    let state = state();
    assert_eq!(state.usage_at(Millis::ZERO), Millis(300));
    assert_eq!(state.usage_at(Millis(280_000)), Millis(300));
    assert_eq!(state.usage_at(Millis(285_000)), Millis(200), "half of the older slice has left the window");
    assert_eq!(state.usage_at(Millis(295_000)), Millis(50));
    assert_eq!(state.usage_at(Millis(300_000)), Millis::ZERO);
    assert_eq!(state.usage_at(Millis(u64::MAX)), Millis::ZERO);
    assert_eq!(state.reconfiguration_at(Millis::ZERO), Millis(10));
}

#[test]
fn overflow_costs_old_bitstreams_first_and_then_resolution() {
    let mut state = state();
    let recent = |age| RecentBitstream {
        name: Some(format!("accelerator-number-{age}")),
        digest: Some(DigestPrefix::from_bytes([7; 16])),
        last_used_ago: Millis(age),
    };
    state.bitstreams.extend((10_000..10_100).map(recent));
    state.buckets.usage = vec![Millis(123_456); 30];
    let back = decode(&encode(&state).unwrap()).unwrap();
    assert_eq!(back.bitstreams[0], state.bitstreams[0]);
    assert_eq!(back.buckets.usage.len(), 30, "resolution goes only when no bitstream can");
    assert_eq!(back.truncated as usize, state.bitstreams.len() - back.bitstreams.len());
    assert_eq!(back.devices[0].loaded.len(), 2);
    let last = back.devices[0].loaded[1] as usize;
    assert_eq!(back.bitstreams[last].digest, Some(DigestPrefix::from_bytes([255; 16])));
}

#[test]
fn eight_boards_with_four_distinct_bitstreams_each_fit() {
    let mut state = state();
    state.bitstreams = (0..32_u8)
        .map(|i| RecentBitstream {
            name: Some(format!("accelerator-{i}")),
            digest: Some(DigestPrefix::from_bytes([i; 16])),
            last_used_ago: Millis(123_456),
        })
        .collect();
    let device = state.devices[0].clone();
    state.devices = (0..8_u32)
        .map(|i| DeviceState { id: format!("dm{i}"), loaded: (i * 4..i * 4 + 4).collect(), ..device.clone() })
        .collect();
    state.buckets.usage = vec![Millis(123_456); 30];
    let back = decode(&encode(&state).unwrap()).unwrap();
    assert_eq!(back.bitstreams.len(), 32);
    assert!(back.devices.iter().all(|device| device.loaded.len() == 4));
}

#[test]
fn more_boards_than_fit_are_an_error() {
    let mut state = state();
    state.devices = vec![state.devices[0].clone(); 100];
    assert!(matches!(encode(&state), Err(EncodeError::DoesNotFit(_))));
}

prop_compose! {
    fn any_state()(
        devices in 0_usize..12,
        names in prop::collection::vec(("[a-z]{1,40}", any::<[u8; 16]>(), 0_u64..400_000), 0..60),
        slices in prop::collection::vec(0_u64..1_000_000, 0..60),
        bucket in 1_u64..20_000,
        loaded in prop::collection::vec(any::<u32>(), 0..4),
    ) -> NodeState {
        let mut state = state();
        let some = |i: u32| if names.is_empty() { None } else { Some(i % u32::try_from(names.len()).unwrap()) };
        let loaded: Vec<u32> = loaded.into_iter().filter_map(some).collect();
        state.devices = (0..devices).map(|_| DeviceState { loaded: loaded.clone(), ..state.devices[0].clone() }).collect();
        state.bitstreams = names
            .into_iter()
            .map(|(name, digest, ago)| RecentBitstream {
                name: Some(name),
                digest: Some(DigestPrefix::from_bytes(digest)),
                last_used_ago: Millis(ago),
            })
            .collect();
        state.buckets.bucket = Millis(bucket);
        state.buckets.usage = slices.iter().copied().map(Millis).collect();
        state
    }
}

proptest! {
    #[test]
    fn what_is_written_fits_is_read_back_and_keeps_the_total(state in any_state()) {
        let text = encode(&state).unwrap();
        prop_assert!(text.len() <= MAX_ENCODED_BYTES);
        let back = decode(&text).unwrap();
        let total = |state: &NodeState| state.buckets.usage.iter().map(|slice| slice.0).sum::<u64>();
        prop_assert_eq!(total(&back), total(&state));
        prop_assert_eq!(back.version(), state.version());
        for (was, is) in state.devices.iter().zip(&back.devices) {
            let digests = |state: &NodeState, device: &DeviceState| -> Vec<_> {
                device.loaded.iter().map(|i| state.bitstreams[*i as usize].digest).collect()
            };
            prop_assert_eq!(digests(&state, was), digests(&back, is));
        }
    }

    #[test]
    fn usage_never_grows_with_age(state in any_state(), age in 0_u64..400_000, more in 0_u64..100_000) {
        prop_assert!(state.usage_at(Millis(age + more)) <= state.usage_at(Millis(age)));
    }

    #[test]
    fn no_text_makes_the_decoder_panic(text in ".{0,200}") {
        let _ = decode(&text);
    }
}
