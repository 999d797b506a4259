use super::*;
use crate::event::Merged;
use crate::node_state::{DeviceState, DigestPrefix, LeftOut};
use proptest::prelude::*;

const LENGTH: Millis = Millis::from_secs(300);
const NOW: MonotonicTime = MonotonicTime(1_760_000_123);
/// Difference between the wall clock and the monotonic clock.
const WALL_AHEAD: Millis = Millis(1_758_000_000_000);

/// What the wall clock shows at `now`.
fn wall(now: MonotonicTime) -> WallTime {
    WallTime(now.0) + WALL_AHEAD
}

fn at(now: MonotonicTime) -> Moment {
    Moment { now, wall: wall(now) }
}

fn mk_event(end: MonotonicTime, duration: u64) -> Event {
    Event {
        device: Some("dm0".to_owned()),
        ..Event::of_task(wall(end), Millis(duration), "sobel".parse().unwrap())
    }
}

fn mk_progress(task: u64, seq: u64, end: MonotonicTime, duration: u64) -> Event {
    Event { phase: Phase::Running, ..mk_final(task, seq, end, duration) }
}

fn mk_final(task: u64, seq: u64, end: MonotonicTime, duration: u64) -> Event {
    Event { identity: Some(Identity { reporter: 7, seq }), task: Some(task), ..mk_event(end, duration) }
}

fn mk_window() -> Window {
    Window::new(LENGTH).unwrap()
}

fn one_board() -> BTreeMap<String, u32> {
    BTreeMap::from([("dm0".to_owned(), 4)])
}

fn count(window: &mut Window, event: &Event) {
    window.count(event, Share::Whole, Order::Newest, at(NOW));
}

fn usage(window: &Window, now: MonotonicTime) -> u64 {
    window.measure(now, &one_board()).usage.0
}

#[test]
fn usage_is_the_overlap_of_the_task_with_the_window() {
    let mut window = mk_window();
    count(&mut window, &mk_event(NOW, 60_000));
    assert_eq!(usage(&window, NOW), 60_000);
    let measured = window.measure(NOW, &one_board());
    assert_eq!(measured.devices["dm0"].usage, Millis(60_000));
    assert_eq!(measured.buckets.usage[..5], [Millis(10_000); 5]);
    assert_eq!(measured.buckets.usage[5..].iter().map(|slice| slice.0).sum::<u64>(), 10_000);
    // Exact except for the slice that the old end of the window cuts.
    assert!(usage(&window, NOW + Millis::from_secs(239)).abs_diff(60_000) <= 1_000);
    let half = usage(&window, NOW + Millis::from_secs(270));
    assert!((29_000..=31_000).contains(&half), "{half}");
    assert_eq!(usage(&window, NOW + Millis::from_secs(301)), 0);
}

#[test]
fn a_task_longer_than_the_window_fills_one_slot_of_it() {
    let mut window = mk_window();
    count(&mut window, &mk_event(NOW, 86_400_000));
    assert_eq!(usage(&window, NOW), LENGTH.0);
}

#[test]
fn a_reconfiguration_is_no_usage_of_its_own() {
    let mut window = mk_window();
    let event = Event { reconfiguration_ms: Millis(10), ..mk_event(NOW, 0) };
    count(&mut window, &event);
    let measured = window.measure(NOW, &one_board());
    assert_eq!((measured.usage, measured.reconfiguration), (Millis::ZERO, Millis(10)));
}

#[test]
fn a_sum_spreads_from_its_first_to_its_last_moment() {
    let mut window = mk_window();
    let merged = Merged { first_seq: 1, count: 100, first_ms: wall(NOW - Millis(100_000)) };
    count(&mut window, &Event { merged: Some(merged), ..mk_event(NOW, 50_000) });
    let measured = window.measure(NOW, &one_board());
    assert_eq!(measured.usage, Millis(50_000));
    assert!(measured.buckets.usage.iter().take(9).all(|slice| slice.0.abs_diff(5_000) <= 1), "{measured:?}");
}

