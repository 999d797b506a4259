//! Nodes with more boards than a text of version 1 can hold.

use super::*;
use crate::fixtures::mk_node;
use crate::matching::{Matcher, Rejection, UnlabelledNodes};
use crate::requirement::Requirement;

/// Boards of two alternating vendors, each with four bitstreams of its own, and a busy window.
fn many_boards(boards: u32) -> NodeState {
    let mut state = state();
    state.bitstreams = (0..boards * 4)
        .map(|number| RecentBitstream {
            name: Some(format!("accelerator-{number}")),
            digest: Some(digest(number)),
            last_used_ago: Millis(123_456),
        })
        .collect();
    let board = |number: u32| {
        let (vendor, platform, board, shell) = match number % 2 {
            0 => ("intel", "Intel(R) FPGA SDK for OpenCL(TM)", "pac_a10", "1.2.1"),
            _ => ("xilinx", "Xilinx", "xilinx_u250_gen3x16_xdma_4_1_202210_1", "4.1"),
        };
        DeviceState {
            id: format!("dm{number}"),
            vendor: vendor.into(),
            platform: platform.into(),
            board: board.into(),
            shell: shell.into(),
            loaded: (number * 4..number * 4 + 4).collect(),
            usage: Millis(123_456),
            ..state.devices[0].clone()
        }
    };
    state.devices = (0..boards).map(board).collect();
    state.buckets.usage = vec![Millis(12_345); 30];
    state.buckets.reconfiguration = vec![Millis(123); 30];
    state
}

fn digest(number: u32) -> DigestPrefix {
    let mut bytes = [0x5a; 16];
    bytes[..4].copy_from_slice(&number.to_be_bytes());
    DigestPrefix::from_bytes(bytes)
}

/// A requirement that only `device` meets: its vendor, its platform and the bitstream in its first slot.
fn asked_of(state: &NodeState, device: &DeviceState) -> Requirement {
    let name = state.bitstreams[device.loaded[0] as usize].name.clone().unwrap();
    Requirement {
        vendor: Some(device.vendor.clone()),
        platform: Some(device.platform.clone()),
        loaded: vec![name.parse().unwrap()],
        ..Requirement::default()
    }
}

fn matches(asked: &Requirement, state: &NodeState) -> Result<(), Rejection> {
    Matcher::of(asked).matches(&mk_node(state.clone()), UnlabelledNodes::Reject)
}

#[test]
fn ten_boards_of_two_vendors_with_four_distinct_bitstreams_each_lose_nothing_by_either_way() {
    let state = many_boards(10);
    for Encoded { text, left_out } in [encode(&state).unwrap(), encode_whole(&state).unwrap()] {
        assert!(text.len() <= max_annotation_bytes(10), "{} bytes", text.len());
        assert_eq!((decode(&text).unwrap(), left_out), (state.clone(), LeftOut::default()));
    }
    for device in &state.devices {
        assert_eq!(
            matches(&asked_of(&state, device), &decode(&encode(&state).unwrap().text).unwrap()),
            Ok(())
        );
    }
}

#[test]
fn up_to_sixty_four_boards_fit_and_no_left_out_part_rejects_one() {
    for boards in [1, 4, 7, 8, 16, 32, 64] {
        let state = many_boards(boards);
        let annotated = decode(&encode(&state).unwrap().text).unwrap();
        assert_eq!(annotated.left_out.loaded, 0, "{boards} boards");
        let streamed = decode(&encode_whole(&state).unwrap().text).unwrap();
        assert_eq!(streamed, state, "{boards} boards");
        for device in &state.devices {
            let asked = asked_of(&state, device);
            assert_eq!(
                (matches(&asked, &annotated), matches(&asked, &streamed)),
                (Ok(()), Ok(())),
                "{asked:?}"
            );
        }
    }
}

#[test]
fn a_left_out_part_rejects_no_node_and_a_known_part_still_does() {
    let state = many_boards(8);
    let (mut seen_unknown, mut seen_left_out) = (0, LeftOut::default());
    for bytes in (900..6_000).step_by(150) {
        let short = codec::tests::shortened_to(&state, bytes);
        seen_left_out = short.left_out;
        for device in &state.devices {
            let asked = asked_of(&state, device);
            assert_eq!(matches(&asked, &short), Ok(()), "{bytes} bytes: {:?}", short.left_out);
            let other_vendor = Requirement { vendor: Some("amd".into()), ..asked.clone() };
            assert_eq!(matches(&other_vendor, &short), Err(Rejection::Vendor));
            let not_there = Requirement { loaded: vec!["not-there".parse().unwrap()], ..asked.clone() };
            let verdict = matches(&not_there, &short);
            match short.left_out.names + short.left_out.loaded {
                0 => assert_eq!(verdict, Err(Rejection::NotLoaded)),
                _ => seen_unknown += usize::from(verdict.is_ok()),
            }
        }
    }
    assert!(seen_unknown > 0);
    assert_eq!(seen_left_out, LeftOut::default(), "the last and longest text has everything");
}

#[test]
fn a_digest_whose_board_may_have_been_left_out_excludes_no_board() {
    // Two boards of one kind and one of another. The digest is known to be in the board of the other kind only.
    let mut state = many_boards(3);
    state.left_out = LeftOut { loaded: 1, ..LeftOut::default() };
    state.devices[0].loaded = vec![IN_SLOT_LEFT_OUT];
    let of_xilinx = state.bitstreams[state.devices[1].loaded[0] as usize].digest.unwrap();
    let text: String = of_xilinx.to_string() + &"0".repeat(32);
    let bitstreams = vec![format!("sha256:{text}").parse().unwrap()];
    let asked = Requirement { vendor: Some("intel".into()), bitstreams, ..Requirement::default() };
    assert_eq!(matches(&asked, &state), Ok(()), "the first board may hold it");
    state.devices[0].loaded = Vec::new();
    assert_eq!(matches(&asked, &state), Err(Rejection::NoSingleDevice), "it was made for the other kind");
}

#[test]
fn parts_that_older_collectors_left_out_without_naming_them_are_unknown() {
    let text = TEXT
        .replace(r#""platform":"PoCL","#, "")
        .replace(r#""name":"sobel","#, "")
        .replace(r#""truncated":0"#, r#""truncated":9"#);
    let state = decode(&text).unwrap();
    assert_eq!(state.left_out, LeftOut { recent: 9, names: 2, platforms: 1, ..LeftOut::default() });
    let device = &state.devices[0];
    assert_eq!(state.holds(device, &"sobel".parse().unwrap()), Ternary::Unknown);
    assert_eq!(state.is_of_platform(device, "PoCL"), Ternary::Unknown);
    let with_platforms = decode(&TEXT.replace(r#""truncated":0"#, r#""truncated":9"#)).unwrap();
    assert_eq!(
        with_platforms.left_out,
        LeftOut { recent: 9, ..LeftOut::default() },
        "names go after platforms"
    );
}

#[test]
fn device_ids_that_are_too_long_for_all_of_a_nodes_boards_are_an_error() {
    let mut state = many_boards(200);
    state.devices.iter_mut().for_each(|device| device.id = format!("{}{}", "x".repeat(240), device.id));
    assert!(matches!(encode(&state), Err(EncodeError::DoesNotFit { most: 32_768, .. })));
}
