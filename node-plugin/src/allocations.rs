//! Which container has which boards and which token: what follows from each event, without I/O and without a clock.
//!
//! The kubelet's `Allocate` makes an [`Allocation`], a folder of which no other container ever gets; the kubelet does
//! not say for whom it is. When the container starts, its identity is known, and the allocation gets a [`Claim`]:
//! boards, and a token for them. Nobody tells when a container has ended: an owner that the kubelet doesn't list is
//! looked up in the API server, and only its answer ends a claim.
//!
//! The caller saves the state before it carries an [`Act`] out, and every act may be repeated. So the plugin can end
//! anywhere and go on from the saved state with [`Allocations::recover`].

mod ids;
#[cfg(test)]
mod tests;

pub use ids::{AllocationId, InstanceId, Token, WorkloadName};

use crate::meanings::{Meanings, digests, given};
use fpga_cluster::allocation::{Occupation, Shortage, choose};
use fpga_core::bitstream::Digest;
use fpga_core::gate::{Allocated, AllocatedContainer};
use fpga_core::node_state::NodeState;
use fpga_core::requirement::Requirement;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};

/// Number of successive lists without it after which an allocation that never had an owner is removed. The kubelet
/// lists a pod as long as it may start.
const LISTS_WITHOUT_OWNER: u32 = 60;
/// Number of successive lists without it in which the owner of a claim is looked up each time, since its end is
/// probable; and the distance of lookups afterwards.
const PROMPT_LOOKS: u32 = 10;
/// Number of lists with it after which the owner of a claim is looked up all the same: kubelets before 1.34 list pods
/// that have ended.
const LISTS_UNTIL_LOOK: u32 = 300;

/// All allocations of a node.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Allocations {
    /// Number of the next allocation.
    next: u64,
    by_id: BTreeMap<AllocationId, Allocation>,
}

/// What the kubelet allocated to one container.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Allocation {
    /// Greater than that of each earlier allocation.
    number: u64,
    instances: BTreeSet<InstanceId>,
    claim: Option<Claim>,
    /// The reason why the claim has its boards and no others.
    #[serde(default)]
    reason: String,
    /// Number of successive lists in which the kubelet did not name it.
    #[serde(default)]
    unlisted: u32,
    /// Number of lists in which the kubelet named it since the owner was looked up.
    #[serde(default)]
    listed: u32,
}

/// The boards of a container, and the token that proves the container to their managers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Claim {
    /// The container.
    pub owner: Owner,
    /// Ids of the boards.
    pub boards: BTreeSet<String>,
    /// The token.
    pub token: Token,
    /// What owns the pod, for the metrics of device managers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub workload: Option<WorkloadName>,
    /// The files of the store that the container has, by their paths in its folder.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub bitstreams: BTreeMap<String, Digest>,
}

/// A container of a pod.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Owner {
    /// Namespace of the pod, which is the tenant.
    pub namespace: String,
    /// Name of the pod.
    pub pod: String,
    /// UID of the pod.
    pub uid: String,
    /// Name of the container.
    pub container: String,
}

/// A container that starts.
#[derive(Debug)]
pub struct Start<'a> {
    /// The instances that the kubelet names, in no order.
    pub instances: &'a BTreeSet<InstanceId>,
    /// The container.
    pub owner: Owner,
    /// What owns the pod.
    pub workload: Option<WorkloadName>,
    /// The number of boards that it asks for, and what each of them must meet.
    pub requirement: &'a Requirement,
    /// What the bitstreams that it names mean.
    pub meanings: &'a Meanings,
    /// The boards of the node.
    pub node: &'a NodeState,
    /// Number of containers that a board has at most where another board has fewer.
    pub limit: u32,
    /// A fresh token.
    pub token: Token,
}

/// A container that the kubelet lists with the instances that it has.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Holder {
    /// Namespace of the pod.
    pub namespace: String,
    /// Name of the pod.
    pub pod: String,
    /// Name of the container.
    pub container: String,
    /// Instances of the resource that the kubelet has given to the container.
    pub instances: BTreeSet<InstanceId>,
}

