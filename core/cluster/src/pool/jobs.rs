//! The waiting jobs of all tenants, with their timers.
//!
//! A job is in one [`JobQueue`], that of its tenant and its slot classes. Its timers say when it has waited long enough
//! to run anywhere (W), when it is old (queue 1), and when it is given up because no slot of the pool is compatible.
//!
//! No decision looks at each job, also where it concerns each: skips and ends of patience are found where they count, in
//! [`super::homebound`], and of the jobs that are old a decision moves a limited number.

use super::homebound::{LongEnough, Patient};
use super::policy::{Candidates, Fit, PoolPolicy, Rank, ResourceAwareRules};
use super::queue::{JobQueue, Reach, RemoteJobs};
use super::{Arrival, ClassSet, Home, Job, JobId, NodeIndex, SlotClass, TenantId};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// Time after which a job is given up if the pool has no compatible slot.
pub(super) const NO_SLOT_TIMEOUT: Duration = Duration::from_secs(30);
/// Maximum number of timers of each kind that fire in a decision. The others fire in the next ones.
const TIMERS_AT_ONCE: usize = 64;

#[derive(Debug, Default)]
pub(super) struct WaitingJobs {
    jobs: BTreeMap<JobId, Waiting>,
    tenants: BTreeMap<TenantId, TenantJobs>,
    /// Number of jobs of each home, by tenant.
    homes: BTreeMap<NodeIndex, BTreeMap<TenantId, usize>>,
    /// Jobs that wait for locality, by the time at which they stop to, if they are not skipped often enough before.
    patience_ends: BTreeSet<(Duration, JobId)>,
    /// The latest time to which [`Self::advance`] was called.
    now: Duration,
    /// Jobs that are not old as yet, by the time at which they are.
    old_from: BTreeSet<(Duration, JobId)>,
    /// Jobs without a compatible slot, by the time at which they are given up.
    given_up_at: BTreeSet<(Duration, JobId)>,
}

/// A job that waits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Waiting {
    pub(super) job: Job,
    pub(super) arrival: Arrival,
    rank: Rank,
    reach: Reach,
    /// How the job waits for locality. The skips are those of before it entered its queue.
    patient: Patient,
    /// When the job is given up, if the pool has no compatible slot.
    given_up_at: Option<Duration>,
}

/// The waiting jobs of a tenant.
#[derive(Debug, Default)]
struct TenantJobs {
    queues: BTreeMap<ClassSet, JobQueue>,
    jobs: usize,
    bytes: u64,
}

/// A slot that is offered to the waiting jobs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Offer {
    pub(super) node: NodeIndex,
    pub(super) class: SlotClass,
    pub(super) remote: RemoteJobs,
    /// When a job has waited long enough to run remotely.
    pub(super) long_enough: LongEnough,
}

impl WaitingJobs {
    pub(super) fn len(&self) -> usize {
        self.jobs.len()
    }

    pub(super) fn get(&self, job: JobId) -> Option<&Waiting> {
        self.jobs.get(&job)
    }

    pub(super) fn contains(&self, job: JobId) -> bool {
        self.jobs.contains_key(&job)
    }

    /// Number and bytes of the tenant's waiting jobs.
    pub(super) fn of_tenant(&self, tenant: TenantId) -> (usize, u64) {
        self.tenants.get(&tenant).map_or((0, 0), |jobs| (jobs.jobs, jobs.bytes))
    }

    /// Tenants with waiting jobs that can run in this class.
    pub(super) fn tenants_for(&self, class: SlotClass) -> impl Iterator<Item = TenantId> {
        let wants = move |jobs: &TenantJobs| jobs.queues.keys().any(|classes| classes.contains(class));
        self.tenants.iter().filter(move |(_, jobs)| wants(jobs)).map(|(tenant, _)| *tenant)
    }

    /// Tenants with waiting jobs whose home is this node.
    pub(super) fn tenants_at(&self, home: NodeIndex) -> impl Iterator<Item = TenantId> {
        self.homes.get(&home).into_iter().flat_map(BTreeMap::keys).copied()
    }

