//! Waiting jobs.

use super::bundles::BundleKey;
use super::{Decision, Explanation, Job, Policy, Stage, arrival, cause, pool_time};
use crate::catalog::{Catalog, Variant};
use fpga_board::dispatch::Tenant;
use fpga_cluster::pool::state::{Entry, Quotas};
use fpga_cluster::pool::{AcceleratorId, Bytes, ClassSet, Job as PoolJob, JobId, NodeIndex, SlotClass};
use fpga_core::bitstream::Digest;
use fpga_core::units::{Moment, WallTime};
use fpga_pool_leases::ids::JobUuid;
use fpga_pool_leases::lease::{Wanted, Work};
use fpga_pool_leases::messages::CancelCause;
use std::sync::Arc;
use std::time::Duration;

/// A job that waits, as the protocol and the identity of its client say.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AskedJob {
    /// Tenant of the job.
    pub tenant: Tenant,
    /// Node of the client; `None` if it is not known.
    pub home: Option<Arc<str>>,
    /// What the job asks for.
    pub wanted: Wanted,
    /// When it arrived first.
    pub first_arrival: WallTime,
}

impl AskedJob {
    /// Bytes that count for quotas.
    pub(super) fn bytes(&self) -> u64 {
        bytes_of(&self.wanted.work)
    }
}

/// Bytes that count for quotas.
pub(super) fn bytes_of(work: &Work) -> u64 {
    match work {
        Work::Run { bytes } => *bytes,
        Work::Group(_) => 0,
    }
}

impl Policy {
    /// A job waits. One that waits already, and asks for the same, keeps its place.
    pub fn wait(&mut self, uuid: JobUuid, asked: AskedJob, catalog: &Catalog, now: Moment) {
        let mut admitted = self.held.get(&uuid).copied().or_else(|| self.returning.bytes(uuid));
        if let Some(job) = self.jobs.get(&uuid) {
            if job.stage == Stage::Granted || job.asked == asked {
                return;
            }
            admitted = admitted.max(Some(job.asked.bytes()));
            self.leave(uuid, now);
        }
        // A job that comes back has been admitted, and so have its bytes. More of them are as a new job's.
        let is_admitted = admitted.is_some_and(|bytes| asked.bytes() <= bytes);
        let quotas = if is_admitted { Quotas::Waive } else { Quotas::Apply };
        self.enter(uuid, asked, None, quotas, catalog, now);
    }

    /// A job does not wait any more: it was offered a lease, was cancelled, or is lost.
    pub fn leave(&mut self, uuid: JobUuid, now: Moment) {
        let Some(job) = self.jobs.remove(&uuid) else { return };
        match job.stage {
            Stage::Pool(pool_job) => self.leave_pool(uuid, pool_job, job.bundle(), now),
            Stage::Bundle(bundle) => self.bundles.leave(Some(bundle), uuid),
            Stage::Group(group) => {
                self.pool.remove_group_job(job.tenant);
                self.groups.leave(group, uuid);
                self.close_if_empty(group, now);
            }
            Stage::NoClass { .. } => self.pool.remove_group_job(job.tenant),
            // The slot's record tells how it goes on.
            Stage::Anew | Stage::Granted => {}
        }
    }

    /// A job does not wait in the pool any more.
    pub(super) fn leave_pool(
        &mut self,
        uuid: JobUuid,
        pool_job: JobId,
        bundle: Option<BundleKey>,
        now: Moment,
    ) {
        self.pool_jobs.remove(&pool_job);
        if let Some(bundle) = bundle {
            self.leave_bundle(bundle, uuid, now.now);
        }
        let actions = self.pool.cancel(pool_job, pool_time(now.now));
        self.act(actions, now);
    }

    /// Looks again in which slots waiting jobs can run, after kinds of slots or accelerators have changed.
    pub fn update_jobs(&mut self, catalog: &Catalog, now: Moment) {
        self.is_outdated = false;
        self.leave_classes_without_slots(now);
        self.forget_kinds();
        let waiting = |job: &Job| job.stage != Stage::Granted;
        let jobs: Vec<JobUuid> =
            self.jobs.iter().filter(|(_, job)| waiting(job)).map(|(uuid, _)| *uuid).collect();
        for uuid in jobs {
            let Some(job) = self.jobs.get_mut(&uuid) else { continue };
            job.listed = listed(&job.asked, catalog);
            let Some(job) = self.jobs.get(&uuid) else { continue };
            let variants = self.usable(&job.listed, now);
            let classes = self.classes_of(&variants);
            let enters_anew = match job.stage {
                Stage::Pool(_) | Stage::Bundle(_) => classes != job.classes,
                Stage::NoClass { .. } => self.largest_class(classes).is_some(),
                Stage::Anew => true,
                Stage::Group(_) | Stage::Granted => false,
            };
            if let Stage::Group(key) = job.stage {
                self.update_group_job(uuid, key, variants);
            } else if enters_anew {
                let (asked, told) = (job.asked.clone(), job.told.clone());
                self.leave(uuid, now);
                self.enter(uuid, asked, told, Quotas::Waive, catalog, now);
            }
        }
    }

    /// Whether [`Self::update_jobs`] is due.
    #[must_use]
    pub fn is_outdated(&self) -> bool {
        self.is_outdated
    }

