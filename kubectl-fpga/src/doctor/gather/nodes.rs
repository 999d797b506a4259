//! The nodes of the cluster, with their states.

use super::ask::{PAGE, refused};
use crate::connection::Cluster;
use crate::doctor::facts::{Looked, Node, State};
use fpga_core::board_request::BoardResource;
use fpga_core::names::VENDOR_LABEL;
use fpga_core::node_state::{ANNOTATION, FIELD_MANAGER, decode};
use k8s_openapi::api::core::v1::Node as KubeNode;
use kube::Api;
use kube::api::ListParams;

/// All nodes.
pub async fn look(cluster: &Cluster) -> Looked<Vec<Node>> {
    let nodes: Api<KubeNode> = Api::all(cluster.client.clone());
    let mut params = ListParams::default().limit(PAGE);
    let mut all = Vec::new();
    loop {
        let page = match nodes.list(&params).await {
            Ok(page) => page,
            Err(error) => return Looked::Hidden(refused(cluster, &error, None, "list", "nodes").to_string()),
        };
        all.extend(page.items.iter().map(node_of));
        match page.metadata.continue_.filter(|token| !token.is_empty()) {
            Some(token) => params = params.continue_token(&token),
            None => return Looked::Found(all),
        }
    }
}

fn node_of(node: &KubeNode) -> Node {
    let (spec, status) = (node.spec.as_ref(), node.status.as_ref());
    let allocatable = status.and_then(|status| status.allocatable.as_ref()).into_iter().flatten();
    let ours = allocatable.filter(|(name, _)| BoardResource::named(name).is_some());
    let taints = spec.and_then(|spec| spec.taints.as_deref()).unwrap_or_default();
    let taints = taints.iter().filter(|taint| taint.effect != "PreferNoSchedule");
    let metadata = &node.metadata;
    let annotation = metadata.annotations.as_ref().and_then(|annotations| annotations.get(ANNOTATION));
    let state = match annotation.map(|text| decode(text)) {
        None => State::Absent,
        Some(Err(error)) => State::Unreadable(error.to_string()),
        Some(Ok(state)) => State::Known(Box::new(state)),
    };
    let fields = metadata.managed_fields.as_deref().unwrap_or_default();
    let by_collector = fields.iter().filter(|entry| entry.manager.as_deref() == Some(FIELD_MANAGER));
    let times = by_collector.filter_map(|entry| u64::try_from(entry.time.as_ref()?.0.as_millisecond()).ok());
    Node {
        name: metadata.name.clone().unwrap_or_default(),
        advertised: ours.filter_map(|(_, quantity)| quantity.0.parse::<u64>().ok()).sum(),
        taints: taints.map(|taint| taint.key.clone()).collect(),
        labelled: metadata.labels.as_ref().is_some_and(|labels| labels.contains_key(VENDOR_LABEL)),
        state,
        written_at_ms: times.max(),
    }
}
