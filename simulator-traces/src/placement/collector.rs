//! The state of a node that decisions see: the production window (S-4), published as a collector would publish it,
//! and received some time later.
//!
//! Events are counted only when a decision needs the state. A task is reported when it ends; progress of running
//! tasks is not.

use super::options::{Freshness, Reconfigures};
use crate::error::ScenarioError;
use crate::time::{Micros, SimTime};
use fpga_core::bitstream::{BitstreamId, Digest};
use fpga_core::device::{Health, ReconfiguredPart};
use fpga_core::event::{Event, Phase};
use fpga_core::ledger::Order;
use fpga_core::node_facts::NodeFacts;
use fpga_core::node_state::{DeviceState, DigestPrefix, LeftOut, NodeState, RecentBitstream, decode, encode};
use fpga_core::staleness::{Knowledge, Received};
use fpga_core::units::{Millis, Moment, MonotonicTime, WallTime};
use fpga_core::window::{Share, Window};
use std::collections::{BTreeMap, VecDeque};

/// The beginning of the trace on the clocks of all nodes, which are never adjusted. Both clocks start far from zero;
/// windows round by time slices that are counted from zero.
const START: Moment = Moment { now: MonotonicTime(1_700_000_000_000), wall: WallTime(1_700_000_000_000) };
const DEVICE: &str = "fpga0";

/// The collector of one node.
#[derive(Debug)]
pub struct Collector {
    window: Window,
    waiting: VecDeque<Waiting>,
    interval: Micros,
    heartbeat: Micros,
    delay: Micros,
    devices: BTreeMap<String, u32>,
    model: String,
    reconfigured_part: ReconfiguredPart,
    seq: u64,
    published: Option<SimTime>,
    changed: bool,
    /// Contents of the slots at the last publication that may have been received, if they have changed since.
    shown: Option<(SimTime, Shown)>,
    facts: NodeFacts,
    event: Event,
}

/// The part of a state that describes an instant and is not a sum over time.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Shown {
    /// The bitstreams in the slots.
    pub loaded: Vec<u32>,
    /// Number of waiting requests.
    pub queued: u32,
}

#[derive(Debug, Clone, Copy)]
struct Waiting {
    at: SimTime,
    bitstream: u32,
    duration: Micros,
    reconfiguration: Micros,
}

/// The digest that names a bitstream; it contains the bitstream's number.
#[must_use]
pub fn digest(bitstream: u32) -> Digest {
    let mut bytes = [0xf9; 32];
    bytes[..4].copy_from_slice(&bitstream.to_be_bytes());
    Digest::from_bytes(bytes)
}

/// The number of the bitstream with this digest.
#[must_use]
pub fn number(digest: &Digest) -> u32 {
    let [a, b, c, d, ..] = *digest.as_bytes();
    u32::from_be_bytes([a, b, c, d])
}

/// A simulated instant on the monotonic clock.
#[must_use]
pub fn clock(at: SimTime) -> MonotonicTime {
    moment(at).now
}

/// A simulated instant on both clocks.
#[must_use]
pub fn moment(at: SimTime) -> Moment {
    let since_start = Millis(at.0 / 1000);
    Moment { now: START.now + since_start, wall: START.wall + since_start }
}

impl Collector {
    /// A collector of a node with one board.
    ///
    /// # Errors
    /// [`ScenarioError::Invalid`] if the window or the heartbeat is out of range.
    pub fn new(
        freshness: &Freshness,
        slots: u32,
        model: &str,
        reconfigures: Reconfigures,
    ) -> Result<Self, ScenarioError> {
        let window = Window::new(Micros::from_secs(freshness.window_s).millis())
            .map_err(|error| ScenarioError::Invalid(format!("freshness.window_s: {error}")))?;
        let heartbeat = Micros::from_secs(freshness.heartbeat_s);
        if heartbeat < Micros::SECOND {
            return Err(ScenarioError::Invalid("freshness.heartbeat_s: write at least 1".to_owned()));
        }
        let event = Event {
            timestamp_ms: START.wall,
            duration_ms: Millis::ZERO,
            reconfiguration_ms: Millis::ZERO,
            bitstream_identifier: BitstreamId::Digest(digest(0)),
            digest: None,
            identity: None,
            task: None,
            phase: Phase::Final,
            merged: None,
            device: Some(DEVICE.to_owned()),
            slot: None,
            tenant: None,
        };
        Ok(Self {
            window,
            waiting: VecDeque::new(),
            interval: Micros::from_secs(freshness.interval_s),
            heartbeat,
            delay: Micros::from_millis(freshness.delay_ms),
            devices: BTreeMap::from([(DEVICE.to_owned(), slots)]),
            model: model.to_owned(),
            reconfigured_part: match reconfigures {
                Reconfigures::Slot => ReconfiguredPart::Slot,
                Reconfigures::Board => ReconfiguredPart::Board,
            },
            seq: 0,
            published: None,
            changed: true,
            shown: None,
            facts: NodeFacts::default(),
            event,
        })
    }

    /// Records that a request used a slot for `duration` until now, including loading.
    pub fn ran(&mut self, bitstream: u32, duration: Micros, now: SimTime) {
        self.take_in(now);
        self.waiting.push_back(Waiting { at: now, bitstream, duration, reconfiguration: Micros::ZERO });
    }

