//! Why jobs wait, for people.

use super::{Job, Policy, Stage};
use fpga_cluster::pool::policy::Order;
use fpga_cluster::pool::{Bytes, ClassSet, SlotClass};
use fpga_pool_leases::ids::JobUuid;
use std::collections::{BTreeMap, BTreeSet, btree_set};
use std::ops::Bound;
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

/// A round of explanations, in which each waiting job is looked at.
///
/// To look at all jobs at once would take as long as there are many, and somebody else may want a slot meanwhile: so a round
/// is done in parts. First come the jobs that are not in the pool's order, while the others are ordered, and then
/// those in their order, each with the number of jobs before. A job that comes during a round is told when it asks, and
/// counted in the next round.
#[derive(Debug, Default)]
pub struct Round(Part);

#[derive(Debug, Default)]
enum Part {
    /// All jobs were looked at.
    #[default]
    Over,
    /// The jobs after `last` are to be looked at.
    Orders { last: Option<JobUuid>, order: BTreeSet<(Position, u64)> },
    /// The jobs of `order` are to be told.
    Tells {
        order: btree_set::IntoIter<(Position, u64)>,
        /// Number of those that were told, by their classes, of which there are few sets.
        before: BTreeMap<u64, u64>,
    },
}

impl Round {
    /// A round that has not begun.
    #[must_use]
    pub fn new() -> Self {
        Self(Part::Orders { last: None, order: BTreeSet::new() })
    }

    /// Whether all jobs were looked at.
    #[must_use]
    pub fn is_over(&self) -> bool {
        matches!(self.0, Part::Over)
    }
}

impl Policy {
    /// Goes on with a round: looks at `most` jobs, or at those that are left. Returns why jobs wait, for those of which it has
    /// changed since they were told last.
    pub fn new_explanations(&mut self, round: &mut Round, most: usize) -> Vec<(JobUuid, Explanation)> {
        let (mut changed, mut left) = (Vec::new(), most);
        while left > 0 && !round.is_over() {
            round.0 = match std::mem::take(&mut round.0) {
                Part::Over => Part::Over,
                Part::Orders { last, order } => self.order_some(last, order, &mut left, &mut changed),
                Part::Tells { order, before } => self.tell_some(order, before, &mut left, &mut changed),
            };
        }
        changed
    }

    /// Why a job waits: with the number of jobs before it when they were counted last.
    #[must_use]
    pub fn explanation(&self, uuid: JobUuid) -> Option<Explanation> {
        let job = self.jobs.get(&uuid)?;
        let ahead = job.told.as_ref().map_or(0, |told| told.ahead);
        Some(Explanation { ahead, reason: self.reason(job) })
    }

    /// Orders jobs, and tells those that are in no order.
    fn order_some(
        &mut self,
        last: Option<JobUuid>,
        mut order: BTreeSet<(Position, u64)>,
        left: &mut usize,
        changed: &mut Vec<(JobUuid, Explanation)>,
    ) -> Part {
        let after = last.map_or(Bound::Unbounded, Bound::Excluded);
        let some: Vec<JobUuid> =
            self.jobs.range((after, Bound::Unbounded)).take(*left).map(|(uuid, _)| *uuid).collect();
        let are_last = some.len() < *left;
        *left -= some.len();
        for uuid in &some {
            match self.position(*uuid) {
                Some(position) => {
                    order.insert(position);
                }
                None => changed.extend(self.tell(*uuid, 0)),
            }
        }
        if are_last {
            Part::Tells { order: order.into_iter(), before: BTreeMap::new() }
        } else {
            Part::Orders { last: some.last().copied(), order }
        }
    }

    /// Tells jobs, in their order.
    fn tell_some(
        &mut self,
        mut order: btree_set::IntoIter<(Position, u64)>,
        mut before: BTreeMap<u64, u64>,
        left: &mut usize,
        changed: &mut Vec<(JobUuid, Explanation)>,
    ) -> Part {
        while *left > 0 {
            let Some((position, classes)) = order.next() else { return Part::Over };
            *left -= 1;
            let (_, _, uuid) = position;
            // A job that has got a slot meanwhile, or waits for other ones, is before nobody.
            if self.position(uuid) == Some((position, classes)) {
                let shares = |of: &u64| of & classes != 0;
                let ahead = before.iter().filter(|(of, _)| shares(of)).map(|(_, count)| count).sum();
                changed.extend(self.tell(uuid, ahead));
                *before.entry(classes).or_default() += 1;
            }
        }
        Part::Tells { order, before }
    }

    /// Why a job waits, if that has changed since it was told last.
    fn tell(&mut self, uuid: JobUuid, ahead: u64) -> Option<(JobUuid, Explanation)> {
        let job = self.jobs.get(&uuid)?;
        let explanation = Explanation { ahead, reason: self.reason(job) };
        if job.told.as_ref() == Some(&explanation) {
            return None;
        }
        self.jobs.get_mut(&uuid)?.told = Some(explanation.clone());
        Some((uuid, explanation))
    }

    /// Position and classes of a job that waits in the pool by itself.
    fn position(&self, uuid: JobUuid) -> Option<(Position, u64)> {
        let job = self.jobs.get(&uuid)?;
        match (job.stage, job.asked.wanted.bundle) {
            (Stage::Pool(_), None) => Some(((self.queue_of(job.size), job.since, uuid), mask(job.classes))),
            _ => None,
        }
    }

    /// Why a job waits that has just asked, unless it has been granted a slot at once. The jobs before it are not counted
    /// yet: that takes a look at all jobs.
    pub fn first_explanation(&mut self, uuid: JobUuid) -> Option<Explanation> {
        let job = self.jobs.get(&uuid).filter(|job| job.stage != Stage::Granted)?;
        let known = job.told.clone();
        known.or_else(|| self.tell(uuid, 0).map(|(_, explanation)| explanation))
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
