use super::*;
use crate::fixtures::{mk_bitstream, mk_device, mk_state};
use crate::node_state::{DigestPrefix, RecentBitstream};
use crate::requirement::Requirement;
use proptest::prelude::*;

#[test]
fn bitstreams_are_found_by_name_and_by_digest() {
    let mut state = mk_state();
    let digest = |byte| Some(DigestPrefix::from_bytes([byte; 16]));
    state.bitstreams =
        vec![mk_bitstream("sobel", 0), RecentBitstream { digest: digest(1), ..mk_bitstream("mm", 9_000) }];
    let signals = Signals::of(&state);
    let has = |text: &str, age| signals.has(Key::of(&text.parse().unwrap()), Millis(age));
    let digest = format!("sha256:{}", "01".repeat(32));
    assert!(has("sobel", 0) && has("mm", 0) && has(&digest, 0));
    assert!(!has("aes", 0) && !has(&format!("sha256:{}", "02".repeat(32)), 0));
    assert!(has("sobel", 300_000) && !has("sobel", 300_001));
    assert!(has("mm", 291_000) && !has("mm", 291_001) && !has(&digest, 291_001));
}

#[test]
fn a_bitstream_used_before_the_window_is_present_only_if_it_is_loaded() {
    let mut state = mk_state();
    state.devices = vec![mk_device("intel", "a10", "1")];
    state.bitstreams = vec![mk_bitstream("old", 300_001), mk_bitstream("kept", 300_001)];
    state.devices[0].loaded = vec![1];
    let signals = Signals::of(&state);
    let has = |text: &str, age| signals.has(Key::of(&text.parse().unwrap()), Millis(age));
    assert!(!has("old", 0) && has("kept", u64::MAX - 1));
}

#[test]
fn a_node_is_of_a_kind_as_the_texts_of_its_boards_are() {
    let texts = ["", "intel", "a10"];
    let given = |text: &str| (!text.is_empty()).then(|| text.to_owned());
    let all = || texts.iter().flat_map(|a| texts.iter().map(move |b| (*a, *b)));
    for ((vendor, board), (shell, platform)) in all().flat_map(|a| all().map(move |b| (a, b))) {
        let asked = Requirement {
            vendor: given(vendor),
            board: given(board),
            shell: given(shell),
            platform: given(platform),
            ..Requirement::default()
        };
        for second in ["a10", "s10"] {
            let mut state = mk_state();
            state.devices = vec![mk_device("intel", "a10", ""), mk_device("intel", second, "")];
            state.devices[0].platform = "intel".to_owned();
            let signals = Signals::of(&state);
            let agrees = |asked: &Option<String>, is: &str| asked.as_deref().is_none_or(|asked| asked == is);
            let is = |device: &DeviceState| {
                agrees(&asked.vendor, &device.vendor)
                    && agrees(&asked.board, &device.board)
                    && agrees(&asked.shell, &device.shell)
                    && agrees(&asked.platform, &device.platform)
            };
            let all_are = second == "a10" && state.devices.iter().all(is);
            assert_eq!(signals.all_are(&AskedKind::of(&asked)), all_are, "{asked:?}");
        }
    }
    assert!(!Signals::of(&mk_state()).all_are(&AskedKind::of(&Requirement::default())), "no board");
}

proptest! {
    #[test]
    fn signals_fade_as_the_state_does(
        usage in prop::collection::vec(0_u64..100_000, 0..40),
        reconfiguration in prop::collection::vec(0_u64..100_000, 0..40),
        bucket in 1_u64..20_000, window in 1_u64..400_000, age in 0_u64..500_000,
    ) {
        let mut state = mk_state();
        (state.window, state.buckets.bucket) = (Millis(window), Millis(bucket));
        state.buckets.usage = usage.into_iter().map(Millis).collect();
        state.buckets.reconfiguration = reconfiguration.into_iter().map(Millis).collect();
        let load = Signals::of(&state).load_at(Millis(age));
        prop_assert_eq!(load.usage, state.usage_at(Millis(age)));
        prop_assert_eq!(load.reconfiguration, state.reconfiguration_at(Millis(age)));
    }
}