    /// Records that loading a bitstream took `reconfiguration` until now.
    pub fn loaded(&mut self, bitstream: u32, reconfiguration: Micros, now: SimTime) {
        self.take_in(now);
        self.waiting.push_back(Waiting { at: now, bitstream, duration: Micros::ZERO, reconfiguration });
    }

    /// Must be called before slots or queue change; `shown` returns their contents before the change.
    pub fn before_change(&mut self, now: SimTime, shown: impl FnOnce() -> Shown) {
        if self.interval == Micros::ZERO {
            self.changed = true;
            return;
        }
        let due = self.due(now);
        if self.shown.as_ref().is_none_or(|(at, _)| *at < due) {
            self.shown = Some((due, shown()));
        }
    }

    /// The state that decisions see now; `shown` returns the current contents of slots and queue.
    pub fn facts(&mut self, now: SimTime, shown: impl FnOnce() -> Shown) -> &NodeFacts {
        let due = self.due(now);
        let is_due = match self.published {
            None => true,
            Some(published) => {
                let news = self.interval == Micros::ZERO && self.changed
                    || self.waiting.front().is_some_and(|event| event.at <= due)
                    || self.interval > Micros::ZERO && self.changed && due > published;
                news || due - published >= self.heartbeat
            }
        };
        if is_due {
            let shown = match self.shown.take() {
                Some((at, shown)) if at == due => shown,
                _ => shown(),
            };
            self.publish(due, &shown);
        }
        &self.facts
    }

    /// The state that the last call of [`Self::facts`] returned.
    #[must_use]
    pub fn known(&self) -> &NodeFacts {
        &self.facts
    }

    /// Time of the latest publication that has been received.
    fn due(&self, now: SimTime) -> SimTime {
        let sent = now - self.delay;
        match sent.0.checked_rem(self.interval.0) {
            Some(since) => sent - Micros(since),
            None => sent,
        }
    }

    /// Counts the events up to the last publication that may have been received, so that memory stays bounded.
    fn take_in(&mut self, now: SimTime) {
        let due = self.due(now);
        while let Some(event) = self.waiting.front().copied() {
            if event.at > due {
                return;
            }
            self.waiting.pop_front();
            self.changed = true;
            let at = moment(event.at);
            self.event.timestamp_ms = at.wall;
            self.event.duration_ms = event.duration.millis();
            self.event.reconfiguration_ms = event.reconfiguration.millis();
            self.event.bitstream_identifier = BitstreamId::Digest(digest(event.bitstream));
            self.window.count(&self.event, Share::Whole, Order::Newest, at);
        }
    }

    fn publish(&mut self, at: SimTime, shown: &Shown) {
        self.take_in(at + self.delay);
        let Moment { now, wall } = moment(at);
        let measured = self.window.measure(now, &self.devices);
        let of_device = measured.devices.get(DEVICE).copied().unwrap_or_default();
        let mut bitstreams = measured.bitstreams;
        let loaded = shown.loaded.iter().map(|bitstream| {
            let name = digest(*bitstream);
            let prefix = DigestPrefix::from(&name);
            let known = bitstreams.iter().position(|recent| recent.digest == Some(prefix));
            let index = known.unwrap_or_else(|| {
                let last_used_ago = self.window.length() + Millis(1);
                bitstreams.push(RecentBitstream { name: None, digest: Some(prefix), last_used_ago });
                bitstreams.len() - 1
            });
            u32::try_from(index).unwrap_or(u32::MAX)
        });
        let loaded = loaded.collect();
        self.seq += 1;
        let mut state = NodeState {
            boot: 1,
            seq: self.seq,
            heartbeat: self.heartbeat.max(self.interval).millis(),
            measured_at: wall,
            window: self.window.length(),
            usage: measured.usage,
            reconfiguration: measured.reconfiguration,
            devices: vec![DeviceState {
                id: DEVICE.to_owned(),
                vendor: "fpga".to_owned(),
                platform: String::new(),
                board: self.model.clone(),
                shell: String::new(),
                slots: self.devices.values().sum(),
                reconfigured_part: self.reconfigured_part,
                loaded,
                usage: of_device.usage,
                reconfiguration: of_device.reconfiguration,
                queued: shown.queued,
                health: Health::Healthy,
            }],
            bitstreams,
            buckets: measured.buckets,
            plugin: None,
            cordons: BTreeMap::new(),
            left_out: LeftOut::default(),
        };
        // Annotations are bounded in size, so decisions see the decoded annotation. An interval of 0 means that
        // decisions see everything at once, without annotations.
        if self.interval > Micros::ZERO
            && let Some(read) = encode(&state).ok().and_then(|encoded| decode(&encoded.text).ok())
        {
            state = read;
        }
        // As in the extender, the time of transport doesn't count towards the state's age: the extender can't know
        // it.
        let received = Received::new(state, clock(at + self.delay), Millis::ZERO);
        self.facts.knowledge = Knowledge::Known(Box::new(received));
        self.published = Some(at);
        self.changed = false;
    }
}
