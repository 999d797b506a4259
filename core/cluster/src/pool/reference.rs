//! P-4 for one tenant as the paper prints it, without indexes: a decision looks at every waiting job. Tests compare the
//! pool's decisions with these.

use super::policy::{Fit, IdleChoice, NothingFits, PoolPolicy, Preference, Rank, ResourceAwareRules};
use super::state::PoolError;
use super::{Arrival, Grant, Home, Job, JobId, NodeIndex, Place, SlotNumber};
use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

/// An idle slot that is offered to the waiting jobs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Offer {
    pub(super) node: NodeIndex,
    pub(super) remote_running: u32,
}

/// The decision about an offered slot.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Decision {
    /// The job that gets the slot, with its rank and whether it runs at home; `None` if the slot stays idle.
    pub(super) pick: Option<(Rank, JobId, Place)>,
    /// Ranks of the jobs before it that were skipped because the slot is remote for them.
    pub(super) skipped: Vec<Rank>,
}

/// A job that waits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Waiting {
    pub(super) job: Job,
    pub(super) home: Home,
    pub(super) since: Duration,
    pub(super) skipped: u32,
}

/// Whether a job has waited long enough to run remotely.
fn waited_long(rules: &ResourceAwareRules, waiting: &Waiting, now: Duration) -> bool {
    waiting.skipped >= rules.skips
        || now.saturating_sub(waiting.since) >= rules.patience.limit(waiting.job.size)
}

/// Decides which job gets the offered slot. `waiting` must be in the policy's order.
pub(super) fn decide<'a>(
    fit: &Fit,
    mut waiting: impl Iterator<Item = (Rank, &'a Waiting)>,
    offer: Offer,
    now: Duration,
) -> Decision {
    let pick = match fit {
        Fit::Anyone(_) => waiting.next(),
        Fit::LocalOnly => waiting.find(|(_, one)| one.job.home == offer.node),
        Fit::ResourceAware(rules) => return resource_aware(rules, waiting, offer, now),
    };
    Decision { pick: pick.map(|(rank, one)| picked(rank, one, offer)), skipped: Vec::new() }
}

fn resource_aware<'a>(
    rules: &ResourceAwareRules,
    waiting: impl Iterator<Item = (Rank, &'a Waiting)>,
    offer: Offer,
    now: Duration,
) -> Decision {
    let takes_remote = offer.remote_running < rules.contention.limit(0);
    let mut first = None;
    let mut first_remote = None;
    let mut skipped = Vec::new();
    for (rank, one) in waiting {
        first.get_or_insert((rank, one));
        if one.job.home == offer.node {
            return Decision { pick: Some(picked(rank, one, offer)), skipped };
        }
        if !takes_remote || first_remote.is_some() {
            continue;
        }
        if one.home == Home::Bare || waited_long(rules, one, now) {
            if rules.preference == Preference::Order {
                return Decision { pick: Some(picked(rank, one, offer)), skipped };
            }
            first_remote = Some((rank, one));
        } else {
            skipped.push(rank);
        }
    }
    let pick = match rules.nothing_fits {
        NothingFits::KeepIdle => first_remote,
        NothingFits::TakeFirst => first_remote.or(first),
    };
    Decision { pick: pick.map(|(rank, one)| picked(rank, one, offer)), skipped }
}

fn picked(rank: Rank, one: &Waiting, offer: Offer) -> (Rank, JobId, Place) {
    let place = if one.job.home == offer.node { Place::Local } else { Place::Remote };
    (rank, one.job.id, place)
}

/// The slots of a set of nodes and the jobs that use or want them.
#[derive(Debug)]
pub(super) struct Pool {
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

impl Node {
    /// Whether any waiting job could start here: a cheap check before all waiting jobs are asked.
    fn may_take(&self, rules: &ResourceAwareRules) -> bool {
        let serves_enough = self.remote_running >= rules.contention.limit(0);
        let only_own = serves_enough && rules.nothing_fits == NothingFits::KeepIdle;
        !self.free.is_empty() && (self.own_waiting > 0 || !only_own)
    }
}

impl Pool {
    /// A pool with the given number of slots per node, in which at most `most_waiting` jobs wait. A node without slots
    /// only submits jobs.
    pub(super) fn new(slots: &[u32], policy: PoolPolicy, most_waiting: usize) -> Self {
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

    fn remote_running(&self, node: NodeIndex) -> u32 {
        self.node(node).map_or(0, |node| node.remote_running)
    }

    /// Adds a job. The job starts now if a grant is returned, and waits otherwise.
    ///
    /// # Errors
    /// [`PoolError`]; the pool is unchanged then.
    pub(super) fn submit(&mut self, job: Job, now: Duration) -> Result<Option<Grant>, PoolError> {
        let home = match self.node(job.home) {
            None => return Err(PoolError::NoSlot(job.id)),
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
        let rank = self.policy.rank(&job, Arrival { at: now, number: self.arrivals });
        self.arrivals += 1;
        let waiting = Waiting { job, home, since: now, skipped: 0 };
        // No waiting job can use an idle slot, or it would have one. So the new job is the only candidate.
        if let Some(offer) = self.idle_for(&job)
            && let Some((_, id, place)) =
                decide(&self.policy.fit, std::iter::once((rank, &waiting)), offer, now).pick
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
    pub(super) fn finish(&mut self, job: JobId, now: Duration) -> Result<Vec<Grant>, PoolError> {
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
    pub(super) fn cancel(&mut self, job: JobId) -> Option<Job> {
        let rank = self.ranks.get(&job).copied()?;
        self.take(rank).map(|waiting| waiting.job)
    }

    /// Returns the waiting jobs that have waited long enough to start in an idle slot. Call it at [`Self::next_wake`].
    pub(super) fn wake(&mut self, now: Duration) -> Vec<Grant> {
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
    pub(super) fn next_wake(&self) -> Option<Duration> {
        let Fit::ResourceAware(rules) = self.policy.fit else { return None };
        let open = |node: &Node| !node.free.is_empty() && node.remote_running < rules.contention.limit(0);
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
    fn offer(&self, node: NodeIndex, now: Duration) -> Decision {
        let offer = Offer { node, remote_running: self.remote_running(node) };
        decide(&self.policy.fit, self.waiting.iter().map(|(rank, one)| (*rank, one)), offer, now)
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
