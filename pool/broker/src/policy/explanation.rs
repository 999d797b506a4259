//! Why jobs wait, for people.

use super::{Job, Policy, Stage};
use fpga_cluster::pool::policy::Order;
use fpga_cluster::pool::{Bytes, ClassSet, SlotClass};
use fpga_pool_leases::ids::JobUuid;
use fpga_pool_leases::lease::Work;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// Why a job waits.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Explanation {
    /// Number of waiting jobs that come before it, if the order stays as it is.
    pub ahead: u64,
    /// The reason.
    pub reason: String,
}

/// A position in the policy's order.
type Position = (u64, Duration, JobUuid);

impl Policy {
    /// Why jobs wait, for those of which it has changed since the last call.
    pub fn new_explanations(&mut self) -> Vec<(JobUuid, Explanation)> {
        let mut changed = Vec::new();
        for (uuid, explanation) in self.explanations() {
            if let Some(job) = self.jobs.get_mut(&uuid)
                && job.told.as_ref() != Some(&explanation)
            {
                job.told = Some(explanation.clone());
                changed.push((uuid, explanation));
            }
        }
        changed
    }

    /// Why a job waits that has just asked, unless it has been granted a slot at once. The jobs before it are not counted
    /// yet: that takes a look at all jobs.
    pub fn first_explanation(&mut self, uuid: JobUuid) -> Option<Explanation> {
        let job = self.jobs.get(&uuid).filter(|job| job.stage != Stage::Granted)?;
        let known = job.told.clone();
        let explanation = known.unwrap_or_else(|| Explanation { ahead: 0, reason: self.reason(job) });
        self.jobs.get_mut(&uuid)?.told = Some(explanation.clone());
        Some(explanation)
    }

    /// Why jobs wait.
    #[must_use]
    pub fn explanations(&self) -> Vec<(JobUuid, Explanation)> {
        let ahead = self.ahead();
        let explained = self.jobs.iter().map(|(uuid, job)| {
            let ahead = ahead.get(uuid).copied().unwrap_or(0);
            (*uuid, Explanation { ahead, reason: self.reason(job) })
        });
        explained.collect()
    }

    fn reason(&self, job: &Job) -> String {
        let accelerator = &job.asked.wanted.accelerator;
        if job.stage == Stage::Granted {
            return format!("a slot was found, and its board loads the bitstream of {accelerator}");
        }
        if let Stage::Group(group) = job.stage {
            let (held, given) = self.group_slots(group);
            let fault = self.fault(job).map(|fault| format!("; {fault}")).unwrap_or_default();
            return format!("its group has {held} slots, and may have {given} now{fault}");
        }
        if let Stage::Bundle(bundle) = job.stage {
            let (come, size) = self.bundles.count(bundle);
            return format!("{come} of the {size} jobs of its bundle have come");
        }
        let counts: Vec<_> =
            self.pool.pool().classes().filter(|(class, _)| job.classes.contains(*class)).collect();
        if counts.iter().all(|(_, count)| count.slots == 0) {
            let why = self.why_no_slot(job);
            return format!(
                "no lent slot can run {accelerator}: {why}; after 30 s of that the job is cancelled"
            );
        }
        let (held, quota) =
            (self.pool.pool().held(job.tenant), self.pool.pool().tenant_rules(job.tenant).held_slots);
        if held >= quota {
            return format!(
                "{} holds {held} slots, as many as its quota allows",
                self.tenants.name(job.tenant.0)
            );
        }
        if let Some(bundle) = job.asked.wanted.bundle {
            let idle = self.pool.pool().idle_for_jobs(job.classes);
            let size = bundle.size;
            return format!("its bundle takes {size} slots at once, and {idle} fitting slots are idle");
        }
        if counts.iter().any(|(class, _)| self.pool.pool().is_kept(*class)) {
            return "a bundle of jobs that has waited long gets the slots that become free".to_owned();
        }
        let is_idle = |(_, count): &&(SlotClass, fpga_cluster::pool::ClassCount)| {
            count.jobs + count.groups < count.slots
        };
        if counts.iter().any(|count| is_idle(&count)) {
            return match &job.asked.home {
                Some(home) => format!("it waits for a slot of its own node {home}, and later for any"),
                None => "the idle slots' nodes have as many remote jobs as they take at once".to_owned(),
            };
        }
        "all fitting slots are taken".to_owned()
    }

    /// Why no lent slot can run a job, and where to look.
    pub(super) fn why_no_slot(&self, job: &Job) -> String {
        if let Some(fault) = self.fault(job) {
            return fault.to_owned();
        }
        if job.listed.is_empty() {
            let tenant = self.tenants.name(job.tenant.0);
            return format!(
                "the library has no bitstream of it for {tenant}; `kubectl fpga bitstreams` shows what it has"
            );
        }
        let kinds: BTreeSet<&str> = job.listed.iter().map(|variant| variant.board.as_str()).collect();
        let kinds = kinds.into_iter().collect::<Vec<_>>().join(", ");
        format!(
            "its bitstreams are for boards of the kind {kinds}, and no such board lends a slot that works; \
             `kubectl fpga pool slots` shows the lent slots"
        )
    }

    /// Why a slot has refused a bitstream of the job.
    fn fault(&self, job: &Job) -> Option<&str> {
        job.listed.iter().find_map(|variant| self.faults.reason(&variant.digest))
    }

    /// Number of jobs before each job of the pool, of those that could take the same slots.
    fn ahead(&self) -> BTreeMap<JobUuid, u64> {
        let mut order: Vec<(Position, u64)> = Vec::new();
        for (uuid, job) in &self.jobs {
            if let (Stage::Pool(_), Work::Run { bytes }) = (job.stage, job.asked.wanted.work)
                && job.asked.wanted.bundle.is_none()
            {
                order.push(((self.queue_of(Bytes(bytes)), job.since, *uuid), mask(job.classes)));
            }
        }
        order.sort_unstable();
        // There are few sets of classes.
        let mut before: BTreeMap<u64, u64> = BTreeMap::new();
        let mut ahead = BTreeMap::new();
        for ((_, _, uuid), classes) in order {
            let shares = |of: &u64| of & classes != 0;
            let count = before.iter().filter(|(of, _)| shares(of)).map(|(_, count)| count).sum();
            ahead.insert(uuid, count);
            *before.entry(classes).or_default() += 1;
        }
        ahead
    }

    fn queue_of(&self, size: Bytes) -> u64 {
        match &self.settings.jobs.order {
            Order::Arrival => 0,
            Order::Size => size.0,
            Order::Queues(thresholds) => thresholds.queue_of(size),
        }
    }
}

fn mask(classes: ClassSet) -> u64 {
    let has = |number: &u8| SlotClass::new(*number).is_some_and(|class| classes.contains(class));
    (0..SlotClass::COUNT).filter(has).fold(0, |mask, number| mask | 1 << number)
}
