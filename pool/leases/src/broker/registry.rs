//! What the broker knows of the managers' slots.
//!
//! All of it comes from the manager's present connection. When that connection ends, the broker forgets the manager: the
//! next Register tells everything. No timeout frees a slot.

use super::event::{LeaseStage, SlotRecord};
use crate::ids::{ConnectionId, Incarnation, JobUuid, LeaseId, ManagerId};
use crate::lease::{Endpoint, Lease};
use crate::messages::{Activity, SlotReport, SlotStatus};
use crate::rules::{Rule, Rules};
use fpga_board::slots::SlotIndex;
use fpga_core::bitstream::Digest;
use fpga_core::units::MonotonicTime;
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// Number of refused bitstreams that are remembered of a manager. One that is forgotten is refused once more.
const REFUSED: usize = 64;

/// A registered manager.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct ManagerRecord {
    pub(super) connection: ConnectionId,
    pub(super) incarnation: Incarnation,
    pub(super) endpoint: Endpoint,
    next_seq: u64,
    pub(super) slots: Vec<SlotRecord>,
    /// Bitstreams that a slot has refused since they failed to load there, the oldest first, and until when they are
    /// not asked for again. Without it a policy could ask for ever, and be refused each time.
    bad: VecDeque<(SlotIndex, Digest, MonotonicTime)>,
}

/// The registered managers, by id and by connection.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub(super) struct Managers {
    records: BTreeMap<ManagerId, ManagerRecord>,
    connections: BTreeMap<ConnectionId, ManagerId>,
    /// The leases whose Prepare is not answered.
    preparing: BTreeMap<LeaseId, Preparing>,
    /// The same, by the moment at which their manager counts as stuck.
    answers: BTreeSet<(MonotonicTime, LeaseId)>,
}

/// A lease whose Prepare is not answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct Preparing {
    manager: ManagerId,
    slot: SlotIndex,
    answer_by: MonotonicTime,
}

/// A manager that is forgotten.
#[derive(Debug)]
pub(super) struct Closed {
    pub(super) manager: ManagerId,
    /// What its slots had: leases that are prepared, or are to be.
    pub(super) leases: Vec<Lease>,
}

/// What a report is worth.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Reported {
    /// The slot's record is changed by it, or the answer to a Prepare comes first.
    Taken(ManagerId),
    /// The connection is not the manager's present one.
    Stale,
    /// A report is missing or repeated: the connection breaks the protocol.
    OutOfOrder,
}

impl From<SlotStatus> for SlotRecord {
    fn from(status: SlotStatus) -> Self {
        match status {
            SlotStatus::Free => Self::Free,
            SlotStatus::Reserved(lease) => Self::Leased { lease, stage: LeaseStage::Reserved },
            SlotStatus::Held(lease, Activity::Busy) => Self::Leased { lease, stage: LeaseStage::Busy },
            SlotStatus::Held(lease, Activity::Idle) => Self::Leased { lease, stage: LeaseStage::Idle },
            SlotStatus::Draining(lease) => Self::Leased { lease, stage: LeaseStage::Draining },
            SlotStatus::Bad => Self::Bad,
        }
    }
}

impl ManagerRecord {
    /// Whether a slot has refused a bitstream a short while ago.
    pub(super) fn has_refused(&self, slot: SlotIndex, digest: &Digest, now: MonotonicTime) -> bool {
        self.bad.iter().any(|(of, bad, until)| *of == slot && bad == digest && now < *until)
    }
}

impl Managers {
    pub(super) fn len(&self) -> usize {
        self.records.len()
    }

