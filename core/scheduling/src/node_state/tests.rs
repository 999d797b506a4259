mod limits;
mod many_boards;

use super::codec::{MAX_DECODED_BYTES, MAX_HEARTBEAT, V1_MAX_BYTES, max_annotation_bytes};
use super::*;
use crate::cordon::{Cordon, CordonedBoards};
use proptest::prelude::*;

/// A text of version 1. All readers know it, so it must never change.
const TEXT: &str = r#"{"v":1,"boot":7,"seq":1234,"heartbeatMs":60000,"measuredAtMs":1760000000000,"windowMs":300000,"usageMs":12345,"reconfigurationMs":120,"devices":[{"id":"dm0","vendor":"intel","platform":"PoCL","board":"a10","shell":"s1","slots":4,"loaded":[0,2],"usageMs":1,"reconfigurationMs":1,"queued":0,"healthy":true}],"bitstreams":[{"name":"sobel","digest":"000102030405060708090a0b0c0d0e0f","lastUsedAgoMs":1500},{"name":"mm","lastUsedAgoMs":2000},{"digest":"ffffffffffffffffffffffffffffffff","lastUsedAgoMs":9000}],"window":{"bucketMs":10000,"usageMs":[100,200],"reconfigurationMs":[10]},"truncated":0}"#;

/// The same state in version 2.
const COMPACT: &str = r#"{"v":2,"boot":7,"seq":1234,"heartbeatMs":60000,"measuredAtMs":1760000000000,"windowMs":300000,"usageMs":12345,"reconfigurationMs":120,"kinds":[["intel","PoCL","a10","s1"]],"devices":[["dm0",0,4,[0,2],1,1,0,true]],"bitstreams":[["sobel","AAECAwQFBgcICQoLDA0ODw",1500],["mm",null,2000],[null,"_____________________w",9000]],"window":{"bucketMs":10000,"usageMs":[100,200],"reconfigurationMs":[10]}}"#;

fn state() -> NodeState {
    decode(TEXT).unwrap()
}

/// Names and digests of the bitstreams in a device's slots.
fn loaded<'s>(state: &'s NodeState, device: &DeviceState) -> Vec<(Option<&'s str>, Option<DigestPrefix>)> {
    let bitstream = |index: &u32| state.bitstreams.get(*index as usize);
    let entry = |index| bitstream(index).map_or((None, None), |b| (b.name.as_deref(), b.digest));
    device.loaded.iter().map(entry).collect()
}

#[test]
fn the_agreed_text_survives_a_round_trip() {
    let written = Encoded { text: TEXT.to_owned(), left_out: LeftOut::default() };
    assert_eq!(encode(&state()), Ok(written.clone()));
    assert_eq!(encode_whole(&state()), Ok(written));
}

#[test]
fn both_versions_of_the_text_say_the_same() {
    assert_eq!(decode(COMPACT), Ok(state()));
}

