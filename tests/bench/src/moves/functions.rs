//! The functions in the cluster: a Deployment of `hold` for each, with a bitstream of its own and two pods.

use super::Args;
use crate::modelled::{Site, name, node_name};
use anyhow::{Context as _, Result};
use fpga_tests::testbed::cluster::Cluster;
use fpga_tests::testbed::invoke::FUNCTION_PORT;
use fpga_tests::testbed::restricted::is_ready;
use fpga_tests::testbed::wait;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::api::{ListParams, Patch, PatchParams, PostParams};
use kube::{Api, ResourceExt as _};
use serde_json::json;
use std::net::SocketAddr;
use std::time::Duration;

/// Longest time until pods are ready.
const DEPLOY: Duration = Duration::from_secs(180);
/// Requests that a pod serves at a time.
const WORKERS: usize = 2;

/// The deployed functions.
#[derive(Debug)]
pub(super) struct Functions {
    /// UID of each function's pod that stands by.
    stand_by: Vec<String>,
}

impl Functions {
    /// Deploys the functions. First all pods that serve, each on its node, then those that stand by.
    pub async fn deploy(cluster: &Cluster, args: &Args, site: &Site) -> Result<Self> {
        let placed = args.placed();
        let deployments: Api<Deployment> = Api::default_namespaced(cluster.plane().client().clone());
        for node in 0..args.nodes {
            open_only(cluster, args, Some(node)).await?;
            for (function, _) in placed.iter().enumerate().filter(|(_, (serves, _))| *serves == node) {
                let deployment = site.function(function, WORKERS).deployment(1);
                let deployment = serde_json::from_value(deployment).context("no deployment")?;
                deployments.create(&PostParams::default(), &deployment).await?;
            }
            let due = placed.iter().filter(|(serves, _)| *serves <= node).count();
            ready(cluster, due).await?;
        }
        let serve: Vec<String> = ready(cluster, placed.len()).await?.iter().filter_map(Pod::uid).collect();
        for node in 0..args.nodes {
            open_only(cluster, args, Some(node)).await?;
            for (function, _) in placed.iter().enumerate().filter(|(_, (_, other))| *other == node) {
                let two = Patch::Merge(json!({"spec": {"replicas": 2}}));
                deployments.patch(&name(function), &PatchParams::default(), &two).await?;
            }
            let due = placed.iter().filter(|(_, other)| *other <= node).count();
            ready(cluster, placed.len() + due).await?;
        }
        open_only(cluster, args, None).await?;
        let all = ready(cluster, 2 * placed.len()).await?;
        let stand_by = (0..placed.len()).map(|function| {
            let mut own = all.iter().filter(|pod| pod.labels().get("app") == Some(&name(function)));
            let other = own.find(|pod| pod.uid().is_some_and(|uid| !serve.contains(&uid)));
            other.and_then(Pod::uid).with_context(|| format!("{} has no second pod", name(function)))
        });
        Ok(Self { stand_by: stand_by.collect::<Result<_>>()? })
    }

    /// Where each function is served now: by the pod that does not stand by, or else by the one that does.
    pub async fn addresses(&self, cluster: &Cluster) -> Result<Vec<Option<SocketAddr>>> {
        let pods = cluster.pods().list(&ListParams::default()).await?.items;
        let addresses = self.stand_by.iter().enumerate().map(|(function, stand_by)| {
            let own = pods.iter().filter(|pod| pod.labels().get("app") == Some(&name(function)));
            let serving = own.filter(|pod| is_ready(pod) && pod.metadata.deletion_timestamp.is_none());
            let pod = serving.max_by_key(|pod| pod.uid().as_ref() != Some(stand_by))?;
            let ip = pod.status.as_ref()?.pod_ip.as_deref()?.parse().ok()?;
            Some(SocketAddr::new(ip, FUNCTION_PORT))
        });
        Ok(addresses.collect())
    }
}

/// Lets pods be placed on one node only, or on all.
async fn open_only(cluster: &Cluster, args: &Args, open: Option<u32>) -> Result<()> {
    let nodes: Api<Node> = Api::all(cluster.plane().client().clone());
    for node in 0..args.nodes {
        let is_closed = open.is_some_and(|open| open != node);
        let patch = Patch::Merge(json!({"spec": {"unschedulable": is_closed}}));
        nodes.patch(&node_name(node), &PatchParams::default(), &patch).await?;
    }
    Ok(())
}

/// Waits until there are so many pods and all are Ready.
async fn ready(cluster: &Cluster, count: usize) -> Result<Vec<Pod>> {
    wait::until_within(&format!("{count} pods to be ready"), DEPLOY, async || {
        cluster.check_running()?;
        let pods = cluster.pods().list(&ListParams::default()).await?.items;
        Ok((pods.len() == count && pods.iter().all(is_ready)).then_some(pods))
    })
    .await
}
