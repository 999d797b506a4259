//! The slots of all nodes: which are idle, by node and by class, and how many of each class jobs and groups hold.

mod counts;

use super::policy::Contention;
use super::queue::RemoteJobs;
use super::{AcceleratorId, ClassCount, ClassSet, Home, NodeIndex, Place, SlotClass, SlotNumber};
use std::collections::{BTreeMap, BTreeSet};

#[derive(Debug, Default)]
pub(super) struct Slots {
    nodes: BTreeMap<NodeIndex, Node>,
    classes: BTreeMap<SlotClass, Class>,
    /// Number of times that a slot became idle.
    idles: u64,
}

#[derive(Debug, Default)]
struct Node {
    slots: BTreeMap<SlotNumber, Slot>,
    /// Idle slots with the number that each got when it became idle, the longest idle first.
    idle: BTreeMap<SlotClass, BTreeSet<(u64, SlotNumber)>>,
    remote_jobs: u32,
}

#[derive(Debug, Clone, Copy)]
struct Slot {
    class: SlotClass,
    resident: Option<AcceleratorId>,
    /// The slot leaves the pool when it is free.
    is_leaving: bool,
}

#[derive(Debug)]
struct Class {
    count: ClassCount,
    /// Maximum number of slots that jobs may hold.
    most_jobs: u32,
    /// The same if jobs wait.
    most_jobs_that_wait: u32,
    /// Idle slots, the longest idle first.
    idle: BTreeMap<u64, NodeIndex>,
    /// Nodes with idle slots, by what the slots have, those with the fewest remote jobs first.
    calmest: BTreeMap<Having, BTreeSet<CalmNode>>,
}

/// Which idle slots of a node count.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Having {
    /// All.
    Anything,
    /// Those that have this accelerator's bitstream.
    Bitstream(AcceleratorId),
}

/// A node with idle slots: remote jobs, number of the longest idle slot, node.
type CalmNode = (u32, u64, NodeIndex);

/// What holds a slot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Holder {
    Job(Place),
    Group,
}

/// What became of a released slot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Released {
    /// The slot is idle.
    Idle(SlotClass),
    /// The slot has left the pool.
    Left(SlotClass),
}

impl Default for Class {
    fn default() -> Self {
        Self {
            count: ClassCount::default(),
            most_jobs: u32::MAX,
            most_jobs_that_wait: u32::MAX,
            idle: BTreeMap::new(),
            calmest: BTreeMap::new(),
        }
    }
}

impl Class {
    fn takes_jobs(&self) -> bool {
        self.count.jobs < self.most_jobs
    }

    fn calmest(&self, having: Having) -> impl Iterator<Item = &CalmNode> {
        self.calmest.get(&having).into_iter().flatten()
    }
}

impl Slots {
    /// Adds an idle slot; a slot that the pool has stays as it is.
    pub(super) fn add(&mut self, index: NodeIndex, number: SlotNumber, class: SlotClass) {
        let node = self.nodes.entry(index).or_default();
        if let Some(slot) = node.slots.get_mut(&number) {
            slot.is_leaving = false;
            return;
        }
        node.slots.insert(number, Slot { class, resident: None, is_leaving: false });
        self.classes.entry(class).or_default().count.slots += 1;
        self.free(index, number);
    }

    /// Adds a slot that something holds. `false` if the pool has the slot.
    pub(super) fn add_held(
        &mut self,
        index: NodeIndex,
        number: SlotNumber,
        class: SlotClass,
        holder: Holder,
    ) -> bool {
        let node = self.nodes.entry(index).or_default();
        if node.slots.contains_key(&number) {
            return false;
        }
        node.slots.insert(number, Slot { class, resident: None, is_leaving: false });
        self.classes.entry(class).or_default().count.slots += 1;
        self.hold(index, class, holder);
        true
    }

    /// Takes a slot out of the pool, at once or when its holder has ended. Returns the class of a slot that has left.
    pub(super) fn remove(&mut self, index: NodeIndex, number: SlotNumber) -> Option<SlotClass> {
        let node = self.nodes.get_mut(&index)?;
        let slot = node.slots.get_mut(&number)?;
        slot.is_leaving = true;
        let class = slot.class;
        let idle = node.idle.get(&class).into_iter().flatten().find(|(_, idle)| *idle == number).copied();
        let (since, _) = idle?;
        self.set_busy(index, class, since, number);
        self.drop_slot(index, number, class);
        Some(class)
    }

    /// Makes a slot idle whose holder has ended; `None` if the pool has no such slot.
    pub(super) fn release(
        &mut self,
        index: NodeIndex,
        number: SlotNumber,
        holder: Holder,
    ) -> Option<Released> {
        let slot = *self.nodes.get(&index)?.slots.get(&number)?;
        if let Some(class) = self.classes.get_mut(&slot.class) {
            match holder {
                Holder::Job(_) => class.count.jobs -= 1,
                Holder::Group => class.count.groups -= 1,
            }
        }
        if holder == Holder::Job(Place::Remote) {
            self.change_node(index, |node| node.remote_jobs -= 1);
        }
        if slot.is_leaving {
            self.drop_slot(index, number, slot.class);
            return Some(Released::Left(slot.class));
        }
        self.free(index, number);
        Some(Released::Idle(slot.class))
    }

