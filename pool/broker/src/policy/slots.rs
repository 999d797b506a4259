//! Slots: following what the protocol knows of them.

use super::faults::OtherSlots;
use super::groups::GroupKey;
use super::jobs::bytes_of;
use super::names::OTHERS;
use super::overruns::beyond;
use super::{
    Board, Decision, Holder, KnownKind, Policy, Recall, SlotId, SlotState, Stage, arrival, pool_time,
};
use crate::catalog::SlotKind;
use fpga_board::slots::SlotIndex;
use fpga_cluster::pool::state::{PoolError, Use};
use fpga_cluster::pool::{
    AcceleratorId, Bytes, ClassSet, Job as PoolJob, NodeIndex, SlotClass, SlotNumber, TenantId,
};
use fpga_cluster::shared_pool::{Actions, Slot};
use fpga_core::bitstream::Digest;
use fpga_core::units::Moment;
use fpga_pool_api::manager::LentBoard;
use fpga_pool_leases::broker::{LeaseStage, SlotRecord};
use fpga_pool_leases::ids::{JobUuid, ManagerId};
use fpga_pool_leases::lease::{Lease, Usage, Work};
use fpga_pool_leases::timing;
use std::time::Duration;

impl Policy {
    /// Takes in what a manager says of its board. [`Self::follow`] comes next, for each slot. Returns whether it is to be told
    /// that some of the slots are not used, since there are too many kinds.
    pub fn set_board(&mut self, manager: ManagerId, lent: &LentBoard) -> bool {
        let node = NodeIndex(self.nodes.number(&lent.board.node).0);
        let classes = lent.slots.iter().map(|slot| {
            let (kind, shell) = (lent.board.kind.clone(), lent.board.shell.clone());
            self.class(SlotKind { kind, shell, region: slot.region.clone() }, node)
        });
        let classes: Vec<Option<SlotClass>> = classes.collect();
        let is_used = classes.iter().all(Option::is_some);
        let loaded = lent.slots.iter().map(|slot| slot.loaded).collect();
        self.boards.insert(manager, Board { node, classes, loaded });
        !is_used && self.first_named.entry(node).or_default().tell()
    }

    /// Slots are followed one after the other: see
    /// [`learn_slots`](fpga_cluster::shared_pool::SharedPool::learn_slots).
    pub fn learn_slots(&mut self) {
        self.pool.learn_slots();
    }

    /// All of them are followed.
    pub fn knows_all(&mut self, now: Moment) {
        let actions = self.pool.knows_all(pool_time(now.now));
        self.act(actions, now);
    }

    /// Forgets a manager's slots and their places.
    pub fn lose(&mut self, manager: ManagerId, now: Moment) {
        // Without the board there may be no slot of its kinds.
        self.is_outdated |= self.boards.remove(&manager).is_some();
        let [first, last] = [0, u32::MAX].map(|slot| SlotId { manager, slot: SlotIndex(slot) });
        let places: Vec<(SlotId, Slot)> =
            self.places.range(first..=last).map(|(id, place)| (*id, *place)).collect();
        for (id, place) in places {
            self.take_out(place, now);
            self.places.remove(&id);
            self.free_numbers.push(place.number);
        }
    }

    /// Follows the record of a slot, with what its last or present lease has used, if that is told.
    pub fn follow(&mut self, id: SlotId, record: &SlotRecord, usage: Option<Usage>, now: Moment) {
        let Some((node, class)) = self.class_of(id) else { return };
        let place = self.place(id, node);
        if let Some(usage) = usage
            && let Some(slot) = self.slots.get_mut(&place)
        {
            slot.usage = usage;
            self.check_size(place, now);
        }
        match record {
            SlotRecord::Free => {
                // A group keeps a slot without a job until the pool wants the slot back.
                if !self.is_spare(place) {
                    self.end_holder(place, now);
                }
                if !self.slots.contains_key(&place) && !self.faults.is_suspect(id, now.now) {
                    self.put_in(id, place, class, now);
                }
            }
            SlotRecord::Preparing(lease) => self.follow_lease(id, place, class, lease, None, now),
            SlotRecord::Leased { lease, stage } => {
                self.follow_lease(id, place, class, lease, Some(*stage), now);
            }
            SlotRecord::Unknown | SlotRecord::Bad => self.take_out(place, now),
        }
    }

