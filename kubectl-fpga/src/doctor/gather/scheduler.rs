//! kube-scheduler's pod and configuration.

use super::ask::refused;
use crate::connection::{Cluster, ConnectArgs};
use crate::doctor::facts::{Lease, Looked, SchedulerPod};
use crate::doctor::scheduler_config::SchedulerConfig;
use crate::problem::Problem;
use k8s_openapi::api::coordination::v1::Lease as KubeLease;
use k8s_openapi::api::core::v1::{ConfigMap, Container, Pod};
use kube::api::ListParams;
use kube::{Api, ResourceExt as _};
use std::path::Path;

/// Name of kube-scheduler's container, in the manifests and in clusters of kubeadm.
const CONTAINER: &str = "kube-scheduler";
/// Name of the lease of the manifests' own kube-schedulers.
const LEASE: &str = "kube-fpga-scheduler";

/// The pod of the manifests' own kube-scheduler, which also runs the extender; `None` if there is none.
pub(super) async fn own_pod(connect: &ConnectArgs, cluster: &Cluster) -> Option<Pod> {
    let pods: Api<Pod> = Api::namespaced(cluster.client.clone(), &connect.extender_namespace);
    let label = format!("app.kubernetes.io/name={}", connect.extender_service);
    let pods = pods.list(&ListParams::default().labels(&label)).await.ok()?;
    pods.items.into_iter().find(|pod| container(pod).is_some_and(|container| container.name == CONTAINER))
}

/// The lease of the manifests' own kube-schedulers.
pub(super) async fn lease(connect: &ConnectArgs, cluster: &Cluster) -> Looked<Option<Lease>> {
    let leases: Api<KubeLease> = Api::namespaced(cluster.client.clone(), &connect.extender_namespace);
    match leases.get_opt(LEASE).await {
        Ok(lease) => {
            let spec = lease.and_then(|lease| lease.spec).unwrap_or_default();
            Looked::Found(Some(Lease {
                holder: spec.holder_identity.filter(|holder| !holder.is_empty()),
                renewed: spec.renew_time.map_or(0, |time| time.0.as_second()),
                duration_s: spec.lease_duration_seconds.unwrap_or_default().into(),
            }))
        }
        Err(error) => Looked::Hidden(
            refused(cluster, &error, Some("kube-fpga"), "get", "leases.coordination.k8s.io").to_string(),
        ),
    }
}

/// kube-scheduler's container, or else the first one.
fn container(pod: &Pod) -> Option<&Container> {
    let all = &pod.spec.as_ref()?.containers;
    all.iter().find(|container| container.name == CONTAINER).or(all.first())
}

/// The pod of the cluster's own kube-scheduler, if it runs as a pod.
pub(super) async fn pod(cluster: &Cluster) -> Looked<Pod> {
    let pods: Api<Pod> = Api::namespaced(cluster.client.clone(), "kube-system");
    match pods.list(&ListParams::default().labels("component=kube-scheduler")).await {
        Ok(list) => match list.items.into_iter().next() {
            Some(pod) => Looked::Found(pod),
            None => Looked::Hidden(
                "no pod in kube-system has the label component=kube-scheduler: it runs outside the cluster"
                    .to_owned(),
            ),
        },
        Err(error) => {
            Looked::Hidden(refused(cluster, &error, Some("kube-system"), "list", "pods").to_string())
        }
    }
}

/// The facts that the checks need of the pod.
pub(super) fn summary(pod: &Pod) -> SchedulerPod {
    let spec = pod.spec.clone().unwrap_or_default();
    let words = |container: &Container| {
        container.command.iter().chain(&container.args).flatten().cloned().collect::<Vec<_>>()
    };
    SchedulerPod {
        name: pod.metadata.name.clone().unwrap_or_default(),
        host_network: spec.host_network.unwrap_or_default(),
        dns_policy: spec.dns_policy.unwrap_or_else(|| "ClusterFirst".to_owned()),
        command: container(pod).map(words).unwrap_or_default(),
    }
}

