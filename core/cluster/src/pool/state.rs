//! The state of a pool: its slots, its waiting jobs and its running jobs.
//!
//! `submit`, `finish` and `wake` return the jobs that the caller must start now; [`policy::decide`] decides. A slot is
//! either idle or busy.

use super::policy::{self, Fit, IdleChoice, NothingFits, Offer, PoolPolicy, Rank, ResourceAwareRules};
use super::{Grant, Home, Job, JobId, NodeIndex, Place, SlotNumber, Waiting};
use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

/// The slots of a set of nodes and the jobs that use or want them.
#[derive(Debug)]
pub struct Pool {
    policy: PoolPolicy,
    nodes: Vec<Node>,
    /// Node of each idle slot, by the number that the slot got when it became idle.
    idle: BTreeMap<u64, NodeIndex>,
    /// Number of times that a slot became idle.
    idles: u64,
    waiting: BTreeMap<Rank, Waiting>,
    ranks: BTreeMap<JobId, Rank>,
    running: BTreeMap<JobId, Running>,
    /// Number of jobs that were submitted.
    arrivals: u64,
    most_waiting: usize,
}

#[derive(Debug)]
struct Node {
    slots: u32,
    /// Idle slots with their number in `Pool::idle`, the longest idle first.
    free: VecDeque<(u64, SlotNumber)>,
    remote_running: u32,
    /// Number of waiting jobs whose home is this node.
    own_waiting: usize,
}

#[derive(Debug, Clone, Copy)]
struct Running {
    node: NodeIndex,
    slot: SlotNumber,
    place: Place,
}

/// The reason why a job is refused or cannot finish.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PoolError {
    /// The pool has no such node.
    #[error("the pool has no node {}", .0.0)]
    UnknownNode(NodeIndex),
    /// A job with this id waits or runs already.
    #[error("job {} is known already", .0.0)]
    Known(JobId),
    /// The job does not run.
    #[error("job {} does not run", .0.0)]
    NotRunning(JobId),
    /// The job could never start: the policy gives it no slot of this pool.
    #[error("no slot of the pool could ever run job {}", .0.0)]
    NoSlot(JobId),
    /// The maximum number of jobs waits already.
    #[error("{0} jobs wait already: try again later")]
    Full(usize),
}

impl Node {
    /// Whether any waiting job could start here: a cheap check before all waiting jobs are asked.
    fn may_take(&self, rules: &ResourceAwareRules) -> bool {
        let serves_enough = self.remote_running >= rules.contention.get();
        let only_own = serves_enough && rules.nothing_fits == NothingFits::KeepIdle;
        !self.free.is_empty() && (self.own_waiting > 0 || !only_own)
    }
}

impl Pool {
    /// A pool with the given number of slots per node, in which at most `most_waiting` jobs wait. A node without slots
    /// only submits jobs.
    #[must_use]
    pub fn new(slots: &[u32], policy: PoolPolicy, most_waiting: usize) -> Self {
        let nodes = slots.iter().map(|slots| Node {
            slots: *slots,
            free: VecDeque::new(),
            remote_running: 0,
            own_waiting: 0,
        });
        let mut pool = Self {
            policy,
            nodes: nodes.collect(),
            idle: BTreeMap::new(),
            idles: 0,
            waiting: BTreeMap::new(),
            ranks: BTreeMap::new(),
            running: BTreeMap::new(),
            arrivals: 0,
            most_waiting,
        };
        // The first slot of every node, then the second of every node, so that the first jobs go to different nodes.
        for slot in 0..slots.iter().copied().max().unwrap_or(0) {
            for (index, _) in (0..).zip(slots).filter(|(_, slots)| slot < **slots) {
                pool.free(NodeIndex(index), SlotNumber(slot));
            }
        }
        pool
    }

    /// Number of waiting jobs.
    #[must_use]
    pub fn waiting(&self) -> usize {
        self.waiting.len()
    }

