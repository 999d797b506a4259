use super::*;
use crate::board_kind::BoardKind;
use crate::cordon::{Cordon, CordonedBoards};
use crate::device::ReconfiguredPart;
use crate::fixtures::{mk_bitstream, mk_board, mk_device, mk_node, mk_plugin, mk_state};
use crate::node_state::{DigestPrefix, PluginState};
use crate::units::{Millis, WallTime};
use crate::utilization::Utilization;
use proptest::prelude::*;

fn asked(vendor: &str, board: &str, shell: &str) -> Requirement {
    let given = |text: &str| (!text.is_empty()).then(|| text.to_owned());
    Requirement { vendor: given(vendor), board: given(board), shell: given(shell), ..Requirement::default() }
}

fn node(devices: Vec<DeviceState>) -> NodeFacts {
    mk_node(NodeState { devices, ..mk_state() })
}

fn labelled(vendor: &str, board: &str) -> NodeFacts {
    let given = |text: &str| (!text.is_empty()).then(|| text.to_owned());
    let labels = NodeLabels { vendor: given(vendor), board: given(board), shell: None };
    NodeFacts { labels, ..NodeFacts::default() }
}

fn check(asked: &Requirement, node: &NodeFacts) -> Result<(), Rejection> {
    Matcher::of(asked).matches(node, UnlabelledNodes::Reject)
}

#[test]
fn one_single_board_must_meet_all_requirements() {
    let mixed = node(vec![mk_device("intel", "a10", "1"), mk_device("xilinx", "u250", "1")]);
    assert_eq!(check(&asked("intel", "a10", "1"), &mixed), Ok(()));
    assert_eq!(check(&asked("intel", "u250", ""), &mixed), Err(Rejection::NoSingleDevice));
}

#[test]
fn the_reason_names_the_first_thing_that_no_board_has() {
    let one = node(vec![mk_device("intel", "a10", "1")]);
    assert_eq!(check(&asked("xilinx", "u250", "2"), &one), Err(Rejection::Vendor));
    assert_eq!(check(&asked("intel", "u250", "2"), &one), Err(Rejection::Board));
    assert_eq!(check(&asked("intel", "a10", "2"), &one), Err(Rejection::Shell));
    assert_eq!(check(&Requirement { slots: 5, ..asked("", "", "") }, &one), Err(Rejection::Slots));
    assert_eq!(check(&asked("", "", ""), &node(Vec::new())), Err(Rejection::NoDevice));
}

#[test]
fn a_board_that_does_not_answer_meets_no_requirement() {
    let mut sick = mk_device("intel", "a10", "1");
    sick.health = Health::Unhealthy;
    assert_eq!(check(&asked("intel", "", ""), &node(vec![sick.clone()])), Err(Rejection::Unhealthy));
    assert_eq!(check(&asked("intel", "", ""), &node(vec![sick, mk_device("intel", "", "")])), Ok(()));
}

#[test]
fn a_board_out_of_rotation_meets_no_requirement_and_the_reason_says_so() {
    let sick = DeviceState { health: Health::Unhealthy, ..mk_board("c", &[]) };
    let cordoned = |ids: &[&str]| {
        let plugin = Some(mk_plugin(&[("a", 0, 16), ("b", 0, 16), ("c", 0, 16)]));
        let devices = vec![mk_board("a", &[]), mk_board("b", &[]), sick.clone()];
        let mut state = NodeState { devices, plugin, ..mk_state() };
        let cordon = || Cordon { reason: "fan".parse().unwrap(), since: WallTime(5) };
        let all = CordonedBoards::default();
        let all = ids.iter().fold(all, |all, id| all.with(id, cordon()).unwrap());
        state.cordon(&all);
        state
    };
    for (ids, wanted, verdict) in [
        (&["a"][..], 1, Ok(())),
        (&["a"], 2, Err(Rejection::Cordoned)),
        (&["a", "b"], 1, Err(Rejection::Cordoned)),
        (&["a", "b", "c"], 2, Err(Rejection::Cordoned)),
        (&["a"], 3, Err(Rejection::Unhealthy)),
        (&["c", "elsewhere"], 2, Ok(())),
        (&["c"], 3, Err(Rejection::Unhealthy)),
    ] {
        assert_eq!(check(&boards(wanted), &mk_node(cordoned(ids))), verdict, "{wanted} with {ids:?}");
    }
    let mut again = cordoned(&["a", "c"]);
    again.uncordon("a");
    again.uncordon("c");
    assert_eq!(again, cordoned(&[]));
}

