use super::*;
use fpga_core::cordon::CordonedBoards;
use fpga_core::fixtures::{self, mk_board, mk_plugin};
use fpga_core::node_state::{PluginState, RecentBitstream};
use fpga_core::units::WallTime;

const INTERVALS: Intervals = Intervals { min: Duration::from_secs(10), heartbeat: Duration::from_secs(60) };

fn mk_device(id: &str) -> DeviceState {
    DeviceState { board: String::new(), shell: String::new(), ..mk_board(id, &[]) }
}

fn mk_state(measured_at: u64) -> NodeState {
    let devices = vec![mk_device("dm0")];
    NodeState { measured_at: WallTime(measured_at), devices, ..fixtures::mk_state() }
}

fn mk_policy(state: &NodeState, at: Instant) -> Policy {
    let mut policy = Policy::new(INTERVALS);
    assert_eq!(policy.decide(state, at), Decision::Write(Reason::First));
    policy.wrote(state.clone(), at, 0.0);
    // The echo, so that tests begin with a policy that has nothing left to repeat.
    policy.wrote(state.clone(), at, 0.0);
    policy
}

fn after(at: Instant, seconds: u64) -> Instant {
    at + Duration::from_secs(seconds)
}

#[test]
fn without_a_change_only_the_heart_beats() {
    let at = Instant::now();
    let state = mk_state(1_000_000);
    let policy = mk_policy(&state, at);
    assert_eq!(policy.decide(&state, after(at, 50)), Decision::Wait(Duration::from_secs(10)));
    assert_eq!(policy.decide(&state, after(at, 60)), Decision::Write(Reason::Heartbeat));
}

#[test]
fn a_meaningful_change_waits_for_the_interval_and_noise_does_not_count() {
    let at = Instant::now();
    let policy = mk_policy(&mk_state(1_000_000), at);
    let mut noise = mk_state(1_005_000);
    noise.usage = Millis(100);
    assert_eq!(policy.decide(&noise, after(at, 5)), Decision::Wait(Duration::from_secs(55)));
    let mut busy = noise.clone();
    busy.usage = Millis(1_000);
    assert_eq!(policy.decide(&busy, after(at, 5)), Decision::Wait(Duration::from_secs(5)));
    assert_eq!(policy.decide(&busy, after(at, 10)), Decision::Write(Reason::Changed));
    let mut used = noise;
    let sobel = RecentBitstream { name: Some("sobel".to_owned()), digest: None, last_used_ago: Millis(1) };
    used.bitstreams.push(sobel);
    assert_eq!(policy.decide(&used, after(at, 10)), Decision::Write(Reason::Changed));
}

#[test]
fn a_busy_board_that_stays_as_busy_as_it_was_is_no_change() {
    let at = Instant::now();
    let mut busy = mk_state(1_000_000);
    busy.usage = Millis(100_000);
    busy.buckets.usage = vec![Millis(100_000)];
    let policy = mk_policy(&busy, at);
    busy.usage = Millis(109_000);
    assert!(matches!(policy.decide(&busy, after(at, 20)), Decision::Wait(_)));
    busy.usage = Millis(111_000);
    assert_eq!(policy.decide(&busy, after(at, 20)), Decision::Write(Reason::Changed));
}

#[test]
fn usage_that_fades_as_readers_reckon_is_no_change() {
    let at = Instant::now();
    let mut busy = mk_state(1_000_000);
    busy.usage = Millis(100_000);
    // All usage leaves the window within 20 s.
    busy.buckets.usage = [vec![Millis::ZERO; 28], vec![Millis(50_000); 2]].concat();
    let policy = mk_policy(&busy, at);
    // The result does not depend on the wall clock.
    for measured_at in [1_020_000, 9_000_000, 1] {
        assert!(matches!(policy.decide(&mk_state(measured_at), after(at, 20)), Decision::Wait(_)));
        assert_eq!(policy.decide(&mk_state(measured_at), after(at, 13)), Decision::Write(Reason::Changed));
    }
}

