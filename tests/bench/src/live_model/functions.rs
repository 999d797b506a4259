//! The functions in the cluster: a Deployment of `hold` for each, with a bitstream of its own.

use super::plan::Plan;
use crate::modelled::{Site, name, node_name, of_managers};
use anyhow::{Context as _, Result};
use fpga_tests::testbed::cluster::Cluster;
use fpga_tests::testbed::invoke::FUNCTION_PORT;
use fpga_tests::testbed::restricted::is_ready;
use fpga_tests::testbed::wait;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::Pod;
use kube::api::{ListParams, PostParams};
use kube::{Api, ResourceExt as _};
use serde_json::json;
use std::net::SocketAddr;
use std::time::Duration;

/// Longest time until all functions are ready.
const DEPLOY: Duration = Duration::from_secs(300);

/// Commands of a request: a launch and a read.
const COMMANDS: f64 = 2.0;

/// The deployed functions.
#[derive(Debug)]
pub(super) struct Functions {
    /// The replicas of each function, by node.
    pub replicas: Vec<Vec<Replica>>,
}

/// A ready pod.
#[derive(Debug, Clone)]
pub(super) struct Replica {
    /// Number of its node.
    pub node: u32,
    /// Address and port of the pod.
    pub address: SocketAddr,
}

impl Functions {
    /// Deploys the functions, each replica on another node, and waits until they serve as many requests at a time as
    /// the plan needs. Each worker has launched its kernel once by then.
    pub async fn deploy(cluster: &Cluster, plan: &Plan, replicas: u8, site: &Site) -> Result<Self> {
        let deployments: Api<Deployment> = Api::default_namespaced(cluster.plane().client().clone());
        let mut sessions = 0;
        for function in 0..plan.peaks.len() {
            let workers = plan.workers(function, replicas);
            sessions += workers * usize::from(replicas);
            let mut deployment = site.function(function, workers).deployment(replicas.into());
            deployment["spec"]["template"]["spec"]["affinity"] = json!({"podAntiAffinity": {
                "requiredDuringSchedulingIgnoredDuringExecution": [{
                    "topologyKey": "kubernetes.io/hostname",
                    "labelSelector": {"matchLabels": {"app": name(function)}},
                }],
            }});
            let deployment = serde_json::from_value(deployment).context("no deployment")?;
            deployments.create(&PostParams::default(), &deployment).await?;
        }
        let replicas = wait::until_within("the functions to be ready", DEPLOY, async || {
            cluster.check_running()?;
            let pods = cluster.pods().list(&ListParams::default()).await?.items;
            Ok(ready(&pods, plan.peaks.len(), replicas))
        })
        .await?;
        wait::until_within("all workers to have served their first request", DEPLOY, async || {
            let served = of_managers(cluster, "modelled_commands_total").await?;
            Ok((served > sessions as f64 * COMMANDS - 0.5).then_some(()))
        })
        .await?;
        Ok(Self { replicas })
    }

    /// The nodes of each function's replicas.
    pub fn placed(&self) -> Vec<Vec<u32>> {
        self.replicas.iter().map(|replicas| replicas.iter().map(|replica| replica.node).collect()).collect()
    }
}

/// The ready replicas of each function in the order of their nodes; `None` if some are missing.
fn ready(pods: &[Pod], functions: usize, replicas: u8) -> Option<Vec<Vec<Replica>>> {
    let mut found: Vec<Vec<Replica>> = vec![Vec::new(); functions];
    for pod in pods {
        let status = pod.status.as_ref()?;
        if !is_ready(pod) {
            return None;
        }
        let function: usize = pod.labels().get("app")?.strip_prefix("function-")?.parse().ok()?;
        let node = pod.spec.as_ref()?.node_name.as_deref()?;
        let node = (0..=u32::from(u8::MAX)).find(|index| node_name(*index) == node)?;
        let address = SocketAddr::new(status.pod_ip.as_deref()?.parse().ok()?, FUNCTION_PORT);
        found.get_mut(function)?.push(Replica { node, address });
    }
    for function in &mut found {
        function.sort_by_key(|replica| replica.node);
    }
    found.iter().all(|function| function.len() == usize::from(replicas)).then_some(found)
}