fn boards(boards: u32) -> Requirement {
    Requirement { boards, ..Requirement::default() }
}

#[test]
fn so_many_boards_as_the_pod_asks_for_must_each_meet_the_requirement() {
    let sick = DeviceState { health: Health::Unhealthy, ..mk_board("c", &[]) };
    let xilinx = DeviceState { vendor: "xilinx".into(), ..mk_board("d", &[]) };
    let three = node(vec![mk_board("a", &[]), mk_board("b", &[]), sick, xilinx]);
    let of_intel = |boards| Requirement { boards, ..asked("intel", "", "") };
    for (asked, verdict) in [
        (boards(3), Ok(())),
        (boards(4), Err(Rejection::Unhealthy)),
        (boards(5), Err(Rejection::TooFewBoards)),
        (of_intel(2), Ok(())),
        (of_intel(3), Err(Rejection::Unhealthy)),
        (of_intel(4), Err(Rejection::TooFewBoards)),
        (Requirement { slots: 5, ..boards(1) }, Err(Rejection::Slots)),
    ] {
        assert_eq!(check(&asked, &three), verdict, "{asked:?}");
    }
}

#[test]
fn a_board_that_is_used_more_than_the_pod_allows_is_not_considered() {
    // 1,080 s of 4 slots in 300 s are 90 percent.
    let busy = DeviceState { usage: Millis::from_secs(1080), ..mk_board("a", &[]) };
    let one = node(vec![busy, mk_board("b", &[])]);
    let at_most =
        |text: &str, number| Requirement { max_utilization: Some(text.parse().unwrap()), ..boards(number) };
    assert_eq!(check(&at_most("0.9", 2), &one), Ok(()));
    assert_eq!(check(&at_most("0.899", 2), &one), Err(Rejection::Utilization));
    assert_eq!(check(&at_most("0", 1), &one), Ok(()));
}

#[test]
fn a_node_plugin_decides_which_boards_have_instances_left_and_must_report_in_time() {
    let with = |plugin| {
        let devices = vec![mk_board("a", &[]), mk_board("b", &[])];
        mk_node(NodeState { devices, plugin, ..mk_state() })
    };
    let late = PluginState { heartbeat: Heartbeat::Late, ..mk_plugin(&[("a", 0, 16), ("b", 0, 16)]) };
    for (plugin, wanted, verdict) in [
        (None, 2, Ok(())),
        (Some(mk_plugin(&[("a", 15, 16), ("b", 0, 16)])), 2, Ok(())),
        (Some(mk_plugin(&[("a", 16, 16), ("b", 0, 16)])), 1, Ok(())),
        (Some(mk_plugin(&[("a", 16, 16), ("b", 0, 16)])), 2, Err(Rejection::NoInstance)),
        (Some(mk_plugin(&[("b", 0, 16)])), 1, Ok(())),
        (Some(mk_plugin(&[("b", 0, 16)])), 2, Err(Rejection::Unhealthy)),
        (Some(mk_plugin(&[])), 1, Err(Rejection::Unhealthy)),
        (Some(late), 1, Err(Rejection::PluginLate)),
    ] {
        assert_eq!(check(&boards(wanted), &with(plugin.clone())), verdict, "{wanted} of {plugin:?}");
    }
}

#[test]
fn a_node_without_a_state_is_not_taken_for_what_no_label_tells() {
    let node = labelled("intel", "a10");
    let many = boards(2);
    let idle = Requirement { max_utilization: Some("0.5".parse().unwrap()), ..Requirement::default() };
    for (asked, rejection) in [(&many, Rejection::TooFewBoards), (&idle, Rejection::Utilization)] {
        assert_eq!(check(asked, &node), Err(rejection));
        assert_eq!(Matcher::of(asked).matches(&node, UnlabelledNodes::Pass), Ok(()));
    }
}