    fn enter(
        &mut self,
        uuid: JobUuid,
        asked: AskedJob,
        told: Option<Explanation>,
        quotas: Quotas,
        catalog: &Catalog,
        now: Moment,
    ) {
        let listed = listed(&asked, catalog);
        let variants = self.usable(&listed, now);
        let tenant = self.tenant(asked.tenant.as_str(), now);
        let home = match &asked.home {
            // Boards alone give nodes numbers: a client may say any node.
            Some(node) => NodeIndex(self.nodes.get(node).unwrap_or(u32::MAX)),
            None => NodeIndex(u32::MAX),
        };
        let accelerator = self.accelerator_for(&variants);
        let (size, since) = self.size_and_arrival(uuid, &asked, now);
        let (classes, work, bundle) = (self.classes_of(&variants), asked.wanted.work, asked.wanted.bundle);
        let pool_job = self.new_pool_job(uuid);
        let stage = Stage::Pool(pool_job);
        let job =
            Job { tenant, asked, home, listed, variants, classes, accelerator, since, size, stage, told };
        self.jobs.insert(uuid, job);
        match (work, bundle) {
            (Work::Group(group), _) => {
                self.pool_jobs.remove(&pool_job);
                self.enter_group(uuid, &group, quotas, now);
            }
            (Work::Run { .. }, Some(bundle)) => {
                self.pool_jobs.remove(&pool_job);
                self.enter_bundle(uuid, bundle, quotas, now);
            }
            (Work::Run { .. }, None) => {
                let job = PoolJob { id: pool_job, tenant, home, size, accelerator, classes };
                match self.pool.enter(job, Entry { since, quotas }, pool_time(now.now)) {
                    Ok(actions) => self.act(actions, now),
                    Err(error) => {
                        self.pool_jobs.remove(&pool_job);
                        self.refuse(uuid, cause(&error), error.to_string());
                    }
                }
            }
        }
    }

    /// Bytes of a job that begins to wait, and when it arrived.
    fn size_and_arrival(&self, uuid: JobUuid, asked: &AskedJob, now: Moment) -> (Bytes, Duration) {
        let first = arrival(asked.first_arrival, now);
        match (asked.wanted.work, self.overruns.get(uuid)) {
            (Work::Group(_), _) => (Bytes(0), first),
            (Work::Run { bytes }, None) => (Bytes(bytes), first),
            (Work::Run { bytes }, Some(overrun)) => {
                (Bytes(bytes.max(overrun.bytes)), first.max(overrun.since))
            }
        }
    }

    /// Decides that a job won't get a slot.
    pub(super) fn refuse(&mut self, job: JobUuid, why: CancelCause, message: String) {
        self.jobs.remove(&job);
        self.decisions.push(Decision::Cancel { job, why, message });
    }

    /// Decides that a job is cancelled which the pool has had no slot for.
    pub(super) fn give_up(&mut self, uuid: JobUuid) {
        let message = match self.jobs.get(&uuid) {
            Some(job) => {
                let accelerator = &job.asked.wanted.accelerator;
                let too_few = match job.asked.wanted.bundle {
                    Some(bundle) => format!("fewer than {} lent slots", bundle.size),
                    None => "no lent slot".to_owned(),
                };
                format!("for 30 s {too_few} could run {accelerator}: {}", self.why_no_slot(job))
            }
            None => CancelCause::NoFittingSlot.to_string(),
        };
        // The job leaves the pool when the broker has cancelled it.
        self.decisions.push(Decision::Cancel { job: uuid, why: CancelCause::NoFittingSlot, message });
    }

    /// Those of the bitstreams that are not at fault.
    fn usable(&self, listed: &Arc<[Variant]>, now: Moment) -> Arc<[Variant]> {
        let is_banned = |variant: &Variant| self.faults.is_banned(&variant.digest, now.now);
        if listed.iter().any(is_banned) {
            listed.iter().filter(|variant| !is_banned(variant)).cloned().collect()
        } else {
            Arc::clone(listed)
        }
    }

    /// The classes of slots in which one of the bitstreams runs.
    pub(super) fn classes_of(&self, variants: &[Variant]) -> ClassSet {
        let fits = |number: &usize| {
            let known = self.kinds.get(*number).and_then(Option::as_ref);
            known.is_some_and(|known| variants.iter().any(|variant| variant.fits(&known.kind)))
        };
        let class = |number: usize| SlotClass::new(u8::try_from(number).ok()?);
        (0..self.kinds.len()).filter(fits).filter_map(class).collect()
    }

    /// The accelerator that a bitstream stands for in the pool: residency and speed are told apart by it.
    pub(super) fn accelerator_of(&mut self, digest: &Digest) -> AcceleratorId {
        AcceleratorId(self.accelerators.number(&digest.to_string()).0)
    }

    /// The accelerator of a job that may use these bitstreams.
    pub(super) fn accelerator_for(&mut self, variants: &[Variant]) -> AcceleratorId {
        variants.first().map_or(AcceleratorId(u32::MAX), |variant| self.accelerator_of(&variant.digest))
    }

    pub(super) fn new_pool_job(&mut self, uuid: JobUuid) -> JobId {
        let id = JobId(self.next_pool_job);
        self.next_pool_job += 1;
        self.pool_jobs.insert(id, uuid);
        id
    }
}

/// The bitstreams that the library has for a job.
fn listed(asked: &AskedJob, catalog: &Catalog) -> Arc<[Variant]> {
    catalog.variants(asked.tenant.as_str(), &asked.wanted.accelerator)
}
