//! The latest decisions for people: for each pod the last filter and prioritize, with all terms.
//!
//! Both the number of pods and the memory are bounded, since a decision over thousands of nodes takes much memory.

use crate::index::Source;
use crate::settings::Policy;
use fpga_core::decide::NodeScore;
use fpga_core::matching::Rejection;
use fpga_core::requirement::Requirement;
use fpga_core::units::WallTime;
use parking_lot::Mutex;
use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

/// Most pods whose decisions are remembered.
pub const MAX_PODS: usize = 1024;
/// Most bytes that all remembered decisions take together.
pub const MAX_BYTES: usize = 24 << 20;

/// The remembered decisions.
#[derive(Debug, Default)]
pub struct Explanations(Mutex<Ring>);

/// Namespace and name of a pod.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct PodName {
    /// Namespace of the pod.
    pub namespace: String,
    /// Name of the pod.
    pub name: String,
}

/// The latest decisions for a pod.
#[derive(Debug, Clone)]
pub struct Explanation {
    /// Namespace and name of the pod.
    pub pod: PodName,
    /// UID of the pod.
    pub uid: String,
    /// The pod's requirement.
    pub requirement: Requirement,
    /// Why the requirement can't be understood.
    pub problem: Option<String>,
    /// The policy in force at the later decision.
    pub policy: Arc<Policy>,
    /// The last filter.
    pub filter: Option<Arc<Decided<Result<(), Rejection>>>>,
    /// The prioritize after that filter. kube-scheduler makes no such call if one node passed.
    pub prioritize: Option<Arc<Decided<NodeScore>>>,
}

/// A decision over many nodes.
#[derive(Debug)]
pub struct Decided<V> {
    /// Time of the decision, milliseconds since the epoch.
    pub at: WallTime,
    /// Names of the nodes.
    pub names: Names,
    /// The origin of each node's state, in the same order.
    pub sources: Vec<Source>,
    /// The decision for each node, in the same order.
    pub verdicts: Vec<V>,
}

/// Names of nodes in one string: thousands of names take few allocations.
#[derive(Debug, Default)]
pub struct Names {
    text: String,
    ends: Vec<usize>,
}

/// The inputs of a decision that explanations show.
#[derive(Debug, Clone, Default)]
pub struct Considered {
    /// The pod's requirement.
    pub requirement: Requirement,
    /// Why the requirement can't be understood.
    pub problem: Option<String>,
    /// The policy in force.
    pub policy: Arc<Policy>,
}

/// A decision to remember.
#[derive(Debug)]
pub enum Decision {
    /// A filter, which replaces all earlier decisions for the pod.
    Filter(Decided<Result<(), Rejection>>),
    /// A prioritize, which is added to the filter before it.
    Prioritize(Decided<NodeScore>),
}

#[derive(Debug, Default)]
struct Ring {
    pods: HashMap<PodName, Explanation>,
    oldest_first: VecDeque<PodName>,
    bytes: usize,
}

impl Explanations {
    /// Remembers a decision, without the other names and digests that the library knows of the pod's bitstreams: they are
    /// for matching, not for readers. Over the bounds, the pods with the oldest decisions are forgotten.
    pub fn remember(&self, pod: PodName, uid: &str, mut by: Considered, decision: Decision) {
        by.requirement.synonyms.clear();
        // Forgotten decisions are freed after the lock is released, so that other decisions don't wait.
        let _forgotten = {
            let mut ring = self.0.lock();
            ring.remember(pod, uid, by, decision)
        };
    }

    /// The latest decisions for a pod.
    #[must_use]
    pub fn of(&self, pod: &PodName) -> Option<Explanation> {
        self.0.lock().pods.get(pod).cloned()
    }

    /// The latest decisions for at most `count` pods that were decided at `since` or later, the latest first.
    #[must_use]
    pub fn since(&self, since: WallTime, count: usize) -> Vec<Explanation> {
        let ring = self.0.lock();
        let latest_first = ring.oldest_first.iter().rev().filter_map(|pod| ring.pods.get(pod));
        latest_first.take_while(|explanation| explanation.at() >= since).take(count).cloned().collect()
    }
}