#[test]
fn only_reasons_that_no_load_and_no_recovery_ends_are_permanent() {
    let devices = vec![DeviceState { health: Health::Unhealthy, ..mk_board("a", &[]) }];
    let state = NodeState { devices, ..mk_state() };
    let of = |asked: &Requirement| matching_boards(asked, &state).unwrap_err();
    assert!(of(&asked("xilinx", "", "")).is_permanent());
    assert!(of(&boards(2)).is_permanent());
    assert!(!of(&boards(1)).is_permanent(), "the board may answer again");
}

proptest! {
    #[test]
    fn a_node_passes_if_and_only_if_enough_boards_meet_each_condition(
        kinds in prop::collection::vec((0_usize..2, any::<bool>(), 1_u32..4, 0_u64..1200, 0_u32..3, any::<bool>()), 0..6),
        wanted in 1_u32..4, slots in 1_u32..4, most in 0_u32..=10, has_plugin: bool,
    ) {
        const IDS: [&str; 6] = ["a", "b", "c", "d", "e", "f"];
        let devices = kinds.iter().zip(IDS).map(|((vendor, healthy, slots, usage, ..), id)| DeviceState {
            vendor: ["intel", "xilinx"][*vendor].into(),
            health: if *healthy { Health::Healthy } else { Health::Unhealthy },
            slots: *slots,
            usage: Millis::from_secs(*usage),
            ..mk_board(id, &[])
        });
        let offered = kinds.iter().zip(IDS).filter(|((.., offered), _)| *offered);
        let instances: Vec<_> = offered.map(|((.., used, _), id)| (id, *used, 2)).collect();
        let plugin = has_plugin.then(|| mk_plugin(&instances));
        let state = NodeState { devices: devices.collect(), plugin, ..mk_state() };
        let asked = Requirement {
            vendor: Some("intel".into()),
            slots,
            boards: wanted,
            max_utilization: Some(format!("{}", f64::from(most) / 10.0).parse().unwrap()),
            ..Requirement::default()
        };
        let fits = state.devices.iter().zip(&kinds).filter(|(device, (.., used, offered))| {
            device.vendor == "intel" && device.health == Health::Healthy && device.slots >= slots
                && state.utilization(device) <= asked.max_utilization.unwrap()
                && (!has_plugin || *offered && *used < 2)
        });
        let enough = fits.count() >= wanted as usize;
        prop_assert_eq!(check(&asked, &mk_node(state)).is_ok(), enough);
    }
}

/// A node with two boards of different kinds: a10 holds sobel, s10 holds mm.
fn two_kinds() -> NodeState {
    let digest = |byte| Some(DigestPrefix::from_bytes([byte; 16]));
    let mut state = NodeState {
        devices: vec![mk_device("intel", "a10", "1"), mk_device("intel", "s10", "2")],
        bitstreams: vec![mk_bitstream("sobel", 0), mk_bitstream("mm", 0)],
        ..mk_state()
    };
    for (index, device) in (0..).zip(&mut state.devices) {
        device.loaded = vec![index];
        device.platform = format!("platform {index}");
    }
    (state.bitstreams[0].digest, state.bitstreams[1].digest) = (digest(0x0a), digest(0x0b));
    state
}

fn digest(byte: &str) -> BitstreamId {
    format!("sha256:{}", byte.repeat(32)).parse().unwrap()
}

fn on(board: &str) -> BoardKind {
    BoardKind { board: Some(board.to_owned()), ..BoardKind::default() }
}

#[test]
fn platform_and_loaded_bitstreams_are_asked_of_the_same_single_board() {
    let node = mk_node(two_kinds());
    let of = |platform: &str, loaded: &[BitstreamId], board: &str| {
        let platform = (!platform.is_empty()).then(|| platform.to_owned());
        check(&Requirement { platform, loaded: loaded.to_vec(), ..asked("", board, "") }, &node)
    };
    let name = |name: &str| [name.parse::<BitstreamId>().unwrap()];
    assert_eq!(of("platform 1", &name("mm"), "s10"), Ok(()));
    assert_eq!(of("platform 1", &[digest("0b")], "s10"), Ok(()));
    assert_eq!(of("platform 9", &[], ""), Err(Rejection::Platform));
    assert_eq!(of("platform 1", &[], "a10"), Err(Rejection::NoSingleDevice));
    assert_eq!(of("platform 1", &name("sobel"), ""), Err(Rejection::NoSingleDevice));
    assert_eq!(of("", &name("fft"), ""), Err(Rejection::NotLoaded));
    assert_eq!(of("", &[digest("0c")], ""), Err(Rejection::NotLoaded));
    let both = [&name("sobel")[..], &name("mm")[..]].concat();
    assert_eq!(of("", &both, ""), Err(Rejection::NotLoaded), "each is somewhere, no board has both");
}