    /// Adds a job; `served` says whether the pool has a compatible slot.
    pub(super) fn insert(
        &mut self,
        mut waiting: Waiting,
        policy: &PoolPolicy,
        served: Served,
        now: Duration,
    ) {
        let id = waiting.job.id;
        if waiting.reach == Reach::Home {
            self.patience_ends.insert((waiting.patient.until, id));
        }
        if let Some(at) = waiting.old_from(policy) {
            self.old_from.insert((at, id));
        }
        if served == Served::No {
            let at = now.saturating_add(NO_SLOT_TIMEOUT);
            waiting.given_up_at = Some(at);
            self.given_up_at.insert((at, id));
        }
        *self.homes.entry(waiting.job.home).or_default().entry(waiting.job.tenant).or_default() += 1;
        let tenant = self.tenants.entry(waiting.job.tenant).or_default();
        tenant.jobs += 1;
        tenant.bytes = tenant.bytes.saturating_add(waiting.job.size.0);
        let queue = tenant.queues.entry(waiting.job.classes).or_default();
        queue.insert(waiting.rank, waiting.job.home, waiting.reach, waiting.patient);
        self.jobs.insert(id, waiting);
    }

    pub(super) fn remove(&mut self, id: JobId, policy: &PoolPolicy) -> Option<Waiting> {
        let waiting = self.jobs.remove(&id)?;
        self.patience_ends.remove(&(waiting.patient.until, id));
        if let Some(at) = waiting.old_from(policy) {
            self.old_from.remove(&(at, id));
        }
        if let Some(at) = waiting.given_up_at {
            self.given_up_at.remove(&(at, id));
        }
        self.leave_home(&waiting.job);
        let Some(tenant) = self.tenants.get_mut(&waiting.job.tenant) else { return Some(waiting) };
        tenant.jobs -= 1;
        tenant.bytes = tenant.bytes.saturating_sub(waiting.job.size.0);
        if let Some(queue) = tenant.queues.get_mut(&waiting.job.classes) {
            queue.remove(waiting.rank, waiting.job.home, waiting.reach);
            if queue.is_empty() {
                tenant.queues.remove(&waiting.job.classes);
            }
        }
        if tenant.jobs == 0 {
            self.tenants.remove(&waiting.job.tenant);
        }
        Some(waiting)
    }

    fn leave_home(&mut self, job: &Job) {
        let Some(tenants) = self.homes.get_mut(&job.home) else { return };
        if let Some(jobs) = tenants.get_mut(&job.tenant) {
            *jobs -= 1;
            if *jobs == 0 {
                tenants.remove(&job.tenant);
            }
        }
        if tenants.is_empty() {
            self.homes.remove(&job.home);
        }
    }

    /// The candidates of a tenant for a slot.
    pub(super) fn candidates(&self, tenant: TenantId, offer: Offer) -> Candidates {
        self.queues(tenant, offer.class)
            .map(|queue| queue.candidates(offer.node, offer.remote, offer.long_enough))
            .fold(Candidates::default(), Candidates::or_before)
    }

    fn queues(&self, tenant: TenantId, class: SlotClass) -> impl Iterator<Item = &JobQueue> {
        let queues = self.tenants.get(&tenant).into_iter().flat_map(|jobs| &jobs.queues);
        queues.filter(move |(classes, _)| classes.contains(class)).map(|(_, queue)| queue)
    }

    /// Counts a skip for each job of the tenant that waits for locality and comes before the first job that fits. After D
    /// skips a job may run anywhere.
    pub(super) fn skip(&mut self, tenant: TenantId, offer: Offer, before: Option<Rank>) {
        if offer.remote == RemoteJobs::Refused {
            return;
        }
        let queues = self.tenants.get_mut(&tenant).into_iter().flat_map(|jobs| &mut jobs.queues);
        for (_, queue) in queues.filter(|(classes, _)| classes.contains(offer.class)) {
            queue.skip(before);
        }
    }

    /// Moves old jobs to queue 1, and forgets the timers of jobs that have waited W·size, which decisions find.
    pub(super) fn advance(&mut self, now: Duration) {
        self.now = self.now.max(now);
        for _ in 0..TIMERS_AT_ONCE {
            if self.patience_ends.first().is_none_or(|(at, _)| *at > now) {
                break;
            }
            self.patience_ends.pop_first();
        }
        for _ in 0..TIMERS_AT_ONCE {
            let Some(&(at, id)) = self.old_from.first().filter(|(at, _)| *at <= now) else { break };
            self.old_from.remove(&(at, id));
            self.change(id, |waiting| waiting.rank = waiting.rank.in_first_queue());
        }
    }

    /// The next time at which a job stops to wait for locality; the present, if there are timers that have not fired.
    pub(super) fn next_patience_end(&self) -> Option<Duration> {
        self.patience_ends.first().map(|(at, _)| self.now.max(*at))
    }

