//! The inputs of the decision whether a pod is moved, read from the API server.

use super::found::Found;
use super::settings::NewBeforeOld;
use super::workloads::{NamedDeployment, count_owner, deployment, disruption};
use anyhow::{Context as _, Result};
use fpga_cluster::moves::{
    Candidate, CountOwner, Deployment, Destination, Disruption, Readiness, Replacement, Workload,
};
use fpga_registry_api::{Controller, FpgaPod};
use k8s_openapi::api::autoscaling::v2::HorizontalPodAutoscaler;
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use kube::api::ListParams;
use kube::{Api, Client};
use std::collections::BTreeMap;

/// A pod that had better be elsewhere, with all that decides whether it is moved.
#[derive(Debug)]
pub(super) struct Judged<'p> {
    pub pod: &'p FpgaPod,
    pub candidate: Candidate,
    /// The pod's Deployment, if it has one.
    pub deployment: Option<NamedDeployment>,
}

/// Asks the API server for the workloads, disruption budgets and autoscalers of the pods. `destination` tells whether there is
/// a place for a pod.
pub(super) async fn judge<'p>(
    client: &Client,
    found: Vec<Found<'p>>,
    new_before_old: NewBeforeOld,
    destination: impl Fn(&FpgaPod) -> Destination,
) -> Vec<Judged<'p>> {
    let mut asked = Asked {
        client,
        deployments: BTreeMap::new(),
        budgets: BTreeMap::new(),
        autoscalers: BTreeMap::new(),
    };
    let mut judged = Vec::with_capacity(found.len());
    for Found { pod, cause } in found {
        let readiness = if pod.is_ready { Readiness::Ready } else { Readiness::NotReady };
        // A pod that is not Ready serves no request, so that its replacement need not come first.
        let comes_first = new_before_old == NewBeforeOld::Allowed && pod.new_before_old && pod.is_ready;
        // An error about one pod holds no other pod.
        let known = asked.known(pod, comes_first).await;
        let Known { workload, deployment, disruption, replacement } = known.unwrap_or_else(|error| Known {
            workload: Workload::Unknown(format!("{error:#}")),
            deployment: None,
            disruption: Disruption::Allowed,
            replacement: Replacement::AfterThePod,
        });
        let candidate = Candidate {
            pod: pod.uid.clone(),
            namespace: pod.namespace.clone(),
            cause,
            readiness,
            workload,
            disruption,
            replacement,
            destination: destination(pod),
        };
        judged.push(Judged { pod, candidate, deployment });
    }
    judged
}

/// What the API server tells about the workload of a pod.
struct Known {
    workload: Workload,
    deployment: Option<NamedDeployment>,
    disruption: Disruption,
    replacement: Replacement,
}

/// Answers of the API server, each asked once.
struct Asked<'c> {
    client: &'c Client,
    /// By namespace and ReplicaSet, as the pod names it.
    deployments: BTreeMap<(String, Controller), Option<NamedDeployment>>,
    /// By the namespace.
    budgets: BTreeMap<String, Vec<PodDisruptionBudget>>,
    /// By the namespace.
    autoscalers: BTreeMap<String, Vec<HorizontalPodAutoscaler>>,
}

impl Asked<'_> {
    /// What decides about a pod, whose replacement comes first or not.
    async fn known(&mut self, pod: &FpgaPod, comes_first: bool) -> Result<Known> {
        let deployment = self.deployment(pod).await?;
        let replacement = match &deployment {
            Some(NamedDeployment { name, .. }) if comes_first => {
                Replacement::BeforeThePod(self.count_owner(&pod.namespace, name).await?)
            }
            _ => Replacement::AfterThePod,
        };
        // Budgets count Ready pods. For other pods, and after one more replica, the API server decides at the eviction.
        let disruption = match pod.is_ready && !comes_first {
            true => self.disruption(pod).await?,
            false => Disruption::Allowed,
        };
        let workload = match &deployment {
            Some(NamedDeployment { uid, ready, rollout, .. }) => {
                Workload::Deployment(Deployment { uid: uid.clone(), rollout: *rollout, ready: *ready })
            }
            None => Workload::Other { kind: pod.controller.as_ref().map(|owner| owner.kind.clone()) },
        };
        Ok(Known { workload, deployment, disruption, replacement })
    }

    async fn deployment(&mut self, pod: &FpgaPod) -> Result<Option<NamedDeployment>> {
        let replica_set = pod.controller.as_ref().filter(|controller| controller.kind == "ReplicaSet");
        let Some(replica_set) = replica_set else { return Ok(None) };
        let key = (pod.namespace.clone(), replica_set.clone());
        if let Some(known) = self.deployments.get(&key) {
            return Ok(known.clone());
        }
        let found = deployment(self.client, &pod.namespace, replica_set).await?;
        self.deployments.insert(key, found.clone());
        Ok(found)
    }

    async fn count_owner(&mut self, namespace: &str, deployment: &str) -> Result<CountOwner> {
        if !self.autoscalers.contains_key(namespace) {
            let api: Api<HorizontalPodAutoscaler> = Api::namespaced(self.client.clone(), namespace);
            let all = api.list(&ListParams::default()).await.context("autoscalers")?;
            self.autoscalers.insert(namespace.to_owned(), all.items);
        }
        let all = self.autoscalers.get(namespace).map(Vec::as_slice).unwrap_or_default();
        Ok(count_owner(all, deployment))
    }

    async fn disruption(&mut self, pod: &FpgaPod) -> Result<Disruption> {
        if !self.budgets.contains_key(&pod.namespace) {
            let api: Api<PodDisruptionBudget> = Api::namespaced(self.client.clone(), &pod.namespace);
            let all = api.list(&ListParams::default()).await.context("disruption budgets")?;
            self.budgets.insert(pod.namespace.clone(), all.items);
        }
        Ok(disruption(self.budgets.get(&pod.namespace).map(Vec::as_slice).unwrap_or_default(), pod))
    }
}
