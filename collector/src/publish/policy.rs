//! When the annotation is written. Pure. Every write wakes all clients that watch nodes, so writes are rare and on
//! change, but immediate where a rejected pod may be waiting for them.

use fpga_core::device::Health;
use fpga_core::node_state::{DeviceState, DigestPrefix, Heartbeat, NodeState};
use fpga_core::pacing;
use fpga_core::units::Millis;
use std::time::{Duration, Instant};

/// Minimum time between urgent writes, so that a board that flaps does not flood the cluster.
const URGENT_INTERVAL: Duration = Duration::from_secs(1);
/// Delay of the second write (the echo) of a state that lets pods in. kube-scheduler and the extender learn of a
/// write through separate watches. If kube-scheduler's is a millisecond ahead, it tries a waiting pod before the
/// extender knows of the change, and not again until the next write.
const ECHO_DELAY: Duration = Duration::from_secs(1);
/// Minimum time to the next write after one out of turn: the first, an urgent one, or one that declares another
/// heartbeat.
const AFTER_OUT_OF_TURN: Duration = Duration::from_secs(10);
/// Divisor: a value that differs by more than this part of itself has changed. Nodes are ranked against each other,
/// so a lightly used board's first second matters as much as a busy one's next minute.
const RELATIVE_SHARE: u64 = 10;
/// Divisor: a change of usage below this part of the slots' time in the window (0.12 s for 4 slots and 5 min) is
/// noise.
const USAGE_SHARE: u64 = 10_000;
/// Divisor: the same for reconfiguration time, of which there is far less.
const RECONFIGURATION_SHARE: u64 = 100_000;

/// The intervals between writes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Intervals {
    /// Minimum time between two writes on change.
    pub min: Duration,
    /// Maximum time between two writes.
    pub heartbeat: Duration,
}

impl Intervals {
    /// The intervals for a `write_interval` that an extender demands.
    pub fn dictated(write_interval: Duration) -> Self {
        Self { min: write_interval, heartbeat: pacing::heartbeat(write_interval.into()).into() }
    }
}

/// The decision on a state.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Decision {
    Write(Reason),
    /// Wait for this time, unless the state changes.
    Wait(Duration),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reason {
    /// No state has been written yet.
    First,
    /// The node can take pods that it could not take before.
    Urgent,
    /// The node plugin can't serve pods that the node could take before: pods that are placed here now would fail. Or pods
    /// that are here may have to go. Or people have taken a board out of rotation.
    Closed,
    /// A repetition of the last write, for pods that were tried before the extender knew of the change.
    Echo,
    /// A slot holds another bitstream, or one that was in the way is gone: pods that need this may now be accepted.
    Loaded,
    /// The state has changed enough to matter.
    Changed,
    Heartbeat,
}

/// The policy of one node, with its last write.
#[derive(Debug)]
pub struct Policy {
    intervals: Intervals,
    last: Option<Written>,
    /// When a loaded bitstream was last written.
    loaded_at: Option<Instant>,
}

#[derive(Debug)]
struct Written {
    state: NodeState,
    at: Instant,
    /// Intervals until the next write, with jitter, so that nodes that started together do not keep writing together.
    min: Duration,
    heartbeat: Duration,
    news: News,
}

/// The news in a write for waiting pods.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum News {
    /// No news, or only a repetition.
    Nothing,
    /// A board can take pods that it could not take before.
    Board,
    /// A bitstream was loaded, or made way.
    Bitstream,
}

impl Policy {
    /// A policy for a node whose annotation has not been written yet.
    pub const fn new(intervals: Intervals) -> Self {
        Self { intervals, last: None, loaded_at: None }
    }

    pub const fn intervals(&self) -> Intervals {
        self.intervals
    }

    /// Changes the intervals from `now` on; `jitter` is between 0 and 1.
    ///
    /// The next write still comes within the heartbeat that the last one declared. If writes become more frequent,
    /// the first comes at a random time within the new interval, since the end of a replica ends many streams at
    /// once. If they become rarer, the write that declares the new heartbeat comes at a random time within the old
    /// one, since many streams also begin at once.
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