#[test]
fn a_board_out_of_rotation_is_published_in_both_versions_with_the_reason_and_what_the_board_reports() {
    const CORDONS: &str = r#","cordons":{"dm0":{"reason":"fan is loud","sinceMs":5,"healthy":true}}"#;
    for text in [TEXT, COMPACT] {
        let with = |cordons: &str| decode(&text.replace(r#","window":"#, &format!(r#"{cordons},"window":"#)));
        let boards = CordonedBoards::parse(r#"{"dm0":{"reason":"fan is loud","sinceMs":5}}"#).unwrap();
        let mut state = state();
        state.cordon(&boards);
        let device = state.devices[0].clone();
        assert_eq!((device.health, state.reported_health(&device)), (Health::Unhealthy, Health::Healthy));
        assert_eq!(with(CORDONS).unwrap().cordons, state.cordons);
        assert_eq!(decode(&encode(&state).unwrap().text), Ok(state.clone()));
        assert_eq!(codec::tests::shortened_to(&state, 0).cordons, state.cordons, "it is never left out");
        let long = CORDONS.replace("fan is loud", &"x".repeat(129));
        assert!(matches!(with(&long), Err(Unreadable::Malformed(why)) if why.contains("at most 128 bytes")));
        let long = CORDONS.replace("dm0", &"x".repeat(257));
        assert_eq!(with(&long), Err(Unreadable::TextTooLong("cordons")));
        let board = |number| format!(r#""{number}":{{"sinceMs":5,"healthy":true}}"#);
        let many = (0..257).map(board).collect::<Vec<_>>().join(",");
        assert_eq!(with(&format!(r#","cordons":{{{many}}}"#)), Err(Unreadable::TooMany("cordons")));
    }
}

#[test]
fn sixteen_boards_out_of_rotation_with_the_longest_reasons_fit_into_the_annotation() {
    let mut state = state();
    let device = |number| DeviceState { id: format!("{number:063}"), ..state.devices[0].clone() };
    state.devices = (0..16).map(device).collect();
    let cordon = || Cordon { reason: "\"".repeat(128).parse().unwrap(), since: WallTime(1_760_000_000_000) };
    let boards = CordonedBoards::default();
    let boards = state.devices.iter().fold(boards, |all, device| all.with(&device.id, cordon()).unwrap());
    state.cordon(&boards);
    assert_eq!(decode(&encode(&state).unwrap().text).unwrap().cordons, state.cordons);
}

#[test]
fn the_node_plugin_is_told_in_both_versions_and_a_report_out_of_bounds_is_refused() {
    const PLUGIN: &str =
        r#","plugin":{"late":true,"boards":{"dm0":[3,16]},"keptOff":["rs-1"],"wanted":{"dm0":"uid"}}"#;
    for text in [TEXT, COMPACT] {
        let with = |plugin: &str| decode(&text.replace(r#","window":"#, &format!(r#"{plugin},"window":"#)));
        let state = with(PLUGIN).unwrap();
        let plugin = state.plugin.clone().unwrap();
        assert_eq!(plugin.heartbeat, Heartbeat::Late);
        assert_eq!(plugin.report.boards, [("dm0".to_owned(), Instances { used: 3, limit: 16 })].into());
        assert_eq!(plugin.report.kept_off, ["rs-1".to_owned()].into());
        assert_eq!(plugin.report.wanted, [("dm0".to_owned(), "uid".to_owned())].into());
        assert_eq!(decode(&encode(&state).unwrap().text), Ok(state.clone()));
        assert_eq!(codec::tests::shortened_to(&state, 0).plugin, state.plugin, "it is never left out");
        let of_0_1 = with(&PLUGIN.replace("rs-1", "shop/rs-1")).unwrap().plugin.unwrap();
        assert_eq!(of_0_1.report.kept_off, [controller("shop", "rs-1")].into());
        let in_time = with(r#","plugin":{"boards":{}}"#).unwrap().plugin.unwrap();
        assert_eq!(in_time, PluginState { heartbeat: Heartbeat::InTime, report: PluginReport::default() });
        let long = PLUGIN.replace("rs-1", &"x".repeat(129));
        assert_eq!(with(&long), Err(Unreadable::TextTooLong("plugin.keptOff")));
        let long = PLUGIN.replace("uid", &"x".repeat(65));
        assert_eq!(with(&long), Err(Unreadable::TextTooLong("plugin.wanted")));
        let owners: Vec<_> = (0..=MAX_KEPT_OFF).map(|owner| format!("\"{owner}\"")).collect();
        let many = PLUGIN.replace("\"rs-1\"", &owners.join(","));
        assert_eq!(with(&many), Err(Unreadable::TooMany("plugin.keptOff")));
    }
}

#[test]
fn unknown_fields_are_ignored_and_optional_ones_may_be_missing() {
    for version in [1, 2] {
        let text = format!(
            r#"{{"v":{version},"boot":1,"seq":1,"heartbeatMs":1,"measuredAtMs":1,"windowMs":1,"usageMs":0,"reconfigurationMs":0,"window":{{"bucketMs":1,"later":[]}},"later":{{"a":null}}}}"#
        );
        assert!(decode(&text).unwrap().devices.is_empty());
    }
}

#[test]
fn an_invalid_node_state_is_refused_with_the_reason() {
    let with = |from: &str, to: &str| decode(&TEXT.replace(from, to)).unwrap_err();
    assert_eq!(with(r#""v":1"#, r#""v":3"#), Unreadable::Version(3));
    assert_eq!(with("[0,2]", "[0,3]"), Unreadable::UnknownBitstream);
    assert_eq!(with("[0,2]", "[0,4294967295]"), Unreadable::UnknownBitstream, "nothing was left out");
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
    let compact = |from: &str, to: &str| decode(&COMPACT.replace(from, to)).unwrap_err();
    assert_eq!(compact(r#""dm0",0"#, r#""dm0",1"#), Unreadable::UnknownKind);
    assert_eq!(compact("[0,2]", "[0,null]"), Unreadable::UnknownBitstream, "nothing was left out");
    assert!(matches!(compact("_____________________w", "____"), Unreadable::Malformed(_)));
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
fn an_annotation_leaves_out_the_longest_unused_bitstreams_first_in_a_text_that_all_readers_know() {
    let mut state = state();
    let recent = |age| RecentBitstream {
        name: Some(format!("accelerator-number-{age}")),
        digest: Some(DigestPrefix::from_bytes([7; 16])),
        last_used_ago: Millis(age),
    };
    state.bitstreams.extend((10_000..10_100).map(recent));
    state.buckets.usage = vec![Millis(12_345); 30];
    let Encoded { text, left_out } = encode(&state).unwrap();
    assert!(text.starts_with(r#"{"v":1,"#) && text.len() <= V1_MAX_BYTES, "{text}");
    let back = decode(&text).unwrap();
    assert_eq!(back.bitstreams[0], state.bitstreams[0]);
    assert_eq!(back.buckets.usage.len(), 30, "resolution goes only when no bitstream can");
    let recent = u32::try_from(state.bitstreams.len() - back.bitstreams.len()).unwrap();
    assert_eq!(left_out, LeftOut { recent, ..LeftOut::default() });
    assert_eq!(back.left_out, left_out);
    assert!(text.ends_with(&format!(r#""leftOut":{{"recent":{recent}}},"truncated":{recent}}}"#)), "{text}");
    assert_eq!(loaded(&back, &back.devices[0]), loaded(&state, &state.devices[0]));
    assert_eq!(decode(&encode_whole(&state).unwrap().text), Ok(state), "the stream has them all");
}

prop_compose! {
    fn any_state()(
        devices in 0_usize..40, platforms in 1_usize..4,
        names in prop::collection::vec(("[a-z]{1,40}", any::<[u8; 16]>(), 0_u64..400_000), 0..200),
        slices in prop::collection::vec(0_u64..1_000_000, 0..60),
        bucket in 1_u64..20_000,
        loaded in prop::collection::vec(any::<u32>(), 0..4),
    ) -> NodeState {
        let mut state = state();
        let some = |i: u32| if names.is_empty() { None } else { Some(i % u32::try_from(names.len()).unwrap()) };
        let loaded: Vec<u32> = loaded.into_iter().filter_map(some).collect();
        let device = |place: usize| DeviceState {
            id: format!("dm{place}"),
            platform: format!("platform {}", place % platforms),
            loaded: loaded.iter().filter_map(|index| some(index.wrapping_add(u32::try_from(place).unwrap()))).collect(),
            ..state.devices[0].clone()
        };
        state.devices = (0..devices).map(device).collect();
        state.bitstreams = names
            .into_iter()
            .map(|(name, digest, ago)| RecentBitstream {
                name: Some(name),
                digest: Some(DigestPrefix::from_bytes(digest)),
                last_used_ago: Millis(ago),
            })
            .collect();
        let most = bucket * state.slots();
        (state.usage, state.reconfiguration) = (Millis::ZERO, Millis::ZERO);
        state.buckets.bucket = Millis(bucket);
        state.buckets.usage = slices.iter().map(|slice| Millis(slice % (most + 1))).collect();
        let possible = |slice: &Millis| Millis(slice.0.min(most));
        state.buckets.reconfiguration = state.buckets.reconfiguration.iter().map(possible).collect();
        state.buckets.trim();
        state
    }
}

proptest! {
    #[test]
    fn a_written_state_fits_and_is_read_back_with_the_same_total(state in any_state()) {
        let Encoded { text, left_out } = encode(&state).unwrap();
        prop_assert!(text.len() <= max_annotation_bytes(state.devices.len()));
        let back = decode(&text).unwrap();
        let total = |state: &NodeState| state.buckets.usage.iter().map(|slice| slice.0).sum::<u64>();
        prop_assert_eq!(total(&back), total(&state));
        prop_assert_eq!(back.version(), state.version());
        prop_assert_eq!(back.left_out, left_out);
        prop_assert_eq!(left_out.is_nothing(), back == state);
        for (was, is) in state.devices.iter().zip(&back.devices) {
            prop_assert_eq!((&is.id, &is.board, is.loaded.len()), (&was.id, &was.board, was.loaded.len()));
        }
        prop_assert_eq!(encode(&back).unwrap().text, text, "a second writing changes it");
    }

    #[test]
    fn a_stream_carries_the_whole_state(state in any_state()) {
        let Encoded { text, left_out } = encode_whole(&state).unwrap();
        prop_assert_eq!((decode(&text).unwrap(), left_out), (state, LeftOut::default()));
    }

    #[test]
    fn an_answer_of_an_annotation_is_that_of_the_whole_state_or_unknown(state in any_state(), tight in 300_usize..4_000) {
        let short = codec::tests::shortened_to(&state, tight);
        let ids = |bitstream: &RecentBitstream| bitstream.name.iter().map(|name| name.parse().unwrap()).collect::<Vec<BitstreamId>>();
        for (was, is) in state.devices.iter().zip(&short.devices) {
            for id in state.bitstreams.iter().flat_map(ids) {
                let (whole, short) = (state.holds(was, &id), short.holds(is, &id));
                prop_assert!(short == whole || short == Ternary::Unknown, "{id}: {short:?}, in truth {whole:?}");
            }
            let (whole, short) = (state.is_of_platform(was, &was.platform), short.is_of_platform(is, &was.platform));
            prop_assert!(short == whole || short == Ternary::Unknown);
        }
    }

    #[test]
    fn usage_never_grows_with_age(state in any_state(), age in 0_u64..400_000, more in 0_u64..100_000) {
        prop_assert!(state.usage_at(Millis(age + more)) <= state.usage_at(Millis(age)));
    }

    #[test]
    fn no_text_makes_the_decoder_panic(text in ".{0,200}", from in 0_usize..500, to in 0_usize..500, byte in "[0-9,\\]\\[\"a]") {
        let _ = decode(&text);
        for text in [TEXT, COMPACT] {
            let mut damaged = text.to_owned();
            let (from, to) = (from.min(text.len()), to.min(text.len()));
            damaged.replace_range(from.min(to)..from.max(to), &byte);
            let _ = decode(&damaged);
        }
    }
}