/// Parses the file of `--scheduler-config`.
pub(super) fn read_config(path: &Path) -> Result<Looked<(String, SchedulerConfig)>, Problem> {
    let problem = |error: String| Problem::Other { doing: format!("can't read {}", path.display()), error };
    let text = std::fs::read_to_string(path).map_err(|error| problem(error.to_string()))?;
    let config = SchedulerConfig::parse(&text).map_err(problem)?;
    Ok(Looked::Found((path.display().to_string(), config)))
}

/// The schedulers of a configuration that has an extender of this project.
pub(super) fn names(config: Option<&Looked<(String, SchedulerConfig)>>) -> Vec<String> {
    let config = config.and_then(Looked::found).map(|(_, config)| config);
    let asking = config.filter(|config| config.ours().is_some());
    asking.map(SchedulerConfig::scheduler_names).into_iter().flatten().map(str::to_owned).collect()
}

/// Looks for the configuration in the ConfigMaps that kube-scheduler's pod mounts, or else in all of its namespace.
/// Without a pod, the namespace is kube-system.
pub(super) async fn find_config(
    cluster: &Cluster,
    scheduler: Option<&Pod>,
) -> Looked<(String, SchedulerConfig)> {
    let namespace = scheduler.and_then(Pod::namespace).unwrap_or_else(|| "kube-system".to_owned());
    let maps: Api<ConfigMap> = Api::namespaced(cluster.client.clone(), &namespace);
    let maps = match maps.list(&ListParams::default()).await {
        Ok(maps) => maps.items,
        Err(error) => {
            return Looked::Hidden(refused(cluster, &error, None, "list", "configmaps").to_string());
        }
    };
    let volumes = scheduler.and_then(|pod| pod.spec.as_ref()?.volumes.as_deref()).unwrap_or_default();
    let mounted: Vec<&str> =
        volumes.iter().filter_map(|volume| Some(volume.config_map.as_ref()?.name.as_str())).collect();
    let mut unreadable = None;
    for map in &maps {
        let name = map.metadata.name.as_deref().unwrap_or_default();
        if !mounted.is_empty() && !mounted.contains(&name) {
            continue;
        }
        for (key, text) in map.data.iter().flatten() {
            if !text.contains("kind: KubeSchedulerConfiguration") {
                continue;
            }
            match SchedulerConfig::parse(text) {
                Ok(config) => {
                    return Looked::Found((format!("ConfigMap {namespace}/{name} ({key})"), config));
                }
                Err(error) => {
                    unreadable = Some(format!("ConfigMap {namespace}/{name} ({key}) can't be read: {error}"));
                }
            }
        }
    }
    let nothing = || {
        format!(
            "kube-scheduler's configuration is no ConfigMap of {namespace}; it may be a file on the control plane"
        )
    };
    Looked::Hidden(unreadable.unwrap_or_else(nothing))
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::{Json, Router};
    use serde_json::json;

    #[tokio::test]
    async fn the_namespace_that_was_searched_for_the_configuration_is_named() {
        let none = || async {
            Json(json!({"apiVersion": "v1", "kind": "ConfigMapList", "metadata": {}, "items": []}))
        };
        let client = kube::Client::new(Router::new().fallback(none), "default");
        let cluster = Cluster { client, server: "https://api".into(), namespace: "default".into() };
        let pod =
            serde_json::from_value(json!({"metadata": {"name": "s", "namespace": "kube-fpga"}})).unwrap();
        for (pod, namespace) in [(Some(&pod), "kube-fpga"), (None, "kube-system")] {
            let Looked::Hidden(why) = find_config(&cluster, pod).await else { panic!("there is none") };
            assert!(why.contains(&format!("no ConfigMap of {namespace};")), "{why}");
        }
    }
}
