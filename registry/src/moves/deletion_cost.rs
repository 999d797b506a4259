//! The annotation by which Kubernetes' ReplicaSets choose the pods that they delete first.
//!
//! A pod whose replacement comes first goes by an eviction, after which the Deployment has one replica less. A ReplicaSet
//! controller that learns of the smaller number before it learns of the eviction would delete a pod: by default the one
//! that became Ready last, which is the replacement. The annotation makes the controller choose the pod that goes anyway.

use anyhow::{Context as _, Result};
use fpga_registry_api::MoveRecord;
use k8s_openapi::api::core::v1::Pod;
use kube::api::{Patch, PatchParams};
use kube::{Api, Client};
use serde_json::{Value, json};
use tracing::warn;

/// The annotation's name.
const KEY: &str = "controller.kubernetes.io/pod-deletion-cost";
/// The name in a JSON Pointer.
const PATH: &str = "/metadata/annotations/controller.kubernetes.io~1pod-deletion-cost";
/// Our value. The least one that Kubernetes takes is an owner's own, so that an owner's value is never taken for ours.
const COST: &str = "-2147483647";

/// Writes the annotation.
pub(super) struct DeletionCost {
    client: Client,
}

/// What is done about a pod's annotation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Change {
    Lower,
    TakeBack,
}

impl DeletionCost {
    pub fn new(client: Client) -> Self {
        Self { client }
    }

    /// Makes the pod of a move the first that its ReplicaSet would delete, unless its owner has set a cost.
    pub async fn lower(&self, record: &MoveRecord) -> Result<()> {
        self.change(record, Change::Lower).await
    }

    /// Takes back what [`Self::lower`] wrote: the pod stays.
    pub async fn take_back(&self, record: &MoveRecord) -> Result<()> {
        self.change(record, Change::TakeBack).await
    }

    async fn change(&self, record: &MoveRecord, change: Change) -> Result<()> {
        let pods: Api<Pod> = Api::namespaced(self.client.clone(), &record.namespace);
        let found = pods.get_metadata_opt(&record.pod).await.context("the deletion cost of a pod")?;
        let Some(pod) = found.filter(|pod| pod.metadata.uid.as_ref() == Some(&record.pod_uid)) else {
            return Ok(());
        };
        let annotations = pod.metadata.annotations.as_ref();
        let cost = annotations.and_then(|all| all.get(KEY)).map(String::as_str);
        let operation = match (change, cost) {
            (Change::Lower, None) if annotations.is_none() => {
                json!({"op": "add", "path": "/metadata/annotations", "value": {KEY: COST}})
            }
            (Change::Lower, None) => json!({"op": "add", "path": PATH, "value": COST}),
            (Change::TakeBack, Some(COST)) => json!({"op": "remove", "path": PATH}),
            (Change::Lower, Some(_)) | (Change::TakeBack, _) => return Ok(()),
        };
        // The owner may have set a cost meanwhile.
        let version = json!({"op": "test", "path": "/metadata/resourceVersion", "value": pod.metadata.resource_version});
        let patch = Patch::Json::<()>(serde_json::from_value(Value::Array(vec![version, operation]))?);
        match pods.patch_metadata(&record.pod, &PatchParams::default(), &patch).await {
            Ok(_) => Ok(()),
            Err(kube::Error::Api(status)) if status.code == 404 => Ok(()),
            Err(kube::Error::Api(status)) if status.code == 403 => {
                let (namespace, pod) = (&record.namespace, &record.pod);
                warn!(namespace, pod, error = status.message, "The deletion cost of a pod is not changed");
                Ok(())
            }
            Err(error) => Err(error).context("the deletion cost of a pod is not changed"),
        }
    }
}
