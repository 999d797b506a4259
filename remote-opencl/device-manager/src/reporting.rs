//! What the node's collector and `/metrics` are told: the use of slots, reconfigurations, and the device's status.
//!
//! One event for each time in which a task held a slot, from acquiring to releasing it, reconfiguration included; one
//! of its own for each reconfiguration, with duration 0 (S-5). Never blocks: the hook's thread does the sending.

use crate::catalogue::Catalogue;
use crate::metrics::Metrics;
use crate::trace::Trace;
use fpga_core::bitstream::{BitstreamId, Digest};
use fpga_core::device::{DeviceStatus, Health, LoadedBitstream};
use fpga_core::dispatch::{EndedTask, SlotUsage, Tenant};
use fpga_core::event::{Event, Phase};
use fpga_core::slots::SlotIndex;
use fpga_core::units::{Millis, WallTime};
use fpga_hook::{Reporter, WholeMillis};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime};

/// What events call the kernels of programs from source. No accelerator has that name: file names have no `/`.
pub const SOURCE_NAME: &str = "kube-fpga/source";

/// Reports for one device. Clones report to the same places.
#[derive(Debug, Clone)]
pub struct Reports {
    inner: Arc<Inner>,
}

/// What a device is, once and for all.
#[derive(Debug, Clone, Default)]
pub struct DeviceFacts {
    /// Id on its node, for example `dm0`.
    pub id: String,
    /// Vendor as in the label `fpga-scheduling.io/fpga-vendor`.
    pub vendor: String,
    /// Name of the OpenCL platform.
    pub platform: String,
    /// Board as in the label `fpga-scheduling.io/board`.
    pub board: String,
    /// Shell version as in the label `fpga-scheduling.io/shell-version`.
    pub shell: String,
    /// How many slots it has.
    pub slots: u32,
}

/// The slots and the queue at a moment.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SlotsNow {
    /// Grows with every change, so that what two threads say in the wrong order is told apart.
    pub revision: u64,
    /// What each slot holds.
    pub resident: Vec<Option<Digest>>,
    /// How many slots are held.
    pub in_use: usize,
    /// How many tasks wait.
    pub waiting: usize,
}

/// A slot that was loaded.
#[derive(Debug, Clone)]
pub struct Reconfigured {
    /// Which.
    pub slot: SlotIndex,
    /// With what.
    pub bitstream: Digest,
    /// How long that took.
    pub took: Duration,
    /// For whom.
    pub tenant: Tenant,
}

#[derive(Debug)]
struct Inner {
    /// Who reports reconfigurations instead.
    above: Option<Above>,
    reporter: Option<Reporter>,
    facts: DeviceFacts,
    catalogue: Arc<Catalogue>,
    metrics: Metrics,
    trace: Trace,
    used: WholeMillis,
    reconfigured: WholeMillis,
    state: Mutex<DeviceState>,
}

/// Hears of reconfigurations.
struct Above(Box<dyn Fn(&Reconfigured) + Send + Sync>);

impl std::fmt::Debug for Above {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Above")
    }
}

#[derive(Debug)]
struct DeviceState {
    slots: SlotsNow,
    health: Health,
}

impl Reports {
    /// Reports for the device to the collector behind `reporter`, if there is one, and to `metrics`.
    #[must_use]
    pub fn new(
        reporter: Option<Reporter>,
        facts: DeviceFacts,
        catalogue: Arc<Catalogue>,
        metrics: Metrics,
        trace: Trace,
    ) -> Self {
        let state = Mutex::new(DeviceState { slots: SlotsNow::default(), health: Health::Healthy });
        let inner = Inner {
            above: None,
            reporter,
            facts,
            catalogue,
            metrics,
            trace,
            used: WholeMillis::default(),
            reconfigured: WholeMillis::default(),
            state,
        };
        Self { inner: Arc::new(inner) }
    }

    /// Reports for a process that serves for another: that one is told of reconfigurations, and knows the rest.
    #[must_use]
    pub fn above(device: &str, tell: impl Fn(&Reconfigured) + Send + Sync + 'static) -> Self {
        let mut reports = Self::off();
        if let Some(inner) = Arc::get_mut(&mut reports.inner) {
            inner.facts.id = device.to_owned();
            inner.above = Some(Above(Box::new(tell)));
        }
        reports
    }

    /// Reports for nobody.
    #[must_use]
    pub fn off() -> Self {
        Self::new(None, DeviceFacts::default(), Arc::default(), Metrics::default(), Trace::default())
    }

    /// Id of the device on its node.
    #[must_use]
    pub fn device(&self) -> &str {
        &self.inner.facts.id
    }

    /// The metrics.
    #[must_use]
    pub fn metrics(&self) -> &Metrics {
        &self.inner.metrics
    }

