//! Follows the annotation of the collector's own node that takes boards out of rotation. Like each kubelet, each
//! collector watches one node.

use crate::owner::Handle;
use crate::server::{self, Phase};
use fpga_core::cordon::{CORDONED_BOARDS_ANNOTATION, CordonedBoards};
use futures::StreamExt as _;
use k8s_openapi::api::core::v1::Node;
use kube::core::PartialObjectMeta;
use kube::runtime::WatchStreamExt as _;
use kube::runtime::watcher::{self, Event, watcher};
use kube::{Api, ResourceExt as _};
use tokio::sync::watch;
use tracing::warn;

/// Tells `owner` the boards of the annotation whenever they change, until `phase` is [`Phase::End`].
pub async fn follow(client: kube::Client, node: String, owner: Handle, mut phase: watch::Receiver<Phase>) {
    let nodes: Api<PartialObjectMeta<Node>> = Api::all(client);
    let this_node = watcher::Config::default().fields(&format!("metadata.name={node}"));
    let mut events = std::pin::pin!(watcher(nodes, this_node).default_backoff());
    loop {
        let event = tokio::select! {
            event = events.next() => event,
            () = server::ended(&mut phase) => return,
        };
        let Some(event) = event else { return };
        match event {
            Ok(Event::Apply(node) | Event::InitApply(node)) => take(&node, &owner).await,
            Ok(Event::Init | Event::InitDone | Event::Delete(_)) => {}
            Err(error) => {
                warn!(node, %error, "The node can't be watched: cordons of its boards are not seen");
            }
        }
    }
}

/// Tells `owner` the boards of this node's annotation. A text that can't be read changes nothing.
pub async fn take(node: &PartialObjectMeta<Node>, owner: &Handle) {
    let text = node.annotations().get(CORDONED_BOARDS_ANNOTATION);
    match text.map_or_else(|| Ok(CordonedBoards::default()), |text| CordonedBoards::parse(text)) {
        Ok(boards) => {
            if let Err(error) = owner.cordons(boards).await {
                warn!(%error, "Cordons not taken");
            }
        }
        Err(error) => warn!(
            %error,
            "The annotation {CORDONED_BOARDS_ANNOTATION} can't be read, and the last one counts; remove it, and write \
             `kubectl fpga cordon`"
        ),
    }
}
