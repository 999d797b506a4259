//! The sliding window of a node (S-4): the usage of its boards in the last minutes, in bounded memory at any event
//! rate.
//!
//! Usage is the overlap of `[timestamp − duration, timestamp]` with the window. A merged event spreads its sums from
//! its first to its last moment. The next event of a running task replaces the task's progress. Usage never exceeds
//! what the slots can do. The window counts every event that it gets; the [`crate::ledger`] filters out duplicates.
//!
//! **Every moment in the window is one of the monotonic clock.** Events and published states have wall times of this
//! node. The window translates them once, on arrival, by their age at that moment. So a step of the wall clock changes
//! no age in the window.

mod recent;
mod slices;
#[cfg(test)]
mod tests;

pub use recent::MAX_RECENT;

use crate::device::UNKNOWN_SLOTS;
use crate::event::{Event, Identity, Phase};
use crate::ledger::Order;
use crate::node_state::{Buckets, NodeState, RecentBitstream};
use crate::units::{Millis, Moment, MonotonicTime, WallTime};
use recent::Recent;
use serde::{Deserialize, Serialize};
use slices::{Line, Slices, Span};
use std::collections::BTreeMap;

/// Minimum length of a window.
pub const MIN_LENGTH: Millis = Millis::from_secs(1);
/// Maximum length of a window.
pub const MAX_LENGTH: Millis = crate::node_state::codec::MAX_WINDOW;
/// Maximum number of devices that are told apart. The usage of further devices counts for the node only.
pub const MAX_DEVICES: usize = 64;
/// Maximum number of running tasks that are told apart. The progress of further tasks is not counted; their final
/// events have the whole duration.
pub const MAX_RUNNING: usize = 1024;
/// Time by which an event may be ahead of the clock without counting in [`Counters::from_future`].
pub const TOLERANCE: Millis = Millis::from_secs(1);

/// Number of slices that a window has in memory.
const KEPT_SLICES: u64 = 300;
/// Number of slices that are published.
const PUBLISHED_SLICES: u64 = 30;

/// The usage of a node's boards within the window.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Window {
    length: Millis,
    line: Line,
    /// Latest moment that a caller gave.
    latest: MonotonicTime,
    devices: BTreeMap<String, Amounts>,
    /// Amounts of events without a device, and of devices beyond [`MAX_DEVICES`].
    elsewhere: Amounts,
    running: Vec<Running>,
    recent: Recent,
    counters: Counters,
}

/// Usage and reconfiguration time of a device.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
struct Amounts {
    usage: Slices,
    reconfiguration: Slices,
}

/// A task that has reported progress and no end.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Running {
    reporter: u64,
    task: u64,
    device: Option<String>,
    end: MonotonicTime,
    duration: Millis,
}

/// Numbers of irregular events.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counters {
    /// Events from the future. They count as if they ended now.
    pub from_future: u64,
    /// Events that ended before the start of the window. They do not count.
    pub too_old: u64,
    /// Progress events that were not counted.
    pub progress_skipped: u64,
}

/// The share of an event that was not counted before.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Share {
    /// The whole event.
    Whole,
    /// A part of the event; the rest was counted before.
    Part {
        /// Number of parts to count.
        new: u64,
        /// Number of all parts; at least 1.
        of: u64,
    },
}

/// The length of a window is out of range.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a window of {0} can't be; write a length from 1s to 24h, for example `5m`")]
pub struct InvalidLength(pub Millis);

/// The values of the window at one moment.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct WindowMeasurement {
    /// Slot time used by all devices.
    pub usage: Millis,
    /// Time spent reconfiguring by all devices.
    pub reconfiguration: Millis,
    /// Both amounts in time slices.
    pub buckets: Buckets,
    /// Both amounts of each requested device.
    pub devices: BTreeMap<String, DeviceMeasurement>,
    /// Bitstreams used or loaded in the window, most recently used first.
    pub bitstreams: Vec<RecentBitstream>,
}

/// The amounts of one device.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct DeviceMeasurement {
    /// Slot time used.
    pub usage: Millis,
    /// Time spent reconfiguring.
    pub reconfiguration: Millis,
}

impl Window {
    /// An empty window of `length`.
    ///
    /// # Errors
    /// [`InvalidLength`] unless the length is from [`MIN_LENGTH`] to [`MAX_LENGTH`].
    pub fn new(length: Millis) -> Result<Self, InvalidLength> {
        if length < MIN_LENGTH || length > MAX_LENGTH {
            return Err(InvalidLength(length));
        }
        let width = length.0.div_ceil(KEPT_SLICES);
        // One more than the length needs: the old end of the window is within a slice.
        let count = usize::try_from(length.0.div_ceil(width)).unwrap_or(usize::MAX).saturating_add(1);
        Ok(Self {
            length,
            line: Line { width, count, newest: 0 },
            latest: MonotonicTime::START,
            devices: BTreeMap::new(),
            elsewhere: Amounts::default(),
            running: Vec::new(),
            recent: Recent::default(),
            counters: Counters::default(),
        })
    }

