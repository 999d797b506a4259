//! Nodes and pods, by watches of the API server.

use super::super::model::source::{Source, State};
use super::super::model::{MAX_PODS, Model};
use super::super::shared::Shared;
use super::{RETRY, WATCH_SILENCE};
use crate::connection::Cluster;
use crate::problem::{Grant, Problem, chain};
use futures::{Stream, StreamExt as _, stream};
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::api::ListParams;
use kube::core::PartialObjectMeta;
use kube::runtime::WatchStreamExt as _;
use kube::runtime::watcher::{self, Event, watcher};
use kube::{Api, Resource};
use serde::de::DeserializeOwned;
use std::collections::HashSet;
use std::fmt::Debug;
use std::sync::Arc;

/// Objects in one answer to a list.
const PAGE: u32 = 500;
/// The API server ends a watch after this time, and the next one goes on where it was.
const WATCH_SECONDS: u32 = 20;
const _: () = assert!((WATCH_SECONDS as u64) < WATCH_SILENCE.as_secs());

/// Objects that the user may list, and a sentence on those that are left out.
type Scope<K> = (Api<K>, String);

/// Objects of one kind that the model shows.
pub(super) trait Kind: Send + Sync + 'static {
    /// The object, or what is needed of it.
    type Object: Resource + Clone + DeserializeOwned + Debug + Send + 'static;
    /// The source in the model.
    const SOURCE: Source;
    /// The right that the watch needs.
    const GRANT: Grant;

    /// The objects that the user may list, and a sentence on those that are left out.
    fn scope(&self, cluster: &Cluster) -> impl Future<Output = Result<Scope<Self::Object>, Problem>> + Send;
    /// The key of an object.
    fn key(object: &Self::Object) -> String;
    /// An object of a list. Returns whether there is room for it.
    fn listed(model: &mut Model, object: &Self::Object, now_ms: u64) -> bool;
    /// An object that is new or has changed. Returns whether there is room for it.
    fn changed(model: &mut Model, object: &Self::Object, now_ms: u64) -> bool;
    /// The object with this key has gone.
    fn gone(model: &mut Model, key: &str, now_ms: u64);
    /// There are no objects but those with these keys.
    fn only(model: &mut Model, keys: &HashSet<String>, now_ms: u64);
}

/// Nodes.
pub(super) struct Nodes;

/// Pods, of one namespace if it is given.
pub(super) struct Pods {
    pub(super) namespace: Option<String>,
}

/// Follows the objects of a kind, for as long as the future is polled.
pub(super) async fn follow<K: Kind>(kind: K, cluster: Cluster, shared: Arc<Shared>) {
    let tell = |state: State| shared.change(|model, _| model.source(K::SOURCE, &state));
    tell(State::Connecting);
    let (api, left_out) = loop {
        match kind.scope(&cluster).await {
            Ok(found) => break found,
            Err(problem) => tell(State::from(&problem)),
        }
        tokio::time::sleep(RETRY).await;
    };
    let config = watcher::Config::default().page_size(PAGE).timeout(WATCH_SECONDS);
    let mut events = std::pin::pin!(watches(api, config).default_backoff());
    let mut keys = HashSet::new();
    let mut message = left_out.clone();
    while let Some(event) = events.next().await {
        let has_room = match event {
            Ok(Event::Init) => {
                keys.clear();
                continue;
            }
            Ok(Event::InitApply(object)) => {
                keys.insert(K::key(&object));
                shared.change(|model, now_ms| K::listed(model, &object, now_ms))
            }
            Ok(Event::InitDone) => {
                shared.change(|model, now_ms| K::only(model, &std::mem::take(&mut keys), now_ms));
                tell(State::Live { message: message.clone() });
                continue;
            }
            Ok(Event::Apply(object)) => {
                tell(State::Live { message: message.clone() });
                shared.change(|model, now_ms| K::changed(model, &object, now_ms))
            }
            Ok(Event::Delete(object)) => {
                shared.change(|model, now_ms| K::gone(model, &K::key(&object), now_ms));
                continue;
            }
            Err(error) => {
                tell(State::from(&problem(error, &cluster.server, &K::GRANT, K::SOURCE.name())));
                continue;
            }
        };
        if !has_room {
            message = format!("{left_out} Only {MAX_PODS} pods are shown.").trim().to_owned();
        }
    }
}

/// The events of a watch, which starts again with a list after each error. kube's watcher would resume without an event, and the
/// page would show the source as lost until an object changes.
fn watches<O>(
    api: Api<O>,
    config: watcher::Config,
) -> impl Stream<Item = Result<Event<O>, watcher::Error>> + Send
where
    O: Resource + Clone + DeserializeOwned + Debug + Send + 'static,
{
    let start = move || Box::pin(watcher(api.clone(), config.clone()));
    stream::unfold((start(), start), |(mut watch, start)| async move {
        let event = watch.next().await?;
        if event.is_err() {
            watch = start();
        }
        Some((event, (watch, start)))
    })
}

