//! What gives boards to pods on the nodes: node plugins and device managers.

use super::ask::refused;
use super::collectors::{is_ready, on};
use crate::connection::{Cluster, ConnectArgs};
use crate::doctor::facts::{Looked, ManagerSet, MemoryLimit};
use k8s_openapi::api::apps::v1::DaemonSet;
use k8s_openapi::api::core::v1::Pod;
use kube::Api;
use kube::api::ListParams;

/// The nodes with a ready node plugin.
pub(super) async fn plugins(connect: &ConnectArgs, cluster: &Cluster) -> Looked<Vec<String>> {
    let pods: Api<Pod> = Api::namespaced(cluster.client.clone(), &connect.extender_namespace);
    match pods.list(&ListParams::default().labels("app.kubernetes.io/name=fpga-node-plugin")).await {
        Ok(list) => Looked::Found(list.items.iter().filter(|pod| is_ready(pod)).filter_map(on).collect()),
        Err(error) => Looked::Hidden(refused(cluster, &error, Some("kube-fpga"), "list", "pods").to_string()),
    }
}

/// The DaemonSets of device managers.
pub(super) async fn managers(connect: &ConnectArgs, cluster: &Cluster) -> Looked<Vec<ManagerSet>> {
    let sets: Api<DaemonSet> = Api::namespaced(cluster.client.clone(), &connect.extender_namespace);
    match sets.list(&ListParams::default().labels("app.kubernetes.io/name=fpga-device-manager")).await {
        Ok(list) => Looked::Found(list.items.iter().map(manager_set).collect()),
        Err(error) => {
            Looked::Hidden(refused(cluster, &error, Some("kube-fpga"), "list", "daemonsets.apps").to_string())
        }
    }
}

fn manager_set(set: &DaemonSet) -> ManagerSet {
    let pod = set.spec.as_ref().and_then(|spec| spec.template.spec.as_ref());
    let has_limit = pod.is_some_and(|pod| {
        pod.containers.iter().all(|container| {
            let limits = container.resources.as_ref().and_then(|resources| resources.limits.as_ref());
            limits.is_some_and(|limits| limits.contains_key("memory"))
        })
    });
    let status = set.status.clone().unwrap_or_default();
    ManagerSet {
        name: set.metadata.name.clone().unwrap_or_default(),
        wanted: status.desired_number_scheduled,
        ready: status.number_ready,
        memory_limit: if has_limit { MemoryLimit::Set } else { MemoryLimit::Missing },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn sets_without_a_limit_are_told_from_others() {
        let set = |resources: serde_json::Value| {
            let set = json!({
                "metadata": {"name": "fpga-device-manager-a10"},
                "spec": {"selector": {}, "template": {"spec": {"containers": [{"name": "c", "resources": resources}]}}},
                "status": {"currentNumberScheduled": 3, "desiredNumberScheduled": 3, "numberMisscheduled": 0, "numberReady": 2},
            });
            manager_set(&serde_json::from_value(set).unwrap())
        };
        let bounded = set(json!({"limits": {"memory": "2Gi"}}));
        let name = "fpga-device-manager-a10".to_owned();
        assert_eq!(bounded, ManagerSet { name, wanted: 3, ready: 2, memory_limit: MemoryLimit::Set });
        assert_eq!(set(json!({"limits": {"cpu": "1"}})).memory_limit, MemoryLimit::Missing);
    }
}
