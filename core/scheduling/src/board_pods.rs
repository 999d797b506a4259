//! The pods that have boards of a node, or for which kube-scheduler keeps a place there, as decisions about other pods
//! see them.
//!
//! The node plugin reports how many containers each board has. A decision may need the numbers of another moment:
//! without the pods that would be evicted, without pods that have ended since the report, and with the pods that
//! kube-scheduler has nominated to the node.

use crate::board_request::BoardRequest;
use crate::matching::matching_boards;
use crate::node_state::{Instances, NodeState};
use crate::node_terms::PodTerms;
use crate::requirement::Requirement;
use crate::units::WallTime;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

/// A pod that asks for boards by a resource and belongs to a node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BoardPod {
    /// UID of the pod.
    pub uid: String,
    /// Name of the node.
    pub node: String,
    /// Whether the pod is bound to the node.
    pub place: Place,
    /// Whether the pod is about to end.
    pub life: Life,
    /// Priority of the pod.
    pub priority: i32,
    /// Time of the binding, or of the creation if it is not known.
    pub since: Option<WallTime>,
    /// The boards that the node plugin gave to the pod's containers; empty until it has done so.
    pub boards: BTreeSet<String>,
    /// The instances that the pod's containers ask for.
    pub wanted: WantedInstances,
    /// What each board of the pod must meet.
    pub requirement: Requirement,
    /// Which nodes the pod may go to.
    pub terms: PodTerms,
}

/// The relation of a pod to its node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Place {
    /// The pod is bound to the node.
    Bound,
    /// kube-scheduler has evicted pods for this pod, and keeps the place on the node.
    Nominated,
}

/// Whether a pod was deleted and only its graceful end is awaited.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Life {
    /// The pod stays.
    Stays,
    /// The pod is about to end.
    Ends,
}

/// The instances that the containers of a pod ask for.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct WantedInstances {
    /// Number of containers that ask for a board.
    pub containers: u32,
    /// Number of instances of each resource, by its name. kube-scheduler counts them.
    pub by_resource: BTreeMap<String, u32>,
}

/// The pod that a decision is about, as far as others' places depend on it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Asking<'a> {
    /// UID of the pod.
    pub uid: &'a str,
    /// Priority of the pod.
    pub priority: i32,
}

/// What is known of a node's pods.
#[derive(Debug, Clone, Copy)]
pub enum NodePods<'p> {
    /// The cluster's pods were not listed yet.
    Unknown,
    /// All pods of the node that ask for boards.
    All(&'p [&'p BoardPod]),
}

/// A node's boards with the numbers of containers that they would have in another situation.
#[derive(Debug, Clone)]
pub struct Occupancy<'s> {
    state: &'s NodeState,
    pods: NodePods<'s>,
    /// The number of instances that nominated pods will take of each board.
    reserved: BTreeMap<&'s str, u32>,
}

impl WantedInstances {
    /// The sum of the requests of a pod's containers. A quantity that is no number counts as none.
    #[must_use]
    pub fn of(containers: &[BoardRequest<'_>]) -> Self {
        let mut all = Self::default();
        for container in containers {
            let quantity = container.quantity.parse().unwrap_or(0);
            if quantity > 0 {
                all.containers += 1;
                let sum = all.by_resource.entry(container.resource.name().into_owned()).or_default();
                *sum = u32::saturating_add(*sum, quantity);
            }
        }
        all
    }

    fn total(&self) -> u32 {
        self.by_resource.values().fold(0, |sum, quantity| sum.saturating_add(*quantity))
    }
}

impl BoardPod {
    /// The fewest containers that the pod may have on this board: the annotation names each board once.
    fn at_least_on(&self, board: &str) -> u32 {
        if !self.boards.contains(board) {
            return 0;
        }
        let others = u32::try_from(self.boards.len()).unwrap_or(u32::MAX).saturating_sub(1);
        let on_others = others.saturating_mul(self.wanted.containers);
        self.wanted.total().saturating_sub(on_others).clamp(1, self.wanted.containers.max(1))
    }

    /// The most containers that the pod may have on this board.
    fn at_most_on(&self, board: &str) -> u32 {
        let may_be_there = self.boards.is_empty() || self.boards.contains(board);
        if may_be_there { self.wanted.containers } else { 0 }
    }