    /// Records that `state` was written at `at`; `jitter` is between 0 and 1.
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
            // These writes and their echoes may come as often as a board is reconfigured. The next write is delayed
            // by as much as this one was early, so that the number of writes stays the same.
            Some(last) if news == News::Bitstream || is_echo && news == News::Nothing => {
                interval + last.min.saturating_sub(at.saturating_duration_since(last.at))
            }
            _ if in_turn => interval,
            // Nodes with news at the same moment would otherwise write together for many intervals.
            _ => somewhere_in(self.intervals.min, jitter),
        };
        self.last = Some(Written { state, at, min, heartbeat, news });
    }

    /// Whether news of a bitstream is written twice: only where heartbeats leave enough time to make up for it. With
    /// the intervals that an extender demands they don't, but there the stream brings the news before kube-scheduler
    /// can ask.
    fn echoes_bitstreams(&self) -> bool {
        self.intervals.heartbeat >= 3 * self.intervals.min
    }

    /// Time after `last` at which news of a bitstream may be written; `None` without such news. It is written at
    /// once, but at most once per interval for each time that it is repeated, since boards may keep loading what
    /// others evict.
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

    /// The decision on the state `current` at `now`.
    pub fn decide(&self, current: &NodeState, now: Instant) -> Decision {
        let Some(last) = &self.last else { return Decision::Write(Reason::First) };
        let passed = now.saturating_duration_since(last.at);
        if passed >= last.heartbeat {
            return Decision::Write(Reason::Heartbeat);
        }
        let (reason, due) = if lets_pods_in(&last.state, current) {
            (Reason::Urgent, URGENT_INTERVAL.min(last.min))
        } else if plugin_closes(&last.state, current) || last.state.cordons != current.cordons {
            (Reason::Closed, URGENT_INTERVAL.min(last.min))
        } else if last.news == News::Board || last.news == News::Bitstream && self.echoes_bitstreams() {
            (Reason::Echo, ECHO_DELAY.min(last.heartbeat))
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

/// Minimum and maximum time until the next write, with jitter; the maximum never exceeds the declared heartbeat.
fn spread(Intervals { min, heartbeat }: Intervals, jitter: f64) -> (Duration, Duration) {
    let jitter = jitter.clamp(0.0, 1.0);
    (min.mul_f64(1.0 + jitter / 5.0), heartbeat.mul_f64(1.0 - jitter / 10.0))
}

/// A time within `interval`, by `jitter`, but at least [`AFTER_OUT_OF_TURN`] where the interval is that long.
fn somewhere_in(interval: Duration, jitter: f64) -> Duration {
    interval.mul_f64(jitter.clamp(0.0, 1.0)).max(AFTER_OUT_OF_TURN.min(interval))
}

/// Whether a pod that was rejected for `old` may be accepted for `new`. Only such a write makes kube-scheduler try
/// the pod again.
fn lets_pods_in(old: &NodeState, new: &NodeState) -> bool {
    new.devices.iter().filter(|device| device.health == Health::Healthy).any(|device| {
        let before = old.devices.iter().find(|before| before.id == device.id);
        before.is_none_or(|before| {
            before.health != Health::Healthy || before.slots < device.slots || facts(before) != facts(device)
        })
    }) || plugin_opens(old, new)
}

/// Whether the node plugin can serve pods for `new` that it could not serve for `old`.
fn plugin_opens(old: &NodeState, new: &NodeState) -> bool {
    plugin_closes(new, old)
}

/// Whether the node plugin can't serve pods for `new` that it could serve for `old`: on a board, or those of a controller.
/// The pods of a board that has left, that it does not give any more, or that is wanted by a pod, are a cause of moves,
/// although the board may have had no room for more.
fn plugin_closes(old: &NodeState, new: &NodeState) -> bool {
    let serves = |state: &NodeState, device: &DeviceState| {
        let in_time = state.plugin.as_ref().is_none_or(|plugin| plugin.heartbeat == Heartbeat::InTime);
        in_time && state.offers(device) && state.has_instances_left(device)
    };
    let is_wanted = |state: &NodeState, device: &DeviceState| {
        state.plugin.as_ref().is_some_and(|plugin| plugin.report.wanted.contains_key(&device.id))
    };
    let on_a_board = old.devices.iter().any(|before| {
        let Some(device) = new.devices.iter().find(|device| device.id == before.id) else {
            return before.health == Health::Healthy && old.offers(before);
        };
        serves(old, before) && !serves(new, device)
            || old.offers(before) && !new.offers(device)
            || !is_wanted(old, before) && is_wanted(new, device)
    });
    let kept_off = |state: &NodeState, owner: &String| {
        state.plugin.as_ref().is_some_and(|plugin| plugin.report.kept_off.contains(owner))
    };
    let owners = new.plugin.iter().flat_map(|plugin| &plugin.report.kept_off);
    on_a_board || owners.into_iter().any(|owner| !kept_off(old, owner))
}

/// Whether a pod that was rejected for `old` because of a bitstream may be accepted for `new`: a bitstream was
/// loaded, or one that was in the way is gone.
fn turns_bitstreams_around(old: &NodeState, new: &NodeState) -> bool {
    has_loaded(old, new) || has_made_way(old, new)
}

/// Whether a healthy device of `new` holds a bitstream that it did not hold in `old`. A pod that requires it to be
/// loaded was rejected for `old`.
fn has_loaded(old: &NodeState, new: &NodeState) -> bool {
    new.devices.iter().filter(|device| device.health == Health::Healthy).any(|device| {
        let before = old.devices.iter().find(|before| before.id == device.id);
        let before = before.map_or_else(Vec::new, |before| loaded(old, before));
        loaded(new, device).iter().any(|entry| !before.contains(entry))
    })
}

/// Whether a digest is gone from a device of `old`, and `new` has a healthy device of another kind. While a board of
/// one kind holds a digest, that digest is considered invalid on other kinds.
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

/// Whether `new` would be scored or filtered differently from what a reader computes of `old`, which is `age` old.
/// The age is passed in, since the wall clock may have stepped between the two states.
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

/// Digests and names of the bitstreams in a device's slots, sorted.
fn loaded<'a>(state: &'a NodeState, device: &DeviceState) -> Vec<LoadedEntry<'a>> {
    let entry = |index: &u32| state.bitstreams.get(*index as usize);
    let mut loaded: Vec<_> =
        device.loaded.iter().filter_map(entry).map(|entry| (entry.digest, entry.name.as_deref())).collect();
    loaded.sort_unstable();
    loaded
}

/// Whether `new` lists a bitstream that `old` does not. Readers themselves compute when a listed one leaves the
/// window.
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