    /// A grant was not carried out: the slot leaves the pool until it is followed again.
    pub fn grant_failed(&mut self, id: SlotId, now: Moment) {
        if let Some(place) = self.places.get(&id) {
            self.take_out(*place, now);
        }
    }

    /// A slot refuses the bitstream of a job for a minute: its manager has no file of it, or it failed to load there several times.
    pub fn bitstream_failed(&mut self, id: SlotId, digest: Digest, job: JobUuid, now: Moment) {
        let tenant = self.jobs.get(&job).map_or(TenantId(OTHERS), |job| job.tenant);
        let class = self.class_of(id).map(|(_, class)| class);
        let is_other = |slot: &SlotState| Some(slot.class) == class && slot.id != id;
        let others = if self.slots.values().any(is_other) { OtherSlots::Some } else { OtherSlots::None };
        self.faults.bitstream_failed(id, digest, (tenant, others), now.now);
        self.is_outdated = true;
    }

    /// Why a slot has refused a bitstream and what to do, for the people whose jobs want the bitstream.
    pub fn explain_fault(&mut self, digest: Digest, reason: String, now: Moment) {
        self.faults.explain(digest, reason, now.now);
    }

    fn class_of(&self, id: SlotId) -> Option<(NodeIndex, SlotClass)> {
        let board = self.boards.get(&id.manager)?;
        Some((board.node, (*board.classes.get(id.slot.0 as usize)?)?))
    }

    /// The class of a kind of slots that a node lends; `None` if there are too many kinds.
    fn class(&mut self, kind: SlotKind, node: NodeIndex) -> Option<SlotClass> {
        let class = |number: usize| SlotClass::new(u8::try_from(number).ok()?);
        let is_it = |known: &Option<KnownKind>| known.as_ref().is_some_and(|known| known.kind == kind);
        if let Some(number) = self.kinds.iter().position(is_it) {
            return class(number);
        }
        let number = self.kinds.iter().position(Option::is_none).unwrap_or(self.kinds.len());
        let class = class(number)?;
        if !self.first_named.entry(node).or_default().take_kind() {
            return None;
        }
        let known = Some(KnownKind { kind, first: node });
        match self.kinds.get_mut(number) {
            Some(free) => *free = known,
            None => self.kinds.push(known),
        }
        // Jobs that wait may run in such slots.
        self.is_outdated = true;
        Some(class)
    }

    /// Forgets the kinds that no board has any more. The classes of waiting jobs are to be looked at anew before a class gets
    /// another kind.
    pub(super) fn forget_kinds(&mut self) {
        for (number, known) in self.kinds.iter_mut().enumerate() {
            let Some(class) = u8::try_from(number).ok().and_then(SlotClass::new) else { continue };
            let is_used = self.groups.use_class(class) || self.boards.values().any(|board| board.has(class));
            if let Some(KnownKind { first, .. }) = known.take_if(|_| !is_used)
                && let Some(of_node) = self.first_named.get_mut(&first)
            {
                of_node.give_back_kind();
            }
        }
    }

    /// The place of a slot. Without a free number, all numbers below the number of places are taken.
    fn place(&mut self, id: SlotId, node: NodeIndex) -> Slot {
        let next = SlotNumber(u32::try_from(self.places.len()).unwrap_or(u32::MAX));
        *self.places.entry(id).or_insert_with(|| {
            let number = self.free_numbers.pop().unwrap_or(next);
            Slot { node, number }
        })
    }

    fn put_in(&mut self, id: SlotId, place: Slot, class: SlotClass, now: Moment) {
        self.slots.insert(place, SlotState::of_nobody(id, class));
        self.is_outdated |= self.groups.lack_class();
        let actions = self.pool.add_slot(place, class, pool_time(now.now));
        self.act(actions, now);
        let loaded = self.boards.get(&id.manager).and_then(|board| *board.loaded.get(id.slot.0 as usize)?);
        if let Some(digest) = loaded
            && self.slots.get(&place).is_some_and(|slot| slot.holder == Holder::Nobody)
        {
            let resident = self.accelerator_in_slot(&digest, place.node);
            self.pool.set_resident(place, Some(resident));
        }
    }