#[test]
fn what_lets_pods_in_is_written_at_once_but_not_in_a_flood() {
    let at = Instant::now();
    let mut sick = mk_state(1_000_000);
    sick.devices[0].health = Health::Unhealthy;
    let policy = mk_policy(&sick, at);
    let well = mk_state(1_001_000);
    assert_eq!(policy.decide(&well, after(at, 1)), Decision::Write(Reason::Urgent));
    let soon = at + Duration::from_millis(400);
    assert_eq!(policy.decide(&well, soon), Decision::Wait(Duration::from_millis(600)));

    let policy = mk_policy(&well, at);
    let mut more = well;
    more.devices.push(mk_device("dm1"));
    assert_eq!(policy.decide(&more, after(at, 1)), Decision::Write(Reason::Urgent));
    assert!(matches!(policy.decide(&sick, after(at, 1)), Decision::Wait(_)), "the bad news can wait");
    assert_eq!(policy.decide(&sick, after(at, 10)), Decision::Write(Reason::Changed));
}

#[test]
fn what_lets_pods_in_is_written_twice_in_case_the_scheduler_knew_before_the_extender() {
    let at = Instant::now();
    let state = mk_state(1_000_000);
    let mut policy = Policy::new(INTERVALS);
    policy.wrote(state.clone(), at, 0.0);
    let soon = at + Duration::from_millis(400);
    assert_eq!(policy.decide(&state, soon), Decision::Wait(Duration::from_millis(600)));
    assert_eq!(policy.decide(&state, after(at, 1)), Decision::Write(Reason::Echo));
    policy.wrote(state.clone(), after(at, 1), 0.0);
    assert_eq!(policy.decide(&state, after(at, 2)), Decision::Wait(Duration::from_secs(59)));

    let mut nothing = state;
    nothing.devices.clear();
    let mut policy = Policy::new(INTERVALS);
    policy.wrote(nothing.clone(), at, 0.0);
    assert_eq!(policy.decide(&nothing, after(at, 1)), Decision::Wait(Duration::from_secs(59)));
}

#[test]
fn a_bitstream_that_moves_into_a_slot_is_a_change_wherever_it_is_listed() {
    let at = Instant::now();
    let entry =
        |name: &str| RecentBitstream { name: Some(name.to_owned()), digest: None, last_used_ago: Millis(1) };
    let mut old = mk_state(1_000_000);
    old.bitstreams = vec![entry("a"), entry("b")];
    old.devices[0].loaded = vec![0];
    let policy = mk_policy(&old, at);
    let mut same = old.clone();
    same.bitstreams.reverse();
    same.devices[0].loaded = vec![1];
    assert!(matches!(policy.decide(&same, after(at, 10)), Decision::Wait(_)));
    let mut other = old;
    other.devices[0].loaded = Vec::new();
    assert!(matches!(policy.decide(&other, after(at, 9)), Decision::Wait(_)));
    assert_eq!(policy.decide(&other, after(at, 10)), Decision::Write(Reason::Changed));
}

/// A state with a board that has `names` in its slots.
fn holding(measured_at: u64, names: &[&str]) -> NodeState {
    let mut state = mk_state(measured_at);
    for name in names {
        let index = u32::try_from(state.bitstreams.len()).unwrap();
        state.devices[0].loaded.push(index);
        let name = Some((*name).to_owned());
        state.bitstreams.push(RecentBitstream { name, digest: None, last_used_ago: Millis(1) });
    }
    state
}

