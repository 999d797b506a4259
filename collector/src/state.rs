//! The state of the collector, and its changes by records. Pure: the same records in the same order give the same
//! state, which the checkpoint relies on.
//!
//! Callers pass wall times. Inside, every moment lies on the [`Timeline`], so a step of the wall clock makes no
//! device silent, no reporter forgotten, and no task old.

use crate::plugin::Presence;
use crate::timeline::{ClockStep, Timeline};
use fpga_board::reuse::published::ReuseLog;
use fpga_core::bitstream::BitstreamId;
use fpga_core::device::{DeviceStatus, Health, LoadedBitstream};
use fpga_core::event::{Event, Phase};
use fpga_core::ledger::{Ledger, Order, TooManyReporters, Verdict};
use fpga_core::node_state::{DeviceState, DigestPrefix, LeftOut, NodeState, RecentBitstream, StateVersion};
use fpga_core::units::{Millis, Moment, MonotonicTime, WallTime};
use fpga_core::window::{InvalidLength, Share, Window, WindowMeasurement};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Maximum number of devices of a node: the annotation has no room for more.
pub const MAX_DEVICES: usize = 16;

/// The state of the collector.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct State {
    /// Absent in old checkpoints, whose moments are wall times; the time line then begins at the wall clock.
    #[serde(default)]
    timeline: Timeline,
    window: Window,
    ledger: Ledger,
    devices: BTreeMap<String, Device>,
    /// Number of this start of the collector; greater than that of every annotation seen.
    boot: u64,
    /// Number of publications since this start.
    seq: u64,
    /// Whether events were counted, here or in an annotation that was taken over. While none were, an annotation
    /// holds more than this state: devices report their own status anew, but counted events are not sent again.
    touched: bool,
    /// Absent in old checkpoints.
    #[serde(default)]
    plugin: Presence,
    /// Absent in old checkpoints.
    #[serde(default)]
    reuse: ReuseLog,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Device {
    status: DeviceStatus,
    reported_at: MonotonicTime,
}

/// A change of the state, as the journal holds it.
#[derive(Debug, Clone, PartialEq)]
pub enum Record {
    /// The events of one request.
    Events(Vec<Event>),
    /// The status of a device.
    Device(Box<DeviceStatus>),
    /// The device with this id has left.
    Gone(String),
    /// The wall clock stepped.
    Clock(ClockStep),
    /// An annotation was found that holds more than the state.
    Seed(Box<NodeState>),
    /// The collector has started, with this boot number.
    Boot(u64),
    /// A node plugin has reported for the first time, or is forgotten.
    Plugin(Presence),
}

/// The result of counting a request's events.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Counted {
    /// Number of events that were counted.
    pub accepted: u64,
    /// Number of events that had been counted before.
    pub duplicates: u64,
}

/// Reason why a report is not taken now.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum NoRoom {
    /// There are too many active reporters for another one.
    #[error(transparent)]
    Reporters(#[from] TooManyReporters),
    /// There are too many devices for another one.
    #[error("this node has {MAX_DEVICES} devices already")]
    Devices,
}

/// How long a device may be silent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Silence {
    /// Time without a report after which a device counts as unhealthy.
    pub unhealthy_after: Millis,
}

impl State {
    /// An empty state with a window of `length`.
    ///
    /// # Errors
    /// [`InvalidLength`] if no window can have this length.
    pub fn new(length: Millis) -> Result<Self, InvalidLength> {
        Ok(Self {
            timeline: Timeline::default(),
            window: Window::new(length)?,
            ledger: Ledger::new(length),
            devices: BTreeMap::new(),
            boot: 0,
            seq: 0,
            touched: false,
            plugin: Presence::Unknown,
            reuse: ReuseLog::default(),
        })
    }

    /// Replaces the window by one of `length`, if that differs. The new window is seeded with the old one's published
    /// state.
    ///
    /// # Errors
    /// [`InvalidLength`] if no window can have this length.
    pub fn with_length(mut self, length: Millis, now: WallTime) -> Result<Self, InvalidLength> {
        if self.window.length() != length {
            let told = self.node_state(now, Millis::from_secs(1), None);
            self.window = Window::new(length)?;
            let at = self.moment(now);
            self.window.seed(&told, at);
        }
        Ok(self)
    }