    /// Takes a slot out of the pool, and ends what holds it.
    fn take_out(&mut self, place: Slot, now: Moment) {
        let Some(class) = self.slots.get(&place).map(|slot| slot.class) else { return };
        let actions = self.pool.remove_slot(place, pool_time(now.now));
        self.act(actions, now);
        self.end_holder(place, now);
        // What the manager had loaded when it registered may be replaced since.
        if let Some(SlotState { id, .. }) = self.slots.remove(&place)
            && let Some(board) = self.boards.get_mut(&id.manager)
            && let Some(loaded) = board.loaded.get_mut(id.slot.0 as usize)
        {
            *loaded = None;
        }
        self.is_outdated |= self.pool.pool().class(class).slots == 0 && self.groups.use_class(class);
    }

    fn follow_lease(
        &mut self,
        id: SlotId,
        place: Slot,
        class: SlotClass,
        lease: &Lease,
        stage: Option<LeaseStage>,
        now: Moment,
    ) {
        if self.holder_job(place) != Some(lease.job) {
            self.take_out(place, now);
            self.adopt(id, place, class, lease, now);
        }
        let Some(slot) = self.slots.get_mut(&place) else { return };
        if slot.recall == Recall::Due && stage.is_some() {
            self.decisions.push(Decision::Recall(id));
        }
        let (holder, is_beyond) = (slot.holder, beyond(slot.named, slot.usage).is_some());
        match holder {
            Holder::Job { pool_job, .. } if is_beyond => self.pool.set_use(pool_job, Use::BeyondSize),
            Holder::Job { pool_job, .. } => self.pool.set_use(pool_job, use_of(stage)),
            Holder::Group { group, .. } => self.groups.ran(group, use_of(stage)),
            Holder::Nobody | Holder::GroupWithoutJob(_) => {}
        }
    }

    fn holder_job(&self, place: Slot) -> Option<JobUuid> {
        match self.slots.get(&place)?.holder {
            Holder::Job { job, .. } | Holder::Group { job, .. } => Some(job),
            Holder::Nobody | Holder::GroupWithoutJob(_) => None,
        }
    }

    fn is_spare(&self, place: Slot) -> bool {
        self.slots.get(&place).is_some_and(|slot| matches!(slot.holder, Holder::GroupWithoutJob(_)))
    }

    /// Takes a slot into the pool that has a lease which this policy did not decide.
    fn adopt(&mut self, id: SlotId, place: Slot, class: SlotClass, lease: &Lease, now: Moment) {
        let at = pool_time(now.now);
        let (tenant, job) = (self.tenant_of_lease(lease, place.node, now), lease.job);
        let accelerator = self.accelerator_in_slot(&lease.digest, place.node);
        self.held.insert(job, bytes_of(&lease.work));
        self.is_outdated |= self.groups.lack_class();
        let mut state = SlotState::of_nobody(id, class);
        let since = arrival(lease.first_arrival, now);
        if let Work::Group(group) = lease.work
            && let Some((key, group_id)) = self.adopt_group(tenant, &group, class, accelerator, since, now)
        {
            state.holder = Holder::Group { job, group: key };
            self.slots.insert(place, state);
            let actions = self.pool.adopt_group_slot(group_id, place, at);
            self.act(actions, now);
        } else {
            let pool_job = self.new_pool_job(job);
            state.holder = Holder::Job { job, pool_job };
            let size = match lease.work {
                Work::Run { bytes } => {
                    state.named = bytes;
                    Bytes(bytes)
                }
                Work::Group(_) => Bytes(0),
            };
            self.slots.insert(place, state);
            let home = place.node;
            let pool_job = PoolJob { id: pool_job, tenant, home, size, accelerator, classes: ClassSet::ALL };
            let actions = self.pool.adopt_job(pool_job, place, class, at);
            self.act(actions, now);
        }
        self.pool.set_resident(place, Some(accelerator));
    }

