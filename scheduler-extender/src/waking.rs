//! Wakes pods that were rejected before a Bitstream was there: kube-scheduler tries a pod that an extender rejected again
//! when an object changes that it watches, and Bitstreams are none.
//!
//! So each replica writes a hash of the library into an annotation of one node. **Together the replicas write at most
//! once a second**: a write needs the value that the replica saw at least a second ago to be there still, so that of two
//! replicas one writes, and the other one waits. **Nobody misses a wake-up**: a replica that learns of a Bitstream after
//! another replica's write may have rejected pods in between, and writes once more.

use crate::clock::Clock;
use crate::index::{NodeIndex, WakeUp};
use crate::library::{LibraryIndex, LibraryVersion};
use crate::metrics::Metrics;
use fpga_core::names::LIBRARY_VERSION_ANNOTATION;
use fpga_core::units::{Millis, MonotonicTime};
use k8s_openapi::api::core::v1::Node;
use kube::api::{Patch, PatchParams};
use kube::{Api, Client};
use serde_json::json;
use std::time::Duration;
use tracing::{info, warn};

/// Time between a change and its write, so that the other replicas know the Bitstream before kube-scheduler asks them.
const SETTLE: Duration = Duration::from_millis(500);
/// Least time between two writes of all replicas.
const SPACING: Millis = Millis(1_000);
/// Longest time for which the watch may lag: a write that is seen later than this after a version was learned came after it.
const WATCH_LAG: Millis = Millis(250);
/// Time until another replica's write is shown by the watch.
const SHOWN: Duration = Duration::from_millis(500);
/// Time until a write is tried again.
const TRY_AGAIN: Duration = Duration::from_secs(5);
/// Longest time between two looks at the library and the nodes.
const LOOK_AGAIN: Duration = Duration::from_secs(30);
/// Longest time that the API server may take.
const TIMEOUT: Duration = Duration::from_secs(5);
/// Name under which the API server remembers the writer.
const FIELD_MANAGER: &str = "fpga-scheduler-extender";

/// A version of the library, as this replica has learned of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Version {
    library: LibraryVersion,
    /// The moment from which on this replica decides by it; `None` if it has never decided by another one.
    learned: Option<MonotonicTime>,
}

/// The library's version, and the one for which rejected pods have been woken.
#[derive(Debug)]
struct Versions {
    known: Option<Version>,
    handled: Version,
}

/// What is to be done about a version.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Due {
    /// Nothing: a wake-up came after this replica knew the version.
    Nothing,
    /// Look again after this time.
    Later(Millis),
    /// Write this value now.
    Now(String),
}

/// What became of a write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Written {
    Yes,
    /// The node has another value than this replica has seen, or was changed just now.
    Overtaken,
}

impl Version {
    /// What is to be done at the moment `now`; `last` is the node's last wake-up, by whichever replica.
    fn due(self, last: Option<&WakeUp>, now: MonotonicTime) -> Due {
        let hash = format!("{:016x}", self.library.hash);
        let Some(last) = last else { return Due::Now(hash) };
        let (known, repeats) = last.value.split_once('.').unwrap_or((&*last.value, "0"));
        let value = if known != hash {
            hash
        } else if self.learned.is_none_or(|learned| last.seen >= learned + WATCH_LAG) {
            return Due::Nothing;
        } else {
            format!("{hash}.{}", repeats.parse::<u32>().unwrap_or(0).wrapping_add(1))
        };
        let rested = now - last.seen;
        if rested < SPACING { Due::Later(Millis(SPACING.0 - rested.0)) } else { Due::Now(value) }
    }
}

impl Versions {
    /// Before the library is known. A cluster without Bitstreams gets no annotation.
    fn new() -> Self {
        Self { known: None, handled: Version { library: LibraryVersion::default(), learned: None } }
    }

    /// Takes the library's version at the moment `now`.
    fn notice(&mut self, library: LibraryVersion, now: MonotonicTime) {
        let learned = match self.known {
            Some(known) if known.library == library => return,
            Some(_) => Some(now),
            // A replica that does not know the library yet is not asked, and has rejected nobody.
            None => None,
        };
        self.known = Some(Version { library, learned });
    }