    /// A slot has been loaded.
    pub fn reconfigured(&self, reconfigured: &Reconfigured) {
        if let Some(Above(tell)) = &self.inner.above {
            return tell(reconfigured);
        }
        let Reconfigured { slot, bitstream, took, tenant } = reconfigured;
        self.inner.metrics.reconfigurations.inc();
        self.inner.metrics.reconfiguration_seconds.inc_by(took.as_secs_f64());
        if self.inner.trace.is_on() {
            self.inner.trace.reconfigured(*slot, &self.name_of(Some(*bitstream)), *took);
        }
        let Some(reporter) = &self.inner.reporter else { return };
        let mut event = self.event(Some(*bitstream), *slot, tenant);
        event.reconfiguration_ms = self.inner.reconfigured.take(*took);
        reporter.report(event);
    }

    /// Whether the device answers has changed.
    pub fn health(&self, health: Health) {
        self.with_state(|state| {
            let changed = state.health != health;
            state.health = health;
            changed
        });
    }

    /// Bitstreams have other names: the collector is told what is loaded by them.
    pub fn names_changed(&self) {
        self.with_state(|_| true);
    }

    /// A task has ended, which held slots for so long.
    pub(crate) fn task_ended(&self, task: &EndedTask, held: Duration) {
        self.inner.metrics.tasks.inc();
        self.inner.metrics.task_seconds.observe(task.took.as_secs_f64());
        self.inner.metrics.task_of(&task.tenant, task.waited, held);
    }

    /// A task has released a slot.
    pub(crate) fn slot_used(&self, usage: &SlotUsage) {
        let held = usage.until.saturating_sub(usage.from);
        self.inner.metrics.slot_seconds.inc_by(held.as_secs_f64());
        if self.inner.trace.is_on() {
            self.inner.trace.slot_used(usage.slot, &self.name_of(usage.bitstream), &usage.tenant, held);
        }
        let Some(reporter) = &self.inner.reporter else { return };
        let mut event = self.event(usage.bitstream, usage.slot, &usage.tenant);
        event.duration_ms = self.inner.used.take(held);
        event.task = Some(usage.hold);
        reporter.report(event);
    }

    /// A task still holds a slot.
    pub(crate) fn slot_in_use(&self, usage: &SlotUsage) {
        let Some(reporter) = &self.inner.reporter else { return };
        let mut event = self.event(usage.bitstream, usage.slot, &usage.tenant);
        event.duration_ms = usage.until.saturating_sub(usage.from).into();
        event.task = Some(usage.hold);
        event.phase = Phase::Running;
        reporter.report(event);
    }

    /// What the slots hold, how many are held or how many tasks wait has changed.
    pub(crate) fn slots_changed(&self, now: SlotsNow) {
        self.with_state(|state| {
            if now.revision <= state.slots.revision {
                return false;
            }
            self.inner.metrics.tasks_waiting.set(i64::try_from(now.waiting).unwrap_or(i64::MAX));
            self.inner.metrics.slots_in_use.set(i64::try_from(now.in_use).unwrap_or(i64::MAX));
            let changed = state.slots.waiting != now.waiting || state.slots.resident != now.resident;
            state.slots = now;
            changed
        });
    }

    /// Changes the state; tells the collector if `change` says that there is something to tell.
    fn with_state(&self, change: impl FnOnce(&mut DeviceState) -> bool) {
        let mut state = self.inner.state.lock().unwrap_or_else(PoisonError::into_inner);
        if change(&mut state)
            && let Some(reporter) = &self.inner.reporter
        {
            // Under the lock, so that the newest is said last; the hook only stores it.
            reporter.device(self.inner.status(&state));
        }
    }

    fn name_of(&self, bitstream: Option<Digest>) -> String {
        bitstream
            .map_or_else(|| SOURCE_NAME.to_owned(), |digest| self.inner.catalogue.id_of(digest).to_string())
    }

    fn event(&self, bitstream: Option<Digest>, slot: SlotIndex, tenant: &Tenant) -> Event {
        let id = match bitstream {
            Some(digest) => self.inner.catalogue.id_of(digest),
            None => BitstreamId::Name(SOURCE_NAME.to_owned()),
        };
        Event {
            timestamp_ms: WallTime::of(SystemTime::now()),
            duration_ms: Millis::ZERO,
            reconfiguration_ms: Millis::ZERO,
            digest: bitstream.filter(|_| matches!(id, BitstreamId::Name(_))),
            bitstream_identifier: id,
            identity: None,
            task: None,
            phase: Phase::Final,
            merged: None,
            device: Some(self.inner.facts.id.clone()),
            slot: Some(slot.0),
            tenant: Some(tenant.as_str().to_owned()),
        }
    }
}

impl Inner {
    fn status(&self, state: &DeviceState) -> DeviceStatus {
        let mut loaded: Vec<LoadedBitstream> = Vec::new();
        for digest in state.slots.resident.iter().flatten() {
            if loaded.iter().all(|other| other.digest != *digest) {
                loaded.push(LoadedBitstream { id: self.catalogue.id_of(*digest), digest: *digest });
            }
        }
        DeviceStatus {
            id: self.facts.id.clone(),
            vendor: self.facts.vendor.clone(),
            platform: self.facts.platform.clone(),
            board: self.facts.board.clone(),
            shell: self.facts.shell.clone(),
            slots: self.facts.slots,
            loaded,
            queued: u32::try_from(state.slots.waiting).unwrap_or(u32::MAX),
            health: state.health,
        }
    }
}

#[cfg(test)]
mod tests;