#[test]
fn a_bitstream_that_is_loaded_is_written_at_once_for_pods_that_ask_for_it() {
    let at = Instant::now();
    let mut policy = mk_policy(&holding(1_000_000, &["a"]), at);
    let second = holding(1_001_000, &["a", "b"]);
    let soon = at + Duration::from_millis(400);
    assert_eq!(policy.decide(&second, soon), Decision::Wait(Duration::from_millis(600)));
    assert_eq!(policy.decide(&second, after(at, 1)), Decision::Write(Reason::Loaded));
    let mut sick = second.clone();
    sick.devices[0].health = Health::Unhealthy;
    assert!(matches!(policy.decide(&sick, after(at, 1)), Decision::Wait(_)), "nobody comes in there");
    policy.wrote(second.clone(), after(at, 1), 0.0);
    // The echo, for pods that kube-scheduler tried before the extender knew.
    assert_eq!(policy.decide(&second, after(at, 2)), Decision::Write(Reason::Echo));
    policy.wrote(second.clone(), after(at, 2), 0.0);
    assert_eq!(policy.decide(&second, after(at, 3)), Decision::Wait(Duration::from_secs(59)));

    // Two writes were 9 s early. So the next write of this kind waits for two intervals, and other changes wait for
    // as long as three writes take.
    let third = holding(1_003_000, &["c"]);
    assert_eq!(policy.decide(&third, after(at, 3)), Decision::Wait(Duration::from_secs(18)));
    assert_eq!(policy.decide(&third, after(at, 21)), Decision::Write(Reason::Loaded));
    let evicted = holding(1_003_000, &["a"]);
    assert_eq!(policy.decide(&evicted, after(at, 21)), Decision::Wait(Duration::from_secs(9)));
    assert_eq!(policy.decide(&evicted, after(at, 30)), Decision::Write(Reason::Changed));
}

#[test]
fn bitstreams_that_evict_each_other_cause_no_more_writes_than_other_changes_do() {
    for (intervals, seconds) in [(INTERVALS, 1_000), (Intervals::dictated(Duration::from_secs(250)), 25_000)]
    {
        for period in [1_u64, 7, 11, 60, 251, 300] {
            let begin = Instant::now();
            let mut policy = Policy::new(intervals);
            policy.wrote(holding(0, &["a"]), begin, 0.0);
            let (mut writes, mut early) = (0, 0);
            for second in 1..=seconds {
                let names = if second / period % 2 == 0 { ["a"] } else { ["b"] };
                let mut state = holding(second * 1_000, &names);
                state.usage = Millis(second * 619 % 997 * 600);
                let now = after(begin, second);
                if let Decision::Write(reason) = policy.decide(&state, now) {
                    policy.wrote(state, now, 0.0);
                    writes += 1;
                    early += u64::from(reason == Reason::Loaded);
                }
            }
            let most = seconds / intervals.min.as_secs() + 3;
            assert!(writes <= most, "{writes} writes, {most} intervals, period {period}");
            assert!(early > 0, "period {period}");
        }
    }
}

#[test]
fn jitter_moves_writes_apart_but_never_past_the_heartbeat() {
    let at = Instant::now();
    let state = mk_state(1_000_000);
    let mut policy = Policy::new(INTERVALS);
    policy.wrote(state.clone(), at, 1.0);
    assert_eq!(policy.decide(&state, after(at, 54)), Decision::Write(Reason::Heartbeat));
}

#[test]
fn while_an_extender_dictates_changes_wait_and_what_lets_pods_in_does_not() {
    let at = Instant::now();
    let mut policy = mk_policy(&mk_state(1_000_000), at);
    let dictated = Intervals::dictated(Duration::from_secs(250));
    policy.set_intervals(dictated, at, 1.0);
    let mut busy = mk_state(1_030_000);
    busy.usage = Millis(100_000);
    assert!(matches!(policy.decide(&busy, after(at, 53)), Decision::Wait(_)));
    let heartbeat = Decision::Write(Reason::Heartbeat);
    assert_eq!(policy.decide(&busy, after(at, 60)), heartbeat, "what is there declares a minute");
    policy.wrote(busy.clone(), after(at, 60), 1.0);
    busy.usage = Millis(200_000);
    assert!(matches!(policy.decide(&busy, after(at, 60 + 249)), Decision::Wait(_)));
    assert_eq!(policy.decide(&busy, after(at, 60 + 250)), Decision::Write(Reason::Changed));
    busy.devices.push(mk_device("dm1"));
    assert_eq!(policy.decide(&busy, after(at, 62)), Decision::Write(Reason::Urgent));
}