    /// The version for which pods have to be woken. A library that is again as it was is news, too: pods may have been
    /// rejected by the one in between.
    fn news(&self) -> Option<Version> {
        self.known.filter(|known| *known != self.handled)
    }
}

/// Writes each version of the library, for ever.
pub async fn run(
    client: Client,
    nodes: &NodeIndex,
    library: &LibraryIndex,
    metrics: &Metrics,
    clock: &Clock,
) {
    let api: Api<Node> = Api::all(client);
    let mut versions = Versions::new();
    let notice = |versions: &mut Versions| {
        if let Some(version) = library.version() {
            versions.notice(version, clock.read().now);
        }
    };
    let mut pause = LOOK_AGAIN;
    loop {
        // Without news the library may have become known, or the first board may have come.
        let _ = tokio::time::timeout(pause, library.changed()).await;
        notice(&mut versions);
        tokio::time::sleep(SETTLE).await;
        notice(&mut versions);
        let Some((version, (node, last))) = versions.news().zip(nodes.first_with_boards()) else {
            pause = LOOK_AGAIN;
            continue;
        };
        pause = match version.due(last.as_ref(), clock.read().now) {
            Due::Nothing => {
                versions.handled = version;
                LOOK_AGAIN
            }
            Due::Later(time) => time.into(),
            Due::Now(value) => match write(&api, &node, last.as_ref(), &value).await {
                Ok(Written::Yes) => {
                    versions.handled = version;
                    metrics.library_versions_written.inc();
                    info!(node, value, "Bitstreams have changed: rejected pods are tried again");
                    LOOK_AGAIN
                }
                Ok(Written::Overtaken) => SHOWN,
                Err(error) => {
                    warn!(node, error, "The version of the library can't be written, trying again");
                    TRY_AGAIN
                }
            },
        };
    }
}

