//! Reports to the node's collector and to `/metrics`: the use of slots, reconfigurations, and the device's status.
//!
//! Each time that a task holds a slot is one event, from acquiring to releasing the slot, reconfiguration included.
//! Each reconfiguration is another event, with duration 0 (S-5). A report never blocks: the hook's thread sends it.

use crate::catalogue::Catalogue;
use crate::metrics::Metrics;
use crate::trace::Trace;
use fpga_board::dispatch::{EndedTask, SlotUsage, Tenant};
use fpga_board::slots::SlotIndex;
use fpga_core::bitstream::{BitstreamId, Digest};
use fpga_core::device::{DeviceStatus, Health, LoadedBitstream, ReconfiguredPart, Rotation};
use fpga_core::event::{Event, Phase};
use fpga_core::units::{Millis, WallTime};
use fpga_hook::{Reporter, WholeMillis};
use parking_lot::Mutex;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

/// Name in events for the kernels of programs from source. No bitstream has this name, since file names contain no
/// `/`.
pub const SOURCE_NAME: &str = "kube-fpga/source";

/// The reports of one device. Clones share their state.
#[derive(Debug, Clone)]
pub struct Reports {
    inner: Arc<Inner>,
}

/// Facts about a device that do not change.
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
    /// Number of slots.
    pub slots: u32,
    /// The part that a reconfiguration replaces.
    pub reconfigured_part: ReconfiguredPart,
}

/// The slots and the queue at a moment.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SlotsNow {
    /// Grows with every change, so that older values that arrive late can be ignored.
    pub revision: u64,
    /// The bitstream in each slot.
    pub resident: Vec<Option<Digest>>,
    /// Number of slots that tasks hold.
    pub in_use: usize,
    /// Number of tasks that wait.
    pub waiting: usize,
}

/// A reconfiguration of a slot.
#[derive(Debug, Clone)]
pub struct Reconfigured {
    /// The slot.
    pub slot: SlotIndex,
    /// The new bitstream.
    pub bitstream: Digest,
    /// Duration of the reconfiguration.
    pub took: Duration,
    /// The tenant whose task needed it.
    pub tenant: Tenant,
}

#[derive(Debug)]
struct Inner {
    /// Takes reconfigurations in place of the reporter; set in tenant processes.
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

/// A callback for reconfigurations.
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
    /// Reports of the device to `metrics` and, if there is one, to the collector behind `reporter`.
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

    /// Reports of a tenant process: `tell` passes reconfigurations to the manager, which knows all the rest.
    #[must_use]
    pub fn above(device: &str, tell: impl Fn(&Reconfigured) + Send + Sync + 'static) -> Self {
        let mut reports = Self::off();
        if let Some(inner) = Arc::get_mut(&mut reports.inner) {
            inner.facts.id = device.to_owned();
            inner.above = Some(Above(Box::new(tell)));
        }
        reports
    }

    /// Reports that are discarded.
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

    /// Reports that a slot has been loaded.
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

    /// Reports the health of the device, if it has changed.
    pub fn health(&self, health: Health) {
        self.with_state(|state| {
            let changed = state.health != health;
            state.health = health;
            changed
        });
    }

    /// Whether the device is in rotation, by the collector's last answer.
    #[must_use]
    pub fn rotation(&self) -> Rotation {
        self.inner.reporter.as_ref().map_or(Rotation::In, |reporter| reporter.rotation(&self.inner.facts.id))
    }

    /// Reports the loaded bitstreams again, since names of bitstreams have changed.
    pub fn names_changed(&self) {
        self.with_state(|_| true);
    }

    /// Counts a task that has ended. `held` is the time that it held slots.
    pub(crate) fn task_ended(&self, task: &EndedTask, held: Duration) {
        self.inner.metrics.tasks.inc();
        self.inner.metrics.task_seconds.observe(task.took.as_secs_f64());
        self.inner.metrics.task_of(task.session, &task.tenant, task.waited, held);
    }

    /// Reports that a task has released a slot.
    pub(crate) fn slot_used(&self, usage: &SlotUsage) {
        let held = usage.until.saturating_sub(usage.from);
        self.inner.metrics.slot_seconds.inc_by(held.as_secs_f64());
        if self.inner.trace.is_on() {
            self.inner.trace.slot_used(
                usage.slot,
                &self.name_of(usage.bitstream),
                &usage.tenant,
                usage.hold,
                held,
            );
        }
        let Some(reporter) = &self.inner.reporter else { return };
        let mut event = self.event(usage.bitstream, usage.slot, &usage.tenant);
        event.duration_ms = self.inner.used.take(held);
        event.task = Some(usage.hold);
        reporter.report(event);
    }

    /// Reports that a task still holds a slot.
    pub(crate) fn slot_in_use(&self, usage: &SlotUsage) {
        let Some(reporter) = &self.inner.reporter else { return };
        let mut event = self.event(usage.bitstream, usage.slot, &usage.tenant);
        event.duration_ms = usage.until.saturating_sub(usage.from).into();
        event.task = Some(usage.hold);
        event.phase = Phase::Running;
        reporter.report(event);
    }

    /// Reports the contents of the slots and the queue; ignored if a newer revision has been reported.
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

    /// Changes the state, and reports it to the collector if `change` returns true.
    fn with_state(&self, change: impl FnOnce(&mut DeviceState) -> bool) {
        let mut state = self.inner.state.lock();
        if change(&mut state)
            && let Some(reporter) = &self.inner.reporter
        {
            // The lock is held, so that the newest state is reported last. The hook only stores it.
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
            reconfigured_part: self.facts.reconfigured_part,
            loaded,
            queued: u32::try_from(state.slots.waiting).unwrap_or(u32::MAX),
            health: state.health,
        }
    }
}

#[cfg(test)]
mod tests;
