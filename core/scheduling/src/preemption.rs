//! Which pods of a node must go so that another pod gets its boards.
//!
//! kube-scheduler proposes victims by numbers of instances alone. It knows neither which board a pod has nor which
//! boards the asking pod may get. So its victims are kept where they suffice. Otherwise pods with a lower priority that
//! have the right boards are added, the least important first, and proposed victims whose instances are no longer
//! needed stay.

use crate::board_pods::{Asking, BoardPod, Occupancy};
use crate::requirement::Requirement;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

/// The pods that must go.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Victims<'p> {
    /// UIDs of pods that kube-scheduler did not propose, the most important first.
    pub added: Vec<&'p str>,
    /// UIDs of pods that kube-scheduler proposed and that stay.
    pub spared: BTreeSet<&'p str>,
}

/// The pods that must go from a node beside or instead of the `proposed` ones, so that boards for `asked` have instances
/// left. `None` if no eviction helps.
#[must_use]
pub fn victims<'p>(
    asked: &Requirement,
    node: &Occupancy<'p>,
    proposed: &dyn Fn(&BoardPod) -> bool,
    asking: Asking<'_>,
) -> Option<Victims<'p>> {
    let usable = node.usable(asked);
    let wanted = usize::try_from(asked.boards.max(1)).unwrap_or(usize::MAX);
    let fits = |leave: &dyn Fn(&BoardPod) -> bool| {
        usable.iter().filter(|board| node.left(board, leave) > 0).take(wanted).count() == wanted
    };
    if fits(proposed) {
        return Some(Victims { added: Vec::new(), spared: BTreeSet::new() });
    }
    let has_usable = |pod: &BoardPod| usable.iter().any(|board| pod.boards.contains(*board));
    let mut others: Vec<&'p BoardPod> = node
        .pods()
        .iter()
        .filter(|pod| pod.yields_to(asking.priority) && has_usable(pod) && !proposed(pod))
        .copied()
        .collect();
    others.sort_by_key(|pod| (Reverse(pod.priority), pod.since));
    let uids = |pods: &[&'p BoardPod]| pods.iter().map(|pod| pod.uid.as_str()).collect::<BTreeSet<_>>();
    let mut added = uids(&others);
    if !fits(&|pod| proposed(pod) || added.contains(pod.uid.as_str())) {
        return None;
    }
    // As kube-scheduler does, all are taken first, and then spared in the order of their importance.
    for pod in &others {
        added.remove(pod.uid.as_str());
        if !fits(&|other| proposed(other) || added.contains(other.uid.as_str())) {
            added.insert(&pod.uid);
        }
    }
    others.retain(|pod| added.contains(pod.uid.as_str()));
    let mut proposed_pods: Vec<&'p BoardPod> =
        node.pods().iter().filter(|pod| proposed(pod)).copied().collect();
    proposed_pods.sort_by_key(|pod| (Reverse(pod.priority), pod.since));
    let mut instances = sum(&others);
    let mut spared = BTreeSet::new();
    for pod in proposed_pods {
        spared.insert(pod.uid.as_str());
        let leaves = |other: &BoardPod| {
            let uid = other.uid.as_str();
            (proposed(other) && !spared.contains(uid)) || added.contains(uid)
        };
        // kube-scheduler counts instances: it needs as many as the spared pod would have freed.
        if !(fits(&leaves) && take(&mut instances, pod)) {
            spared.remove(pod.uid.as_str());
        }
    }
    Some(Victims { added: others.iter().map(|pod| pod.uid.as_str()).collect(), spared })
}

/// The instances of these pods, by resource.
fn sum<'p>(pods: &[&'p BoardPod]) -> BTreeMap<&'p str, u32> {
    let mut sum = BTreeMap::new();
    for (resource, quantity) in pods.iter().flat_map(|pod| &pod.wanted.by_resource) {
        let all: &mut u32 = sum.entry(resource.as_str()).or_default();
        *all = all.saturating_add(*quantity);
    }
    sum
}

/// Takes the instances of `pod` from `instances`, if all are there.
fn take(instances: &mut BTreeMap<&str, u32>, pod: &BoardPod) -> bool {
    let wanted = &pod.wanted.by_resource;
    let are_there =
        |(resource, quantity): (&String, &u32)| instances.get(resource.as_str()) >= Some(quantity);
    if !wanted.iter().all(are_there) {
        return false;
    }
    for (resource, quantity) in wanted {
        if let Some(left) = instances.get_mut(resource.as_str()) {
            *left -= quantity;
        }
    }
    true
}

#[cfg(test)]
mod tests;