    /// Makes room in the ledger for the reporters of a request's events.
    ///
    /// # Errors
    /// [`NoRoom`] if too many other reporters are active.
    pub fn make_room(&mut self, events: &[Event], now: WallTime) -> Result<(), NoRoom> {
        let at = self.moment(now);
        self.make_room_at(events, at)
    }

    fn make_room_at(&mut self, events: &[Event], at: Moment) -> Result<(), NoRoom> {
        let reporters = events.iter().filter_map(|event| event.identity).map(|identity| identity.reporter);
        Ok(self.ledger.make_room(reporters, at.now)?)
    }

    /// Whether `status` differs from what is known of the device. Records in any case that a known device has
    /// reported.
    ///
    /// # Errors
    /// [`NoRoom`] if the device is unknown and there are too many devices.
    pub fn hears(&mut self, status: &DeviceStatus, now: WallTime) -> Result<bool, NoRoom> {
        let now = self.moment(now).now;
        let count = self.devices.len();
        match self.devices.get_mut(&status.id) {
            Some(device) => {
                device.reported_at = now;
                Ok(device.status != *status)
            }
            None if count >= MAX_DEVICES => Err(NoRoom::Devices),
            None => Ok(true),
        }
    }

    /// Whether the device `id` is known.
    pub fn has_device(&self, id: &str) -> bool {
        self.devices.contains_key(id)
    }

    /// Applies `record`, made at `wall`.
    pub fn apply(&mut self, record: &Record, wall: WallTime) -> Counted {
        match record {
            Record::Clock(step) => self.timeline.step(*step, wall),
            _ => self.timeline.advance(wall, self.window.latest()),
        }
        let at = self.moment(wall);
        self.window.advance(at.now);
        self.touched |= matches!(record, Record::Events(_) | Record::Seed(_));
        match record {
            Record::Events(events) => return self.count(events, at),
            Record::Device(status) => {
                let device = Device { status: DeviceStatus::clone(status), reported_at: at.now };
                self.devices.insert(status.id.clone(), device);
            }
            Record::Gone(id) => {
                self.devices.remove(id);
                self.reuse.forget(id);
            }
            Record::Clock(_) => {}
            Record::Seed(state) => self.window.seed(state, at),
            Record::Boot(boot) => {
                self.boot = *boot;
                self.seq = 0;
            }
            Record::Plugin(presence) => self.plugin = *presence,
        }
        Counted::default()
    }

    fn count(&mut self, events: &[Event], at: Moment) -> Counted {
        // A replayed request had room when it was live and gets the same room now, so there is no error to handle.
        let _ = self.make_room_at(events, at);
        let mut counted = Counted::default();
        for event in events {
            let (share, order) = match event.identity {
                None => (Share::Whole, Order::Newest),
                Some(identity) => {
                    let first = event.merged.map_or(identity.seq, |merged| merged.first_seq);
                    match self.ledger.record(identity.reporter, first, identity.seq, at.now) {
                        Verdict::Duplicate => {
                            counted.duplicates += 1;
                            continue;
                        }
                        Verdict::New(order) => (Share::Whole, order),
                        Verdict::Partly { new, of } => (Share::Part { new, of }, Order::Late),
                    }
                }
            };
            let then = self.timeline.as_then(event.timestamp_ms, at);
            self.window.count(event, share, order, then);
            self.count_use(event, then);
            counted.accepted += 1;
        }
        counted
    }

    /// Counts the gap before a task. Events that were merged are one use: what was used so often is used again soon.
    fn count_use(&mut self, event: &Event, at: Moment) {
        let is_task = event.task.is_some() || event.duration_ms > Millis::ZERO;
        let Some(device) = &event.device else { return };
        if is_task && event.phase == Phase::Final && self.devices.contains_key(device) {
            let begin = at.now - (at.wall - event.timestamp_ms) - event.duration_ms;
            self.reuse.used(device, &event.bitstream_identifier, event.digest.as_ref(), begin);
        }
    }

    /// Treats every device as having just reported: after a start, no device had time to report.
    pub fn hear_all(&mut self, now: WallTime) {
        let now = self.moment(now).now;
        for device in self.devices.values_mut() {
            device.reported_at = now;
        }
    }