    /// Takes an idle slot of a node and a class: one that has the accelerator's bitstream, else the longest idle.
    pub(super) fn take(
        &mut self,
        index: NodeIndex,
        class: SlotClass,
        accelerator: AcceleratorId,
        holder: Holder,
    ) -> Option<SlotNumber> {
        let node = self.nodes.get(&index)?;
        let idle = node.idle.get(&class)?;
        let has_bitstream =
            |slot: &SlotNumber| node.slots.get(slot).is_some_and(|slot| slot.resident == Some(accelerator));
        let resident = idle.iter().find(|(_, slot)| has_bitstream(slot));
        let (since, number) = resident.or(idle.first()).copied()?;
        self.set_busy(index, class, since, number);
        self.hold(index, class, holder);
        Some(number)
    }

    /// Sets the accelerator whose bitstream a slot has.
    pub(super) fn set_resident(
        &mut self,
        index: NodeIndex,
        number: SlotNumber,
        resident: Option<AcceleratorId>,
    ) {
        self.change_node(index, |node| {
            if let Some(slot) = node.slots.get_mut(&number) {
                slot.resident = resident;
            }
        });
    }

    /// Sets the maximum number of slots of a class that jobs may hold.
    pub(super) fn set_most_jobs(&mut self, class: SlotClass, most: u32) {
        self.classes.entry(class).or_default().most_jobs = most;
    }

    #[cfg(test)]
    pub(super) fn remote_jobs(&self, node: NodeIndex) -> u32 {
        self.nodes.get(&node).map_or(0, |node| node.remote_jobs)
    }

    pub(super) fn remote(&self, node: NodeIndex, contention: Option<Contention>) -> RemoteJobs {
        let Some(contention) = contention else { return RemoteJobs::Taken };
        let (slots, remote) =
            self.nodes.get(&node).map_or((0, 0), |node| (node.slots.len(), node.remote_jobs));
        let limit = contention.limit(u32::try_from(slots).unwrap_or(u32::MAX));
        if remote < limit { RemoteJobs::Taken } else { RemoteJobs::Refused }
    }

    /// Whether a home has slots of these classes.
    pub(super) fn home(&self, node: NodeIndex, classes: ClassSet) -> Home {
        let mut slots = self.nodes.get(&node).into_iter().flat_map(|node| node.slots.values());
        if slots.any(|slot| classes.contains(slot.class)) { Home::Pooled } else { Home::Bare }
    }

    /// The class of an idle slot at home.
    pub(super) fn idle_at(&self, node: NodeIndex, classes: ClassSet) -> Option<SlotClass> {
        let idle = &self.nodes.get(&node)?.idle;
        idle.keys()
            .copied()
            .find(|class| classes.contains(*class) && self.classes.get(class).is_some_and(Class::takes_jobs))
    }

    /// The node and the class of the slot that has been idle longest.
    pub(super) fn longest_idle(&self, classes: ClassSet) -> Option<(NodeIndex, SlotClass)> {
        let first = |(class, of): (SlotClass, &Class)| {
            of.idle.first_key_value().map(|(since, node)| (*since, *node, class))
        };
        self.for_jobs(classes).filter_map(first).min().map(|(_, node, class)| (node, class))
    }

    /// The node with the fewest remote jobs that has an idle slot. Among equals a node comes first whose idle slots have
    /// the accelerator's bitstream, then the one whose slot has been idle longest.
    pub(super) fn calmest(
        &self,
        classes: ClassSet,
        accelerator: AcceleratorId,
    ) -> Option<(NodeIndex, SlotClass)> {
        let first = |having: Having| {
            let first = |(class, of): (SlotClass, &Class)| {
                of.calmest(having).next().map(|(remote, since, node)| (*remote, *since, *node, class))
            };
            self.for_jobs(classes).filter_map(first).min()
        };
        let any = first(Having::Anything)?;
        let resident = first(Having::Bitstream(accelerator)).filter(|resident| resident.0 == any.0);
        let (_, _, node, class) = resident.unwrap_or(any);
        Some((node, class))
    }

    /// Nodes with idle slots that jobs may take, those with the fewest remote jobs first.
    pub(super) fn calmest_first(
        &self,
        wanted: impl Fn(SlotClass) -> bool,
    ) -> Vec<(u32, NodeIndex, SlotClass)> {
        let mut nodes: Vec<(u32, NodeIndex, SlotClass)> = self
            .for_jobs(ClassSet::ALL)
            .filter(|(class, of)| !of.idle.is_empty() && wanted(*class))
            .flat_map(|(class, of)| {
                of.calmest(Having::Anything).map(move |(remote, _, node)| (*remote, *node, class))
            })
            .collect();
        nodes.sort_unstable();
        nodes
    }