    /// Number of running jobs.
    #[must_use]
    pub fn running(&self) -> usize {
        self.running.len()
    }

    /// Number of idle slots.
    #[must_use]
    pub fn idle(&self) -> usize {
        self.idle.len()
    }

    /// Number of remote jobs that run on `node`.
    #[must_use]
    pub fn remote_running(&self, node: NodeIndex) -> u32 {
        self.node(node).map_or(0, |node| node.remote_running)
    }

    /// Adds a job. The job starts now if a grant is returned, and waits otherwise.
    ///
    /// # Errors
    /// [`PoolError`]; the pool is unchanged then.
    pub fn submit(&mut self, job: Job, now: Duration) -> Result<Option<Grant>, PoolError> {
        let home = match self.node(job.home) {
            None => return Err(PoolError::UnknownNode(job.home)),
            Some(node) if node.slots > 0 => Home::Pooled,
            Some(_) => Home::Bare,
        };
        if self.ranks.contains_key(&job.id) || self.running.contains_key(&job.id) {
            return Err(PoolError::Known(job.id));
        }
        let never = match self.policy.fit {
            Fit::LocalOnly => home == Home::Bare,
            Fit::Anyone(_) | Fit::ResourceAware(_) => self.idle.is_empty() && self.running.is_empty(),
        };
        if never {
            return Err(PoolError::NoSlot(job.id));
        }
        if self.waiting.len() >= self.most_waiting {
            return Err(PoolError::Full(self.waiting.len()));
        }
        let rank = self.policy.rank(&job, self.arrivals);
        self.arrivals += 1;
        let waiting = Waiting { job, home, since: now, skipped: 0 };
        // No waiting job can use an idle slot, or it would have one. So the new job is the only candidate.
        if let Some(offer) = self.idle_for(&job)
            && let Some((_, id, place)) =
                policy::decide(&self.policy.fit, std::iter::once((rank, &waiting)), offer, now).pick
        {
            return Ok(self.start(id, offer.node, place));
        }
        self.waiting.insert(rank, waiting);
        self.ranks.insert(job.id, rank);
        if let Some(node) = self.nodes.get_mut(job.home.0 as usize) {
            node.own_waiting += 1;
        }
        Ok(None)
    }

    /// Ends a running job and returns the jobs that start in slots that are idle now.
    ///
    /// # Errors
    /// [`PoolError::NotRunning`] if the job does not run.
    pub fn finish(&mut self, job: JobId, now: Duration) -> Result<Vec<Grant>, PoolError> {
        let running = self.running.remove(&job).ok_or(PoolError::NotRunning(job))?;
        if let Some(node) = self.nodes.get_mut(running.node.0 as usize)
            && running.place == Place::Remote
        {
            node.remote_running -= 1;
        }
        self.free(running.node, running.slot);
        let mut grants = Vec::new();
        let decision = self.offer(running.node, now);
        for rank in &decision.skipped {
            if let Some(waiting) = self.waiting.get_mut(rank) {
                waiting.skipped += 1;
            }
        }
        grants.extend(self.grant(running.node, decision.pick));
        grants.extend(self.wake(now));
        Ok(grants)
    }

    /// Removes a waiting job. A running job ends by [`Self::finish`].
    pub fn cancel(&mut self, job: JobId) -> Option<Job> {
        let rank = self.ranks.get(&job).copied()?;
        self.take(rank).map(|waiting| waiting.job)
    }

