//! The nodes where collectors run, and whether collectors label their nodes.

use super::ask::refused;
use crate::connection::{Cluster, ConnectArgs};
use crate::doctor::facts::{Collectors, Labelling, Looked};
use k8s_openapi::api::core::v1::Pod;
use kube::Api;
use kube::api::ListParams;

/// The collectors of the manifests.
pub(super) async fn look(connect: &ConnectArgs, cluster: &Cluster) -> Looked<Collectors> {
    let pods: Api<Pod> = Api::namespaced(cluster.client.clone(), &connect.extender_namespace);
    let ours = ListParams::default().labels("app.kubernetes.io/name=fpga-collector");
    match pods.list(&ours).await {
        Ok(list) => Looked::Found(collectors(&list.items)),
        Err(error) => Looked::Hidden(refused(cluster, &error, Some("kube-fpga"), "list", "pods").to_string()),
    }
}

fn collectors(pods: &[Pod]) -> Collectors {
    let labelling = if pods.iter().any(labels) { Labelling::ByCollectors } else { Labelling::ByPeople };
    Collectors { ready_on: pods.iter().filter(|pod| is_ready(pod)).filter_map(on).collect(), labelling }
}

/// Whether a flag or an environment variable tells the collector to label its node.
fn labels(pod: &Pod) -> bool {
    pod.spec.iter().flat_map(|spec| &spec.containers).any(|container| {
        let variable = container.env.iter().flatten().any(|variable| {
            variable.name == "FPGA_LABEL_NODE"
                && variable.value.as_deref().is_some_and(|value| value != "false")
        });
        let words = container.command.iter().chain(&container.args).flatten();
        variable || words.into_iter().any(|word| word == "--label-node")
    })
}

pub(super) fn on(pod: &Pod) -> Option<String> {
    pod.spec.as_ref()?.node_name.clone()
}

pub(super) fn is_ready(pod: &Pod) -> bool {
    let conditions = pod.status.as_ref().and_then(|status| status.conditions.as_deref()).unwrap_or_default();
    conditions.iter().any(|condition| condition.type_ == "Ready" && condition.status == "True")
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    #[test]
    fn those_that_are_ready_and_who_labels_are_seen() {
        let pod = |node: &str, ready: &str, container: Value| {
            serde_json::from_value(json!({
                "metadata": {}, "spec": {"nodeName": node, "containers": [container]},
                "status": {"conditions": [{"type": "Ready", "status": ready}]},
            }))
            .unwrap()
        };
        let plain = json!({"name": "c", "env": [{"name": "FPGA_LABEL_NODE", "value": "false"}]});
        let found = collectors(&[pod("n1", "True", plain.clone()), pod("n2", "False", plain)]);
        assert_eq!(found, Collectors { ready_on: vec!["n1".into()], labelling: Labelling::ByPeople });
        for told in [
            json!({"name": "c", "env": [{"name": "FPGA_LABEL_NODE", "value": "true"}]}),
            json!({"name": "c", "args": ["--label-node"]}),
        ] {
            assert_eq!(collectors(&[pod("n1", "True", told)]).labelling, Labelling::ByCollectors);
        }
    }
}
