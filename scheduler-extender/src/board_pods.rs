//! The pods of the cluster that ask for boards, in memory: written by the watch on pods, read by decisions.

use fpga_core::board_pods::{BoardPod, Place};
use parking_lot::RwLock;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;

/// The pods that are bound or nominated to a node and ask for boards.
#[derive(Debug, Default)]
pub struct BoardPods(RwLock<Pods>);

#[derive(Debug, Default)]
struct Pods {
    /// Whether all pods of the cluster have been listed once.
    is_synced: bool,
    by_uid: HashMap<String, Arc<BoardPod>>,
    by_node: HashMap<String, Vec<Arc<BoardPod>>>,
    /// The number of nominated pods of each node that has any.
    nominated: HashMap<String, usize>,
}

/// The pods of a node that ask for boards.
#[derive(Debug, Clone)]
pub enum OfNode {
    /// The cluster's pods were not listed yet.
    Unknown,
    /// All of them.
    All(Vec<Arc<BoardPod>>),
}

impl BoardPods {
    /// Takes what the watch shows of a pod: `None` if it belongs to no node, or asks for no board.
    pub fn show(&self, uid: &str, pod: Option<&BoardPod>) {
        let mut pods = self.0.write();
        if pods.by_uid.get(uid).map(|known| &**known) != pod {
            pods.forget(uid);
            if let Some(pod) = pod {
                pods.add(Arc::new(pod.clone()));
            }
        }
    }

    /// Forgets the pods that are not in `uids`, which come from a complete list. From then on the pods are synced.
    pub fn listed(&self, uids: &HashSet<String>) {
        let mut pods = self.0.write();
        let gone: Vec<String> = pods.by_uid.keys().filter(|uid| !uids.contains(*uid)).cloned().collect();
        gone.iter().for_each(|uid| pods.forget(uid));
        pods.is_synced = true;
    }

    /// The pods of a node.
    #[must_use]
    pub fn of_node(&self, node: &str) -> OfNode {
        let pods = self.0.read();
        if pods.is_synced {
            OfNode::All(pods.by_node.get(node).cloned().unwrap_or_default())
        } else {
            OfNode::Unknown
        }
    }

    /// The nodes on which kube-scheduler keeps a place for a pod; mostly none.
    #[must_use]
    pub fn nominated_nodes(&self) -> HashSet<String> {
        self.0.read().nominated.keys().cloned().collect()
    }
}

impl Pods {
    fn add(&mut self, pod: Arc<BoardPod>) {
        if pod.place == Place::Nominated {
            *self.nominated.entry(pod.node.clone()).or_default() += 1;
        }
        self.by_node.entry(pod.node.clone()).or_default().push(Arc::clone(&pod));
        self.by_uid.insert(pod.uid.clone(), pod);
    }

    fn forget(&mut self, uid: &str) {
        let Some(pod) = self.by_uid.remove(uid) else { return };
        if let Some(of_node) = self.by_node.get_mut(&pod.node) {
            of_node.retain(|other| other.uid != uid);
            if of_node.is_empty() {
                self.by_node.remove(&pod.node);
            }
        }
        if pod.place == Place::Nominated
            && let Some(count) = self.nominated.get_mut(&pod.node)
        {
            *count -= 1;
            if *count == 0 {
                self.nominated.remove(&pod.node);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use fpga_core::board_pods::{Life, WantedInstances};
    use fpga_core::node_terms::PodTerms;
    use fpga_core::requirement::Requirement;
    use std::collections::BTreeSet;

    fn pod(uid: &str, node: &str, place: Place) -> BoardPod {
        BoardPod {
            uid: uid.to_owned(),
            node: node.to_owned(),
            place,
            life: Life::Stays,
            priority: 0,
            since: None,
            boards: BTreeSet::new(),
            wanted: WantedInstances::default(),
            requirement: Requirement::default(),
            terms: PodTerms::default(),
        }
    }

    fn uids(pods: &BoardPods, node: &str) -> Option<Vec<String>> {
        match pods.of_node(node) {
            OfNode::Unknown => None,
            OfNode::All(pods) => Some(pods.iter().map(|pod| pod.uid.clone()).collect()),
        }
    }

    #[test]
    fn pods_are_found_by_their_node_from_the_first_list_on_until_they_go() {
        let pods = BoardPods::default();
        pods.show("a", Some(&pod("a", "n1", Place::Bound)));
        pods.show("b", Some(&pod("b", "n1", Place::Nominated)));
        assert_eq!(uids(&pods, "n1"), None);
        pods.listed(&["a".to_owned(), "b".to_owned()].into());
        assert_eq!(uids(&pods, "n1").unwrap(), ["a", "b"]);
        assert_eq!(pods.nominated_nodes(), ["n1".to_owned()].into());

        pods.show("b", Some(&pod("b", "n2", Place::Bound)));
        assert_eq!(
            (uids(&pods, "n1").unwrap(), uids(&pods, "n2").unwrap()),
            (vec!["a".into()], vec!["b".into()])
        );
        assert!(pods.nominated_nodes().is_empty());
        pods.show("b", None);
        pods.listed(&HashSet::new());
        assert_eq!((uids(&pods, "n1").unwrap().len(), uids(&pods, "n2").unwrap().len()), (0, 0));
    }
}