/// Writes the annotation if the node still has the `last` value.
async fn write(api: &Api<Node>, node: &str, last: Option<&WakeUp>, value: &str) -> Result<Written, String> {
    let exchange = async {
        let metadata = api.get_metadata(node).await?.metadata;
        let there = metadata.annotations.as_ref().and_then(|all| all.get(LIBRARY_VERSION_ANNOTATION));
        if there.map(String::as_str) != last.map(|last| &*last.value) {
            return Ok(Written::Overtaken);
        }
        let annotations = json!({LIBRARY_VERSION_ANNOTATION: value});
        let version = metadata.resource_version;
        let patch = json!({"metadata": {"annotations": annotations, "resourceVersion": version}});
        let params = PatchParams { field_manager: Some(FIELD_MANAGER.to_owned()), ..PatchParams::default() };
        match api.patch_metadata(node, &params, &Patch::Merge(patch)).await {
            Ok(_) => Ok(Written::Yes),
            Err(kube::Error::Api(status)) if status.code == 409 => Ok(Written::Overtaken),
            Err(error) => Err(error),
        }
    };
    match tokio::time::timeout(TIMEOUT, exchange).await {
        Ok(written) => written.map_err(|error: kube::Error| error.to_string()),
        Err(_) => Err(format!("no answer in {TIMEOUT:?}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const HASH: &str = "000000000000002a";

    fn library(hash: u64, changes: u64) -> LibraryVersion {
        LibraryVersion { hash, changes }
    }

    fn version(learned: u64) -> Version {
        Version { library: library(42, 1), learned: Some(MonotonicTime(learned)) }
    }

    fn wake_up(value: &str, seen: u64) -> WakeUp {
        WakeUp { value: value.into(), seen: MonotonicTime(seen) }
    }

    #[test]
    fn a_version_is_written_once_a_second_after_the_last_and_again_by_who_learned_of_it_later() {
        let now = |text: &str| Due::Now(text.to_owned());
        let (again, third) = ("000000000000002a.1", "000000000000002a.2");
        for (what, last, expected) in [
            ("the first one", None, now(HASH)),
            ("another version, long ago", Some(wake_up("01", 100)), now(HASH)),
            ("another version, just now", Some(wake_up("01", 5_100)), Due::Later(Millis(600))),
            ("this one, after it was learned", Some(wake_up(HASH, 5_400)), Due::Nothing),
            (
                "this one, seen so soon that it may be from before",
                Some(wake_up(HASH, 5_200)),
                Due::Later(Millis(700)),
            ),
            ("this one, before it was learned", Some(wake_up(HASH, 4_000)), now(again)),
            ("again, before it was learned", Some(wake_up(again, 4_000)), now(third)),
            ("again, after it was learned", Some(wake_up(again, 5_400)), Due::Nothing),
            ("nonsense", Some(wake_up(".x", 100)), now(HASH)),
            ("a count that is none", Some(wake_up("000000000000002a.x", 1)), now(again)),
        ] {
            assert_eq!(version(5_000).due(last.as_ref(), MonotonicTime(5_500)), expected, "{what}");
        }
        let from_the_start = Version { library: library(42, 1), learned: None };
        assert_eq!(from_the_start.due(Some(&wake_up(HASH, 1)), MonotonicTime(1)), Due::Nothing);
    }

    #[test]
    fn a_library_that_is_again_as_it_was_wakes_pods_that_the_one_in_between_rejected() {
        let mut versions = Versions::new();
        let at = MonotonicTime;
        versions.notice(library(42, 1), at(0));
        versions.handled = versions.news().unwrap();
        versions.notice(library(42, 1), at(1_000));
        assert_eq!(versions.news(), None);
        versions.notice(library(7, 2), at(5_000));
        versions.notice(library(42, 3), at(5_400));
        let news = versions.news().unwrap();
        let again = Due::Now("000000000000002a.1".to_owned());
        assert_eq!(news.due(Some(&wake_up(HASH, 1_000)), at(5_500)), again);
        // Also where the one in between came and went between two looks.
        versions.handled = news;
        versions.notice(library(42, 5), at(9_000));
        let again = Due::Now("000000000000002a.2".to_owned());
        let last = wake_up("000000000000002a.1", 5_500);
        assert_eq!(versions.news().unwrap().due(Some(&last), at(9_500)), again);
    }

    proptest! {
        /// Replicas that learn of a version at different times, and see each other's writes late.
        #[test]
        fn every_replica_has_a_wake_up_after_it_knew_and_none_is_within_a_second_of_another(
            learned in prop::collection::vec(0_u64..20_000, 1..5),
            lag in 0..WATCH_LAG.0,
        ) {
            let settle = u64::try_from(SETTLE.as_millis()).unwrap();
            let mut written: Vec<(u64, String)> = Vec::new();
            let mut done = vec![false; learned.len()];
            for at in (0..60_000).step_by(50) {
                for (replica, learned) in learned.iter().enumerate() {
                    if done[replica] || learned + settle > at {
                        continue;
                    }
                    let mut shown = written.iter().filter(|(then, _)| then + lag <= at);
                    let last = shown.next_back().map(|(then, value)| wake_up(value, then + lag));
                    match version(*learned).due(last.as_ref(), MonotonicTime(at)) {
                        Due::Nothing => done[replica] = true,
                        Due::Later(_) => {}
                        Due::Now(value) => {
                            // As `write` does: the node must still have what was seen.
                            let there = written.last().map(|(_, value)| value.as_str());
                            if there == last.as_ref().map(|last| &*last.value) {
                                written.push((at, value));
                                done[replica] = true;
                            }
                        }
                    }
                }
            }
            prop_assert!(done.iter().all(|done| *done), "{written:?}");
            let spaced = written.iter().zip(written.iter().skip(1)).all(|(a, b)| b.0 - a.0 >= SPACING.0);
            prop_assert!(spaced, "{written:?}");
            for learned in &learned {
                prop_assert!(written.iter().any(|(at, _)| at >= learned), "{learned}: {written:?}");
            }
            prop_assert!(written.len() <= learned.len(), "{written:?}");
        }
    }
}
