//! Watches Bitstream objects and the labels of namespaces, which become the [`Catalog`].

use crate::catalog::Catalog;
use crate::owner::Desk;
use crate::state::Input;
use fpga_core::library::Library;
use fpga_registry_api::{Bitstream, library_bitstream};
use futures::{Stream, StreamExt as _};
use k8s_openapi::api::core::v1::Namespace;
use kube::core::PartialObjectMeta;
use kube::runtime::WatchStreamExt as _;
use kube::runtime::reflector::{Store, reflector, store};
use kube::runtime::watcher::{self, watcher};
use kube::{Api, Client, Resource, ResourceExt as _};
use serde::de::DeserializeOwned;
use std::fmt::Debug;
use std::hash::Hash;
use std::pin::pin;
use std::time::Duration;
use tokio::sync::Notify;
use tracing::warn;

/// Pause after a change, in which others join it.
const GATHER: Duration = Duration::from_millis(100);

/// Tells the owner of the accelerators whenever they change. `known` is called when they are known first. Ends only if a
/// watch is broken for good.
pub async fn run(client: Client, shared: Option<String>, desk: Desk, known: impl FnOnce()) {
    let changed = Notify::new();
    let (bitstreams, bitstream_watch) = reflect::<Bitstream>(client.clone());
    let (namespaces, namespace_watch) = reflect::<PartialObjectMeta<Namespace>>(client);
    let tell = async {
        // An error means that the watch has ended.
        if bitstreams.wait_until_ready().await.is_err() || namespaces.wait_until_ready().await.is_err() {
            return;
        }
        let (mut last, mut known) = (None, Some(known));
        loop {
            let library = library(&bitstreams, &namespaces, shared.clone());
            if last.replace(library.fingerprint()) != Some(library.fingerprint())
                && desk.tell(Input::Catalog(Catalog::Cluster(library))).await.is_err()
            {
                return;
            }
            if let Some(known) = known.take() {
                known();
            }
            changed.notified().await;
            tokio::time::sleep(GATHER).await;
        }
    };
    tokio::select! {
        () = drain(bitstream_watch, &changed) => {}
        () = drain(namespace_watch, &changed) => {}
        () = tell => {}
    }
}

fn library(
    bitstreams: &Store<Bitstream>,
    namespaces: &Store<PartialObjectMeta<Namespace>>,
    shared: Option<String>,
) -> Library {
    let mut library = Library::new(shared);
    for object in bitstreams.state() {
        let namespace = object.namespace().unwrap_or_default();
        library.insert(&namespace, &object.name_any(), library_bitstream(&object));
    }
    for namespace in namespaces.state() {
        library.set_namespace(&namespace.name_any(), namespace.labels().clone());
    }
    library
}

fn reflect<K>(client: Client) -> (Store<K>, impl Stream<Item = ()>)
where
    K: Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned + Send + Sync + 'static,
    K::DynamicType: Hash + Eq + Clone + Default,
{
    let (reader, writer) = store();
    let events = watcher(Api::<K>::all(client), watcher::Config::default()).default_backoff();
    let events = reflector(writer, events).map(|event| {
        if let Err(error) = event {
            warn!(%error, "A watch on the API server failed, trying again");
        }
    });
    (reader, events)
}

async fn drain(events: impl Stream<Item = ()>, changed: &Notify) {
    let mut events = pin!(events);
    while events.next().await.is_some() {
        changed.notify_one();
    }
}