fn problem(error: watcher::Error, server: &str, grant: &Grant, what: &str) -> Problem {
    let doing = format!("watching {what}");
    match error {
        watcher::Error::InitialListFailed(error)
        | watcher::Error::WatchStartFailed(error)
        | watcher::Error::WatchFailed(error) => Problem::of_api(&error, server, &doing, grant),
        watcher::Error::WatchError(status) => {
            Problem::of_api(&kube::Error::Api(status), server, &doing, grant)
        }
        error @ watcher::Error::NoResourceVersion => Problem::Other { doing, error: chain(&error) },
    }
}

impl Kind for Nodes {
    type Object = PartialObjectMeta<Node>;
    const SOURCE: Source = Source::Nodes;
    const GRANT: Grant = Grant { namespace: None, verbs: "get,list,watch", resources: "nodes" };

    async fn scope(&self, cluster: &Cluster) -> Result<Scope<Self::Object>, Problem> {
        Ok((Api::all(cluster.client.clone()), String::new()))
    }

    fn key(object: &Self::Object) -> String {
        object.metadata.name.clone().unwrap_or_default()
    }

    fn listed(model: &mut Model, object: &Self::Object, now_ms: u64) -> bool {
        model.node(&object.metadata, now_ms);
        true
    }

    fn changed(model: &mut Model, object: &Self::Object, now_ms: u64) -> bool {
        Self::listed(model, object, now_ms)
    }

    fn gone(model: &mut Model, key: &str, _now_ms: u64) {
        model.node_gone(key);
    }

    fn only(model: &mut Model, keys: &HashSet<String>, _now_ms: u64) {
        model.only_nodes(keys);
    }
}

impl Kind for Pods {
    type Object = Pod;
    const SOURCE: Source = Source::Pods;
    const GRANT: Grant = Grant { namespace: None, verbs: "get,list,watch", resources: "pods" };

    /// All pods, or else those of the user's namespace.
    async fn scope(&self, cluster: &Cluster) -> Result<Scope<Pod>, Problem> {
        let of = |namespace: &str| Api::<Pod>::namespaced(cluster.client.clone(), namespace);
        if let Some(namespace) = &self.namespace {
            return Ok((of(namespace), format!("Only pods of namespace {namespace} are shown.")));
        }
        let one = ListParams::default().limit(1);
        let all = Api::<Pod>::all(cluster.client.clone());
        let problem = match all.list_metadata(&one).await {
            Ok(_) => return Ok((all, String::new())),
            Err(error) => Problem::of_api(&error, &cluster.server, "listing pods", &Self::GRANT),
        };
        let own = of(&cluster.namespace);
        match own.list_metadata(&one).await {
            Ok(_) if matches!(problem, Problem::Forbidden { .. }) => {
                Ok((own, format!("Only pods of namespace {} are shown: {problem}", cluster.namespace)))
            }
            _ => Err(problem),
        }
    }

    fn key(object: &Pod) -> String {
        let metadata = &object.metadata;
        let text = |text: &Option<String>| text.clone().unwrap_or_default();
        format!("{}/{}", text(&metadata.namespace), text(&metadata.name))
    }

    fn listed(model: &mut Model, object: &Pod, _now_ms: u64) -> bool {
        model.listed_pod(object)
    }

    fn changed(model: &mut Model, object: &Pod, now_ms: u64) -> bool {
        model.pod(object, now_ms)
    }

    fn gone(model: &mut Model, key: &str, now_ms: u64) {
        model.pod_gone(key, now_ms);
    }

    fn only(model: &mut Model, keys: &HashSet<String>, now_ms: u64) {
        model.only_pods(keys, now_ms);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::Router;
    use axum::extract::RawQuery;
    use axum::http::StatusCode;
    use axum::routing::get;
    use fpga_test_kit::Server;

    /// An empty list of nodes, and an error for each watch.
    async fn nodes(RawQuery(query): RawQuery) -> (StatusCode, String) {
        if query.is_some_and(|query| query.contains("watch=")) {
            return (StatusCode::INTERNAL_SERVER_ERROR, String::new());
        }
        let list = serde_json::json!({
            "apiVersion": "v1", "kind": "NodeList", "metadata": {"resourceVersion": "1"}, "items": [],
        });
        (StatusCode::OK, list.to_string())
    }

    #[tokio::test]
    async fn a_watch_that_failed_starts_again_with_a_list() {
        let server = Server::tcp("127.0.0.1:0", Router::new().route("/api/v1/nodes", get(nodes)));
        let config = kube::Config::new(format!("http://{}", server.address()).parse().unwrap());
        let api: Api<Node> = Api::all(kube::Client::try_from(config).unwrap());
        let events = watches(api, watcher::Config::default()).take(6).collect::<Vec<_>>();
        let events = tokio::time::timeout(fpga_test_kit::patience(), events).await.unwrap();
        let told = events.iter().map(|event| match event {
            Ok(Event::Init) => "list",
            Ok(Event::InitDone) => "listed",
            Ok(_) => "object",
            Err(_) => "failed",
        });
        assert_eq!(told.collect::<Vec<_>>(), ["list", "listed", "failed"].repeat(2));
    }
}