#[test]
fn without_the_streams_writes_begin_again_spread_over_the_interval() {
    let at = Instant::now();
    let mut busy = mk_state(1_030_000);
    busy.usage = Millis(100_000);
    let lost = after(at, 200);
    let mut waits = Vec::new();
    for jitter in [0.0, 0.25, 0.5, 0.75, 1.0] {
        let mut policy = Policy::new(Intervals::dictated(Duration::from_secs(250)));
        policy.wrote(mk_state(1_000_000), at, 0.0);
        policy.wrote(mk_state(1_000_000), at, 0.0);
        policy.set_intervals(INTERVALS, lost, jitter);
        let wait = match policy.decide(&busy, lost) {
            Decision::Wait(wait) => wait,
            Decision::Write(_) => Duration::ZERO,
        };
        assert_eq!(policy.decide(&busy, lost + wait), Decision::Write(Reason::Changed));
        waits.push(wait);
    }
    waits.sort_unstable();
    waits.dedup();
    assert_eq!(waits.len(), 5, "{waits:?}");
    assert!(waits[0] <= Duration::from_secs(2) && waits[4] <= INTERVALS.min, "{waits:?}");
}

/// Writes per second of `nodes` busy nodes between 20 and 40 minutes after their start, with a look every second.
fn writes_per_second(nodes: u32, intervals: Intervals) -> f64 {
    let begin = Instant::now();
    let mut jitter = fpga_net::jitter::Jitter::new();
    let mut writes = 0_u32;
    for _ in 0..nodes {
        let mut policy = Policy::new(intervals);
        let started = jitter.fraction();
        for look in 0..2400_u32 {
            let now = begin + Duration::from_secs_f64(started + f64::from(look));
            let mut state = mk_state(1_000_000 + u64::from(look) * 1_000);
            // Always differs from what readers compute of the last state.
            state.usage = Millis(u64::from(look * 619 % 997) * 600);
            if let Decision::Write(_) = policy.decide(&state, now) {
                policy.wrote(state, now, jitter.fraction());
                writes += u32::from(look >= 1200);
            }
        }
    }
    f64::from(writes) / 1200.0
}

#[test]
fn five_thousand_busy_nodes_that_stream_write_twenty_times_a_second_at_most() {
    let dictated = Intervals::dictated(pacing::write_interval(5_000).into());
    // Nodes are independent, so a part of them makes the same part of the writes.
    let streaming = writes_per_second(200, dictated) * 25.0;
    assert!((10.0..=20.0).contains(&streaming), "{streaming} writes/s");
    let alone = writes_per_second(200, INTERVALS) * 25.0;
    assert!((300.0..=500.0).contains(&alone), "one write per 10 to 15 s and node: {alone} writes/s");
}

#[test]
fn a_bitstream_that_is_no_longer_on_a_board_of_another_kind_is_written_as_one_that_is_loaded() {
    let at = Instant::now();
    let mut in_the_way = mk_state(1_000_000);
    let digest = Some(DigestPrefix::from(&fpga_core::bitstream::Digest::from_bytes([7; 32])));
    in_the_way.bitstreams = vec![RecentBitstream { name: None, digest, last_used_ago: Millis(1) }];
    in_the_way.devices.push(DeviceState { board: "s10".to_owned(), ..mk_device("dm1") });
    in_the_way.devices[0].loaded = vec![0];
    let mut evicted = in_the_way.clone();
    evicted.devices[0].loaded.clear();
    let policy = mk_policy(&in_the_way, at);
    assert_eq!(policy.decide(&evicted, after(at, 1)), Decision::Write(Reason::Loaded));
    let mut gone = in_the_way.clone();
    gone.devices.remove(0);
    assert_eq!(policy.decide(&gone, after(at, 1)), Decision::Write(Reason::Closed), "a board has left");
    // Where all boards are of one kind, or the other one is not healthy, no pod waits for this.
    let one_kind = |state: &NodeState| {
        let mut state = state.clone();
        state.devices[1].board.clear();
        state
    };
    let policy = mk_policy(&one_kind(&in_the_way), at);
    assert!(matches!(policy.decide(&one_kind(&evicted), after(at, 1)), Decision::Wait(_)));
    let policy = mk_policy(&in_the_way, at);
    evicted.devices[1].health = Health::Unhealthy;
    assert!(matches!(policy.decide(&evicted, after(at, 1)), Decision::Wait(_)));
}