impl Ring {
    fn remember(
        &mut self,
        pod: PodName,
        uid: &str,
        Considered { requirement, problem, policy }: Considered,
        decision: Decision,
    ) -> Vec<Explanation> {
        let mut forgotten = Vec::new();
        let before = self.pods.remove(&pod);
        if before.is_some() {
            self.oldest_first.retain(|other| *other != pod);
        }
        self.bytes -= before.as_ref().map_or(0, Explanation::bytes);
        let mut now = Explanation {
            pod: pod.clone(),
            uid: uid.to_owned(),
            requirement,
            problem,
            policy,
            filter: None,
            prioritize: None,
        };
        match decision {
            Decision::Filter(filter) => now.filter = Some(Arc::new(filter)),
            Decision::Prioritize(scores) => {
                let same_pod = before.as_ref().filter(|before| before.uid == uid);
                now.filter = same_pod.and_then(|before| before.filter.clone());
                now.prioritize = Some(Arc::new(scores));
            }
        }
        forgotten.extend(before);
        self.bytes += now.bytes();
        self.pods.insert(pod.clone(), now);
        self.oldest_first.push_back(pod);
        while self.oldest_first.len() > MAX_PODS || (self.bytes > MAX_BYTES && self.oldest_first.len() > 1) {
            let Some(oldest) = self.oldest_first.pop_front().and_then(|pod| self.pods.remove(&pod)) else {
                break;
            };
            self.bytes -= oldest.bytes();
            forgotten.push(oldest);
        }
        forgotten
    }
}

impl Explanation {
    /// The time of the later of the two decisions.
    #[must_use]
    pub fn at(&self) -> WallTime {
        let filter = self.filter.as_ref().map(|filter| filter.at);
        let prioritize = self.prioritize.as_ref().map(|prioritize| prioritize.at);
        filter.max(prioritize).unwrap_or(WallTime(0))
    }

    /// Number of nodes in both decisions together.
    #[must_use]
    pub fn rows(&self) -> usize {
        let filter = self.filter.as_ref().map_or(0, |filter| filter.verdicts.len());
        filter + self.prioritize.as_ref().map_or(0, |prioritize| prioritize.verdicts.len())
    }

    fn bytes(&self) -> usize {
        let filter = self.filter.as_ref().map_or(0, |filter| filter.bytes());
        filter + self.prioritize.as_ref().map_or(0, |prioritize| prioritize.bytes())
    }
}

impl<V> Decided<V> {
    fn bytes(&self) -> usize {
        let per_node = size_of::<V>() + size_of::<Source>() + size_of::<usize>();
        self.names.text.len() + self.verdicts.len() * per_node
    }
}

impl Names {
    /// The names in order.
    pub fn iter(&self) -> impl Iterator<Item = &str> {
        let mut start = 0;
        self.ends.iter().map(move |end| {
            let name = self.text.get(start..*end).unwrap_or_default();
            start = *end;
            name
        })
    }
}

impl Names {
    /// Collects `names` in exactly the memory that they need: two passes cost less than growing by copying.
    pub fn of<'n>(names: impl Iterator<Item = &'n str> + Clone) -> Self {
        let bytes = names.clone().map(str::len).sum();
        let mut all = Self { text: String::with_capacity(bytes), ends: Vec::new() };
        all.extend(names);
        all
    }
}

impl<'n> Extend<&'n str> for Names {
    fn extend<I: IntoIterator<Item = &'n str>>(&mut self, names: I) {
        let names = names.into_iter();
        self.ends.reserve_exact(names.size_hint().0);
        for name in names {
            self.text.push_str(name);
            self.ends.push(self.text.len());
        }
    }
}