#[test]
fn a_part_that_was_counted_before_does_not_count_again() {
    let mut window = mk_window();
    window.count(&mk_event(NOW, 1_000), Share::Part { new: 1, of: 4 }, Order::Newest, at(NOW));
    assert_eq!(usage(&window, NOW), 250);
}

#[test]
fn the_final_event_of_a_task_replaces_its_progress() {
    let mut window = mk_window();
    count(&mut window, &mk_progress(5, 1, NOW - Millis(2_000), 1_000));
    assert_eq!(usage(&window, NOW), 1_000);
    count(&mut window, &mk_progress(5, 2, NOW - Millis(1_000), 2_000));
    assert_eq!(usage(&window, NOW), 2_000);
    count(&mut window, &mk_final(5, 3, NOW, 3_000));
    assert_eq!(usage(&window, NOW), 3_000);
    window.count(&mk_progress(5, 2, NOW, 2_000), Share::Whole, Order::Late, at(NOW));
    assert_eq!((usage(&window, NOW), window.counters().progress_skipped), (3_000, 1));
}

#[test]
fn progress_of_a_reporter_that_died_leaves_the_window_with_its_time() {
    let mut window = mk_window();
    count(&mut window, &mk_progress(5, 1, NOW, 1_000));
    window.advance(NOW + LENGTH + Millis(2_000));
    assert!(window.running.is_empty());
}

#[test]
fn events_from_the_future_are_moved_to_the_present_and_counted() {
    let mut window = mk_window();
    count(&mut window, &mk_event(NOW + Millis::from_secs(3600), 1_000));
    assert_eq!((usage(&window, NOW), window.counters().from_future), (1_000, 1));
    assert_eq!(usage(&window, NOW + LENGTH + Millis(2_000)), 0, "it fades like any other");
    count(&mut window, &Event { timestamp_ms: WallTime(u64::MAX), ..mk_event(NOW, u64::MAX) });
    assert_eq!(usage(&window, NOW), LENGTH.0 + 1_000);
}

#[test]
fn events_from_before_the_window_count_for_nothing() {
    let mut window = mk_window();
    count(&mut window, &mk_event(NOW - Millis::from_secs(301), 1_000));
    assert_eq!((usage(&window, NOW), window.counters().too_old), (0, 1));
    assert!(window.measure(NOW, &one_board()).bitstreams.is_empty());
}

#[test]
fn usage_in_the_window_keeps_its_age_when_the_wall_clock_steps() {
    for wall_after in
        [WallTime::UNIX_EPOCH, wall(NOW) - Millis::from_secs(7200), wall(NOW) + Millis::from_secs(7200)]
    {
        let mut window = mk_window();
        count(&mut window, &mk_event(NOW, 60_000));
        let later = NOW + Millis(500);
        let ended = Event { timestamp_ms: wall_after, ..mk_event(NOW, 400) };
        window.count(&ended, Share::Whole, Order::Newest, Moment { now: later, wall: wall_after });
        assert_eq!((window.counters().from_future, window.counters().too_old), (0, 0));
        assert!(usage(&window, later).abs_diff(60_400) <= 1_000);
        assert!(usage(&window, later + Millis::from_secs(100)).abs_diff(60_400) <= 1_000);
        assert_eq!(usage(&window, later + Millis::from_secs(302)), 0);
    }
}

#[test]
fn readings_of_the_clock_out_of_order_do_not_move_the_window_back() {
    let mut window = mk_window();
    count(&mut window, &mk_event(NOW, 1_000));
    assert_eq!(window.advance(NOW - Millis(700)), NOW);
    assert_eq!(usage(&window, NOW), 1_000);
}

