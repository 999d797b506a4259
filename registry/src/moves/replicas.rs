//! The number of replicas of a Deployment, which is one more while a replacement comes first. The API server changes it only
//! from the number that the registry knows: what somebody else has written meanwhile stays.

use super::workloads;
use anyhow::{Context as _, Result};
use fpga_cluster::moves::new_first::{NewFirst, Presence, Raised, TimeLeft};
use fpga_registry_api::{MoveOutcome, MoveRecord, ReplicasBefore};
use k8s_openapi::api::apps::v1::Deployment;
use kube::api::{Patch, PatchParams};
use kube::{Api, Client};
use serde_json::{Value, json};

/// Reads and changes numbers of replicas.
pub(super) struct Replicas {
    client: Client,
}

/// What is seen of a move, and why no more pods are Ready.
pub(super) struct Looked {
    pub seen: NewFirst,
    pub why: String,
    /// Version of the Deployment; none without it.
    pub version: Option<String>,
}

/// Whether the Deployment has its number of replicas again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Restored {
    /// It has, or somebody else has set another number.
    Yes,
    /// The registry has not the right any more.
    Forbidden,
}

impl Replicas {
    pub fn new(client: Client) -> Self {
        Self { client }
    }

    /// Asks the API server how far the move is.
    pub async fn look(&self, record: &MoveRecord, before: ReplicasBefore, time: TimeLeft) -> Result<Looked> {
        let Some(others) = workloads::others(&self.client, record).await? else {
            // Without the Deployment there is nothing to move.
            let (pod, raised) = (Presence::Gone, Raised::Otherwise);
            let seen = NewFirst { pod, others_ready: 0, ready_before: before.ready, raised, time };
            return Ok(Looked { seen, why: String::new(), version: None });
        };
        let raised = match others.wanted {
            // Who sets it back while the replacement is waited for wants none.
            wanted if wanted == before.replicas && record.outcome == MoveOutcome::Raised => Raised::Otherwise,
            wanted if wanted == before.replicas => Raised::NotYet,
            wanted if wanted == before.replicas.saturating_add(1) => Raised::Yes,
            _ => Raised::Otherwise,
        };
        let seen = NewFirst {
            pod: others.pod,
            others_ready: others.ready,
            ready_before: before.ready,
            raised,
            time,
        };
        Ok(Looked { seen, why: others.why, version: others.version })
    }

    /// Gives the Deployment one replica more, unless anything of it has changed since it had this version: a registry that
    /// does not lead any more, and does not know it, must not raise the number after the move has ended.
    pub async fn raise(
        &self,
        record: &MoveRecord,
        before: ReplicasBefore,
        version: Option<&str>,
    ) -> Result<()> {
        let (from, to) = (before.replicas, before.replicas.saturating_add(1));
        let is_of_version = json!({"op": "test", "path": "/metadata/resourceVersion", "value": version});
        let changed = self.change(record, vec![is_of_version], from, to).await;
        changed.context("the number of replicas is not raised")
    }

    /// Gives the Deployment back the number of replicas that it had.
    pub async fn restore(&self, record: &MoveRecord, before: ReplicasBefore) -> Result<Restored> {
        let (from, to) = (before.replicas.saturating_add(1), before.replicas);
        match self.change(record, Vec::new(), from, to).await {
            // Somebody has deleted the Deployment, or has set another number.
            Err(kube::Error::Api(status)) if matches!(status.code, 404 | 422) => Ok(Restored::Yes),
            Err(kube::Error::Api(status)) if status.code == 403 => Ok(Restored::Forbidden),
            changed => changed.map(|()| Restored::Yes).context("the number of replicas is not restored"),
        }
    }

    /// Changes the number if it is `from`, and if what `tests` name is so.
    async fn change(
        &self,
        record: &MoveRecord,
        mut tests: Vec<Value>,
        from: u32,
        to: u32,
    ) -> Result<(), kube::Error> {
        tests.extend([
            json!({"op": "test", "path": "/metadata/uid", "value": record.workload_uid}),
            json!({"op": "test", "path": "/spec/replicas", "value": from}),
            json!({"op": "replace", "path": "/spec/replicas", "value": to}),
        ]);
        let patch = serde_json::from_value(Value::Array(tests)).map_err(kube::Error::SerdeError)?;
        let deployments: Api<Deployment> = Api::namespaced(self.client.clone(), &record.namespace);
        let params = PatchParams::default();
        deployments.patch_scale(&record.workload, &params, &Patch::Json::<()>(patch)).await.map(drop)
    }
}
