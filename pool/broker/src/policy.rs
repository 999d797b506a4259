//! Who gets which slot: follows what the lease protocol knows, and asks [`SharedPool`] for decisions.
//!
//! ```text
//!   records of slots, waiting jobs ──► Policy ──► Decision::{Grant, Recall, Cancel}
//!                                        │ ▲
//!                              jobs, slots│ │starts, recalls
//!                                        ▼ │
//!                                     SharedPool
//! ```
//!
//! The protocol's records are the truth. [`Policy::follow`] compares one with what the pool thinks of the slot, and tells
//! the pool the difference; so a decision that could not be carried out, a manager that comes back, and a takeover from
//! another broker are nothing special. The module is pure: no I/O, and moments are arguments.

mod bundles;
#[cfg(test)]
mod consistency;
mod explanation;
mod faults;
mod first_named;
mod groups;
mod jobs;
mod names;
mod overruns;
mod returning;
mod settings;
mod slots;
mod views;

use crate::catalog::{SlotKind, Variant};
use bundles::{BundleKey, OpenBundles};
use faults::Faults;
use first_named::FirstNamed;
use fpga_board::slots::SlotIndex;
use fpga_cluster::pool::state::PoolError;
use fpga_cluster::pool::{AcceleratorId, Bytes, ClassSet, JobId, NodeIndex, SlotClass, SlotNumber, TenantId};
use fpga_cluster::shared_pool::{Actions, SharedPool, Slot};
use fpga_core::bitstream::Digest;
use fpga_core::units::{Millis, Moment, MonotonicTime, WallTime};
use fpga_pool_leases::ids::{JobUuid, ManagerId};
use fpga_pool_leases::lease::{Usage, Work};
use fpga_pool_leases::messages::CancelCause;
use groups::{GroupKey, OpenGroups};
use names::Names;
use overruns::Overruns;
use returning::Returning;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

pub use explanation::{Explanation, Round};
pub use jobs::AskedJob;
pub use settings::{PolicySettings, TenantSettings, TenantsError};

/// A slot of a manager.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SlotId {
    /// The manager.
    pub manager: ManagerId,
    /// The slot.
    pub slot: SlotIndex,
}

/// What is to be done.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Decision {
    /// A waiting job gets a free slot.
    Grant {
        /// The job.
        job: JobUuid,
        /// The slot.
        slot: SlotId,
        /// The bitstream that the job's accelerator has for the slot.
        digest: Digest,
        /// Time between two reports of what the lease has used.
        usage_every: Millis,
    },
    /// The lease that a slot has is to end.
    Recall(SlotId),
    /// A waiting job won't get a slot.
    Cancel {
        /// The job.
        job: JobUuid,
        /// The reason.
        why: CancelCause,
        /// What happened and what to do, for people.
        message: String,
    },
}

/// The policy of a pool.
#[derive(Debug)]
pub struct Policy {
    settings: PolicySettings,
    pool: SharedPool,
    tenants: Names,
    nodes: Names,
    accelerators: Names,
    /// The kinds of slots by their classes; `None` for a class that none has.
    kinds: Vec<Option<KnownKind>>,
    first_named: BTreeMap<NodeIndex, FirstNamed>,
    boards: BTreeMap<ManagerId, Board>,
    /// The places in the pool of the managers' slots.
    places: BTreeMap<SlotId, Slot>,
    /// Numbers of places that no slot has any more.
    free_numbers: Vec<SlotNumber>,
    slots: BTreeMap<Slot, SlotState>,
    jobs: BTreeMap<JobUuid, Job>,
    pool_jobs: BTreeMap<JobId, JobUuid>,
    next_pool_job: u64,
    groups: OpenGroups,
    bundles: OpenBundles,
    faults: Faults,
    /// Jobs with leases, and the bytes for which they got them.
    held: BTreeMap<JobUuid, u64>,
    returning: Returning,
    overruns: Overruns,
    /// Whether waiting jobs may run in other slots than the pool knows.
    is_outdated: bool,
    decisions: Vec<Decision>,
}

/// A kind of slots that boards lend.
#[derive(Debug)]
struct KnownKind {
    kind: SlotKind,
    /// The node that was the first to lend such a slot.
    first: NodeIndex,
}

/// A board with lent slots.
#[derive(Debug)]
struct Board {
    node: NodeIndex,
    /// The class of each slot; `None` if there are too many classes.
    classes: Vec<Option<SlotClass>>,
    loaded: Vec<Option<Digest>>,
}

impl Board {
    fn has(&self, class: SlotClass) -> bool {
        self.classes.contains(&Some(class))
    }
}