/// What happened.
#[derive(Debug)]
pub enum Event<'a> {
    /// The kubelet allocated these instances to a container.
    Allocated {
        /// A fresh id.
        id: AllocationId,
        /// The instances.
        instances: BTreeSet<InstanceId>,
    },
    /// A container starts, for the first time or again.
    Starts(Start<'a>),
    /// The kubelet listed all containers that have instances.
    Listed(&'a [Holder]),
    /// The API server says that the owner of the allocation has ended or does not exist.
    Ended(&'a AllocationId),
}

/// What must be done. Each act may be repeated.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Act {
    /// Make the folder of the allocation.
    MakeFolder(AllocationId),
    /// Make the token known to the managers of the claim's boards, and write the allocation's folder.
    Grant(AllocationId, Claim),
    /// Make the token unknown to the managers of these boards.
    Revoke(AllocationId, Claim),
    /// Remove the folder of the allocation.
    RemoveFolder(AllocationId),
    /// Ask the API server whether the owner still exists.
    Look(AllocationId, Owner),
}

/// The reason why a container can't start.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// No allocation has these instances.
    #[error(
        "the node plugin does not know what the kubelet allocated to this container; delete the pod, so that it is \
         allocated again"
    )]
    UnknownAllocation,
    /// The node has not the boards.
    #[error(transparent)]
    Shortage(#[from] Shortage),
}

impl Act {
    /// Whether the act, or the decision for it, changes more than the count of lists.
    #[must_use]
    pub fn changes_something(&self) -> bool {
        !matches!(self, Self::Look(..))
    }
}

impl Allocations {
    /// Changes the state by the event and returns what must be done, in order, after the state has been saved.
    ///
    /// # Errors
    /// [`Refusal`] for a container that can't start. The state is unchanged then.
    pub fn decide(&mut self, event: Event<'_>) -> Result<Vec<Act>, Refusal> {
        match event {
            Event::Allocated { id, instances } => {
                let (number, reason) = (self.next, String::new());
                let allocation =
                    Allocation { number, instances, claim: None, reason, unlisted: 0, listed: 0 };
                self.next += 1;
                self.by_id.insert(id.clone(), allocation);
                Ok(vec![Act::MakeFolder(id)])
            }
            Event::Starts(start) => self.start(start),
            Event::Listed(holders) => Ok(self.listed(holders)),
            Event::Ended(id) => Ok(self.remove(id)),
        }
    }

    /// What must be done after the state was read from disk, so that folders and managers agree with it.
    #[must_use]
    pub fn recover(&self) -> Vec<Act> {
        let acts = |(id, allocation): (&AllocationId, &Allocation)| {
            let grant = allocation.claim.clone().map(|claim| Act::Grant(id.clone(), claim));
            [Some(Act::MakeFolder(id.clone())), grant].into_iter().flatten()
        };
        self.by_id.iter().flat_map(acts).collect()
    }

    /// The claims with their allocations.
    pub fn claims(&self) -> impl Iterator<Item = (&AllocationId, &Claim)> {
        self.by_id.iter().filter_map(|(id, allocation)| Some((id, allocation.claim.as_ref()?)))
    }

    /// The allocation and the claim of the container that the kubelet lists, if it has started before. The kubelet tells no
    /// UID: a pod of the same name that came later has a newer allocation.
    #[must_use]
    pub fn of_holder(&self, holder: &Holder) -> Option<(&AllocationId, &Claim)> {
        let (id, allocation) = self.by_id.get_key_value(self.newest(&holder.instances)?)?;
        let claim = allocation.claim.as_ref().filter(|claim| claim.owner.is(holder))?;
        Some((id, claim))
    }

