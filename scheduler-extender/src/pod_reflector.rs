//! Fills the expectations and the pods with boards: watches all pods that have not ended, with or without a node.
//! Selectors can't select FPGA pods, so the watch has all pods; others are dropped when they are decoded.

use crate::board_pods::BoardPods;
use crate::clock::{Clock, Moment};
use crate::expectations::Expectations;
use crate::index::NodeIndex;
use crate::placed_pod::{Placement, WatchedPod};
use fpga_core::units::Millis;
use futures::{Stream, StreamExt};
use kube::runtime::WatchStreamExt;
use kube::runtime::watcher::{self, Event, watcher};
use kube::{Api, Client};
use std::collections::HashSet;
use std::time::Duration;
use tracing::{info, warn};

/// Pods that have not ended: a pod enters the watch when it is created, and leaves it when it ends or is deleted.
const NOT_ENDED: &str = "status.phase!=Succeeded,status.phase!=Failed";

/// Time between two estimates of what pods use.
const LEARN: Duration = Duration::from_secs(5);

/// Updates `expectations` and `board_pods` until the stream of events ends, which happens only if something is broken
/// for good.
pub async fn run(
    client: Client,
    index: &NodeIndex,
    expectations: &Expectations,
    board_pods: &BoardPods,
    clock: &Clock,
) {
    let pods: Api<WatchedPod> = Api::all(client);
    let events = watcher(pods, watcher::Config::default().fields(NOT_ENDED)).default_backoff();
    let learn = async {
        let mut ticks = tokio::time::interval(LEARN);
        loop {
            ticks.tick().await;
            expectations.learn(index, clock.read().now);
        }
    };
    tokio::select! {
        () = follow(events, expectations, board_pods, clock) => {}
        () = learn => {}
    }
}

async fn follow(
    events: impl Stream<Item = Result<Event<WatchedPod>, watcher::Error>>,
    expectations: &Expectations,
    board_pods: &BoardPods,
    clock: &Clock,
) {
    let mut events = std::pin::pin!(events);
    let mut listed = HashSet::new();
    while let Some(event) = events.next().await {
        match event {
            Ok(Event::Init) => listed.clear(),
            Ok(Event::InitApply(pod)) => {
                let at = clock.read();
                board_pods.show(pod.uid(), pod.board_pod.as_ref());
                match &pod.placement {
                    Placement::NotOurs => continue,
                    Placement::Waits => expectations.waits(pod.uid(), at.now),
                    Placement::Placed(placed) => expectations.bound(placed, age(&pod, at), at.now),
                }
                listed.insert(pod.uid().to_owned());
            }
            Ok(Event::InitDone) => {
                board_pods.listed(&listed);
                expectations.listed(&listed);
                info!(pods = listed.len(), "FPGA pods listed");
                listed.clear();
            }
            Ok(Event::Apply(pod)) => {
                board_pods.show(pod.uid(), pod.board_pod.as_ref());
                match &pod.placement {
                    Placement::NotOurs => {}
                    Placement::Waits => expectations.waits(pod.uid(), clock.read().now),
                    Placement::Placed(placed) => expectations.bound(placed, Millis::ZERO, clock.read().now),
                }
            }
            Ok(Event::Delete(pod)) => {
                board_pods.show(pod.uid(), None);
                expectations.gone(pod.uid());
            }
            Err(error) => {
                expectations.metrics().watch_errors.inc();
                warn!(%error, "Watching pods failed, trying again");
            }
        }
    }
}

