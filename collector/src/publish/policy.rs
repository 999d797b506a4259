//! When the annotation is written. Pure: every write wakes all who watch nodes, so it is done on change and seldom, but
//! at once where a rejected pod may wait for it.

use fpga_core::device::Health;
use fpga_core::node_state::{DeviceState, DigestPrefix, NodeState};
use fpga_core::pacing;
use fpga_core::units::Millis;
use std::time::{Duration, Instant};

/// Urgent writes are this far apart at least: a board that flaps must not flood the cluster.
const URGENT_INTERVAL: Duration = Duration::from_secs(1);
/// What lets pods in is written a second time so much later. kube-scheduler and the extender learn of a write from watches
/// of their own: were kube-scheduler's ahead by a millisecond, it would try a waiting pod before the extender knows, and
/// not again before the next write.
const ECHO: Duration = Duration::from_secs(1);
/// After a write out of turn (the first, an urgent one, one that tells of another heartbeat) the next comes no sooner.
const AFTER_OUT_OF_TURN: Duration = Duration::from_secs(10);
/// A figure that is off by more than this share of itself is a change: nodes are ranked against each other, so a lightly
/// used board's first second counts as much as a busy one's next minute.
const RELATIVE_SHARE: u64 = 10;
/// Usage below this share of what the slots can do in the window (0.12 s for 4 slots and 5 min) is noise.
const USAGE_SHARE: u64 = 10_000;
/// The same for reconfiguration time, of which there is far less.
const RECONFIGURATION_SHARE: u64 = 100_000;

/// How often to write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Intervals {
    /// The shortest time between two writes on change.
    pub min: Duration,
    /// The longest time between two writes.
    pub heartbeat: Duration,
}

impl Intervals {
    /// Those that go with an interval that an extender dictates.
    pub fn dictated(write_interval: Duration) -> Self {
        Self { min: write_interval, heartbeat: pacing::heartbeat(write_interval.into()).into() }
    }
}

/// What to do now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Decision {
    /// Write.
    Write(Reason),
    /// Nothing for so long, unless the state changes.
    Wait(Duration),
}

/// Why to write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reason {
    /// Nothing was written yet.
    First,
    /// The node can take pods now that it couldn't before.
    Urgent,
    /// The same once more, for pods that were tried before the extender knew.
    Echo,
    /// A slot holds a bitstream that it did not: pods that ask for it loaded may come in.
    Loaded,
    /// Something changed meaningfully.
    Changed,
    /// It is time.
    Heartbeat,
}

/// Remembers the last write.
#[derive(Debug)]
pub struct Policy {
    intervals: Intervals,
    last: Option<Written>,
    /// When the last write told of a bitstream that was loaded.
    loaded_at: Option<Instant>,
}

#[derive(Debug)]
struct Written {
    state: NodeState,
    at: Instant,
    /// Intervals until the next write, with jitter: nodes that started together don't write together for ever.
    min: Duration,
    heartbeat: Duration,
    /// Whether it let pods in that were rejected before.
    let_pods_in: bool,
}

impl Policy {
    /// A policy for a node that was not written yet.
    pub const fn new(intervals: Intervals) -> Self {
        Self { intervals, last: None, loaded_at: None }
    }

    /// How often it writes.
    pub const fn intervals(&self) -> Intervals {
        self.intervals
    }

    /// From `now` on it writes at other intervals; `jitter` is between 0 and 1.
    ///
    /// The heartbeat that was declared last is kept to, for the annotation that is there counts on it. Where writes
    /// get more frequent they begin somewhere in the new interval: a replica that dies takes many streams with it. Where
    /// they get rarer, the one that tells so comes somewhere in the heartbeat: many streams begin together, too.
    pub fn set_intervals(&mut self, intervals: Intervals, now: Instant, jitter: f64) {
        if intervals == self.intervals {
            return;
        }
        let more_often = intervals.min < self.intervals.min;
        self.intervals = intervals;
        let Some(last) = &mut self.last else { return };
        let (min, heartbeat) = spread(intervals, jitter);
        if more_often {
            let at_most_ago = intervals.min.mul_f64(jitter.clamp(0.0, 1.0));
            last.at = last.at.max(now.checked_sub(at_most_ago).unwrap_or(now));
        } else {
            last.heartbeat = somewhere_in(last.heartbeat, jitter);
        }
        last.min = min;
        last.heartbeat = last.heartbeat.min(heartbeat);
    }

    /// Notes that `state` was written at `at`; `jitter` is between 0 and 1.
    pub fn wrote(&mut self, state: NodeState, at: Instant, jitter: f64) {
        let (mut min, heartbeat) = spread(self.intervals, jitter);
        let turn = |last: &Written| last.min.min(self.intervals.min);
        let in_turn =
            self.last.as_ref().is_some_and(|last| at.saturating_duration_since(last.at) >= turn(last));
        if !in_turn {
            // Nodes that were told something at one moment would write together for many intervals.
            min = somewhere_in(self.intervals.min, jitter);
        }
        let let_pods_in = match &self.last {
            Some(last) => lets_pods_in(&last.state, &state),
            None => !state.devices.is_empty(),
        };
        if let Some(last) = self.last.as_ref().filter(|last| has_loaded(&last.state, &state)) {
            self.loaded_at = Some(at);
            if !let_pods_in {
                // Such writes come as often as a board is reconfigured. The time that this one came early is time that the
                // next one comes late: both together are as many as without it.
                let early = last.min.saturating_sub(at.saturating_duration_since(last.at));
                min = spread(self.intervals, jitter).0 + early;
            }
        }
        self.last = Some(Written { state, at, min, heartbeat, let_pods_in });
    }

