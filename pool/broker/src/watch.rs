//! Watches Bitstream objects and the labels of namespaces, which become the [`Catalog`].

use crate::catalog::{Catalog, ClusterCatalog, ClusterInterfaces, json};
use crate::owner::Desk;
use crate::state::Input;
use fpga_core::library::Library;
use fpga_registry_api::{Bitstream, LibraryRules};
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
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Notify;
use tracing::warn;

/// Pause after a change, in which others join it.
const GATHER: Duration = Duration::from_millis(100);

/// Tells the owner of the accelerators whenever they change. `known` is called when they are known first. Ends only if a
/// watch is broken for good.
pub async fn run(client: Client, rules: LibraryRules, desk: Desk, known: impl FnOnce()) {
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
            let library = library(&bitstreams.state(), &namespaces.state(), &rules);
            let interfaces = interfaces(&bitstreams.state());
            let seen = Some((library.fingerprint(), interfaces.clone()));
            if last != seen {
                let catalog = Catalog::Cluster(ClusterCatalog::new(library, interfaces));
                if desk.tell(Input::Catalog(catalog)).await.is_err() {
                    return;
                }
            }
            last = seen;
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
    bitstreams: &[Arc<Bitstream>],
    namespaces: &[Arc<PartialObjectMeta<Namespace>>],
    rules: &LibraryRules,
) -> Library {
    let mut library = Library::new(rules.shared.clone());
    for object in bitstreams {
        let namespace = object.namespace().unwrap_or_default();
        library.insert(&namespace, &object.name_any(), rules.bitstream(object));
    }
    for namespace in namespaces {
        library.set_namespace(&namespace.name_any(), namespace.labels().clone());
    }
    library
}

/// The interfaces of accelerators that jobs can run. One that is not possible, which an older definition of the resource lets
/// pass, is none.
fn interfaces(bitstreams: &[Arc<Bitstream>]) -> ClusterInterfaces {
    let interface = |object: &Arc<Bitstream>| {
        let interface = object.spec.interface.as_ref()?.parse().and_then(|interface| json(&interface));
        let of = (object.namespace().unwrap_or_default(), object.name_any());
        let told = interface.inspect_err(|error| {
            warn!(namespace = %of.0, name = %of.1, %error, "The interface of a Bitstream is not possible");
        });
        Some((of, told.ok()?))
    };
    bitstreams.iter().filter_map(interface).collect()
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

#[cfg(test)]
mod tests {
    use super::*;
    use fpga_registry_api::OwnBitstreams;

    #[test]
    fn a_bitstream_that_the_registry_refuses_is_lent_to_nobody_and_blocks_nobody() {
        let digest = format!("sha256:{}", "0a".repeat(32));
        let bitstream = |namespace: &str, accepted: &str| {
            let variant = serde_json::json!({
                "vendor": "intel", "board": "a10", "shell": "1", "bytes": 1, "digest": digest,
                "source": {"https": "https://files.example/x"},
            });
            let condition = serde_json::json!({
                "type": "Accepted", "status": accepted, "observedGeneration": 1, "reason": "r", "message": "",
                "lastTransitionTime": "2026-01-01T00:00:00Z",
            });
            let object = serde_json::json!({
                "apiVersion": "fpga-scheduling.io/v1alpha1", "kind": "Bitstream",
                "metadata": {"namespace": namespace, "name": "sobel", "generation": 1},
                "spec": {"variants": [variant]}, "status": {"conditions": [condition]},
            });
            Arc::new(serde_json::from_value::<Bitstream>(object).unwrap())
        };
        let rules = LibraryRules { shared: None, own: OwnBitstreams::Accepted };
        let objects = [bitstream("shop", "True"), bitstream("evil", "False")];
        let library = library(&objects, &[], &rules);
        let catalog = Catalog::Cluster(ClusterCatalog::new(library, ClusterInterfaces::new()));
        assert_eq!(catalog.variants("shop", "sobel").len(), 1);
        assert!(catalog.variants("evil", "sobel").is_empty());
    }

    #[test]
    fn a_bitstream_with_an_interface_tells_it_and_one_that_is_not_possible_is_none() {
        let bitstream = |name: &str, block_bytes: i32| {
            let interface = serde_json::json!({
                "kernel": "invert", "blockBytes": block_bytes, "outputBytesPerBlock": 1, "tail": "Partial",
                "workGroupSize": 64, "workItemsPerBlock": 1,
            });
            let object = serde_json::json!({
                "apiVersion": "fpga-scheduling.io/v1alpha1", "kind": "Bitstream",
                "metadata": { "namespace": "team", "name": name },
                "spec": { "variants": [], "interface": interface },
            });
            Arc::new(serde_json::from_value::<Bitstream>(object).unwrap())
        };
        let told = interfaces(&[bitstream("invert", 1), bitstream("wrong", 0)]);
        let names: Vec<_> = told.keys().collect();
        assert_eq!(names, [&("team".to_owned(), "invert".to_owned())]);
        assert!(told.values().all(|text| text.contains("\"blockBytes\":1")), "{told:?}");
    }
}