    /// Whether kube-scheduler may evict the pod for one of this priority.
    #[must_use]
    pub fn yields_to(&self, priority: i32) -> bool {
        self.place == Place::Bound && self.priority < priority
    }
}

impl<'s> Occupancy<'s> {
    /// The boards of `state`, whose node has these pods, for a decision about the pod `asking`.
    #[must_use]
    pub fn new(state: &'s NodeState, pods: NodePods<'s>, asking: Asking<'_>) -> Self {
        let mut all = Self { state, pods, reserved: BTreeMap::new() };
        let comes_first = |pod: &&&BoardPod| {
            pod.place == Place::Nominated && pod.uid != asking.uid && pod.priority >= asking.priority
        };
        let nominated: Vec<&BoardPod> = all.pods().iter().filter(comes_first).copied().collect();
        for pod in nominated {
            all.reserve(&pod.requirement);
        }
        all
    }

    /// Keeps instances for a pod with this requirement, on the boards that have most left.
    fn reserve(&mut self, requirement: &Requirement) {
        let fitting = matching_boards(requirement, self.state).unwrap_or_default();
        let mut fitting: Vec<&'s str> = fitting.into_iter().filter_map(|number| self.id(number)).collect();
        fitting.sort_by_key(|board| Reverse(self.left(board, &|_| false)));
        let wanted = usize::try_from(requirement.boards.max(1)).unwrap_or(usize::MAX);
        for board in fitting.into_iter().take(wanted) {
            *self.reserved.entry(board).or_default() += 1;
        }
    }

    /// The pods of the node.
    #[must_use]
    pub fn pods(&self) -> &'s [&'s BoardPod] {
        match self.pods {
            NodePods::Unknown => &[],
            NodePods::All(pods) => pods,
        }
    }

    /// The ids of the boards that a container with this requirement may get, full or not; none if there are too few.
    #[must_use]
    pub fn usable(&self, asked: &Requirement) -> Vec<&'s str> {
        let fitting = matching_boards(asked, self.state).unwrap_or_default();
        fitting.into_iter().filter_map(|number| self.id(number)).collect()
    }

    /// The number of further containers that the board could have without the pods that `leave`. `u32::MAX` without a
    /// node plugin.
    #[must_use]
    pub fn left(&self, board: &str, leave: &dyn Fn(&BoardPod) -> bool) -> u32 {
        let Some(plugin) = &self.state.plugin else { return u32::MAX };
        let Some(reported) = plugin.report.boards.get(board) else { return 0 };
        // A board off which pods are moved takes no new ones.
        if plugin.report.wanted.contains_key(board) {
            return 0;
        }
        reported.limit.saturating_sub(self.used(board, *reported, leave))
    }

    /// The state with the numbers of containers that the boards would have without the pods that `leave`; `None` if
    /// they are as the state has them.
    #[must_use]
    pub fn without(&self, leave: &dyn Fn(&BoardPod) -> bool) -> Option<NodeState> {
        let plugin = self.state.plugin.as_ref()?;
        let is_wanted = |board: &String| plugin.report.wanted.contains_key(board);
        let boards = plugin.report.boards.iter().filter(|(board, _)| !is_wanted(board));
        let changed: Vec<(&String, u32)> = boards
            .map(|(board, reported)| (board, self.used(board, *reported, leave), reported.used))
            .filter(|(_, used, reported)| used != reported)
            .map(|(board, used, _)| (board, used))
            .collect();
        if changed.is_empty() {
            return None;
        }
        let mut state = self.state.clone();
        let boards = state.plugin.iter_mut().flat_map(|plugin| &mut plugin.report.boards);
        for (board, instances) in boards {
            if let Some((_, used)) = changed.iter().find(|(changed, _)| *changed == board) {
                instances.used = *used;
            }
        }
        Some(state)
    }

    /// The containers on a board without the pods that `leave`, and with those of nominated pods. The report may still
    /// count pods that have ended: no board has more containers than the pods that are there can have.
    fn used(&self, board: &str, reported: Instances, leave: &dyn Fn(&BoardPod) -> bool) -> u32 {
        let bound = || self.pods().iter().filter(|pod| pod.place == Place::Bound);
        let freed =
            bound().filter(|pod| leave(pod)).map(|pod| pod.at_least_on(board)).fold(0, u32::saturating_add);
        let stay = match self.pods {
            NodePods::Unknown => u32::MAX,
            NodePods::All(_) => bound()
                .filter(|pod| !leave(pod))
                .map(|pod| pod.at_most_on(board))
                .fold(0, u32::saturating_add),
        };
        let reserved = self.reserved.get(board).copied().unwrap_or_default();
        reported.used.saturating_sub(freed).min(stay).saturating_add(reserved)
    }

    fn id(&self, number: usize) -> Option<&'s str> {
        self.state.devices.get(number).map(|device| device.id.as_str())
    }
}

#[cfg(test)]
pub(crate) mod tests;