#[test]
fn a_digest_in_a_board_of_one_kind_is_not_valid_on_another() {
    let node = mk_node(two_kinds());
    let of = |id: BitstreamId, board: &str| {
        check(&Requirement { bitstreams: vec![id], ..asked("", board, "") }, &node)
    };
    assert_eq!((of(digest("0b"), ""), of(digest("0b"), "s10")), (Ok(()), Ok(())));
    assert_eq!(of(digest("0b"), "a10"), Err(Rejection::NoSingleDevice), "it was made for the other board");
    assert_eq!(of(digest("0c"), "a10"), Ok(()), "nobody has it yet");
    assert_eq!(of("mm".parse().unwrap(), "a10"), Ok(()), "a name is another bitstream there");
    let mut twice = two_kinds();
    twice.devices[0].loaded = vec![0, 1];
    let bitstreams = vec![digest("0b")];
    let asked = Requirement { bitstreams, ..asked("", "a10", "") };
    assert_eq!(check(&asked, &mk_node(twice)), Ok(()), "it is in one of its kind");
    let mut gone = two_kinds();
    gone.devices.remove(0);
    gone.devices.insert(0, mk_device("intel", "x10", "1"));
    let on_x10 = Requirement { board: Some("x10".into()), ..asked };
    assert_eq!(check(&on_x10, &mk_node(gone)), Err(Rejection::NoSingleDevice));
}

#[test]
fn a_listed_bitstream_is_valid_on_its_boards_only() {
    let node = mk_node(two_kinds());
    let of = |valid_on: Vec<Vec<BoardKind>>, board: &str| {
        check(&Requirement { valid_on, ..asked("", board, "") }, &node)
    };
    assert_eq!(of(vec![vec![on("s10")]], ""), Ok(()));
    assert_eq!(of(vec![vec![on("x10"), on("s10")]], ""), Ok(()));
    assert_eq!(of(vec![vec![on("s10")]], "a10"), Err(Rejection::NoSingleDevice));
    assert_eq!(of(vec![vec![on("x10")]], ""), Err(Rejection::InvalidBitstream));
    assert_eq!(of(vec![Vec::new()], ""), Err(Rejection::InvalidBitstream), "unlisted, and that is rejected");
    let two = vec![vec![on("s10")], vec![on("a10")]];
    assert_eq!(of(two, ""), Err(Rejection::InvalidBitstream), "no board is both");
}

#[test]
fn where_the_board_is_not_known_no_listed_bitstream_is_valid() {
    let asked = Requirement { valid_on: vec![vec![on("a10")]], ..asked("intel", "", "") };
    let unnamed = mk_device("intel", "", "1");
    assert_eq!(check(&asked, &node(vec![unnamed])), Err(Rejection::InvalidBitstream));
    assert_eq!(check(&asked, &labelled("intel", "a10")), Ok(()));
    for unlabelled in [UnlabelledNodes::Reject, UnlabelledNodes::Pass] {
        let verdict = Matcher::of(&asked).matches(&labelled("intel", ""), unlabelled);
        assert_eq!(verdict, Err(Rejection::InvalidBitstream), "{unlabelled}");
    }
}

#[test]
fn labels_do_not_meet_a_platform_or_a_loaded_bitstream() {
    let platform = Requirement { platform: Some("p".into()), ..asked("intel", "", "") };
    let loaded = Requirement { loaded: vec!["sobel".parse().unwrap()], ..asked("intel", "", "") };
    let node = labelled("intel", "");
    assert_eq!(check(&platform, &node), Err(Rejection::Platform));
    assert_eq!(check(&loaded, &node), Err(Rejection::NotLoaded));
    assert_eq!(Matcher::of(&platform).matches(&node, UnlabelledNodes::Pass), Ok(()));
}

