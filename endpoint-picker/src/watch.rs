//! What the API server tells: functions (Services), their replicas (EndpointSlices), the boards of pods (annotations),
//! and the states of nodes (annotations). The picker's state is changed as the events come.

mod catalog;

pub use catalog::Catalog;

use crate::function::FunctionName;
use crate::picker::Picker;
use crate::state::{Seen, StateSource};
use fpga_core::node_state::{ANNOTATION, decode};
use fpga_core::units::WallTime;
use fpga_node_stream::server::annotation_age;
use futures::{Stream, StreamExt};
use k8s_openapi::api::core::v1::{Node, Pod, Service};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::core::{ApiResource, DynamicObject, GroupVersionKind, PartialObjectMeta};
use kube::runtime::WatchStreamExt;
use kube::runtime::watcher::{self, Event, watcher};
use kube::{Api, Client, Resource};
use serde::de::DeserializeOwned;
use std::collections::HashSet;
use std::fmt::Debug;
use std::pin::pin;
use std::sync::Arc;
use std::time::SystemTime;
use tracing::{info, warn};

/// Where the picker looks for functions.
#[derive(Debug, Clone, Default)]
pub struct Scope {
    /// The only namespace of functions; all of them if absent.
    pub namespace: Option<String>,
    /// The function whose requests come by an InferencePool of its namespace, and the pool's name.
    pub pool: Option<(FunctionName, String)>,
}

/// Keeps the picker's state up to date until a stream of events ends, which happens only if something is broken for
/// good.
pub async fn run(client: Client, scope: Scope, picker: Arc<Picker>) {
    let functions = watcher::Config::default().labels(crate::function::FUNCTION_LABEL);
    let services = events(namespaced::<Service>(&client, &scope), functions.clone());
    let slices = events(namespaced::<EndpointSlice>(&client, &scope), functions);
    let pods = events(namespaced::<PartialObjectMeta<Pod>>(&client, &scope), watcher::Config::default());
    let mut pools = match &scope.pool {
        Some((function, pool)) => {
            let config = watcher::Config::default().fields(&format!("metadata.name={pool}"));
            events(inference_pools(&client, &function.namespace), config).boxed()
        }
        None => futures::stream::pending().boxed(),
    };
    let nodes = events(Api::<PartialObjectMeta<Node>>::all(client), watcher::Config::default());
    let (mut services, mut slices, mut pods, mut nodes) =
        (pin!(services), pin!(slices), pin!(pods), pin!(nodes));
    let mut listing = Listing::default();
    listing.pools.is_complete = scope.pool.is_none();
    let mut catalog = Catalog::new(scope.pool.map(|(function, _)| function));
    loop {
        let ended = tokio::select! {
            event = services.next() => take(event, &picker, &mut listing.services, |change| match change {
                Change::Is(service) => catalog.service(&service),
                Change::Gone(service) => catalog.remove_service(&key(&service)),
                Change::Listed(keys) => catalog.retain_services(keys),
            }),
            event = slices.next() => take(event, &picker, &mut listing.slices, |change| match change {
                Change::Is(slice) => catalog.slice(&slice),
                Change::Gone(slice) => catalog.remove_slice(&key(&slice)),
                Change::Listed(keys) => catalog.retain_slices(keys),
            }),
            event = pods.next() => take(event, &picker, &mut listing.pods, |change| match change {
                Change::Is(pod) => catalog.pod(&pod.metadata),
                Change::Gone(pod) => catalog.remove_pod(&key(&pod)),
                Change::Listed(keys) => catalog.retain_pods(keys),
            }),
            event = nodes.next() => take(event, &picker, &mut listing.nodes, |change| match change {
                Change::Is(node) => take_node(&node.metadata, &picker),
                Change::Gone(node) => {
                    picker.with(|state, now| state.forget_node(node.metadata.name.as_deref().unwrap_or_default(), now));
                }
                Change::Listed(_) => {}
            }),
            event = pools.next() => take(event, &picker, &mut listing.pools, |change| match change {
                Change::Is(pool) => catalog.pool(&pool),
                Change::Gone(_) => catalog.remove_pool(),
                Change::Listed(keys) if keys.is_empty() => catalog.remove_pool(),
                Change::Listed(_) => {}
            }),
        };
        let functions = catalog.changed();
        if !functions.is_empty() {
            picker.with(|state, now| {
                for name in &functions {
                    match catalog.function(name) {
                        Some(function) => state.set_function(name, &function, now),
                        None => state.remove_function(name, now),
                    }
                }
            });
            picker.tell_of_replicas();
        }
        if listing.is_complete() && !picker.is_synced() {
            info!(census = ?picker.census(), "Functions are known");
            picker.set_synced();
        }
        if ended == Ended::Yes {
            return;
        }
    }
}