/// What the pool thinks of a slot that it has.
#[derive(Debug)]
struct SlotState {
    id: SlotId,
    class: SlotClass,
    holder: Holder,
    /// Bytes that the holder has named; the maximum for a group.
    named: u64,
    usage: Usage,
    recall: Recall,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Holder {
    Nobody,
    Job {
        job: JobUuid,
        pool_job: JobId,
    },
    Group {
        job: JobUuid,
        group: GroupKey,
    },
    /// The group may have the slot, and no job of it waits.
    GroupWithoutJob(GroupKey),
}

/// Whether the end of a slot's lease was asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Recall {
    No,
    /// The lease is not prepared yet: it is recalled when it is.
    Due,
    Asked,
}

/// A job that waits, or has been granted a slot that is not offered yet.
#[derive(Debug)]
struct Job {
    tenant: TenantId,
    asked: AskedJob,
    home: NodeIndex,
    /// All bitstreams that the library has for the job.
    listed: Arc<[Variant]>,
    /// Those that the job may use now.
    variants: Arc<[Variant]>,
    classes: ClassSet,
    accelerator: AcceleratorId,
    /// When it arrived, on the pool's clock: what is beyond the bytes that it has named arrives anew.
    since: Duration,
    /// Bytes that are left to be processed; 0 for a job of a group.
    size: Bytes,
    stage: Stage,
    /// What the client was told last of why the job waits.
    told: Option<Explanation>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    /// The job waits in the pool.
    Pool(JobId),
    /// The job waits as one of a group.
    Group(GroupKey),
    /// The job waits for the other jobs of its bundle.
    Bundle(BundleKey),
    /// The job has lost its place, and is to be queued again.
    Anew,
    /// There is no class of slots for the job's group.
    NoClass { until: MonotonicTime },
    /// The job was granted a slot.
    Granted,
}

impl Policy {
    /// A policy without slots and jobs.
    #[must_use]
    pub fn new(settings: PolicySettings) -> Self {
        let pool = SharedPool::new(settings.parameters());
        Self {
            settings,
            pool,
            tenants: Names::default(),
            nodes: Names::default(),
            accelerators: Names::default(),
            kinds: Vec::new(),
            first_named: BTreeMap::new(),
            boards: BTreeMap::new(),
            places: BTreeMap::new(),
            free_numbers: Vec::new(),
            slots: BTreeMap::new(),
            jobs: BTreeMap::new(),
            pool_jobs: BTreeMap::new(),
            next_pool_job: 0,
            groups: OpenGroups::default(),
            bundles: OpenBundles::default(),
            faults: Faults::default(),
            held: BTreeMap::new(),
            returning: Returning::default(),
            overruns: Overruns::default(),
            is_outdated: false,
            decisions: Vec::new(),
        }
    }

    /// Forgets slots and jobs: the broker is not active any more.
    pub fn forget(&mut self) {
        *self = Self::new(self.settings.clone());
    }

    /// Whether so many tenants, nodes or bitstreams have come and gone that new ones are taken for one. A new policy numbers only
    /// those of the protocol's records.
    #[must_use]
    pub fn has_used_up_names(&self) -> bool {
        [&self.tenants, &self.nodes, &self.accelerators].into_iter().any(Names::are_used_up)
    }

    /// What is to be done since the last call.
    pub fn decisions(&mut self) -> Vec<Decision> {
        std::mem::take(&mut self.decisions)
    }

    /// The next moment at which [`Self::wake`] has something to do.
    #[must_use]
    pub fn next_wake(&self) -> Option<MonotonicTime> {
        let of_pool = self.pool.pool().next_wake().map(from_pool_time);
        of_pool.into_iter().chain(self.groups.next_wake()).chain(self.bundles.next_wake()).min()
    }

    /// Does what is due: starts jobs that have waited long enough, ends the groups' period, and gives up jobs without a
    /// compatible slot.
    pub fn wake(&mut self, now: Moment) {
        let at = pool_time(now.now);
        let actions = self.pool.wake(at);
        self.act(actions, now);
        self.end_period(now);
        self.give_up_bundles(now.now);
        for pool_job in self.pool.pool().given_up(at) {
            match self.pool_jobs.get(&pool_job) {
                Some(job) => self.give_up(*job),
                None => {
                    let actions = self.pool.cancel(pool_job, at);
                    self.act(actions, now);
                }
            }
        }
        self.returning.forget(now.now);
        let is_there = |job| self.jobs.contains_key(&job) || self.held.contains_key(&job);
        self.overruns.forget(now.now, is_there);
        self.is_outdated |= self.faults.forget(now.now);
    }

    /// Asks for the end of leases for which others wait: of jobs that do not use them, and of those that have used more
    /// than they have asked for.
    pub fn recall_for_others(&mut self) {
        let jobs: BTreeSet<JobId> = self.pool.recallable_while_wanted().into_iter().collect();
        if jobs.is_empty() {
            return;
        }
        let is_meant = |holder: &Holder| match holder {
            Holder::Job { pool_job, .. } => jobs.contains(pool_job),
            _ => false,
        };
        let places: Vec<Slot> =
            self.slots.iter().filter(|(_, slot)| is_meant(&slot.holder)).map(|(place, _)| *place).collect();
        for place in places {
            self.recall(place);
        }
    }

