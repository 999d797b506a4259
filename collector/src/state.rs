//! All that the collector knows, and how a record changes it. Pure: the same records in the same order give the same
//! state, which is what the checkpoint rests on.
//!
//! Callers say by the wall clock what time it is; inside, every moment lies on the [`Timeline`], so that a step of the wall
//! clock makes no device silent, no reporter forgotten and no task old.

use crate::timeline::{ClockStep, Timeline};
use fpga_core::bitstream::BitstreamId;
use fpga_core::device::{DeviceStatus, Health, LoadedBitstream};
use fpga_core::event::Event;
use fpga_core::ledger::{Ledger, Order, TooManyReporters, Verdict};
use fpga_core::node_state::{DeviceState, DigestPrefix, LeftOut, NodeState, RecentBitstream, StateVersion};
use fpga_core::units::{Millis, Moment, MonotonicTime, WallTime};
use fpga_core::window::{InvalidLength, Share, Window, WindowMeasurement};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Most devices of a node: the annotation has no room for more.
pub const MAX_DEVICES: usize = 16;

/// The state of the collector.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct State {
    /// Absent in checkpoints of versions whose moments were wall times: those are where the line begins.
    #[serde(default)]
    timeline: Timeline,
    window: Window,
    ledger: Ledger,
    devices: BTreeMap<String, Device>,
    /// Rises with every start, and past every annotation that was seen.
    boot: u64,
    /// Publications of this boot.
    seq: u64,
    /// Whether events were counted, here or in the annotation that was taken over: an annotation tells more than a state of
    /// which only devices are known, for those say themselves what they are.
    touched: bool,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Device {
    status: DeviceStatus,
    heard: MonotonicTime,
}

/// Something that changes the state, as it is kept in the journal.
#[derive(Debug, Clone, PartialEq)]
pub enum Record {
    /// Events of one request.
    Events(Vec<Event>),
    /// A device's status.
    Device(Box<DeviceStatus>),
    /// A device left.
    Gone(String),
    /// The wall clock stepped.
    Clock(ClockStep),
    /// An annotation was found that tells more than the state does.
    Seed(Box<NodeState>),
    /// This boot is the one from now on.
    Boot(u64),
}

/// What became of a request's events.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Counted {
    /// Events that counted.
    pub accepted: u64,
    /// Events that had been counted before.
    pub duplicates: u64,
}

/// Why something is not taken now.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum NoRoom {
    /// For another reporter.
    #[error(transparent)]
    Reporters(#[from] TooManyReporters),
    /// For another device.
    #[error("this node has {MAX_DEVICES} devices already")]
    Devices,
}

/// Which word of a device is too old to be believed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Silence {
    /// After so long a device counts as unhealthy.
    pub unhealthy_after: Millis,
}

impl State {
    /// An empty state with a window of `length`.
    ///
    /// # Errors
    /// [`InvalidLength`] as the window has it.
    pub fn new(length: Millis) -> Result<Self, InvalidLength> {
        Ok(Self {
            timeline: Timeline::default(),
            window: Window::new(length)?,
            ledger: Ledger::new(length),
            devices: BTreeMap::new(),
            boot: 0,
            seq: 0,
            touched: false,
        })
    }

    /// The same with a window of another length, as far as the old one tells.
    ///
    /// # Errors
    /// [`InvalidLength`] as the window has it.
    pub fn with_length(mut self, length: Millis, now: WallTime) -> Result<Self, InvalidLength> {
        if self.window.length() != length {
            let told = self.node_state(now, Millis::from_secs(1), None);
            self.window = Window::new(length)?;
            let at = self.moment(now);
            self.window.seed(&told, at);
        }
        Ok(self)
    }

    /// Whether the events of a request have room.
    ///
    /// # Errors
    /// [`NoRoom`] when too many reporters are active.
    pub fn make_room(&mut self, events: &[Event], now: WallTime) -> Result<(), NoRoom> {
        let at = self.moment(now);
        self.make_room_at(events, at)
    }