/// Time since the binding of a pod that was found in a list, by the API server's date, since the watch has not seen
/// the binding.
fn age(pod: &WatchedPod, at: Moment) -> Millis {
    at.wall - pod.since.unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use fpga_core::expected_load::ArenaKey;
    use fpga_core::node_facts::NodeFacts;
    use fpga_core::node_state::decode;
    use fpga_core::signals::AskedKind;
    use fpga_core::staleness::{Knowledge, Received};
    use fpga_core::units::{MonotonicTime, WallTime};

    const WALL: u64 = 1_767_225_900_000;

    fn pod(uid: &str, bound: &str) -> WatchedPod {
        let pod = serde_json::json!({
            "metadata": {"uid": uid, "annotations": {"fpga-scheduling.io/bitstreams": "sobel"}},
            "spec": {"nodeName": "n"},
            "status": {"conditions": [{"type": "PodScheduled", "status": "True", "lastTransitionTime": bound}]},
        });
        serde_json::from_value(pod).unwrap()
    }

    /// The number of pods that count after the events, each less the longer it has been there.
    async fn after(events: Vec<Event<WatchedPod>>, expectations: &Expectations) -> f64 {
        let clock = Clock::new(|| Moment { now: MonotonicTime(1_000), wall: WallTime(WALL) });
        let events = futures::stream::iter(events.into_iter().map(Ok));
        follow(events, expectations, &BoardPods::default(), &clock).await;
        let state = r#"{"v":1,"boot":1,"seq":1,"heartbeatMs":60000,"measuredAtMs":5,"windowMs":300000,"usageMs":0,"reconfigurationMs":0,"window":{"bucketMs":10000}}"#;
        let received = Received::new(decode(state).unwrap(), MonotonicTime::START, Millis::ZERO);
        let node = NodeFacts { knowledge: Knowledge::Known(Box::new(received)), ..NodeFacts::default() };
        let (key, now) = (ArenaKey::default(), MonotonicTime(1_000));
        let nodes = [Some(("n", &key, node.known()))];
        let expected = expectations.on("another", nodes.into_iter(), &AskedKind::ANY, now);
        expected.first().map_or(0.0, |expected| expected.unknown)
    }

    #[tokio::test]
    async fn a_listed_pod_is_as_old_as_the_api_server_says_and_a_watched_one_is_new() {
        let expectations = Expectations::default();
        let half_a_window_ago = "2026-01-01T00:02:30Z";
        let listed = pod("listed", half_a_window_ago);
        let events = vec![Event::Init, Event::InitApply(listed), Event::InitDone];
        assert!((after(events, &expectations).await - 0.5).abs() < 1e-9);
        assert!(expectations.is_synced());
        let events = vec![Event::Apply(pod("watched", half_a_window_ago))];
        assert!((after(events, &expectations).await - 1.5).abs() < 1e-9);
    }

    #[tokio::test]
    async fn a_decision_counts_while_its_pod_is_seen_waiting() {
        let expectations = Expectations::default();
        let waiting = |uid: &str| {
            let annotations = serde_json::json!({"fpga-scheduling.io/bitstreams": "sobel"});
            let pod = serde_json::json!({"metadata": {"uid": uid, "annotations": annotations}, "spec": {}});
            serde_json::from_value::<WatchedPod>(pod).unwrap()
        };
        for uid in ["waits", "made-up"] {
            expectations.assume(uid, None, AskedKind::ANY, &["n"], MonotonicTime(1_000));
        }
        let events = vec![Event::Init, Event::InitApply(waiting("waits")), Event::InitDone];
        assert!((after(events, &expectations).await - 1.0).abs() < 1e-9);
        let events = vec![Event::Apply(waiting("made-up")), Event::Delete(waiting("waits"))];
        assert!((after(events, &expectations).await - 1.0).abs() < 1e-9);
        let events = vec![Event::Delete(waiting("made-up"))];
        assert!(after(events, &expectations).await.abs() < 1e-9);
    }

    #[tokio::test]
    async fn who_is_deleted_or_missing_in_a_later_list_is_gone() {
        let expectations = Expectations::default();
        let now = "2026-01-01T00:05:00Z";
        let events = vec![
            Event::Init,
            Event::InitDone,
            Event::Apply(pod("a", now)),
            Event::Apply(pod("b", now)),
            Event::Apply(pod("c", now)),
            Event::Delete(pod("a", now)),
        ];
        assert!((after(events, &expectations).await - 2.0).abs() < 1e-9);
        let events = vec![Event::Init, Event::InitApply(pod("c", now)), Event::InitDone];
        assert!((after(events, &expectations).await - 1.0).abs() < 1e-9);
    }
}