#[test]
fn what_the_node_plugin_can_not_serve_any_more_is_written_at_once_and_so_is_its_return() {
    let at = Instant::now();
    let with = |plugin: Option<PluginState>| NodeState { plugin, ..mk_state(1_000_000) };
    let serving = mk_plugin(&[("dm0", 3, 16)]);
    let late = PluginState { heartbeat: Heartbeat::Late, ..serving.clone() };
    let mut kept_off = serving.clone();
    kept_off.report.kept_off = ["rs-1".to_owned()].into();
    for closed in [late, kept_off, mk_plugin(&[("dm0", 16, 16)]), mk_plugin(&[])] {
        let policy = mk_policy(&with(Some(serving.clone())), at);
        assert_eq!(policy.decide(&with(Some(closed.clone())), after(at, 1)), Decision::Write(Reason::Closed));
        let policy = mk_policy(&with(Some(closed)), at);
        assert_eq!(
            policy.decide(&with(Some(serving.clone())), after(at, 1)),
            Decision::Write(Reason::Urgent)
        );
    }
    // The pods of a board that has no room for more may have to go, too.
    let full = mk_plugin(&[("dm0", 16, 16)]);
    let mut wanted = full.clone();
    wanted.report.wanted = [("dm0".to_owned(), "uid-of-a-pod".to_owned())].into();
    for closed in [wanted, mk_plugin(&[])] {
        let policy = mk_policy(&with(Some(full.clone())), at);
        assert_eq!(policy.decide(&with(Some(closed)), after(at, 1)), Decision::Write(Reason::Closed));
    }
    let without_boards = NodeState { devices: Vec::new(), ..with(Some(full.clone())) };
    let policy = mk_policy(&with(Some(full)), at);
    assert_eq!(policy.decide(&without_boards, after(at, 1)), Decision::Write(Reason::Closed));
    let policy = mk_policy(&with(Some(serving)), at);
    let one_more = with(Some(mk_plugin(&[("dm0", 4, 16)])));
    let wait = Decision::Wait(Duration::from_secs(59));
    assert_eq!(policy.decide(&one_more, after(at, 1)), wait, "it decides about no pod");
}

#[test]
fn a_board_that_goes_out_of_rotation_is_written_at_once_and_so_is_its_return() {
    let at = Instant::now();
    let in_rotation = mk_state(1_000_000);
    let mut policy = mk_policy(&in_rotation, at);
    let mut cordoned = mk_state(1_001_000);
    cordoned.cordon(&CordonedBoards::parse(r#"{"dm0":{"reason":"fan","sinceMs":5}}"#).unwrap());
    assert_eq!(policy.decide(&cordoned, after(at, 1)), Decision::Write(Reason::Closed));
    policy.wrote(cordoned.clone(), after(at, 1), 0.0);
    let mut renamed = mk_state(1_002_000);
    renamed.cordon(&CordonedBoards::parse(r#"{"dm0":{"reason":"hot","sinceMs":5}}"#).unwrap());
    assert_eq!(policy.decide(&renamed, after(at, 2)), Decision::Write(Reason::Closed), "another reason");
    assert_eq!(policy.decide(&in_rotation, after(at, 2)), Decision::Write(Reason::Urgent));
}
