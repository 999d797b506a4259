//! The waiting jobs of all tenants, with their timers.
//!
//! A job is in one [`JobQueue`], that of its tenant and its slot classes. Its timers say when it has waited long enough
//! to run anywhere (W), when it is old (queue 1), and when it is given up because no slot of the pool is compatible.

use super::policy::{Candidates, Fit, PoolPolicy, Rank, ResourceAwareRules};
use super::queue::{JobQueue, Reach, RemoteJobs};
use super::{Arrival, ClassSet, Home, Job, JobId, NodeIndex, SlotClass, TenantId};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// Time after which a job is given up if the pool has no compatible slot.
pub(super) const NO_SLOT_TIMEOUT: Duration = Duration::from_secs(30);

#[derive(Debug, Default)]
pub(super) struct WaitingJobs {
    jobs: BTreeMap<JobId, Waiting>,
    tenants: BTreeMap<TenantId, TenantJobs>,
    /// Number of jobs of each home, by tenant.
    homes: BTreeMap<NodeIndex, BTreeMap<TenantId, usize>>,
    /// Jobs that wait for locality, by the time at which they stop to.
    patience_ends: BTreeSet<(Duration, JobId)>,
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
    /// Number of free slots that skipped the job because they were remote.
    skipped: u32,
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
        if let (Reach::Home, Fit::ResourceAware(rules)) = (waiting.reach, &policy.fit) {
            self.patience_ends.insert((waiting.patience_ends(rules), id));
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
        queue.insert(waiting.rank, waiting.job.home, waiting.reach);
        self.jobs.insert(id, waiting);
    }

    pub(super) fn remove(&mut self, id: JobId, policy: &PoolPolicy) -> Option<Waiting> {
        let waiting = self.jobs.remove(&id)?;
        if let Fit::ResourceAware(rules) = &policy.fit {
            self.patience_ends.remove(&(waiting.patience_ends(rules), id));
        }
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
            .map(|queue| queue.candidates(offer.node, offer.remote))
            .fold(Candidates::default(), Candidates::or_before)
    }

    fn queues(&self, tenant: TenantId, class: SlotClass) -> impl Iterator<Item = &JobQueue> {
        let queues = self.tenants.get(&tenant).into_iter().flat_map(|jobs| &jobs.queues);
        queues.filter(move |(classes, _)| classes.contains(class)).map(|(_, queue)| queue)
    }

    /// Counts a skip for each job of the tenant that waits for locality and comes before the first job that fits. A
    /// job is counted D times at most, then it may run anywhere: so all skips together cost D per job.
    pub(super) fn skip(&mut self, tenant: TenantId, offer: Offer, before: Option<Rank>, policy: &PoolPolicy) {
        let Fit::ResourceAware(rules) = &policy.fit else { return };
        if offer.remote == RemoteJobs::Refused {
            return;
        }
        let queues = self.queues(tenant, offer.class);
        let skipped: Vec<JobId> =
            queues.flat_map(|queue| queue.homebound_before(before)).map(|rank| rank.job).collect();
        for id in skipped {
            let Some(waiting) = self.jobs.get_mut(&id) else { continue };
            waiting.skipped += 1;
            if waiting.skipped >= rules.skips {
                self.patience_ends.remove(&(waiting.patience_ends(rules), id));
                self.change(id, |waiting| waiting.reach = Reach::Anywhere);
            }
        }
    }

    /// Lets the jobs go anywhere that have waited W·size, and moves the old ones to queue 1.
    pub(super) fn advance(&mut self, now: Duration) {
        while let Some(&(at, id)) = self.patience_ends.first().filter(|(at, _)| *at <= now) {
            self.patience_ends.remove(&(at, id));
            self.change(id, |waiting| waiting.reach = Reach::Anywhere);
        }
        while let Some(&(at, id)) = self.old_from.first().filter(|(at, _)| *at <= now) {
            self.old_from.remove(&(at, id));
            self.change(id, |waiting| waiting.rank = waiting.rank.in_first_queue());
        }
    }

    /// The next time at which a job stops to wait for locality.
    pub(super) fn next_patience_end(&self) -> Option<Duration> {
        self.patience_ends.first().map(|(at, _)| *at)
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
            let Some(waiting) = self.jobs.get(&id) else { continue };
            let timer = (waiting.patience_ends(rules), id);
            let reach = reach(home(waiting.job.classes), waiting.skipped, timer.0, rules, now);
            match reach {
                Reach::Home => self.patience_ends.insert(timer),
                Reach::Anywhere => self.patience_ends.remove(&timer),
            };
            self.change(id, |waiting| waiting.reach = reach);
        }
    }

    /// Changes what a job's place in its queue depends on.
    fn change(&mut self, id: JobId, change: impl FnOnce(&mut Waiting)) {
        let Some(waiting) = self.jobs.get_mut(&id) else { return };
        let before = *waiting;
        change(waiting);
        if let Some(tenant) = self.tenants.get_mut(&before.job.tenant)
            && let Some(queue) = tenant.queues.get_mut(&before.job.classes)
        {
            queue.remove(before.rank, before.job.home, before.reach);
            queue.insert(waiting.rank, waiting.job.home, waiting.reach);
        }
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
        let mut rank = policy.rank(&job, arrival);
        let mut waiting = Self { job, arrival, rank, reach: Reach::Anywhere, skipped: 0, given_up_at: None };
        if waiting.old_from(policy).is_some_and(|at| at <= now) {
            rank = rank.in_first_queue();
        }
        waiting.rank = rank;
        if let Fit::ResourceAware(rules) = &policy.fit {
            waiting.reach = reach(home, 0, waiting.patience_ends(rules), rules, now);
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

    fn patience_ends(&self, rules: &ResourceAwareRules) -> Duration {
        self.arrival.at.saturating_add(rules.patience.limit(self.job.size))
    }

    fn old_from(&self, policy: &PoolPolicy) -> Option<Duration> {
        policy.old_age(self.job.size).map(|age| self.arrival.at.saturating_add(age))
    }
}

fn reach(
    home: Home,
    skipped: u32,
    patience_ends: Duration,
    rules: &ResourceAwareRules,
    now: Duration,
) -> Reach {
    if home == Home::Bare || skipped >= rules.skips || patience_ends <= now {
        Reach::Anywhere
    } else {
        Reach::Home
    }
}
