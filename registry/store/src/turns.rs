//! Which downloads run and which wait, and when one has nobody left who wants it: without I/O and without a clock.
//!
//! A download runs at the cost of one namespace with a pod that wants it. Each namespace has its own turns, of which a
//! host takes half at most. So slow sources of one namespace delay no other namespace, and a slow host delays no other host.

use std::collections::BTreeMap;

/// Downloads that run at the cost of one namespace at the same time.
pub(crate) const TURNS_OF_NAMESPACE: usize = 8;
/// Downloads from one host that run at the cost of one namespace at the same time.
pub(crate) const TURNS_OF_HOST: usize = 4;

/// A pod's container that wants bitstreams.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Asker {
    /// Namespace of the pod.
    pub namespace: String,
    /// Identifies the container among all of the node.
    pub id: String,
}

/// The downloads, the earliest first.
#[derive(Debug)]
pub(crate) struct Turns<K>(Vec<Download<K>>);

#[derive(Debug)]
struct Download<K> {
    key: K,
    host: String,
    /// The namespace of each asker, by the asker's id.
    wanted_by: BTreeMap<String, String>,
    phase: Phase,
}

#[derive(Debug, PartialEq, Eq)]
enum Phase {
    /// It is not known yet whether bytes are to be fetched.
    Comparing,
    Waiting,
    /// It runs at the cost of this namespace.
    Running(String),
    /// Nobody wants it any more.
    Cancelled,
}

/// How an asker has joined a download.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Joined {
    /// There was none: a new one begins.
    New,
    /// The asker waits with others.
    Shared,
    /// The download is about to end without its bytes. The asker has not joined.
    Ending,
}

impl<K> Default for Turns<K> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

impl<K: Clone + PartialEq> Turns<K> {
    /// Somebody wants a download from this host.
    pub(crate) fn join(&mut self, key: &K, host: &str, asker: &Asker) -> Joined {
        let wanted_by = (asker.id.clone(), asker.namespace.clone());
        match self.find(key) {
            Some(Download { phase: Phase::Cancelled, .. }) => Joined::Ending,
            Some(download) => {
                download.wanted_by.extend([wanted_by]);
                Joined::Shared
            }
            None => {
                let (key, host, wanted_by) = (key.clone(), host.to_owned(), [wanted_by].into());
                self.0.push(Download { key, host, wanted_by, phase: Phase::Comparing });
                Joined::New
            }
        }
    }

    /// The download needs a turn.
    pub(crate) fn wait(&mut self, key: &K) {
        if let Some(download) = self.find(key).filter(|download| download.phase == Phase::Comparing) {
            download.phase = Phase::Waiting;
        }
    }

    /// The downloads that have their turn from now on, the earliest first.
    pub(crate) fn begin(&mut self) -> Vec<K> {
        let mut begun = Vec::new();
        for index in 0..self.0.len() {
            let Download { phase: Phase::Waiting, wanted_by, host, .. } = &self.0[index] else { continue };
            let Some(namespace) = wanted_by.values().find(|namespace| self.has_turn(namespace, host)) else {
                continue;
            };
            self.0[index].phase = Phase::Running(namespace.clone());
            begun.push(self.0[index].key.clone());
        }
        begun
    }

    /// The asker with this id wants only the downloads for which `still` is true. Returns those that nobody wants any more.
    pub(crate) fn retain(&mut self, id: &str, still: impl Fn(&K) -> bool) -> Vec<K> {
        let mut cancelled = Vec::new();
        for download in &mut self.0 {
            if still(&download.key) || download.wanted_by.remove(id).is_none() {
                continue;
            }
            match download.wanted_by.values().next() {
                None => {
                    download.phase = Phase::Cancelled;
                    cancelled.push(download.key.clone());
                }
                // It goes on at the cost of those who still want it, if need be beyond their turns.
                Some(other) => {
                    if let Phase::Running(namespace) = &mut download.phase
                        && !download.wanted_by.values().any(|of| of == namespace)
                    {
                        namespace.clone_from(other);
                    }
                }
            }
        }
        cancelled
    }

    /// The download has ended.
    pub(crate) fn end(&mut self, key: &K) {
        self.0.retain(|download| download.key != *key);
    }

    fn has_turn(&self, namespace: &str, host: &str) -> bool {
        let of_namespace =
            |download: &&Download<K>| matches!(&download.phase, Phase::Running(of) if of == namespace);
        let running = self.0.iter().filter(of_namespace);
        running.clone().count() < TURNS_OF_NAMESPACE
            && running.filter(|download| download.host == host).count() < TURNS_OF_HOST
    }

