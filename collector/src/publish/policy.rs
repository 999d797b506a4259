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
    /// A slot holds a bitstream that it did not, or no longer one that was in the way: pods that ask for it may come in.
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
    news: News,
}

/// What a write told those pods that wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum News {
    /// Nothing, or what was told a moment ago.
    Nothing,
    /// A board can take pods that could not before.
    Board,
    /// A bitstream is where it was not, or made way.
    Bitstream,
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
        let (interval, heartbeat) = spread(self.intervals, jitter);
        let turn = |last: &Written| last.min.min(self.intervals.min);
        let in_turn =
            self.last.as_ref().is_some_and(|last| at.saturating_duration_since(last.at) >= turn(last));
        let is_echo =
            self.echoes_bitstreams() && self.last.as_ref().is_some_and(|last| last.news == News::Bitstream);
        let news = match &self.last {
            Some(last) if lets_pods_in(&last.state, &state) => News::Board,
            Some(last) if !is_echo && turns_bitstreams_around(&last.state, &state) => {
                self.loaded_at = Some(at);
                News::Bitstream
            }
            None if !state.devices.is_empty() => News::Board,
            _ => News::Nothing,
        };
        let min = match &self.last {
            // Such writes, and their echoes, come as often as a board is reconfigured. The time that one came early is time
            // that the next one comes late: all together are as many as without.
            Some(last) if news == News::Bitstream || is_echo && news == News::Nothing => {
                interval + last.min.saturating_sub(at.saturating_duration_since(last.at))
            }
            _ if in_turn => interval,
            // Nodes that were told something at one moment would write together for many intervals.
            _ => somewhere_in(self.intervals.min, jitter),
        };
        self.last = Some(Written { state, at, min, heartbeat, news });
    }

    /// Whether a bitstream's news is written twice: where heartbeats leave the time to make up for it. They don't where an
    /// extender dictates the intervals, but there it was told by stream, too, before kube-scheduler could ask.
    fn echoes_bitstreams(&self) -> bool {
        self.intervals.heartbeat >= 3 * self.intervals.min
    }

    /// How long after `last` a bitstream that came or made way since may be told of: at once, but once per interval for each
    /// time that it is told, for boards that load in turns what others evict.
    fn loaded_due(&self, last: &Written, current: &NodeState) -> Option<Duration> {
        if !turns_bitstreams_around(&last.state, current) {
            return None;
        }
        let times = if self.echoes_bitstreams() { 2 } else { 1 };
        let again = self.loaded_at.map_or(Duration::ZERO, |at| {
            (at + times * self.intervals.min).saturating_duration_since(last.at)
        });
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
        } else if last.news == News::Board || last.news == News::Bitstream && self.echoes_bitstreams() {
            (Reason::Echo, ECHO.min(last.heartbeat))
        } else if differs(&last.state, current, passed.into()) {
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

/// Whether a pod that was rejected for `old` because of a bitstream may be accepted for `new`: one is in a slot where it was
/// not, or is gone from where it was in the way.
fn turns_bitstreams_around(old: &NodeState, new: &NodeState) -> bool {
    has_loaded(old, new) || has_made_way(old, new)
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

/// Whether a digest is gone from a device of `old` and `new` has a healthy device of another kind: where a digest lies in a
/// board of one kind, it is valid on no other kind of the node.
fn has_made_way(old: &NodeState, new: &NodeState) -> bool {
    old.devices.iter().any(|was| {
        let is = new.devices.iter().find(|is| is.id == was.id);
        let left = is.map_or_else(Vec::new, |is| loaded(new, is));
        let gone = |digest| !left.iter().any(|(other, _)| *other == Some(digest));
        let lost_one = loaded(old, was).into_iter().filter_map(|(digest, _)| digest).any(gone);
        let healthy = new.devices.iter().filter(|device| device.health == Health::Healthy);
        lost_one && healthy.into_iter().any(|device| kind(device) != kind(was))
    })
}

/// Whether `new` would be scored or filtered differently from what a reader makes of `old`, which is `age` old by now: as
/// the reader counts it, not by the difference of two wall times, for the clock may have stepped between them.
fn differs(old: &NodeState, new: &NodeState, age: Millis) -> bool {
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

fn kind(device: &DeviceState) -> [&str; 3] {
    [&device.vendor, &device.board, &device.shell]
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
mod tests;