#[test]
fn full_slots_reject_no_node() {
    let mut full = mk_device("intel", "a10", "1");
    full.queued = 100;
    assert_eq!(check(&Requirement { slots: 4, ..asked("", "", "") }, &node(vec![full])), Ok(()));
}

#[test]
fn labels_decide_only_where_there_is_no_state() {
    let mut lying = node(vec![mk_device("intel", "a10", "1")]);
    lying.labels = labelled("xilinx", "").labels;
    assert_eq!(check(&asked("xilinx", "", ""), &lying), Err(Rejection::Vendor));
    assert_eq!(check(&asked("xilinx", "", ""), &labelled("xilinx", "")), Ok(()));
    assert_eq!(check(&asked("intel", "", ""), &labelled("xilinx", "")), Err(Rejection::Vendor));
    let unreadable = NodeFacts { knowledge: Knowledge::Unreadable, ..labelled("intel", "") };
    assert_eq!(check(&asked("intel", "", ""), &unreadable), Ok(()));
}

#[test]
fn a_node_without_a_label_passes_only_if_the_paper_is_followed() {
    let bare = labelled("", "");
    assert_eq!(check(&asked("intel", "", ""), &bare), Err(Rejection::Unlabelled));
    assert_eq!(check(&asked("", "", ""), &bare), Err(Rejection::Unlabelled));
    assert_eq!(Matcher::of(&asked("intel", "", "")).matches(&bare, UnlabelledNodes::Pass), Ok(()));
    let half = labelled("intel", "");
    assert_eq!(check(&asked("intel", "a10", ""), &half), Err(Rejection::Board));
    assert_eq!(Matcher::of(&asked("intel", "a10", "")).matches(&half, UnlabelledNodes::Pass), Ok(()));
    assert_eq!(
        Matcher::of(&asked("amd", "", "")).matches(&half, UnlabelledNodes::Pass),
        Err(Rejection::Vendor)
    );
}

#[test]
fn reasons_have_texts_without_numbers_and_all_differ() {
    let texts: std::collections::BTreeSet<_> = Rejection::ALL.iter().map(|reason| reason.text()).collect();
    assert_eq!(texts.len(), Rejection::ALL.len());
    assert!(texts.iter().all(|text| !text.contains(|c: char| c.is_ascii_digit())));
}

prop_compose! {
    fn any_device()(
        vendor in "[ab]", board in "[ab]?", shell in "[ab]", platform in "[ab]?", slots in 0_u32..3,
        loaded in prop::collection::vec(0_u32..2, 0..2), sick in prop::bool::weighted(0.2),
    ) -> DeviceState {
        let health = if sick { Health::Unhealthy } else { Health::Healthy };
        DeviceState { slots, loaded, platform, health, ..mk_device(&vendor, &board, &shell) }
    }
}

prop_compose! {
    fn any_asked()(
        vendor in prop::option::of("[ab]"), board in prop::option::of("[ab]"), shell in prop::option::of("[ab]"),
        platform in prop::option::of("[ab]"), slots in 1_u32..3, loaded in prop::collection::vec("(sobel|mm)", 0..2),
        valid_on in prop::collection::vec(prop::collection::vec("[ab]".prop_map(|board| on(&board)), 0..2), 0..2),
    ) -> Requirement {
        let loaded = loaded.iter().map(|name| name.parse().unwrap()).collect();
        Requirement { vendor, board, shell, platform, slots, loaded, valid_on, ..Requirement::default() }
    }
}