/// Namespace and name of an object.
pub type Key = (String, String);

fn key<K: Resource>(object: &K) -> Key {
    let meta = object.meta();
    (meta.namespace.clone().unwrap_or_default(), meta.name.clone().unwrap_or_default())
}

/// Which lists are complete.
#[derive(Debug, Default)]
struct Listing {
    services: ListOf,
    slices: ListOf,
    pods: ListOf,
    nodes: ListOf,
    pools: ListOf,
}

#[derive(Debug, Default)]
struct ListOf {
    keys: HashSet<Key>,
    is_complete: bool,
}

impl Listing {
    fn is_complete(&self) -> bool {
        [&self.services, &self.slices, &self.pods, &self.nodes, &self.pools]
            .iter()
            .all(|list| list.is_complete)
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Ended {
    No,
    Yes,
}

/// What an event says of one kind of objects.
enum Change<'k, K> {
    Is(K),
    Gone(K),
    /// These objects are all that there are.
    Listed(&'k HashSet<Key>),
}

fn take<K: Resource>(
    event: Option<Result<Event<K>, watcher::Error>>,
    picker: &Picker,
    list: &mut ListOf,
    change: impl FnOnce(Change<'_, K>),
) -> Ended {
    match event {
        None => return Ended::Yes,
        Some(Ok(Event::Init)) => list.keys.clear(),
        Some(Ok(Event::InitApply(object))) => {
            list.keys.insert(key(&object));
            change(Change::Is(object));
        }
        Some(Ok(Event::InitDone)) => {
            change(Change::Listed(&list.keys));
            list.keys = HashSet::new();
            list.is_complete = true;
        }
        Some(Ok(Event::Apply(object))) => change(Change::Is(object)),
        Some(Ok(Event::Delete(object))) => change(Change::Gone(object)),
        Some(Err(error)) => {
            picker.metrics.watch_errors.inc();
            warn!(%error, "A watch failed, trying again");
        }
    }
    Ended::No
}

fn namespaced<K>(client: &Client, scope: &Scope) -> Api<K>
where
    K: Resource<Scope = k8s_openapi::NamespaceResourceScope>,
    K::DynamicType: Default,
{
    match &scope.namespace {
        Some(namespace) => Api::namespaced(client.clone(), namespace),
        None => Api::all(client.clone()),
    }
}

fn inference_pools(client: &Client, namespace: &str) -> Api<DynamicObject> {
    let kind = GroupVersionKind::gvk("inference.networking.k8s.io", "v1", "InferencePool");
    Api::namespaced_with(client.clone(), namespace, &ApiResource::from_gvk(&kind))
}

fn events<K>(api: Api<K>, config: watcher::Config) -> impl Stream<Item = Result<Event<K>, watcher::Error>>
where
    K: Resource + Clone + Debug + DeserializeOwned + Send + 'static,
{
    watcher(api, config).default_backoff()
}

/// Takes a node, and the state in its annotation.
fn take_node(node: &ObjectMeta, picker: &Picker) {
    let (Some(name), Some(uid)) = (&node.name, &node.uid) else { return };
    picker.with(|known, now| known.set_node(name, uid, now));
    let Some(text) = node.annotations.as_ref().and_then(|annotations| annotations.get(ANNOTATION)) else {
        return;
    };
    let state = match decode(text) {
        Ok(state) => state,
        Err(error) => {
            picker.metrics.unreadable_states.inc();
            return warn!(node = name, %error, "The node's state can't be read");
        }
    };
    // A state without a date may be of any age.
    let age = annotation_age(node, WallTime::of(SystemTime::now())).unwrap_or(state.stale_after());
    let seen = Seen::Annotation { age };
    // The node is known, as this task alone forgets nodes.
    if let Ok(taken) = picker.with(|known, now| known.learn(name, uid, &state, seen, now)) {
        picker.metrics.took_state(StateSource::Annotation, taken);
    }
}
