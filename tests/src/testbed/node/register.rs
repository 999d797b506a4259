//! A node's own objects: the Node with its status, and the Lease that keeps it ready.

use super::Shared;
use crate::testbed::wait;
use anyhow::{Context as _, Result};
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::Node as KubeNode;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use k8s_openapi::jiff::Timestamp;
use kube::api::{Patch, PatchParams};
use kube::{Api, ResourceExt as _};
use serde_json::json;
use std::sync::Arc;
use std::time::Duration;
use tracing::warn;

/// The kubelet's values: a lease of 40 s, renewed every 10 s.
const LEASE: Duration = Duration::from_secs(40);
const RENEWAL: Duration = Duration::from_secs(10);
const RETRY: Duration = Duration::from_millis(500);
const FIELD_MANAGER: &str = "stand-in-kubelet";

/// Creates or takes over the Node, and reports that it is ready.
pub(super) async fn register(shared: &Shared) -> Result<KubeNode> {
    let spec = &shared.spec;
    let nodes: Api<KubeNode> = Api::all(shared.client.clone());
    let apply = PatchParams::apply(FIELD_MANAGER).force();
    let mut labels = spec.labels.clone();
    labels.extend([
        ("kubernetes.io/hostname".to_owned(), spec.name.clone()),
        ("kubernetes.io/os".to_owned(), "linux".to_owned()),
        ("kubernetes.io/arch".to_owned(), "amd64".to_owned()),
    ]);
    let node = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": spec.name, "labels": labels}});
    // Right after the start of the API server, nodes may not have their rights yet.
    let node = wait::until("the API server to accept the node", async || {
        Ok(Some(nodes.patch(&spec.name, &apply, &Patch::Apply(&node)).await?))
    })
    .await?;
    let now = Timestamp::now();
    let condition = |kind: &str, status: &str, reason: &str| {
        json!({"type": kind, "status": status, "reason": reason, "message": "the stand-in kubelet says so",
               "lastHeartbeatTime": now, "lastTransitionTime": now})
    };
    let resources = json!({"cpu": "64", "memory": "64Gi", "pods": "110", "ephemeral-storage": "100Gi"});
    let status = json!({"status": {
        "capacity": resources,
        "allocatable": resources,
        "addresses": [
            {"type": "InternalIP", "address": spec.network.host().to_string()},
            {"type": "Hostname", "address": spec.name},
        ],
        "conditions": [
            condition("Ready", "True", "KubeletReady"),
            condition("MemoryPressure", "False", "KubeletHasSufficientMemory"),
            condition("DiskPressure", "False", "KubeletHasNoDiskPressure"),
            condition("PIDPressure", "False", "KubeletHasSufficientPID"),
        ],
    }});
    nodes
        .patch_status(&spec.name, &PatchParams::default(), &Patch::Merge(&status))
        .await
        .context("the API server refuses the node's status")?;
    Ok(node)
}

/// Renews the Lease until the task is aborted.
pub(super) async fn renew_lease(shared: Arc<Shared>, node: KubeNode) {
    let leases: Api<Lease> = Api::namespaced(shared.client.clone(), "kube-node-lease");
    let apply = PatchParams::apply(FIELD_MANAGER).force();
    let name = &shared.spec.name;
    loop {
        let lease = json!({
            "apiVersion": "coordination.k8s.io/v1",
            "kind": "Lease",
            "metadata": {"name": name, "ownerReferences": [
                {"apiVersion": "v1", "kind": "Node", "name": name, "uid": node.uid().unwrap_or_default()},
            ]},
            "spec": {"holderIdentity": name, "leaseDurationSeconds": LEASE.as_secs(), "renewTime": MicroTime(Timestamp::now())},
        });
        match leases.patch(name, &apply, &Patch::Apply(&lease)).await {
            Ok(_) => tokio::time::sleep(RENEWAL).await,
            Err(error) => {
                warn!(%error, "Renewing the lease failed");
                tokio::time::sleep(RETRY).await;
            }
        }
    }
}