prop_compose! {
    /// A node of one of few shapes.
    fn any_shaped()(
        devices in prop::collection::vec(
            (any_device(), prop::bool::weighted(0.3), 0_u64..2, prop::bool::weighted(0.3)), 0..3,
        ),
        kept_out in prop::bool::weighted(0.2), cordoned in prop::bool::weighted(0.2), names_left_out in prop::bool::weighted(0.1), known in 0_u8..4,
    ) -> NodeFacts {
        let device = |(number, (device, is_whole, usage, _)): (usize, &(DeviceState, bool, u64, bool))| DeviceState {
            id: format!("dm{number}"),
            reconfigured_part: if *is_whole { ReconfiguredPart::Board } else { ReconfiguredPart::Slot },
            usage: Millis(*usage * 100_000),
            ..device.clone()
        };
        let mut state = NodeState { devices: devices.iter().enumerate().map(device).collect(), ..mk_state() };
        let digest = |byte: u8| Some(DigestPrefix::from_bytes([byte; 16]));
        state.bitstreams = vec![mk_bitstream("sobel", 0), mk_bitstream("mm", 0)];
        state.bitstreams[0].digest = if known & 1 > 0 { digest(0xaa) } else { None };
        state.bitstreams[1].name = if known & 2 > 0 { None } else { Some("mm".to_owned()) };
        state.bitstreams[1].digest = if known & 2 > 0 { digest(0xbb) } else { None };
        state.left_out.names = names_left_out.into();
        let instances = devices.iter().enumerate().map(|(number, (.., full))| (format!("dm{number}"), u32::from(*full)));
        let boards: Vec<_> = instances.collect();
        let boards: Vec<_> = boards.iter().map(|(id, used)| (id.as_str(), *used, 1)).collect();
        state.plugin = (!kept_out).then(|| mk_plugin(&boards));
        if cordoned {
            let cordon = Cordon { reason: "fan".parse().unwrap(), since: WallTime(5) };
            state.cordon(&CordonedBoards::default().with("dm0", cordon).unwrap());
        }
        mk_node(state)
    }
}

proptest! {
    #[test]
    fn a_node_passes_if_and_only_if_one_of_its_boards_would_alone(
        devices in prop::collection::vec(any_device(), 0..4), asked in any_asked(),
    ) {
        let bitstreams = vec![mk_bitstream("sobel", 0), mk_bitstream("mm", 0)];
        let with = |devices| mk_node(NodeState { devices, bitstreams: bitstreams.clone(), ..mk_state() });
        let alone = devices.iter().any(|device| check(&asked, &with(vec![device.clone()])).is_ok());
        prop_assert_eq!(check(&asked, &with(devices)).is_ok(), alone);
    }

    #[test]
    fn a_smaller_requirement_is_rejected_by_no_more_nodes(
        devices in prop::collection::vec(any_device(), 0..4), asked in any_asked(), which in 0..6,
    ) {
        let bitstreams = vec![mk_bitstream("sobel", 0), mk_bitstream("mm", 0)];
        let node = mk_node(NodeState { devices, bitstreams, ..mk_state() });
        let mut less = asked.clone();
        match which {
            0 => less.vendor = None,
            1 => less.board = None,
            2 => less.shell = None,
            3 => less.platform = None,
            4 => less.loaded.clear(),
            _ => less.valid_on.clear(),
        }
        prop_assert!(check(&asked, &node).is_err() || check(&less, &node).is_ok());
    }

    #[test]
    fn nodes_that_share_a_verdict_by_their_shape_would_each_get_it_alone(
        nodes in prop::collection::vec(any_shaped(), 0..12), asked in any_asked(),
        bitstreams in prop::collection::vec("(sobel|mm|fft|sha256:(aa|bb){32})", 0..3),
        other in prop::option::of("(sobel|mm|sha256:(aa|cc){32})"), most: Option<bool>,
    ) {
        let ids = |names: &[String]| -> Vec<BitstreamId> {
            names.iter().filter_map(|name| name.parse().ok()).collect()
        };
        let bitstreams = ids(&bitstreams);
        let synonyms = bitstreams.iter().chain(&asked.loaded).map(|id| (id.clone(), ids(other.as_slice())));
        let max_utilization = most.map(|zero| Utilization::of(u64::from(!zero), 2));
        let asked = Requirement { synonyms: synonyms.collect(), bitstreams, max_utilization, ..asked };
        let together = Matcher::of(&asked);
        for node in &nodes {
            let alone = Matcher::of(&asked).state_matches(node.knowledge.received().unwrap());
            prop_assert_eq!(together.fit(node.known(), UnlabelledNodes::Reject), alone);
        }
    }
}