    /// The next time at which a job is given up.
    pub(super) fn next_given_up(&self) -> Option<Duration> {
        self.given_up_at.first().map(|(at, _)| *at)
    }

    /// The jobs that are given up now; they wait until they are removed.
    pub(super) fn given_up(&self, now: Duration) -> Vec<JobId> {
        self.given_up_at.iter().take_while(|(at, _)| *at <= now).map(|(_, id)| *id).collect()
    }

    /// Sets for all jobs anew whether the pool has a compatible slot. A job that had none before keeps its time.
    pub(super) fn set_served(&mut self, served: impl Fn(ClassSet) -> Served, now: Duration) {
        for (id, waiting) in &mut self.jobs {
            let since = waiting.given_up_at.unwrap_or(now.saturating_add(NO_SLOT_TIMEOUT));
            waiting.given_up_at = (served(waiting.job.classes) == Served::No).then_some(since);
            self.given_up_at.remove(&(since, *id));
            self.given_up_at.extend(waiting.given_up_at.map(|at| (at, *id)));
        }
    }

    /// Sets the reach of all jobs of a home anew, after slots of the home came or went.
    pub(super) fn set_home(
        &mut self,
        node: NodeIndex,
        home: impl Fn(ClassSet) -> Home,
        policy: &PoolPolicy,
        now: Duration,
    ) {
        let queues = self.tenants.values().flat_map(|tenant| tenant.queues.values());
        let jobs: Vec<JobId> = queues.flat_map(|queue| queue.of_home(node)).map(|rank| rank.job).collect();
        let Fit::ResourceAware(rules) = &policy.fit else { return };
        for id in jobs {
            self.change(id, |waiting| {
                waiting.reach = reach(home(waiting.job.classes), waiting.patient, rules, now);
            });
            let Some(waiting) = self.jobs.get(&id) else { continue };
            let timer = (waiting.patient.until, id);
            match waiting.reach {
                Reach::Home => self.patience_ends.insert(timer),
                Reach::Anywhere => self.patience_ends.remove(&timer),
            };
        }
    }

    /// Changes what a job's place in its queue depends on.
    fn change(&mut self, id: JobId, change: impl FnOnce(&mut Waiting)) {
        let Some(waiting) = self.jobs.get_mut(&id) else { return };
        let tenant = self.tenants.get_mut(&waiting.job.tenant);
        let Some(queue) = tenant.and_then(|tenant| tenant.queues.get_mut(&waiting.job.classes)) else {
            return;
        };
        let skipped = queue.remove(waiting.rank, waiting.job.home, waiting.reach);
        waiting.patient.skipped = skipped.unwrap_or(waiting.patient.skipped);
        change(waiting);
        queue.insert(waiting.rank, waiting.job.home, waiting.reach, waiting.patient);
    }
}

/// Whether the pool has a slot in which a job can run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Served {
    Yes,
    No,
}

impl Waiting {
    pub(super) fn new(job: Job, arrival: Arrival, home: Home, policy: &PoolPolicy, now: Duration) -> Self {
        let rank = policy.rank(&job, arrival);
        let patient = Patient { until: Duration::ZERO, skipped: 0 };
        let mut waiting = Self { job, arrival, rank, reach: Reach::Anywhere, patient, given_up_at: None };
        if waiting.old_from(policy).is_some_and(|at| at <= now) {
            waiting.rank = rank.in_first_queue();
        }
        if let Fit::ResourceAware(rules) = &policy.fit {
            waiting.patient.until = arrival.at.saturating_add(rules.patience.limit(job.size));
            waiting.reach = reach(home, waiting.patient, rules, now);
        }
        waiting
    }

    /// The candidates for a slot if no other job waits.
    pub(super) fn alone(&self, node: NodeIndex, remote: RemoteJobs) -> Candidates {
        let anywhere = self.reach == Reach::Anywhere && remote == RemoteJobs::Taken;
        Candidates {
            local: (self.job.home == node).then_some(self.rank),
            remote: anywhere.then_some(self.rank),
            first: Some(self.rank),
        }
    }

    fn old_from(&self, policy: &PoolPolicy) -> Option<Duration> {
        policy.old_age(self.job.size).map(|age| self.arrival.at.saturating_add(age))
    }
}

fn reach(home: Home, patient: Patient, rules: &ResourceAwareRules, now: Duration) -> Reach {
    if home == Home::Bare || patient.skipped >= rules.skips || patient.until <= now {
        Reach::Anywhere
    } else {
        Reach::Home
    }
}