    pub(super) fn get(&self, id: ManagerId) -> Option<&ManagerRecord> {
        self.records.get(&id)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (ManagerId, &ManagerRecord)> {
        self.records.iter().map(|(id, record)| (*id, record))
    }

    pub(super) fn connections(&self) -> impl Iterator<Item = ConnectionId> {
        self.connections.keys().copied()
    }

    /// Takes a Register in, after [`Self::close`] of the manager's former connection.
    pub(super) fn register(
        &mut self,
        id: ManagerId,
        connection: ConnectionId,
        incarnation: Incarnation,
        endpoint: Endpoint,
        slots: Vec<SlotStatus>,
    ) {
        let slots = slots.into_iter().map(SlotRecord::from).collect();
        self.connections.insert(connection, id);
        let record =
            ManagerRecord { connection, incarnation, endpoint, next_seq: 0, slots, bad: VecDeque::new() };
        self.records.insert(id, record);
    }

    /// Forgets a connection, and the manager if it is the present one.
    pub(super) fn close(&mut self, connection: ConnectionId) -> Option<Closed> {
        let id = self.connections.remove(&connection)?;
        if self.records.get(&id).is_none_or(|record| record.connection != connection) {
            return None;
        }
        let record = self.records.remove(&id)?;
        let leases = record.slots.into_iter().filter_map(|slot| match slot {
            SlotRecord::Preparing(lease) | SlotRecord::Leased { lease, .. } => Some(lease),
            SlotRecord::Free | SlotRecord::Unknown | SlotRecord::Bad => None,
        });
        let leases: Vec<Lease> = leases.collect();
        for lease in &leases {
            self.end_preparing(lease.id);
        }
        Some(Closed { manager: id, leases })
    }

    /// The job and the lease in a slot of a connection's manager.
    pub(super) fn lease_in(&self, connection: ConnectionId, slot: SlotIndex) -> Option<(JobUuid, LeaseId)> {
        let record = self.records.get(self.connections.get(&connection)?)?;
        match record.slots.get(slot.0 as usize)? {
            SlotRecord::Leased { lease, .. } => Some((lease.job, lease.id)),
            _ => None,
        }
    }

    fn end_preparing(&mut self, lease: LeaseId) -> Option<Preparing> {
        let preparing = self.preparing.remove(&lease)?;
        self.answers.remove(&(preparing.answer_by, lease));
        Some(preparing)
    }

    pub(super) fn current(&self, id: ManagerId) -> Option<ConnectionId> {
        self.records.get(&id).map(|record| record.connection)
    }

    /// Counts a slot as taken by a lease that is to be prepared.
    pub(super) fn prepare(&mut self, manager: ManagerId, lease: Lease, answer_by: MonotonicTime) {
        let (id, slot) = (lease.id, lease.slot);
        if let Some(record) = self.slot_mut(manager, slot) {
            *record = SlotRecord::Preparing(lease);
            self.end_preparing(id);
            self.preparing.insert(id, Preparing { manager, slot, answer_by });
            self.answers.insert((answer_by, id));
        }
    }

    /// The unanswered Prepares and when their managers count as stuck, the earliest first.
    pub(super) fn answers(&self) -> impl Iterator<Item = (MonotonicTime, LeaseId)> {
        self.answers.iter().copied()
    }

    /// Expects no answer to a Prepare any more. Returns the connection on which it was to come.
    pub(super) fn give_up(&mut self, lease: LeaseId) -> Option<ConnectionId> {
        let manager = self.end_preparing(lease)?.manager;
        self.current(manager)
    }

    /// Takes the answer to a Prepare, if it is expected on this connection. The slot is unknown then.
    pub(super) fn answered(
        &mut self,
        lease: LeaseId,
        connection: ConnectionId,
    ) -> Option<(ManagerId, Lease)> {
        let Preparing { manager: id, slot, .. } = *self.preparing.get(&lease)?;
        if self.current(id) != Some(connection) {
            return None;
        }
        self.end_preparing(lease);
        let record = self.slot_mut(id, slot)?;
        match std::mem::replace(record, SlotRecord::Unknown) {
            SlotRecord::Preparing(lease) => Some((id, lease)),
            other => {
                *record = other;
                None
            }
        }
    }

    pub(super) fn set(&mut self, id: ManagerId, slot: SlotIndex, record: SlotRecord) {
        if let Some(slot) = self.slot_mut(id, slot) {
            *slot = record;
        }
    }

    pub(super) fn report(&mut self, connection: ConnectionId, report: SlotReport, rules: Rules) -> Reported {
        let Some(id) = self.connections.get(&connection).copied() else { return Reported::Stale };
        let Some(record) = self.records.get_mut(&id) else { return Reported::Stale };
        if rules.hold(Rule::CurrentConnectionOnly) {
            if record.connection != connection {
                return Reported::Stale;
            }
            if report.seq != record.next_seq {
                return Reported::OutOfOrder;
            }
            record.next_seq += 1;
        }
        let Some(slot) = record.slots.get_mut(report.slot.0 as usize) else { return Reported::OutOfOrder };
        // A report before the answer to a Prepare was sent before the Prepare arrived.
        if !matches!(slot, SlotRecord::Preparing(_)) {
            *slot = report.status.into();
        }
        Reported::Taken(id)
    }

    /// Remembers that a slot refuses a bitstream.
    pub(super) fn refuses(&mut self, id: ManagerId, lease: &Lease, until: MonotonicTime) {
        if let Some(record) = self.records.get_mut(&id) {
            record.bad.retain(|(slot, digest, _)| (*slot, *digest) != (lease.slot, lease.digest));
            record.bad.push_back((lease.slot, lease.digest, until));
            if record.bad.len() > REFUSED {
                record.bad.pop_front();
            }
        }
    }

    /// The present connection of the manager that has a lease, and the lease's use.
    pub(super) fn find(&self, id: ManagerId, slot: SlotIndex) -> Option<(ConnectionId, &Lease, LeaseStage)> {
        let record = self.records.get(&id)?;
        match record.slots.get(slot.0 as usize)? {
            SlotRecord::Leased { lease, stage } => Some((record.connection, lease, *stage)),
            _ => None,
        }
    }

    #[cfg(feature = "exploration")]
    pub(super) fn renumber_reports(&mut self, connection: ConnectionId) -> u64 {
        let record = self.records.values_mut().find(|record| record.connection == connection);
        record.map_or(0, |record| std::mem::take(&mut record.next_seq))
    }

    fn slot_mut(&mut self, id: ManagerId, slot: SlotIndex) -> Option<&mut SlotRecord> {
        self.records.get_mut(&id)?.slots.get_mut(slot.0 as usize)
    }
}