    /// Ends what holds a slot, which stays in the pool unless it is on its way out.
    fn end_holder(&mut self, place: Slot, now: Moment) {
        let Some(slot) = self.slots.get_mut(&place) else { return };
        let holder = std::mem::replace(&mut slot.holder, Holder::Nobody);
        let usage = std::mem::take(&mut slot.usage);
        slot.recall = Recall::No;
        let at = pool_time(now.now);
        let actions = match holder {
            Holder::Nobody => return,
            Holder::Job { job, pool_job } => {
                self.pool_jobs.remove(&pool_job);
                self.job_ended(job, now);
                self.finish(pool_job, usage, at)
            }
            Holder::Group { job, group } => {
                self.job_ended(job, now);
                self.groups.count(group, usage);
                self.released(group, place, at)
            }
            Holder::GroupWithoutJob(group) => {
                self.groups.lose_spare(group, place);
                self.released(group, place, at)
            }
        };
        self.act(actions, now);
        if let Holder::Group { group, .. } | Holder::GroupWithoutJob(group) = holder {
            self.close_if_empty(group, now);
        }
    }

    /// The pool's word for the end of a job is an error only if the pool does not know the job.
    fn finish(&mut self, job: fpga_cluster::pool::JobId, usage: Usage, at: Duration) -> Actions {
        let ended: Result<Actions, PoolError> = self.pool.finish_after(job, Bytes(usage.bytes), at);
        ended.unwrap_or_default()
    }

    fn released(&mut self, group: GroupKey, place: Slot, at: Duration) -> Actions {
        match self.groups.id(group) {
            Some(id) => self.pool.released(id, place, at),
            None => Actions::default(),
        }
    }

    /// A job's lease has ended: the job may want the rest.
    fn job_ended(&mut self, job: JobUuid, now: Moment) {
        let bytes = self.held.remove(&job).unwrap_or(0);
        if self.jobs.get(&job).is_some_and(|job| job.stage == Stage::Granted) {
            self.jobs.remove(&job);
        }
        self.returning.add(job, bytes, now.now + timing::LOST);
    }

    /// The tenant of a lease that a node's manager tells. Those of too many new tenants count as one's, which has no quotas.
    fn tenant_of_lease(&mut self, lease: &Lease, node: NodeIndex, now: Moment) -> TenantId {
        let name = lease.tenant.as_str();
        if self.tenants.get(name).is_some() || self.first_named.entry(node).or_default().take_tenant() {
            self.tenant(name, now)
        } else {
            TenantId(OTHERS)
        }
    }

    /// The accelerator of a bitstream that a node's manager tells. Too many new ones count as one.
    fn accelerator_in_slot(&mut self, digest: &Digest, node: NodeIndex) -> AcceleratorId {
        let is_known = self.accelerators.get(&digest.to_string()).is_some();
        if is_known || self.first_named.entry(node).or_default().take_bitstream() {
            self.accelerator_of(digest)
        } else {
            AcceleratorId(OTHERS)
        }
    }

    /// The tenant's number. A new tenant gets what the settings say.
    pub(super) fn tenant(&mut self, name: &str, now: Moment) -> TenantId {
        let (number, is_new) = self.tenants.number(name);
        let tenant = TenantId(number);
        if is_new {
            let allowed = self.settings.allowance(name);
            let at = pool_time(now.now);
            let actions = self.pool.set_tenant(tenant, allowed.rules, allowed.guaranteed_slots, at);
            self.act(actions, now);
        }
        tenant
    }
}

impl SlotState {
    fn of_nobody(id: SlotId, class: SlotClass) -> Self {
        Self {
            id,
            class,
            holder: Holder::Nobody,
            named: u64::MAX,
            usage: Usage::default(),
            recall: Recall::No,
        }
    }
}

fn use_of(stage: Option<LeaseStage>) -> Use {
    if stage == Some(LeaseStage::Idle) { Use::Unused } else { Use::Used }
}