    /// The containers that have boards, as the gate knows them.
    #[must_use]
    pub fn allocated(&self) -> Allocated {
        let container = |(_, claim): (&AllocationId, &Claim)| {
            let Owner { namespace, pod, uid, .. } = claim.owner.clone();
            let (boards, given) = (claim.boards.clone(), given(&claim.boards, &claim.bitstreams));
            (claim.token.digest(), AllocatedContainer { namespace, pod, uid, boards, given })
        };
        Allocated(self.claims().map(container).collect())
    }

    /// The number of containers that have the board.
    #[must_use]
    pub fn instances(&self, board: &str) -> u32 {
        let on_board = self.claims().filter(|(_, claim)| claim.boards.contains(board));
        u32::try_from(on_board.count()).unwrap_or(u32::MAX)
    }

    /// The boards of all containers of the pod with this UID.
    #[must_use]
    pub fn boards_of(&self, uid: &str) -> BTreeSet<&str> {
        let of_pod = self.claims().filter(|(_, claim)| claim.owner.uid == uid);
        of_pod.flat_map(|(_, claim)| claim.boards.iter().map(String::as_str)).collect()
    }

    /// For each container of the pod with this UID a line with its name and the reason why it has its boards.
    #[must_use]
    pub fn reasons_of(&self, uid: &str) -> String {
        let lines = self.by_id.values().filter_map(|allocation| {
            let owner = &allocation.claim.as_ref().filter(|claim| claim.owner.uid == uid)?.owner;
            Some(format!("{}: {}", owner.container, allocation.reason))
        });
        lines.collect::<Vec<_>>().join("\n")
    }

    /// Whether a container has the file of the store with this digest.
    #[must_use]
    pub fn has_bitstream(&self, digest: &Digest) -> bool {
        self.claims().any(|(_, claim)| claim.bitstreams.values().any(|has| has == digest))
    }

    /// The ids of all allocations.
    pub fn ids(&self) -> impl Iterator<Item = &AllocationId> {
        self.by_id.keys()
    }

    /// The newest allocation with some of these instances. Older ones belong to pods that are gone for the kubelet,
    /// which has given their instances to another pod.
    fn newest(&self, instances: &BTreeSet<InstanceId>) -> Option<&AllocationId> {
        let common = self.by_id.iter().filter(|(_, allocation)| !allocation.instances.is_disjoint(instances));
        common.max_by_key(|(_, allocation)| allocation.number).map(|(id, _)| id)
    }

    fn start(&mut self, start: Start<'_>) -> Result<Vec<Act>, Refusal> {
        let id = self.newest(start.instances).ok_or(Refusal::UnknownAllocation)?.clone();
        let before = self.by_id.get(&id).and_then(|allocation| allocation.claim.clone());
        let of_owner = before.as_ref().filter(|claim| claim.owner == start.owner);
        let (boards, reason) = match of_owner {
            Some(claim) if start.can_keep(&claim.boards) => (claim.boards.clone(), None),
            _ => {
                let others = OthersThan { allocations: self, asking: &id };
                let choice = choose(start.requirement, start.node, &others, start.limit)?;
                (choice.boards().map(str::to_owned).collect(), Some(choice.to_string()))
            }
        };
        let token = of_owner.map_or(start.token, |claim| claim.token.clone());
        let bitstreams = digests(&start.meanings.files(&boards, start.node));
        // A container that starts again keeps the name of its token's file.
        let workload = of_owner.map_or(start.workload, |claim| claim.workload.clone());
        let claim = Claim { owner: start.owner, boards, token, workload, bitstreams };
        if let Some(allocation) = self.by_id.get_mut(&id) {
            allocation.claim = Some(claim.clone());
            allocation.reason = reason.unwrap_or_else(|| std::mem::take(&mut allocation.reason));
            allocation.unlisted = 0;
        }
        let revoke = before.and_then(|before| what_is_lost(before, &claim));
        let revoke = revoke.map(|lost| Act::Revoke(id.clone(), lost));
        Ok(revoke.into_iter().chain([Act::Grant(id, claim)]).collect())
    }

