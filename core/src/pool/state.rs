//! A pool: its slots, the jobs that wait and those that run.
//!
//! `submit`, `finish` and `wake` say what the caller is to start now; the decisions are [`policy::decide`]'s. Slots
//! have no state here but idle and busy.

use super::policy::{self, Fit, IdleChoice, NothingFits, Offer, Policy, Rank, Rules};
use super::{Grant, Home, Job, JobId, NodeIndex, Place, SlotNumber, Waiting};
use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

/// The slots of some nodes, and who wants them.
#[derive(Debug)]
pub struct Pool {
    policy: Policy,
    nodes: Vec<Node>,
    /// The node of each idle slot by when it became idle.
    idle: BTreeMap<u64, NodeIndex>,
    /// Counts slots that became idle.
    idles: u64,
    waiting: BTreeMap<Rank, Waiting>,
    ranks: BTreeMap<JobId, Rank>,
    running: BTreeMap<JobId, Running>,
    /// Counts jobs.
    arrivals: u64,
    most_waiting: usize,
}

#[derive(Debug)]
struct Node {
    slots: u32,
    /// The idle ones with their number in `Pool::idle`, idle longest first.
    free: VecDeque<(u64, SlotNumber)>,
    remote_running: u32,
    /// How many jobs of this home wait.
    own_waiting: usize,
}

#[derive(Debug, Clone, Copy)]
struct Running {
    node: NodeIndex,
    slot: SlotNumber,
    place: Place,
}

/// Why a job is refused, or cannot end.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PoolError {
    /// No such node.
    #[error("the pool has no node {}", .0.0)]
    UnknownNode(NodeIndex),
    /// The id is that of a job that waits or runs.
    #[error("job {} is known already", .0.0)]
    Known(JobId),
    /// It does not run.
    #[error("job {} does not run", .0.0)]
    NotRunning(JobId),
    /// It could never start.
    #[error("no slot of the pool could ever run job {}", .0.0)]
    NoSlot(JobId),
    /// So many wait already.
    #[error("{0} jobs wait already: try again later")]
    Full(usize),
}

impl Node {
    /// Whether it is worth asking those that wait: most often it isn't, and they may be many.
    fn may_take(&self, rules: &Rules) -> bool {
        let serves_enough = self.remote_running >= rules.contention.get();
        let only_own = serves_enough && rules.nothing_fits == NothingFits::KeepIdle;
        !self.free.is_empty() && (self.own_waiting > 0 || !only_own)
    }
}

impl Pool {
    /// A pool of nodes with that many slots each (none: a node that only sends jobs), in which at most `most_waiting`
    /// jobs wait.
    #[must_use]
    pub fn new(slots: &[u32], policy: Policy, most_waiting: usize) -> Self {
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
        // The first slot of every node, then the second of every node: the longest idle ones lie on different nodes.
        for slot in 0..slots.iter().copied().max().unwrap_or(0) {
            for (index, _) in (0..).zip(slots).filter(|(_, slots)| slot < **slots) {
                pool.free(NodeIndex(index), SlotNumber(slot));
            }
        }
        pool
    }

    /// How many jobs wait.
    #[must_use]
    pub fn waiting(&self) -> usize {
        self.waiting.len()
    }

    /// How many jobs run.
    #[must_use]
    pub fn running(&self) -> usize {
        self.running.len()
    }

    /// How many slots are idle.
    #[must_use]
    pub fn idle(&self) -> usize {
        self.idle.len()
    }

    /// How many remote jobs run on a node.
    #[must_use]
    pub fn remote_running(&self, node: NodeIndex) -> u32 {
        self.node(node).map_or(0, |node| node.remote_running)
    }

    /// A job arrives: it starts at once, or waits until it is granted later.
    ///
    /// # Errors
    /// [`PoolError`], and nothing has changed.
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
        // No job that waits can use what is idle, or it would have it; so the new one is the only candidate.
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

    /// A granted job has ended: its slot is free for others.
    ///
    /// # Errors
    /// [`PoolError::NotRunning`].
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

    /// A waiting job is withdrawn. Running ones end by `finish`.
    pub fn cancel(&mut self, job: JobId) -> Option<Job> {
        let rank = self.ranks.get(&job).copied()?;
        self.take(rank).map(|waiting| waiting.job)
    }

    /// Starts what idle slots can take by now, after [`Self::next_wake`] for example.
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

    /// When a waiting job will have waited long enough for a slot that is idle now: [`Self::wake`] then.
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

    /// The idle slot that a new job is to be offered.
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

    /// What becomes of a slot of a node if all that wait are asked.
    fn offer(&self, node: NodeIndex, now: Duration) -> policy::Decision {
        let offer = Offer { node, remote_running: self.remote_running(node) };
        policy::decide(&self.policy.fit, self.waiting.iter().map(|(rank, one)| (*rank, one)), offer, now)
    }

    fn grant(&mut self, node: NodeIndex, pick: Option<(Rank, JobId, Place)>) -> Option<Grant> {
        let (rank, job, place) = pick?;
        self.take(rank)?;
        self.start(job, node, place)
    }

    /// Takes a job out of those that wait.
    fn take(&mut self, rank: Rank) -> Option<Waiting> {
        let waiting = self.waiting.remove(&rank)?;
        self.ranks.remove(&waiting.job.id);
        if let Some(node) = self.nodes.get_mut(waiting.job.home.0 as usize) {
            node.own_waiting -= 1;
        }
        Some(waiting)
    }

    /// Gives a job the slot of a node that has been idle longest.
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