#[test]
fn more_than_the_slots_can_do_is_never_reported() {
    let mut window = mk_window();
    for _ in 0..100 {
        count(&mut window, &mk_event(NOW, 300_000));
        count(&mut window, &Event { device: None, ..mk_event(NOW, 300_000) });
    }
    let measured = window.measure(NOW, &one_board());
    assert_eq!((measured.usage, measured.devices["dm0"].usage), (Millis(4 * LENGTH.0), Millis(4 * LENGTH.0)));
    let unknown = window.measure(NOW, &BTreeMap::new());
    assert_eq!(unknown.usage, Millis(u64::from(UNKNOWN_SLOTS) * LENGTH.0));
}

#[test]
fn a_flood_of_devices_tasks_and_bitstreams_is_bounded() {
    let mut window = mk_window();
    for n in 0..3_000_u64 {
        let mut event = mk_progress(n, n + 1, NOW, 1);
        event.device = Some(format!("d{n}"));
        event.bitstream_identifier = format!("b{n}").parse().unwrap();
        count(&mut window, &event);
        event.phase = Phase::Final;
        event.task = None;
        count(&mut window, &event);
    }
    assert_eq!((window.devices.len(), window.running.len()), (MAX_DEVICES, MAX_RUNNING));
    let measured = window.measure(NOW, &BTreeMap::new());
    assert_eq!(measured.bitstreams.len(), MAX_RECENT);
    assert_eq!(measured.bitstreams[0].name.as_deref(), Some("b2999"));
}

#[test]
fn bitstreams_are_listed_by_last_use_and_once() {
    let mut window = mk_window();
    let digest = format!("sha256:{}", "ab".repeat(32)).parse().unwrap();
    let used = |ago: u64, name: &str| Event {
        bitstream_identifier: name.parse().unwrap(),
        ..mk_event(NOW - Millis(ago), 1)
    };
    count(&mut window, &Event { digest: Some(digest), ..used(5_000, "mm") });
    count(&mut window, &used(4_000, "sobel"));
    count(&mut window, &used(3_000, &digest.to_string()));
    count(&mut window, &used(9_000, "sobel"));
    let bitstreams = window.measure(NOW, &one_board()).bitstreams;
    let mm = RecentBitstream {
        name: Some("mm".to_owned()),
        digest: Some(DigestPrefix::from(&digest)),
        last_used_ago: Millis(3_000),
    };
    let sobel =
        RecentBitstream { name: Some("sobel".to_owned()), digest: None, last_used_ago: Millis(4_000) };
    assert_eq!(bitstreams, [mm, sobel]);
}

fn as_state(window: &Window, now: MonotonicTime) -> NodeState {
    let WindowMeasurement { usage, reconfiguration, buckets, devices, bitstreams } =
        window.measure(now, &one_board());
    let of_device = devices.get("dm0").copied().unwrap_or_default();
    NodeState {
        boot: 1,
        seq: 1,
        heartbeat: Millis(60_000),
        measured_at: wall(now),
        window: LENGTH,
        usage,
        reconfiguration,
        devices: vec![DeviceState {
            id: "dm0".to_owned(),
            vendor: String::new(),
            platform: String::new(),
            board: String::new(),
            shell: String::new(),
            slots: 4,
            reconfigured_part: crate::device::ReconfiguredPart::Slot,
            loaded: Vec::new(),
            usage: of_device.usage,
            reconfiguration: of_device.reconfiguration,
            queued: 0,
            health: crate::device::Health::Healthy,
        }],
        bitstreams,
        buckets,
        plugin: None,
        cordons: BTreeMap::new(),
        left_out: LeftOut::default(),
    }
}

#[test]
fn a_published_state_restores_the_window() {
    let mut window = mk_window();
    count(&mut window, &mk_event(NOW, 60_000));
    count(&mut window, &Event { device: None, ..mk_event(NOW - Millis(30_000), 10_000) });
    count(&mut window, &Event { reconfiguration_ms: Millis(12), ..mk_event(NOW, 0) });
    let later = NOW + Millis(20_000);
    let mut seeded = mk_window();
    seeded.seed(&as_state(&window, NOW), at(later));
    let (was, is) = (window.measure(later, &one_board()), seeded.measure(later, &one_board()));
    assert_eq!(
        (is.usage, is.reconfiguration, &is.bitstreams),
        (was.usage, was.reconfiguration, &was.bitstreams)
    );
    assert!(is.devices["dm0"].usage.0.abs_diff(was.devices["dm0"].usage.0) <= 100);
}