impl<'n> FromIterator<&'n str> for Names {
    fn from_iter<I: IntoIterator<Item = &'n str>>(names: I) -> Self {
        let mut all = Self::default();
        all.extend(names);
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pod(name: &str) -> PodName {
        PodName { namespace: "default".into(), name: name.into() }
    }

    fn asked() -> Considered {
        Considered::default()
    }

    fn filter(nodes: usize) -> Decision {
        let names = (0..nodes).map(|_| "n").collect();
        let sources = vec![Source::Stream; nodes];
        Decision::Filter(Decided { at: WallTime(1), names, sources, verdicts: vec![Ok(()); nodes] })
    }

    fn scores() -> Decision {
        Decision::Prioritize(Decided {
            at: WallTime(2),
            names: Names::default(),
            sources: Vec::new(),
            verdicts: Vec::new(),
        })
    }

    #[test]
    fn prioritize_joins_the_filter_of_the_same_pod_and_a_new_filter_begins_anew() {
        let all = Explanations::default();
        all.remember(pod("p"), "u", asked(), filter(1));
        all.remember(pod("p"), "u", asked(), scores());
        let both = all.of(&pod("p")).unwrap();
        assert!(both.filter.is_some() && both.prioritize.is_some());
        all.remember(pod("p"), "u", asked(), filter(1));
        assert!(all.of(&pod("p")).unwrap().prioritize.is_none());
        all.remember(pod("p"), "another", asked(), scores());
        assert!(all.of(&pod("p")).unwrap().filter.is_none(), "a pod of the same name is another pod");
    }

    #[test]
    fn no_reader_learns_other_names_of_a_bitstream() {
        let all = Explanations::default();
        let synonyms = [("sobel".parse().unwrap(), vec!["secret".parse().unwrap()])].into();
        let by = Considered {
            requirement: Requirement { synonyms, ..Requirement::default() },
            ..Considered::default()
        };
        all.remember(pod("p"), "u", by, filter(1));
        assert_eq!(all.of(&pod("p")).unwrap().requirement, Requirement::default());
    }

    #[test]
    fn names_come_back_as_they_went_in() {
        let names = ["a", "", "node-ü", "b"];
        assert_eq!(names.into_iter().collect::<Names>().iter().collect::<Vec<_>>(), names);
        assert_eq!(Names::of(names.into_iter()).iter().collect::<Vec<_>>(), names);
    }

    #[test]
    fn the_latest_decisions_come_first_up_to_a_time_and_a_number() {
        let all = Explanations::default();
        for (name, decision) in [("a", filter(1)), ("b", filter(1)), ("a", scores())] {
            all.remember(pod(name), "u", asked(), decision);
        }
        let names = |since: u64, count: usize| {
            let found = all.since(WallTime(since), count);
            found.into_iter().map(|explanation| explanation.pod.name).collect::<Vec<_>>()
        };
        assert_eq!((names(0, 9), names(0, 1)), (vec!["a".to_owned(), "b".to_owned()], vec!["a".to_owned()]));
        assert_eq!((names(2, 9), names(3, 9)), (vec!["a".to_owned()], Vec::new()));
    }

    #[test]
    fn the_oldest_pods_are_forgotten_first() {
        let all = Explanations::default();
        for i in 0..=MAX_PODS {
            all.remember(pod(&i.to_string()), "u", asked(), filter(1));
        }
        assert!(all.of(&pod("0")).is_none() && all.of(&pod("1")).is_some());
    }

    #[test]
    fn large_decisions_make_the_memory_shorter() {
        let all = Explanations::default();
        let Decision::Filter(one) = filter(1) else { unreachable!("filter makes a filter") };
        let nodes = MAX_BYTES / one.bytes();
        for i in 0..3 {
            all.remember(pod(&i.to_string()), "u", asked(), filter(nodes / 2));
        }
        assert!(all.of(&pod("0")).is_none() && all.of(&pod("2")).is_some());
        all.remember(pod("huge"), "u", asked(), filter(nodes * 2));
        assert!(all.of(&pod("huge")).is_some() && all.of(&pod("2")).is_none());
    }
}