    /// Whether a node with an idle slot that jobs may take runs fewer than C remote jobs.
    pub(super) fn any_takes_remote(&self, contention: Contention) -> bool {
        self.for_jobs(ClassSet::ALL)
            .flat_map(|(_, of)| of.calmest(Having::Anything))
            .any(|(_, _, node)| self.remote(*node, Some(contention)) == RemoteJobs::Taken)
    }

    /// The node with the idle slot of the class that a group gets: one that has the bitstream, else the calmest.
    pub(super) fn idle_for_group(&self, class: SlotClass, accelerator: AcceleratorId) -> Option<NodeIndex> {
        let class = self.classes.get(&class)?;
        let mut nodes = class.calmest(Having::Bitstream(accelerator)).chain(class.calmest(Having::Anything));
        nodes.next().map(|(_, _, node)| *node)
    }

    /// Whether a node has an idle slot of the class.
    pub(super) fn is_idle(&self, node: NodeIndex, class: SlotClass) -> bool {
        self.nodes.get(&node).is_some_and(|node| node.idle.contains_key(&class))
    }

    /// Whether jobs may take an idle slot of the class.
    pub(super) fn takes_jobs(&self, class: SlotClass) -> bool {
        self.classes.get(&class).is_some_and(Class::takes_jobs)
    }

    /// The classes among these of which jobs may take slots.
    fn for_jobs(&self, classes: ClassSet) -> impl Iterator<Item = (SlotClass, &Class)> {
        let fits = move |class: &SlotClass, of: &Class| classes.contains(*class) && of.takes_jobs();
        self.classes.iter().filter(move |(class, of)| fits(class, of)).map(|(class, of)| (*class, of))
    }

    /// Counts a slot as held.
    fn hold(&mut self, index: NodeIndex, class: SlotClass, holder: Holder) {
        if let Some(class) = self.classes.get_mut(&class) {
            match holder {
                Holder::Job(_) => class.count.jobs += 1,
                Holder::Group => class.count.groups += 1,
            }
        }
        if holder == Holder::Job(Place::Remote) {
            self.change_node(index, |node| node.remote_jobs += 1);
        }
    }

    fn free(&mut self, index: NodeIndex, number: SlotNumber) {
        self.idles += 1;
        let since = self.idles;
        let Some(class) =
            self.nodes.get(&index).and_then(|node| node.slots.get(&number)).map(|slot| slot.class)
        else {
            return;
        };
        if let Some(class) = self.classes.get_mut(&class) {
            class.idle.insert(since, index);
        }
        self.change_node(index, |node| {
            node.idle.entry(class).or_default().insert((since, number));
        });
    }

    fn set_busy(&mut self, index: NodeIndex, class: SlotClass, since: u64, number: SlotNumber) {
        if let Some(class) = self.classes.get_mut(&class) {
            class.idle.remove(&since);
        }
        self.change_node(index, |node| {
            if let Some(idle) = node.idle.get_mut(&class) {
                idle.remove(&(since, number));
                if idle.is_empty() {
                    node.idle.remove(&class);
                }
            }
        });
    }

    fn drop_slot(&mut self, index: NodeIndex, number: SlotNumber, class: SlotClass) {
        if let Some(class) = self.classes.get_mut(&class) {
            class.count.slots -= 1;
        }
        if let Some(node) = self.nodes.get_mut(&index) {
            node.slots.remove(&number);
            if node.slots.is_empty() {
                self.nodes.remove(&index);
            }
        }
    }

    /// Changes a node, and its entries in `calmest` with it.
    fn change_node(&mut self, index: NodeIndex, change: impl FnOnce(&mut Node)) {
        let Some(node) = self.nodes.get_mut(&index) else { return };
        for (class, having, key) in node.calmest_keys(index) {
            if let Some(of) = self.classes.get_mut(&class).and_then(|class| class.calmest.get_mut(&having)) {
                of.remove(&key);
            }
        }
        change(node);
        for (class, having, key) in node.calmest_keys(index) {
            self.classes.entry(class).or_default().calmest.entry(having).or_default().insert(key);
        }
    }
}

impl Node {
    fn calmest_keys(&self, index: NodeIndex) -> Vec<(SlotClass, Having, CalmNode)> {
        let mut keys = Vec::new();
        for (class, idle) in &self.idle {
            let key = |since: u64| (self.remote_jobs, since, index);
            keys.extend(idle.first().map(|(since, _)| (*class, Having::Anything, key(*since))));
            for (since, number) in idle {
                let resident = self.slots.get(number).and_then(|slot| slot.resident);
                keys.extend(resident.map(|of| (*class, Having::Bitstream(of), key(*since))));
            }
        }
        keys
    }
}