    /// Length of the window.
    #[must_use]
    pub const fn length(&self) -> Millis {
        self.length
    }

    /// Numbers of irregular events so far.
    #[must_use]
    pub const fn counters(&self) -> Counters {
        self.counters
    }

    /// Latest moment that a caller gave.
    #[must_use]
    pub const fn latest(&self) -> MonotonicTime {
        self.latest
    }

    /// Moves the window to `now`, but never back. Returns the moment that the window is at.
    pub fn advance(&mut self, now: MonotonicTime) -> MonotonicTime {
        let now = now.max(self.latest);
        let newest = now.0 / self.line.width;
        let by = newest - self.line.newest.min(newest);
        if by > 0 {
            for amounts in self.devices.values_mut().chain([&mut self.elsewhere]) {
                amounts.usage.advance(by, self.line.count);
                amounts.reconfiguration.advance(by, self.line.count);
            }
            self.devices.retain(|_, amounts| !amounts.is_empty());
            let oldest = now - self.length;
            self.running.retain(|task| task.end >= oldest);
            self.recent.forget_before(oldest);
        }
        self.line.newest = newest;
        self.latest = now;
        now
    }

    /// Counts an event that arrived at `at`.
    pub fn count(&mut self, event: &Event, share: Share, order: Order, at: Moment) {
        let now = self.advance(at.now);
        if event.timestamp_ms > at.wall + TOLERANCE {
            self.counters.from_future += 1;
        }
        // An event from the future is moved as a whole so that it ends now.
        let ahead = event.timestamp_ms - at.wall;
        let moment = |wall: WallTime| now - (at.wall - (wall - ahead));
        let end = moment(event.timestamp_ms);
        if end + self.length < now {
            self.counters.too_old += 1;
        } else {
            self.recent.touch(&event.bitstream_identifier, event.digest.as_ref(), end);
        }
        let task = event.identity.zip(event.task);
        match event.phase {
            Phase::Running => self.progress(event, task, order, end),
            Phase::Final => {
                if let Some((Identity { reporter, .. }, task)) = task {
                    self.running.retain(|running| (running.reporter, running.task) != (reporter, task));
                }
                let first = event.merged.map(|merged| moment(merged.first_ms));
                let span = |amount: Millis| match first {
                    Some(first) => Span { start: first.min(end).0, end: end.0, amount: share.of(amount.0) },
                    // No duration is longer than the time since the start of the clock.
                    None => {
                        Span { start: (end - amount).0, end: end.0, amount: share.of(amount.0.min(end.0)) }
                    }
                };
                let (usage, reconfiguration) = (span(event.duration_ms), span(event.reconfiguration_ms));
                let line = self.line;
                let amounts = self.amounts_of(event.device.as_deref());
                amounts.usage.add(&line, usage);
                amounts.reconfiguration.add(&line, reconfiguration);
            }
        }
    }

    fn progress(&mut self, event: &Event, task: Option<(Identity, u64)>, order: Order, end: MonotonicTime) {
        let Some((Identity { reporter, .. }, task)) = task else {
            self.counters.progress_skipped += 1;
            return;
        };
        let known =
            self.running.iter().position(|running| (running.reporter, running.task) == (reporter, task));
        // A later event of the task replaces late progress; it was counted already or will arrive.
        if order == Order::Late || (known.is_none() && self.running.len() >= MAX_RUNNING) {
            self.counters.progress_skipped += 1;
            return;
        }
        let running =
            Running { reporter, task, device: event.device.clone(), end, duration: event.duration_ms };
        match known {
            Some(index) => self.running[index] = running,
            None => self.running.push(running),
        }
    }

    fn amounts_of(&mut self, device: Option<&str>) -> &mut Amounts {
        let Some(device) = device else { return &mut self.elsewhere };
        if !self.devices.contains_key(device) && self.devices.len() >= MAX_DEVICES {
            return &mut self.elsewhere;
        }
        self.devices.entry(device.to_owned()).or_default()
    }