    fn make_room_at(&mut self, events: &[Event], at: Moment) -> Result<(), NoRoom> {
        let reporters = events.iter().filter_map(|event| event.identity).map(|identity| identity.reporter);
        Ok(self.ledger.make_room(reporters, at.now)?)
    }

    /// Whether `status` is news, and has room; notes in any case that the device was heard of.
    ///
    /// # Errors
    /// [`NoRoom`] when there are too many devices.
    pub fn hears(&mut self, status: &DeviceStatus, now: WallTime) -> Result<bool, NoRoom> {
        let now = self.moment(now).now;
        let count = self.devices.len();
        match self.devices.get_mut(&status.id) {
            Some(device) => {
                device.heard = now;
                Ok(device.status != *status)
            }
            None if count >= MAX_DEVICES => Err(NoRoom::Devices),
            None => Ok(true),
        }
    }

    /// Whether it has a device `id`.
    pub fn has_device(&self, id: &str) -> bool {
        self.devices.contains_key(id)
    }

    /// Changes the state as `record`, made at `wall`, says.
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
                let device = Device { status: DeviceStatus::clone(status), heard: at.now };
                self.devices.insert(status.id.clone(), device);
            }
            Record::Gone(id) => {
                self.devices.remove(id);
            }
            Record::Clock(_) => {}
            Record::Seed(state) => self.window.seed(state, at),
            Record::Boot(boot) => {
                self.boot = *boot;
                self.seq = 0;
            }
        }
        Counted::default()
    }

    fn count(&mut self, events: &[Event], at: Moment) -> Counted {
        // A replayed request made its room when it was live, and must make the same one again.
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
            self.window.count(event, share, order, self.timeline.as_then(event.timestamp_ms, at));
            counted.accepted += 1;
        }
        counted
    }

    /// Takes every device for heard of now: after a start nobody had the time to speak.
    pub fn hear_all(&mut self, now: WallTime) {
        let now = self.moment(now).now;
        for device in self.devices.values_mut() {
            device.heard = now;
        }
    }

    /// Devices that were not heard of for the whole window.
    pub fn lost_devices(&self, now: WallTime, silence: Silence) -> Vec<String> {
        let now = self.moment(now).now;
        let lost_after = self.window.length().max(silence.unhealthy_after);
        let lost = self.devices.iter().filter(|(_, device)| now - device.heard > lost_after);
        lost.map(|(id, _)| id.clone()).collect()
    }

    /// Which publication it would be.
    pub fn version(&self) -> StateVersion {
        StateVersion { boot: self.boot, seq: self.seq }
    }

    /// Raises the number of publications.
    pub fn next_publication(&mut self) {
        self.seq += 1;
    }

    /// Whether an annotation tells more than it does.
    pub fn is_untouched(&self) -> bool {
        !self.touched
    }

    /// How often the wall clock stepped.
    pub fn clock_steps(&self) -> u64 {
        self.timeline.steps()
    }

    /// What the wall clock's `now` is on the time line.
    pub fn moment(&self, now: WallTime) -> Moment {
        self.timeline.moment(now, self.window.latest())
    }

    /// The window.
    pub fn window(&self) -> &Window {
        &self.window
    }

    /// The ledger.
    pub fn ledger(&self) -> &Ledger {
        &self.ledger
    }

    /// How many devices it knows.
    pub fn devices(&self) -> usize {
        self.devices.len()
    }

    /// The state as it is published at `now`. Without `silence` every device is believed.
    pub fn node_state(&self, now: WallTime, heartbeat: Millis, silence: Option<Silence>) -> NodeState {
        let slots = self.devices.iter().map(|(id, device)| (id.clone(), device.status.slots)).collect();
        let Moment { now, wall } = self.moment(now);
        let WindowMeasurement { usage, reconfiguration, buckets, devices, mut bitstreams } =
            self.window.measure(now, &slots);
        let length = self.window.length();
        let devices = self.devices.values().map(|Device { status, heard }| {
            let silent = silence.is_some_and(|silence| now - *heard > silence.unhealthy_after);
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
            left_out: LeftOut::default(),
        }
    }
}

/// The place of a loaded bitstream in the list, where it is put if it was not used in the window.
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