    /// How long after `last` a bitstream that was loaded since may be told of: at once, but once per interval, for boards
    /// that load in turns what others evict.
    fn loaded_due(&self, last: &Written, current: &NodeState) -> Option<Duration> {
        if !has_loaded(&last.state, current) {
            return None;
        }
        let again = self
            .loaded_at
            .map_or(Duration::ZERO, |at| (at + self.intervals.min).saturating_duration_since(last.at));
        Some(again.max(URGENT_INTERVAL.min(last.min)))
    }

    /// What to do with `current` at `now`.
    pub fn decide(&self, current: &NodeState, now: Instant) -> Decision {
        let Some(last) = &self.last else { return Decision::Write(Reason::First) };
        let passed = now.saturating_duration_since(last.at);
        if passed >= last.heartbeat {
            return Decision::Write(Reason::Heartbeat);
        }
        let (reason, due) = if lets_pods_in(&last.state, current) {
            (Reason::Urgent, URGENT_INTERVAL.min(last.min))
        } else if last.let_pods_in {
            (Reason::Echo, ECHO.min(last.heartbeat))
        } else if differs(&last.state, current) {
            match self.loaded_due(last, current) {
                Some(due) if due < last.min => (Reason::Loaded, due),
                _ => (Reason::Changed, last.min),
            }
        } else {
            return Decision::Wait(last.heartbeat - passed);
        };
        if passed >= due {
            Decision::Write(reason)
        } else {
            Decision::Wait((due - passed).min(last.heartbeat - passed))
        }
    }
}

/// Shortest and longest time until the next write, with jitter: the latter never later than was declared.
fn spread(Intervals { min, heartbeat }: Intervals, jitter: f64) -> (Duration, Duration) {
    let jitter = jitter.clamp(0.0, 1.0);
    (min.mul_f64(1.0 + jitter / 5.0), heartbeat.mul_f64(1.0 - jitter / 10.0))
}

/// A time of at most `interval`, by `jitter`.
fn somewhere_in(interval: Duration, jitter: f64) -> Duration {
    interval.mul_f64(jitter.clamp(0.0, 1.0)).max(AFTER_OUT_OF_TURN.min(interval))
}

/// Whether a pod that was rejected for `old` may be accepted for `new`: only such a write makes kube-scheduler try it
/// again.
fn lets_pods_in(old: &NodeState, new: &NodeState) -> bool {
    new.devices.iter().filter(|device| device.health == Health::Healthy).any(|device| {
        let before = old.devices.iter().find(|before| before.id == device.id);
        before.is_none_or(|before| {
            before.health != Health::Healthy || before.slots < device.slots || facts(before) != facts(device)
        })
    })
}

/// Whether a healthy device of `new` holds a bitstream that it did not hold in `old`: a pod that asks for it loaded was
/// rejected for `old`.
fn has_loaded(old: &NodeState, new: &NodeState) -> bool {
    new.devices.iter().filter(|device| device.health == Health::Healthy).any(|device| {
        let before = old.devices.iter().find(|before| before.id == device.id);
        let before = before.map_or_else(Vec::new, |before| loaded(old, before));
        loaded(new, device).iter().any(|entry| !before.contains(entry))
    })
}

/// Whether `new` would be scored or filtered differently from what a reader makes of `old` by now.
fn differs(old: &NodeState, new: &NodeState) -> bool {
    let age = new.measured_at - old.measured_at;
    let slots = new.devices.iter().map(|device| u64::from(device.slots)).sum::<u64>().max(1);
    let capacity = new.window.0.saturating_mul(slots);
    let off = |is: Millis, was: Millis, share: u64| {
        is.0.abs_diff(was.0) > (was.0 / RELATIVE_SHARE).max(capacity / share).max(1)
    };
    off(new.usage, old.usage_at(age), USAGE_SHARE)
        || off(new.reconfiguration, old.reconfiguration_at(age), RECONFIGURATION_SHARE)
        || new.devices.len() != old.devices.len()
        || new.devices.iter().zip(&old.devices).any(|(is, was)| device_differs((old, was), (new, is)))
        || has_news(old, new)
}

fn device_differs((old, was): (&NodeState, &DeviceState), (new, is): (&NodeState, &DeviceState)) -> bool {
    (&is.id, facts(is), is.slots, is.health, is.queued > 0)
        != (&was.id, facts(was), was.slots, was.health, was.queued > 0)
        || loaded(new, is) != loaded(old, was)
}

fn facts(device: &DeviceState) -> [&str; 4] {
    [&device.vendor, &device.platform, &device.board, &device.shell]
}