    /// Carries out what the pool says, and what follows from it.
    fn act(&mut self, actions: Actions, now: Moment) {
        let mut todo = VecDeque::from([actions]);
        while let Some(Actions { jobs, grown, recalled }) = todo.pop_front() {
            for grant in jobs {
                let place = Slot { node: grant.node, number: grant.slot };
                todo.extend(self.start(grant.job, place, now));
            }
            for (group, place) in grown {
                self.grow(group, place);
            }
            for (_, place) in recalled {
                todo.extend(self.shrink(place, now));
            }
        }
    }

    /// Starts a job of the pool in a slot. Returns what follows if there is no such job any more.
    fn start(&mut self, pool_job: JobId, place: Slot, now: Moment) -> Option<Actions> {
        let job = self.pool_jobs.get(&pool_job).copied();
        match job.and_then(|job| self.grant(job, place, |job| Holder::Job { job, pool_job })) {
            Some(()) => None,
            None => self.pool.finish_after(pool_job, Bytes(0), pool_time(now.now)).ok(),
        }
    }

    /// Decides that a job gets a slot. `None` if there is no such job or slot, or the job has no bitstream for it.
    fn grant(&mut self, uuid: JobUuid, place: Slot, holder: impl Fn(JobUuid) -> Holder) -> Option<()> {
        let digest = self.bitstream(uuid, place)?;
        let slot = self.slots.get_mut(&place)?;
        let job = self.jobs.get_mut(&uuid)?;
        (slot.holder, slot.usage, slot.recall) = (holder(uuid), Usage::default(), Recall::No);
        slot.named = match job.asked.wanted.work {
            Work::Run { .. } => job.size.0,
            Work::Group(_) => u64::MAX,
        };
        if let Stage::Group(_) = std::mem::replace(&mut job.stage, Stage::Granted) {
            self.pool.remove_group_job(job.tenant);
        }
        self.bundles.leave(job.bundle(), uuid);
        self.held.insert(uuid, job.asked.bytes());
        self.pool.set_resident(place, Some(job.accelerator));
        let usage_every = self.settings.usage_interval();
        self.decisions.push(Decision::Grant { job: uuid, slot: slot.id, digest, usage_every });
        Some(())
    }

    /// The bitstream that a job has for a slot.
    fn bitstream(&self, job: JobUuid, place: Slot) -> Option<Digest> {
        let kind = self.kind_of(self.slots.get(&place)?.class)?;
        let mut variants = self.jobs.get(&job)?.variants.iter();
        variants.find(|variant| variant.fits(kind)).map(|variant| variant.digest)
    }

    fn recall(&mut self, place: Slot) {
        if let Some(slot) = self.slots.get_mut(&place)
            && slot.recall == Recall::No
        {
            slot.recall = Recall::Due;
            self.decisions.push(Decision::Recall(slot.id));
        }
    }

    /// Whether the end of a slot's lease is still to be asked for. A change of the slot repeats a decision that has not
    /// been carried out.
    pub fn is_recall_due(&self, id: SlotId) -> bool {
        let slot = self.places.get(&id).and_then(|place| self.slots.get(place));
        slot.is_some_and(|slot| slot.recall == Recall::Due)
    }

    /// The recall of a slot's lease was asked for.
    pub fn recalled(&mut self, id: SlotId) {
        if let Some(slot) = self.places.get(&id).and_then(|place| self.slots.get_mut(place)) {
            slot.recall = Recall::Asked;
        }
    }
}

/// The pool's clock begins so long before the broker's: jobs may have arrived before the broker started.
const EPOCH: Duration = Duration::from_secs(100 * 365 * 24 * 3600);

fn pool_time(now: MonotonicTime) -> Duration {
    EPOCH.saturating_add(Duration::from_millis(now.0))
}

/// Rounded up, so that what is due at that time is due at the moment.
fn from_pool_time(at: Duration) -> MonotonicTime {
    let since_start = at.saturating_sub(EPOCH);
    let millis = since_start.as_nanos().div_ceil(1_000_000);
    MonotonicTime(u64::try_from(millis).unwrap_or(u64::MAX))
}

/// Why the pool does not take a job, as its client is told.
fn cause(error: &PoolError) -> CancelCause {
    match error {
        PoolError::Quota(_) => CancelCause::Quota,
        PoolError::Full(_) => CancelCause::Full,
        PoolError::NoSlot(_) | PoolError::Known(_) | PoolError::NotRunning(_) => CancelCause::NoFittingSlot,
    }
}

/// A first arrival on the pool's clock.
fn arrival(first: WallTime, now: Moment) -> Duration {
    pool_time(now.now).saturating_sub((now.wall - first).into())
}

/// Position of a class among the kinds of slots.
fn class_index(class: SlotClass) -> usize {
    (0..SlotClass::COUNT).position(|number| SlotClass::new(number) == Some(class)).unwrap_or(usize::MAX)
}