#[test]
fn lengths_that_make_no_sense_are_refused() {
    assert!(Window::new(Millis(999)).is_err());
    assert!(Window::new(MAX_LENGTH + Millis(1)).is_err());
    assert!(Window::new(MIN_LENGTH).is_ok());
}

prop_compose! {
    fn any_event()(
        ago in -5_000_i64..400_000, duration in 0_u64..500_000, reconfiguration in 0_u64..50,
        device in prop::option::of(0_u8..3), spread in prop::option::of(0_u64..400_000),
        task in 0_u64..5, running in prop::bool::ANY, step in -30_000_i64..30_000,
    ) -> (Event, i64) {
        let end = MonotonicTime(NOW.0.checked_add_signed(-ago).unwrap());
        let event = Event {
            reconfiguration_ms: Millis(reconfiguration),
            device: device.map(|device| format!("dm{device}")),
            phase: if running { Phase::Running } else { Phase::Final },
            merged: spread.filter(|_| !running).map(|spread| Merged { first_seq: 1, count: 2, first_ms: wall(end - Millis(spread)) }),
            ..mk_final(task, 1, end, duration)
        };
        (event, step)
    }
}

proptest! {
    #[test]
    fn usage_never_exceeds_what_the_slots_can_do(
        events in prop::collection::vec(any_event(), 1..30),
        length in 1_000_u64..1_000_000,
        slots in prop::collection::btree_map("dm[0-2]", 1_u32..5, 1..3),
    ) {
        let mut window = Window::new(Millis(length)).unwrap();
        let mut now = NOW;
        for (event, step) in events {
            now = MonotonicTime(now.0.checked_add_signed(step).unwrap());
            window.count(&event, Share::Whole, Order::Newest, at(now));
            let measured = window.measure(now, &slots);
            let all: u64 = slots.values().map(|slots| u64::from(*slots)).sum();
            prop_assert!(measured.usage.0 <= length * all, "{:?}", measured);
            prop_assert!(measured.reconfiguration.0 <= length * all);
            for (id, device) in &measured.devices {
                prop_assert!(device.usage.0 <= length * u64::from(slots[id]));
            }
            prop_assert!(measured.buckets.usage.iter().all(|slice| slice.0 <= measured.buckets.bucket.0 * all));
        }
    }

    #[test]
    fn within_the_window_nothing_is_lost_and_order_does_not_matter(
        events in prop::collection::vec((0_u64..150_000, 0_u64..3_000), 1..30), seed in any::<u64>(),
    ) {
        let spread: Vec<_> = events.iter().map(|(ago, duration)| mk_event(NOW - Millis(*ago), *duration)).collect();
        let mut shuffled = spread.clone();
        shuffled.sort_by_key(|event| event.timestamp_ms.0.wrapping_mul(seed | 1));
        let roomy = BTreeMap::from([("dm0".to_owned(), 1000)]);
        let total = |events: &[Event]| {
            let mut window = mk_window();
            events.iter().for_each(|event| count(&mut window, event));
            window.measure(NOW, &roomy).usage.0
        };
        let expected: u64 = events.iter().map(|(_, duration)| duration).sum();
        prop_assert_eq!(total(&spread), expected);
        prop_assert_eq!(total(&shuffled), expected);
    }

    #[test]
    fn a_window_survives_a_round_trip_through_json(events in prop::collection::vec(any_event(), 1..30)) {
        let mut window = mk_window();
        events.iter().for_each(|(event, _)| count(&mut window, event));
        let text = serde_json::to_string(&window).unwrap();
        prop_assert_eq!(serde_json::from_str::<Window>(&text).unwrap(), window);
    }
}
