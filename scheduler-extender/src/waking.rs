//! Wakes pods that were rejected before a Bitstream was there: kube-scheduler tries a pod that an extender rejected again
//! when an object changes that it watches, and Bitstreams are none.
//!
//! So each replica writes a hash of the library into an annotation of one node, at most once a second. The value and the
//! node follow from what all replicas know: the first replica's write is a change, and the API server drops the
//! others, which have nothing new.

use crate::index::NodeIndex;
use crate::library::LibraryIndex;
use crate::metrics::Metrics;
use fpga_core::library::Library;
use fpga_core::names::LIBRARY_VERSION_ANNOTATION;
use k8s_openapi::api::core::v1::Node;
use kube::api::{Patch, PatchParams};
use kube::{Api, Client};
use serde_json::json;
use std::time::Duration;
use tracing::{info, warn};

/// Time between a change and its write, so that the other replicas know the Bitstream before kube-scheduler asks them.
const SETTLE: Duration = Duration::from_millis(500);
/// Least time between two writes, with [`SETTLE`].
const SPACING: Duration = Duration::from_millis(500);
/// Time until a write is tried again.
const TRY_AGAIN: Duration = Duration::from_secs(5);
/// Longest time between two looks at the library and the nodes.
const LOOK_AGAIN: Duration = Duration::from_secs(30);
/// Longest time that the API server may take.
const TIMEOUT: Duration = Duration::from_secs(5);
/// Name under which the API server remembers the writer.
const FIELD_MANAGER: &str = "fpga-scheduler-extender";

/// Writes each version of the library, for ever.
pub async fn run(client: Client, nodes: &NodeIndex, library: &LibraryIndex, metrics: &Metrics) {
    let api: Api<Node> = Api::all(client);
    // A cluster without Bitstreams gets no annotation.
    let mut written = Library::default().fingerprint();
    let mut pause = LOOK_AGAIN;
    loop {
        // Without news the library may have become known, or the first board may have come.
        let _ = tokio::time::timeout(pause, library.changed()).await;
        tokio::time::sleep(SETTLE).await;
        let version = library.fingerprint().filter(|version| *version != written);
        pause = match version.zip(nodes.first_with_boards()) {
            None => LOOK_AGAIN,
            Some((version, node)) => match write(&api, &node, version).await {
                Ok(()) => {
                    written = version;
                    metrics.library_versions_written.inc();
                    info!(node, version, "Bitstreams have changed: rejected pods are tried again");
                    LOOK_AGAIN
                }
                Err(error) => {
                    warn!(node, error, "The version of the library can't be written, trying again");
                    TRY_AGAIN
                }
            },
        };
        tokio::time::sleep(SPACING).await;
    }
}

async fn write(api: &Api<Node>, node: &str, version: u64) -> Result<(), String> {
    let annotations = json!({LIBRARY_VERSION_ANNOTATION: format!("{version:016x}")});
    let patch = Patch::Merge(json!({"metadata": {"annotations": annotations}}));
    let params = PatchParams { field_manager: Some(FIELD_MANAGER.to_owned()), ..PatchParams::default() };
    let answer = tokio::time::timeout(TIMEOUT, api.patch_metadata(node, &params, &patch)).await;
    match answer {
        Ok(Ok(_)) => Ok(()),
        Ok(Err(error)) => Err(error.to_string()),
        Err(_) => Err(format!("no answer in {TIMEOUT:?}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::Moment;
    use crate::index::Shown;
    use fpga_core::library::{AllowedNamespaces, LibraryBitstream};
    use fpga_core::names::VENDOR_LABEL;
    use fpga_core::units::{MonotonicTime, WallTime};
    use http_body_util::BodyExt as _;
    use hyper::{Request, Response};
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
    use kube::client::Body;
    use prometheus_client::registry::Registry;
    use tokio::sync::mpsc;

    /// A client of an API server that takes every write, and the writes.
    fn recording() -> (Client, mpsc::UnboundedReceiver<(String, String)>) {
        let (sender, writes) = mpsc::unbounded_channel();
        let service = tower::service_fn(move |request: Request<Body>| {
            let sender = sender.clone();
            async move {
                let (parts, body) = request.into_parts();
                let body = body.collect().await.unwrap().to_bytes();
                let write = (parts.uri.path().to_owned(), String::from_utf8_lossy(&body).into_owned());
                sender.send(write).unwrap();
                let node = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "a"}});
                Ok::<_, std::convert::Infallible>(Response::new(Body::from(node.to_string().into_bytes())))
            }
        });
        (Client::new(service, "default"), writes)
    }

    fn nodes() -> NodeIndex {
        let index = NodeIndex::default();
        let at = Moment { now: MonotonicTime(1), wall: WallTime(1) };
        for (name, label) in [("plain", None), ("z", Some("intel")), ("b", Some("intel"))] {
            let labels = label.map(|vendor: &str| [(VENDOR_LABEL.to_owned(), vendor.to_owned())].into());
            index.apply(
                ObjectMeta { name: Some(name.into()), labels, ..ObjectMeta::default() },
                Shown::Listed,
                at,
            );
        }
        index
    }

    #[tokio::test]
    async fn replicas_write_the_same_value_to_the_same_node_and_only_what_is_new() {
        let mut values = Vec::new();
        for _replica in 0..2 {
            let (client, mut writes) = recording();
            let (nodes, library) = (nodes(), LibraryIndex::default());
            let metrics = Metrics::register(&mut Registry::default());
            let told = async {
                let mut told = Vec::new();
                for name in ["sobel", "mm"] {
                    // Nothing new, then something.
                    library.change(|_| {});
                    let bitstream =
                        LibraryBitstream { allowed: AllowedNamespaces::All, variants: Vec::new() };
                    library.change(|library| library.insert("library", name, bitstream));
                    told.push(writes.recv().await.unwrap());
                }
                told
            };
            values.push(tokio::select! {
                () = run(client, &nodes, &library, &metrics) => unreachable!("it never ends"),
                told = told => told,
            });
            assert!(writes.try_recv().is_err());
        }
        let [first, second] = values.try_into().unwrap();
        assert_eq!(first, second);
        assert!(first.iter().all(|(path, _)| path == "/api/v1/nodes/b"), "{first:?}");
        let value = |(_, body): &(String, String)| -> String {
            let body: serde_json::Value = serde_json::from_str(body).unwrap();
            body["metadata"]["annotations"][LIBRARY_VERSION_ANNOTATION].as_str().unwrap().to_owned()
        };
        assert_ne!(value(&first[0]), value(&first[1]));
    }
}