    fn find(&mut self, key: &K) -> Option<&mut Download<K>> {
        self.0.iter_mut().find(|download| download.key == *key)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    fn asker(namespace: &str, id: &str) -> Asker {
        Asker { namespace: namespace.to_owned(), id: id.to_owned() }
    }

    /// A download that waits for its turn.
    fn add(turns: &mut Turns<u32>, key: u32, host: &str, namespace: &str) {
        assert_eq!(turns.join(&key, host, &asker(namespace, namespace)), Joined::New);
        turns.wait(&key);
    }

    #[test]
    fn a_namespace_with_many_slow_sources_takes_no_turn_of_another_and_a_host_half_of_the_turns() {
        let mut turns = Turns::default();
        for key in 0..100 {
            add(&mut turns, key, "slow.example", "evil");
        }
        assert_eq!(turns.begin(), [0, 1, 2, 3]);
        for key in 100..200 {
            add(&mut turns, key, &format!("{key}.example"), "evil");
        }
        assert_eq!(turns.begin(), [100, 101, 102, 103], "another host of the same namespace");
        add(&mut turns, 200, "slow.example", "shop");
        assert_eq!(turns.begin(), [200]);
        turns.end(&1);
        assert_eq!(turns.begin(), [4]);
    }

    #[test]
    fn a_download_that_waits_behind_others_of_one_namespace_begins_when_another_one_wants_it() {
        let mut turns = Turns::default();
        for key in 0..9 {
            add(&mut turns, key, &format!("{key}.example"), "evil");
        }
        assert_eq!(turns.begin().len(), TURNS_OF_NAMESPACE);
        assert_eq!(turns.join(&8, "8.example", &asker("shop", "cart")), Joined::Shared);
        assert_eq!(turns.begin(), [8]);
        // It counts for the shop, and evil's next one begins after an end of evil's.
        add(&mut turns, 9, "9.example", "evil");
        turns.end(&8);
        assert_eq!(turns.begin(), [0; 0]);
        turns.end(&0);
        assert_eq!(turns.begin(), [9]);
    }

    #[test]
    fn the_last_asker_that_leaves_ends_a_download_which_nobody_joins_afterwards() {
        let mut turns = Turns::default();
        add(&mut turns, 1, "host", "shop");
        assert_eq!(turns.join(&1, "host", &asker("mill", "wheel")), Joined::Shared);
        assert_eq!(turns.begin(), [1]);
        assert_eq!(turns.retain("wheel", |key| *key == 1), [0; 0], "it is still wanted");
        assert_eq!(turns.retain("shop", |_| false), [0; 0]);
        assert_eq!(turns.retain("nobody", |_| false), [0; 0]);
        assert_eq!(turns.retain("wheel", |_| false), [1]);
        assert_eq!(turns.join(&1, "host", &asker("mill", "wheel")), Joined::Ending);
        turns.end(&1);
        assert_eq!(turns.join(&1, "host", &asker("mill", "wheel")), Joined::New);
    }

    #[derive(Debug, Clone)]
    enum Step {
        Join { key: u32, namespace: u8, asker: u8 },
        Wait(u32),
        Leave { namespace: u8, asker: u8 },
        End(u32),
    }

    fn step() -> impl Strategy<Value = Step> {
        let (key, namespace, asker) = (0..40_u32, 0..3_u8, 0..4_u8);
        prop_oneof![
            6 => (key.clone(), namespace.clone(), asker.clone())
                .prop_map(|(key, namespace, asker)| Step::Join { key, namespace, asker }),
            6 => key.clone().prop_map(Step::Wait),
            1 => (namespace, asker).prop_map(|(namespace, asker)| Step::Leave { namespace, asker }),
            2 => key.prop_map(Step::End),
        ]
    }

    fn host(key: u32) -> String {
        format!("{}.example", key % 5)
    }

    proptest! {
        #[test]
        fn no_namespace_has_more_than_its_turns_and_none_waits_while_it_has_one(steps in prop::collection::vec(step(), 0..200)) {
            let (mut turns, mut leaves) = (Turns::default(), 0);
            for step in steps {
                match step {
                    Step::Join { key, namespace, asker: id } => {
                        let namespace = format!("n{namespace}");
                        turns.join(&key, &host(key), &asker(&namespace, &format!("{namespace}-{id}")));
                    }
                    Step::Wait(key) => turns.wait(&key),
                    // A download that goes on for others may be beyond their turns.
                    Step::Leave { namespace, asker } => {
                        leaves += turns.0.len();
                        turns.retain(&format!("n{namespace}-{asker}"), |_| false);
                    }
                    Step::End(key) => turns.end(&key),
                }
                turns.begin();
                let running = |namespace: &str, of: Option<&str>| {
                    let counts = turns.0.iter().filter(|download| {
                        download.phase == Phase::Running(namespace.to_owned())
                            && of.is_none_or(|host| host == download.host)
                    });
                    counts.count()
                };
                for download in &turns.0 {
                    prop_assert_eq!(download.wanted_by.is_empty(), download.phase == Phase::Cancelled);
                    let namespaces: BTreeSet<&String> = download.wanted_by.values().collect();
                    for namespace in namespaces {
                        let of_host = running(namespace, Some(&download.host));
                        prop_assert!(running(namespace, None) <= TURNS_OF_NAMESPACE + leaves);
                        prop_assert!(of_host <= TURNS_OF_HOST + leaves);
                        let has_turn = running(namespace, None) < TURNS_OF_NAMESPACE && of_host < TURNS_OF_HOST;
                        prop_assert!(!(has_turn && download.phase == Phase::Waiting), "{download:?} waits for nothing");
                    }
                }
            }
        }
    }
}