    /// Returns the waiting jobs that have waited long enough to start in an idle slot. Call it at [`Self::next_wake`].
    pub fn wake(&mut self, now: Duration) -> Vec<Grant> {
        let mut grants = Vec::new();
        let Fit::ResourceAware(rules) = self.policy.fit else { return grants };
        if self.waiting.is_empty() || self.idle.is_empty() {
            return grants;
        }
        let mut nodes: Vec<(u32, NodeIndex)> = (0..)
            .zip(&self.nodes)
            .filter(|(_, node)| !node.free.is_empty())
            .map(|(index, node)| (node.remote_running, NodeIndex(index)))
            .collect();
        nodes.sort_unstable();
        for (_, node) in nodes {
            while self.node(node).is_some_and(|here| here.may_take(&rules)) {
                let pick = self.offer(node, now).pick;
                let Some(grant) = self.grant(node, pick) else { break };
                grants.push(grant);
            }
        }
        grants
    }

    /// The time at which a waiting job will have waited long enough for a slot that is idle now.
    #[must_use]
    pub fn next_wake(&self) -> Option<Duration> {
        let Fit::ResourceAware(rules) = self.policy.fit else { return None };
        let open = |node: &Node| !node.free.is_empty() && node.remote_running < rules.contention.get();
        if self.waiting.is_empty() || self.idle.is_empty() || !self.nodes.iter().any(open) {
            return None;
        }
        let at = |one: &Waiting| one.since.saturating_add(rules.patience.limit(one.job.size));
        self.waiting.values().map(at).min()
    }

    fn node(&self, node: NodeIndex) -> Option<&Node> {
        self.nodes.get(node.0 as usize)
    }

    /// The idle slot that a new job is offered.
    fn idle_for(&self, job: &Job) -> Option<Offer> {
        let home = self.node(job.home).filter(|node| !node.free.is_empty()).map(|_| job.home);
        let calmest = || {
            (0..)
                .zip(&self.nodes)
                .filter(|(_, node)| !node.free.is_empty())
                .min_by_key(|(_, node)| (node.remote_running, node.free.front().copied()))
                .map(|(index, _)| NodeIndex(index))
        };
        let node = match self.policy.fit {
            Fit::Anyone(IdleChoice::LongestIdle) => self.idle.values().next().copied(),
            Fit::LocalOnly => home,
            Fit::Anyone(IdleChoice::HomeFirst) | Fit::ResourceAware(_) => home.or_else(calmest),
        }?;
        Some(Offer { node, remote_running: self.remote_running(node) })
    }

    /// Decides about an idle slot of `node` among all waiting jobs.
    fn offer(&self, node: NodeIndex, now: Duration) -> policy::Decision {
        let offer = Offer { node, remote_running: self.remote_running(node) };
        policy::decide(&self.policy.fit, self.waiting.iter().map(|(rank, one)| (*rank, one)), offer, now)
    }

    fn grant(&mut self, node: NodeIndex, pick: Option<(Rank, JobId, Place)>) -> Option<Grant> {
        let (rank, job, place) = pick?;
        self.take(rank)?;
        self.start(job, node, place)
    }

    /// Removes a job from the waiting ones.
    fn take(&mut self, rank: Rank) -> Option<Waiting> {
        let waiting = self.waiting.remove(&rank)?;
        self.ranks.remove(&waiting.job.id);
        if let Some(node) = self.nodes.get_mut(waiting.job.home.0 as usize) {
            node.own_waiting -= 1;
        }
        Some(waiting)
    }

    /// Starts a job in the longest idle slot of a node.
    fn start(&mut self, job: JobId, index: NodeIndex, place: Place) -> Option<Grant> {
        let node = self.nodes.get_mut(index.0 as usize)?;
        let (number, slot) = node.free.pop_front()?;
        if place == Place::Remote {
            node.remote_running += 1;
        }
        self.idle.remove(&number);
        self.running.insert(job, Running { node: index, slot, place });
        Some(Grant { job, node: index, slot, place })
    }

    fn free(&mut self, index: NodeIndex, slot: SlotNumber) {
        if let Some(node) = self.nodes.get_mut(index.0 as usize) {
            self.idles += 1;
            node.free.push_back((self.idles, slot));
            self.idle.insert(self.idles, index);
        }
    }
}

#[cfg(test)]
mod tests;