    /// The values of the window at `now`, for a node with `devices` (id and number of slots).
    #[must_use]
    pub fn measure(&self, now: MonotonicTime, devices: &BTreeMap<String, u32>) -> WindowMeasurement {
        let mut at = self.clone();
        let now = at.advance(now);
        let line = at.line;
        for running in std::mem::take(&mut at.running) {
            let span = Span {
                start: (running.end - running.duration).0,
                end: running.end.0,
                amount: running.duration.0.min(running.end.0),
            };
            at.amounts_of(running.device.as_deref()).usage.add(&line, span);
        }
        let bucket = self.length.0.div_ceil(PUBLISHED_SLICES);
        let count = usize::try_from(self.length.0.div_ceil(bucket)).unwrap_or(usize::MAX);
        let mut measured =
            WindowMeasurement { bitstreams: at.recent.published(now), ..WindowMeasurement::default() };
        let mut total = at.elsewhere;
        // The usage of a single device is that of the node, so it is computed once.
        let is_only = total.is_empty() && at.devices.len() == 1 && devices.len() == 1;
        let mut of_only = None;
        for (id, mut amounts) in at.devices {
            if let Some(slots) = devices.get(&id) {
                amounts.cap(&line, now, u64::from(*slots));
                let buckets = amounts.buckets(&line, now, bucket, count, u64::from(*slots));
                measured.devices.insert(
                    id,
                    DeviceMeasurement {
                        usage: Buckets::sum_at(&buckets.usage, buckets.bucket, self.length, Millis::ZERO),
                        reconfiguration: Buckets::sum_at(
                            &buckets.reconfiguration,
                            buckets.bucket,
                            self.length,
                            Millis::ZERO,
                        ),
                    },
                );
                of_only = is_only.then_some(buckets);
            }
            if of_only.is_some() {
                break;
            }
            total.usage.add_all(&amounts.usage);
            total.reconfiguration.add_all(&amounts.reconfiguration);
        }
        let slots = if devices.is_empty() {
            u64::from(UNKNOWN_SLOTS)
        } else {
            devices.values().map(|slots| u64::from(*slots)).sum()
        };
        measured.buckets = of_only.unwrap_or_else(|| {
            total.cap(&line, now, slots);
            total.buckets(&line, now, bucket, count, slots)
        });
        measured.buckets.trim();
        let sum = |slices: &[Millis]| Buckets::sum_at(slices, Millis(bucket), self.length, Millis::ZERO);
        measured.usage = sum(&measured.buckets.usage);
        measured.reconfiguration = sum(&measured.buckets.reconfiguration);
        measured
    }

    /// Adds the usage that a published state still has within the window at `at`, for a collector that lost its
    /// checkpoint. Only totals are published per device, so slices are divided among the devices in proportion.
    pub fn seed(&mut self, state: &NodeState, at: Moment) {
        let now = self.advance(at.now);
        // A state from the future was measured before the wall clock stepped back. Its age is unknown; 0 is safe.
        let measured_at = now - (at.wall - state.measured_at);
        let whole = state.devices.iter().map(|device| device.usage.0).sum::<u64>().max(state.usage.0).max(1);
        let line = self.line;
        let of = |slices: &[Millis], index: usize| slices.get(index).copied().unwrap_or_default();
        for index in 0..state.buckets.len() {
            let usage = of(&state.buckets.usage, index);
            let reconfiguration = of(&state.buckets.reconfiguration, index);
            let bucket = state.buckets.bucket.0;
            let end = measured_at.0.saturating_sub((index as u64).saturating_mul(bucket));
            let span = |amount: u64| Span { start: end.saturating_sub(bucket), end, amount };
            let mut left = usage.0;
            for device in &state.devices {
                let share = u128::from(usage.0) * u128::from(device.usage.0) / u128::from(whole);
                let share = u64::try_from(share).unwrap_or(u64::MAX).min(left);
                left -= share;
                self.amounts_of(Some(&device.id)).usage.add(&line, span(share));
            }
            self.elsewhere.usage.add(&line, span(left));
            self.elsewhere.reconfiguration.add(&line, span(reconfiguration.0));
        }
        for bitstream in state.bitstreams.iter().rev() {
            let used = measured_at - bitstream.last_used_ago;
            if used + self.length >= now {
                self.recent.touch_parts(bitstream.name.as_deref(), bitstream.digest, used);
            }
        }
    }
}

impl Amounts {
    fn is_empty(&self) -> bool {
        self.usage.is_empty() && self.reconfiguration.is_empty()
    }

    fn cap(&mut self, line: &Line, now: MonotonicTime, slots: u64) {
        self.usage.cap(line, now.0, slots);
        self.reconfiguration.cap(line, now.0, slots);
    }

    /// The amounts in slices of `bucket` milliseconds. No slice exceeds what the slots can do, whatever the rounding.
    fn buckets(&self, line: &Line, now: MonotonicTime, bucket: u64, count: usize, slots: u64) -> Buckets {
        let most = bucket.saturating_mul(slots);
        let steps = |slices: &Slices| -> Vec<Millis> {
            let amounts = slices.steps(line, now.0, bucket, count).into_iter();
            amounts.map(|amount| Millis(amount.min(most))).collect()
        };
        Buckets {
            bucket: Millis(bucket),
            usage: steps(&self.usage),
            reconfiguration: steps(&self.reconfiguration),
        }
    }
}

impl Share {
    fn of(self, amount: u64) -> u64 {
        match self {
            Self::Whole => amount,
            Self::Part { new, of } => {
                let share = u128::from(amount) * u128::from(new.min(of)) / u128::from(of.max(1));
                u64::try_from(share).unwrap_or(u64::MAX)
            }
        }
    }
}
