//! The latest decisions for people: for each pod the last filter and prioritize, with all terms.
//!
//! Both the number of pods and the memory are bounded, since a decision over thousands of nodes takes much memory.

use crate::index::Source;
use crate::settings::Policy;
use crate::wire::Nodes;
use crate::wire::names::joined;
use fpga_core::decide::ScoreDecision;
use fpga_core::matching::Rejection;
use fpga_core::requirement::Requirement;
use fpga_core::units::WallTime;
use hyper::body::Bytes;
use parking_lot::Mutex;
use std::collections::{HashMap, VecDeque};
use std::ops::Range;
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
    pub filter: Option<Arc<Decided<Verdicts>>>,
    /// The prioritize after that filter. kube-scheduler makes no such call if one node passed.
    pub prioritize: Option<Arc<Decided<ScoreDecision>>>,
}

/// Whether each node fits.
pub type Verdicts = Vec<Result<(), Rejection>>;

/// A decision over many nodes.
#[derive(Debug)]
pub struct Decided<D> {
    /// Time of the decision, milliseconds since the epoch.
    pub at: WallTime,
    /// Names of the nodes.
    pub names: Names,
    /// The origin of each node's state, in the same order.
    pub sources: Vec<Source>,
    /// The decision for each node, in the same order.
    pub decision: D,
}

/// Names of nodes in one piece of text: thousands of names take few allocations.
#[derive(Debug, Default)]
pub struct Names {
    text: Bytes,
    places: Vec<Range<u32>>,
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
    Filter(Decided<Verdicts>),
    /// A prioritize, which is added to the filter before it.
    Prioritize(Decided<ScoreDecision>),
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
        let filter = self.filter.as_ref().map_or(0, |filter| filter.sources.len());
        filter + self.prioritize.as_ref().map_or(0, |prioritize| prioritize.sources.len())
    }

    fn bytes(&self) -> usize {
        let filter = self.filter.as_ref().map_or(0, |filter| filter.bytes(size_of_val(&*filter.decision)));
        filter + self.prioritize.as_ref().map_or(0, |scored| scored.bytes(scored.decision.bytes()))
    }
}

impl<D> Decided<D> {
    /// Number of bytes that this takes, with those of the decision.
    fn bytes(&self, decision: usize) -> usize {
        let Names { text, places } = &self.names;
        text.len() + size_of_val(&**places) + size_of_val(&*self.sources) + decision
    }
}

impl Names {
    /// The names in order.
    pub fn iter(&self) -> impl Iterator<Item = &str> {
        let name = |place: &Range<u32>| self.text.get(place.start as usize..place.end as usize);
        self.places
            .iter()
            .map(move |place| name(place).and_then(|name| std::str::from_utf8(name).ok()).unwrap_or_default())
    }

    /// The names of a request's candidates. They are not copied if they make up most of the request.
    #[must_use]
    pub fn of_request(request: &Bytes, nodes: &Nodes<'_>) -> Self {
        Self::within(request, nodes).unwrap_or_else(|| nodes.names().collect())
    }

    fn within(request: &Bytes, nodes: &Nodes<'_>) -> Option<Self> {
        let places = nodes.places()?;
        // The text keeps the whole request in memory.
        let bytes = (places.last()?.end - places.first()?.start) as usize;
        let is_most_of_it = bytes.saturating_mul(4) >= request.len().saturating_mul(3);
        is_most_of_it.then(|| Self { text: request.clone(), places: places.to_vec() })
    }
}

impl<'n> FromIterator<&'n str> for Names {
    fn from_iter<I: IntoIterator<Item = &'n str>>(names: I) -> Self {
        let (text, places) = joined(names);
        Self { text: text.into(), places }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::read_args;
    use fpga_core::decide::{DecisionRules, prioritize};
    use fpga_core::units::MonotonicTime;

    fn pod(name: &str) -> PodName {
        PodName { namespace: "default".into(), name: name.into() }
    }

    fn asked() -> Considered {
        Considered::default()
    }

    fn filter(nodes: usize) -> Decision {
        let names = (0..nodes).map(|_| "n").collect();
        let sources = vec![Source::Stream; nodes];
        Decision::Filter(Decided { at: WallTime(1), names, sources, decision: vec![Ok(()); nodes] })
    }

    fn scores() -> Decision {
        Decision::Prioritize(Decided {
            at: WallTime(2),
            names: Names::default(),
            sources: Vec::new(),
            decision: prioritize(
                &Requirement::default(),
                &[],
                &DecisionRules::default(),
                MonotonicTime::START,
            ),
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
        for (pad, is_copied) in [(0, false), (1_000, true)] {
            let many = vec![r#""a","","node-ü","b""#; 20].join(",");
            let request = format!(r#"{{"Pod":{{}},"NodeNames":[{many}]}}{}"#, " ".repeat(pad));
            let request = Bytes::from(request);
            let (_, nodes) = read_args(&request).unwrap();
            let of_request = Names::of_request(&request, &nodes);
            assert_eq!(of_request.iter().collect::<Vec<_>>(), names.repeat(20));
            let is_piece = request.as_ptr_range().contains(&of_request.text.as_ptr());
            assert_eq!(is_piece, !is_copied, "a small part keeps no large request in memory");
        }
        let escaped = Bytes::from_static(br#"{"Pod":{},"NodeNames":["a","\u0062"]}"#);
        let (_, nodes) = read_args(&escaped).unwrap();
        assert_eq!(Names::of_request(&escaped, &nodes).iter().collect::<Vec<_>>(), ["a", "b"]);
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
        let nodes = MAX_BYTES / one.bytes(size_of_val(&*one.decision));
        for i in 0..3 {
            all.remember(pod(&i.to_string()), "u", asked(), filter(nodes / 2));
        }
        assert!(all.of(&pod("0")).is_none() && all.of(&pod("2")).is_some());
        all.remember(pod("huge"), "u", asked(), filter(nodes * 2));
        assert!(all.of(&pod("huge")).is_some() && all.of(&pod("2")).is_none());
    }
}