    /// Ids of the devices that have not reported for a whole window.
    pub fn lost_devices(&self, now: WallTime, silence: Silence) -> Vec<String> {
        let now = self.moment(now).now;
        let lost_after = self.window.length().max(silence.unhealthy_after);
        let lost = self.devices.iter().filter(|(_, device)| now - device.reported_at > lost_after);
        lost.map(|(id, _)| id.clone()).collect()
    }

    /// The version of the current publication.
    pub fn version(&self) -> StateVersion {
        StateVersion { boot: self.boot, seq: self.seq }
    }

    /// Increments the number of publications.
    pub fn next_publication(&mut self) {
        self.seq += 1;
    }

    /// Whether no events have been counted, so that an annotation holds more than this state.
    pub fn is_untouched(&self) -> bool {
        !self.touched
    }

    /// Whether the node has a plugin.
    pub fn plugin(&self) -> Presence {
        self.plugin
    }

    /// Number of steps of the wall clock.
    pub fn clock_steps(&self) -> u64 {
        self.timeline.steps()
    }

    /// The moment on the time line at which the wall clock shows `now`.
    pub fn moment(&self, now: WallTime) -> Moment {
        self.timeline.moment(now, self.window.latest())
    }

    /// The annotation with the gaps between the uses of bitstreams, as it is published at `now`.
    pub fn reuse_text(&self, now: WallTime) -> String {
        self.reuse.text(self.moment(now).now)
    }

    /// The window.
    pub fn window(&self) -> &Window {
        &self.window
    }

    /// The ledger.
    pub fn ledger(&self) -> &Ledger {
        &self.ledger
    }

    /// Number of known devices.
    pub fn devices(&self) -> usize {
        self.devices.len()
    }

    /// The node state as it is published at `now`. With `silence` set, silent devices are unhealthy.
    pub fn node_state(&self, now: WallTime, heartbeat: Millis, silence: Option<Silence>) -> NodeState {
        let slots = self.devices.iter().map(|(id, device)| (id.clone(), device.status.slots)).collect();
        let Moment { now, wall } = self.moment(now);
        let WindowMeasurement { usage, reconfiguration, buckets, devices, mut bitstreams } =
            self.window.measure(now, &slots);
        let length = self.window.length();
        let devices = self.devices.values().map(|Device { status, reported_at }| {
            let silent = silence.is_some_and(|silence| now - *reported_at > silence.unhealthy_after);
            let measured = devices.get(&status.id).copied().unwrap_or_default();
            let loaded = status.loaded.iter().map(|loaded| index_of(&mut bitstreams, loaded, length));
            DeviceState {
                id: status.id.clone(),
                loaded: loaded.collect(),
                vendor: status.vendor.clone(),
                platform: status.platform.clone(),
                board: status.board.clone(),
                shell: status.shell.clone(),
                slots: status.slots,
                reconfigured_part: status.reconfigured_part,
                usage: measured.usage,
                reconfiguration: measured.reconfiguration,
                queued: status.queued,
                health: if silent { Health::Unhealthy } else { status.health },
            }
        });
        NodeState {
            boot: self.boot,
            seq: self.seq,
            heartbeat,
            measured_at: wall,
            window: length,
            usage,
            reconfiguration,
            devices: devices.collect(),
            bitstreams,
            buckets,
            plugin: None,
            cordons: BTreeMap::new(),
            left_out: LeftOut::default(),
        }
    }
}

/// Index of a loaded bitstream in the list; the bitstream is added if it was not used in the window.
fn index_of(bitstreams: &mut Vec<RecentBitstream>, loaded: &LoadedBitstream, length: Millis) -> u32 {
    let digest = DigestPrefix::from(&loaded.digest);
    let name = match &loaded.id {
        BitstreamId::Name(name) => Some(name),
        BitstreamId::Digest(_) => None,
    };
    let found = bitstreams.iter().position(|entry| entry.digest == Some(digest)).or_else(|| {
        bitstreams.iter().position(|entry| entry.digest.is_none() && entry.name.as_ref() == name)
    });
    let index = found.unwrap_or_else(|| {
        bitstreams.push(RecentBitstream { name: None, digest: None, last_used_ago: length });
        bitstreams.len() - 1
    });
    if let Some(entry) = bitstreams.get_mut(index) {
        entry.digest = Some(digest);
        entry.name = entry.name.take().or_else(|| name.cloned());
    }
    u32::try_from(index).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests;