    fn listed(&mut self, holders: &[Holder]) -> Vec<Act> {
        let mut listed = BTreeSet::new();
        for holder in holders {
            let id = self.newest(&holder.instances);
            let owned = id.and_then(|id| self.by_id.get(id)).is_some_and(|allocation| {
                allocation.claim.as_ref().is_none_or(|claim| claim.owner.is(holder))
            });
            listed.extend(id.filter(|_| owned).cloned());
        }
        let (mut acts, mut removed) = (Vec::new(), Vec::new());
        for (id, allocation) in &mut self.by_id {
            if listed.contains(id) {
                allocation.unlisted = 0;
                allocation.listed = (allocation.listed + 1) % LISTS_UNTIL_LOOK;
                let owner = allocation.claim.as_ref().map(|claim| claim.owner.clone());
                let due = owner.filter(|_| allocation.listed == 0);
                acts.extend(due.map(|owner| Act::Look(id.clone(), owner)));
                continue;
            }
            allocation.unlisted = allocation.unlisted.saturating_add(1);
            let unlisted = allocation.unlisted;
            match &allocation.claim {
                Some(claim) if unlisted <= PROMPT_LOOKS || unlisted.is_multiple_of(PROMPT_LOOKS) => {
                    acts.push(Act::Look(id.clone(), claim.owner.clone()));
                }
                None if unlisted >= LISTS_WITHOUT_OWNER => removed.push(id.clone()),
                Some(_) | None => {}
            }
        }
        acts.extend(removed.iter().flat_map(|id| self.remove(id)));
        acts
    }

    fn remove(&mut self, id: &AllocationId) -> Vec<Act> {
        let Some(allocation) = self.by_id.remove(id) else { return Vec::new() };
        let revoke = allocation.claim.map(|claim| Act::Revoke(id.clone(), claim));
        revoke.into_iter().chain([Act::RemoveFolder(id.clone())]).collect()
    }
}

impl Owner {
    /// Whether the kubelet means this container. It does not know the UID.
    fn is(&self, holder: &Holder) -> bool {
        (&self.namespace, &self.pod, &self.container) == (&holder.namespace, &holder.pod, &holder.container)
    }
}

impl Start<'_> {
    /// Whether the container can go on with the boards that it had, which may be out of rotation now.
    fn can_keep(&self, boards: &BTreeSet<String>) -> bool {
        let enough = u32::try_from(boards.len()) == Ok(self.requirement.boards.max(1));
        // What the pod says of utilization is for the choice: a container's own work must not drive it from its board.
        let requirement = Requirement { max_utilization: None, ..self.requirement.clone() };
        let mut node = self.node.clone();
        boards.iter().for_each(|board| node.uncordon(board));
        let fitting = fpga_core::matching::matching_boards(&requirement, &node).unwrap_or_default();
        let fitting = fitting.into_iter().filter_map(|number| node.devices.get(number));
        let fitting: BTreeSet<&str> = fitting.map(|device| device.id.as_str()).collect();
        enough && boards.iter().all(|board| fitting.contains(board.as_str()))
    }
}

/// The part of the claim `before` that `after` no longer has.
fn what_is_lost(before: Claim, after: &Claim) -> Option<Claim> {
    if (&before.token, &before.owner) != (&after.token, &after.owner) {
        return Some(before);
    }
    let lost: BTreeSet<String> = before.boards.difference(&after.boards).cloned().collect();
    (!lost.is_empty()).then_some(Claim { boards: lost, ..before })
}

/// The containers on boards, without the one that asks.
struct OthersThan<'a> {
    allocations: &'a Allocations,
    asking: &'a AllocationId,
}

impl Occupation for OthersThan<'_> {
    fn instances(&self, board: &str) -> u32 {
        let others = self.allocations.claims().filter(|(id, _)| *id != self.asking);
        let on_board = others.filter(|(_, claim)| claim.boards.contains(board));
        u32::try_from(on_board.count()).unwrap_or(u32::MAX)
    }
}