type LoadedEntry<'a> = (Option<DigestPrefix>, Option<&'a str>);

/// Name and digest of what a device's slots hold, in no order that matters.
fn loaded<'a>(state: &'a NodeState, device: &DeviceState) -> Vec<LoadedEntry<'a>> {
    let entry = |index: &u32| state.bitstreams.get(*index as usize);
    let mut loaded: Vec<_> =
        device.loaded.iter().filter_map(entry).map(|entry| (entry.digest, entry.name.as_deref())).collect();
    loaded.sort_unstable();
    loaded
}

/// Whether a bitstream was used that the old state does not list; that one fades is for the reader to reckon.
fn has_news(old: &NodeState, new: &NodeState) -> bool {
    let listed = |digest, name: &Option<String>| {
        old.bitstreams.iter().any(|entry| (entry.digest, &entry.name) == (digest, name))
    };
    new.bitstreams.iter().any(|entry| !listed(entry.digest, &entry.name))
}

#[cfg(test)]
mod cluster;

#[cfg(test)]
mod tests {
    use super::*;
    use fpga_core::node_state::{Buckets, RecentBitstream};

    const INTERVALS: Intervals =
        Intervals { min: Duration::from_secs(10), heartbeat: Duration::from_secs(60) };

    fn mk_device(id: &str) -> DeviceState {
        DeviceState {
            id: id.to_owned(),
            vendor: "intel".to_owned(),
            platform: String::new(),
            board: String::new(),
            shell: String::new(),
            slots: 4,
            loaded: Vec::new(),
            usage: Millis::ZERO,
            reconfiguration: Millis::ZERO,
            queued: 0,
            health: Health::Healthy,
        }
    }

    fn mk_state(measured_at: u64) -> NodeState {
        NodeState {
            boot: 1,
            seq: 1,
            heartbeat: Millis(60_000),
            measured_at: Millis(measured_at),
            window: Millis(300_000),
            usage: Millis::ZERO,
            reconfiguration: Millis::ZERO,
            devices: vec![mk_device("dm0")],
            bitstreams: Vec::new(),
            buckets: Buckets { bucket: Millis(10_000), ..Buckets::default() },
            truncated: 0,
        }
    }

    fn mk_policy(state: &NodeState, at: Instant) -> Policy {
        let mut policy = Policy::new(INTERVALS);
        assert_eq!(policy.decide(state, at), Decision::Write(Reason::First));
        policy.wrote(state.clone(), at, 0.0);
        // The echo, so that tests begin with a policy at rest.
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
        let sobel =
            RecentBitstream { name: Some("sobel".to_owned()), digest: None, last_used_ago: Millis(1) };
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
        busy.buckets.usage = vec![Millis::ZERO, Millis(100_000)];
        let policy = mk_policy(&busy, at);
        let idle = mk_state(1_320_000);
        assert!(matches!(policy.decide(&idle, after(at, 20)), Decision::Wait(_)));
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
        let entry = |name: &str| RecentBitstream {
            name: Some(name.to_owned()),
            digest: None,
            last_used_ago: Millis(1),
        };
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

    /// A board with `names` in its slots.
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
        policy.wrote(second, after(at, 1), 0.0);

        // 9 s early, and so the next of its kind waits for the interval, and other changes for 9 s more than that.
        let third = holding(1_002_000, &["c"]);
        assert_eq!(policy.decide(&third, after(at, 2)), Decision::Wait(Duration::from_secs(9)));
        assert_eq!(policy.decide(&third, after(at, 11)), Decision::Write(Reason::Loaded));
        let evicted = holding(1_002_000, &["a"]);
        assert_eq!(policy.decide(&evicted, after(at, 11)), Decision::Wait(Duration::from_secs(9)));
        assert_eq!(policy.decide(&evicted, after(at, 20)), Decision::Write(Reason::Changed));
    }

    #[test]
    fn bitstreams_that_evict_each_other_cause_no_more_writes_than_other_changes_do() {
        for (intervals, seconds) in
            [(INTERVALS, 1_000), (Intervals::dictated(Duration::from_secs(250)), 25_000)]
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

    /// Writes per second of `nodes` busy nodes that are looked at every second, between 20 and 40 minutes after they started.
    fn writes_per_second(nodes: u32, intervals: Intervals) -> f64 {
        let begin = Instant::now();
        let mut jitter = crate::jitter::Jitter::new();
        let mut writes = 0_u32;
        for _ in 0..nodes {
            let mut policy = Policy::new(intervals);
            let started = jitter.fraction();
            for look in 0..2400_u32 {
                let now = begin + Duration::from_secs_f64(started + f64::from(look));
                let mut state = mk_state(1_000_000 + u64::from(look) * 1_000);
                // Never what readers make of the last one.
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
        // A part of the nodes makes that part of the writes: nodes know nothing of each other.
        let streaming = writes_per_second(200, dictated) * 25.0;
        assert!((10.0..=20.0).contains(&streaming), "{streaming} writes/s");
        let alone = writes_per_second(200, INTERVALS) * 25.0;
        assert!((300.0..=500.0).contains(&alone), "one write per 10 to 15 s and node: {alone} writes/s");
    }
}
