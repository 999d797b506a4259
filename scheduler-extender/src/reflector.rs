//! Fills the index: watches all nodes.
//!
//! Cordons, taints and readiness are outside of the metadata, so whole nodes are requested. The index keeps the labels,
//! annotations and these terms; the rest of a node is dropped when it arrives.

use crate::clock::Clock;
use crate::index::{NodeIndex, Noted, SeenNode, Shown};
use crate::metrics::{Metrics, StateSource};
use futures::{Stream, StreamExt};
use k8s_openapi::api::core::v1::Node;
use kube::runtime::WatchStreamExt;
use kube::runtime::watcher::{self, Event, watcher};
use kube::{Api, Client};
use std::collections::HashSet;
use std::sync::Arc;
use tracing::{info, warn};

/// Updates `index` until the stream of events ends, which happens only if something is broken for good.
pub async fn run(client: Client, index: Arc<NodeIndex>, metrics: Arc<Metrics>, clock: Clock) {
    let nodes: Api<Node> = Api::all(client);
    let events = watcher(nodes, watcher::Config::default()).default_backoff();
    let events = events.map(|event| {
        event.map(|event| match event {
            Event::Apply(node) => Event::Apply(node.into()),
            Event::Delete(node) => Event::Delete(node.into()),
            Event::InitApply(node) => Event::InitApply(node.into()),
            Event::Init => Event::Init,
            Event::InitDone => Event::InitDone,
        })
    });
    follow(events, &index, &metrics, &clock).await;
}

async fn follow(
    events: impl Stream<Item = Result<Event<SeenNode>, watcher::Error>>,
    index: &NodeIndex,
    metrics: &Metrics,
    clock: &Clock,
) {
    let mut events = std::pin::pin!(events);
    let mut listed = HashSet::new();
    while let Some(event) = events.next().await {
        match event {
            Ok(Event::Init) => listed.clear(),
            Ok(Event::InitApply(node)) => {
                listed.extend(node.metadata.name.clone());
                show(index, metrics, clock, node, Shown::Listed);
            }
            Ok(Event::InitDone) => {
                index.listed(&listed);
                info!(nodes = listed.len(), "Nodes listed");
                listed.clear();
            }
            Ok(Event::Apply(node)) => show(index, metrics, clock, node, Shown::Changed),
            Ok(Event::Delete(node)) => {
                if let Some(name) = &node.metadata.name {
                    index.delete(name);
                }
            }
            Err(error) => {
                metrics.watch_errors.inc();
                warn!(%error, "Watching nodes failed, trying again");
            }
        }
    }
}

fn show(index: &NodeIndex, metrics: &Metrics, clock: &Clock, node: SeenNode, shown: Shown) {
    let name = node.metadata.name.clone().unwrap_or_default();
    match index.apply(node, shown, clock.read()) {
        Noted::Fine => {}
        Noted::Taken => metrics.took_state(StateSource::Annotation),
        Noted::Unreadable(reason) => {
            metrics.unreadable_states.inc();
            warn!(node = name, %reason, "Node state can't be read");
        }
        Noted::Outdated => {
            metrics.outdated_states.inc();
            warn!(node = name, "Node state is not newer than the one that is known, ignored");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::Moment;
    use fpga_core::node_state::ANNOTATION;
    use fpga_core::units::{MonotonicTime, WallTime};
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
    use prometheus_client::registry::Registry;

    fn node(name: &str, annotation: Option<&str>) -> SeenNode {
        let metadata = ObjectMeta {
            name: Some(name.into()),
            annotations: annotation.map(|text| [(ANNOTATION.to_owned(), text.to_owned())].into()),
            ..ObjectMeta::default()
        };
        metadata.into()
    }

    async fn after(events: Vec<Result<Event<SeenNode>, watcher::Error>>) -> (NodeIndex, Metrics) {
        let (index, metrics) = (NodeIndex::default(), Metrics::register(&mut Registry::default()));
        let clock = Clock::new(|| Moment { now: MonotonicTime(1), wall: WallTime(1) });
        follow(futures::stream::iter(events), &index, &metrics, &clock).await;
        (index, metrics)
    }

    fn names(index: &NodeIndex) -> Vec<String> {
        let mut names: Vec<_> = index.read().keys().map(ToString::to_string).collect();
        names.sort();
        names
    }

    #[tokio::test]
    async fn nodes_are_known_when_the_first_list_is_complete() {
        let begun = vec![Ok(Event::Init), Ok(Event::InitApply(node("a", None)))];
        assert!(!after(begun).await.0.is_synced());
        let done = vec![Ok(Event::Init), Ok(Event::InitApply(node("a", None))), Ok(Event::InitDone)];
        assert!(after(done).await.0.is_synced());
    }

    #[tokio::test]
    async fn a_watch_that_fails_begins_anew_and_forgets_only_who_is_gone() {
        let (index, metrics) = after(vec![
            Ok(Event::Init),
            Ok(Event::InitApply(node("a", None))),
            Ok(Event::InitApply(node("b", None))),
            Ok(Event::InitDone),
            Err(watcher::Error::NoResourceVersion),
            Ok(Event::Init),
            Ok(Event::InitApply(node("b", None))),
            Ok(Event::InitApply(node("c", None))),
            Ok(Event::InitDone),
            Ok(Event::Apply(node("d", Some("garbage")))),
            Ok(Event::Delete(node("c", None))),
        ])
        .await;
        assert_eq!(names(&index), ["b", "d"]);
        assert_eq!((metrics.watch_errors.get(), metrics.unreadable_states.get()), (1, 1));
    }

    #[tokio::test]
    async fn while_a_new_list_is_shown_the_old_nodes_are_still_known() {
        let (index, _) = after(vec![
            Ok(Event::Init),
            Ok(Event::InitApply(node("a", None))),
            Ok(Event::InitDone),
            Ok(Event::Init),
        ])
        .await;
        assert!(index.is_synced());
        assert_eq!(names(&index), ["a"]);
    }
}
