//! Pods that ask for an FPGA, and the fields by which kube-scheduler places them.

use super::ask::{PAGE, refused};
use crate::connection::Cluster;
use crate::doctor::facts::{FpgaPod, Looked};
use crate::doctor::scheduler_config::DEFAULT_SCHEDULER;
use fpga_core::board_request::BoardRequest;
use fpga_core::names::{BOARD_LABEL, SHELL_LABEL, VENDOR_LABEL};
use fpga_core::requirement::{PodText, Requirement};
use k8s_openapi::api::core::v1::{Container, Pod, PodSpec};
use kube::Api;
use kube::api::ListParams;
use std::collections::{BTreeMap, BTreeSet};

/// All pods that ask for an FPGA and have not ended.
pub(super) async fn look(cluster: &Cluster) -> Looked<Vec<FpgaPod>> {
    let pods: Api<Pod> = Api::all(cluster.client.clone());
    let mut params = ListParams::default().limit(PAGE);
    let mut all = Vec::new();
    loop {
        let page = match pods.list(&params).await {
            Ok(page) => page,
            Err(error) => return Looked::Hidden(refused(cluster, &error, None, "list", "pods").to_string()),
        };
        all.extend(page.items.iter().filter_map(fpga_pod));
        match page.metadata.continue_.filter(|token| !token.is_empty()) {
            Some(token) => params = params.continue_token(&token),
            None => return Looked::Found(all),
        }
    }
}

/// The facts of `pod` if it asks for an FPGA and has not ended.
fn fpga_pod(pod: &Pod) -> Option<FpgaPod> {
    let spec = pod.spec.as_ref()?;
    let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
    if matches!(phase, Some("Succeeded" | "Failed")) {
        return None;
    }
    let all = spec.containers.iter().chain(spec.init_containers.iter().flatten());
    let containers: Vec<_> = all.clone().filter_map(boards).collect();
    let pairs = |map: &Option<BTreeMap<String, String>>| {
        map.iter().flatten().map(|(key, value)| (key.clone(), value.clone())).collect::<Vec<_>>()
    };
    let (labels, annotations) = (pairs(&pod.metadata.labels), pairs(&pod.metadata.annotations));
    let asked = Requirement::of_pod(PodText {
        labels: labels.iter().map(|(key, value)| (key.as_str(), value.as_str())),
        annotations: annotations.iter().map(|(key, value)| (key.as_str(), value.as_str())),
        containers: &containers,
    });
    if matches!(asked, Ok(None)) {
        return None;
    }
    let namespace = pod.metadata.namespace.as_deref().unwrap_or_default();
    Some(FpgaPod {
        name: format!("{namespace}/{}", pod.metadata.name.as_deref().unwrap_or_default()),
        scheduler: spec.scheduler_name.clone().unwrap_or_else(|| DEFAULT_SCHEDULER.to_owned()),
        pending: spec.node_name.is_none(),
        resources: all
            .flat_map(quantities)
            .filter(|(name, quantity)| asks(name, quantity))
            .map(|(name, _)| name.to_owned())
            .collect::<BTreeSet<_>>(),
        by_hand: is_by_hand(spec),
        at_init: ordinary_init_containers(spec)
            .flat_map(quantities)
            .any(|(name, quantity)| asks(name, quantity)),
        narrowed: is_narrowed(pod),
    })
}

/// Init containers that end before the pod's containers start.
fn ordinary_init_containers(spec: &PodSpec) -> impl Iterator<Item = &Container> {
    let init = spec.init_containers.iter().flatten();
    init.filter(|container| container.restart_policy.as_deref() != Some("Always"))
}

/// Whether the pod mounts the folders of device managers, or sets their addresses.
fn is_by_hand(spec: &PodSpec) -> bool {
    const FOLDER: &str = "/run/fpga";
    let mounts = spec.volumes.iter().flatten().any(|volume| {
        volume.host_path.as_ref().is_some_and(|host| {
            host.path.strip_prefix(FOLDER).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
        })
    });
    let mut variables = spec.containers.iter().flat_map(|container| container.env.iter().flatten());
    mounts || variables.any(|variable| variable.name == "FPGA_DEVICE_MANAGERS")
}

/// The boards that a container asks for.
fn boards(container: &Container) -> Option<BoardRequest<'_>> {
    BoardRequest::among(quantities(container))
}

/// Whether this quantity of the resource asks for boards.
fn asks(name: &str, quantity: &str) -> bool {
    BoardRequest::among([(name, quantity)]).is_some_and(|request| !request.is_zero())
}

/// The limits and requests of a container.
fn quantities(container: &Container) -> impl Iterator<Item = (&str, &str)> {
    let resources = container.resources.iter();
    let all = resources.flat_map(|all| all.limits.iter().chain(&all.requests).flatten());
    all.map(|(name, quantity)| (name.as_str(), quantity.0.as_str()))
}

/// Whether a node selector or a required node affinity limits the pod to nodes with one of our labels.
fn is_narrowed(pod: &Pod) -> bool {
    let ours = |key: &str| [VENDOR_LABEL, BOARD_LABEL, SHELL_LABEL].contains(&key);
    let Some(spec) = &pod.spec else { return false };
    let selector = spec.node_selector.as_ref().is_some_and(|selector| selector.keys().any(|key| ours(key)));
    let required = spec.affinity.as_ref().and_then(|affinity| {
        affinity.node_affinity.as_ref()?.required_during_scheduling_ignored_during_execution.as_ref()
    });
    // Terms are alternatives, so each of them must name one of our labels.
    let affinity = required.is_some_and(|required| {
        let terms = &required.node_selector_terms;
        let narrows = |expressions: &Option<Vec<k8s_openapi::api::core::v1::NodeSelectorRequirement>>| {
            let positive = |operator: &str| matches!(operator, "In" | "Exists");
            expressions.iter().flatten().any(|one| ours(&one.key) && positive(&one.operator))
        };
        !terms.is_empty() && terms.iter().all(|term| narrows(&term.match_expressions))
    });
    selector || affinity
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn pod(labels: &serde_json::Value, spec: &serde_json::Value) -> Option<FpgaPod> {
        let pod = json!({"metadata": {"name": "p", "namespace": "d", "labels": labels}, "spec": spec});
        fpga_pod(&serde_json::from_value(pod).unwrap())
    }

    #[test]
    fn fpga_pods_are_told_from_others_and_how_they_are_wired_is_seen() {
        let vendor = json!({"fpga-scheduling.io/fpga-vendor": "intel"});
        assert_eq!(pod(&json!({}), &json!({"containers": [{"name": "c"}]})), None);
        let bare = pod(&vendor, &json!({"containers": [{"name": "c"}]})).unwrap();
        assert!(bare.pending && !bare.requests_resource() && !bare.narrowed && bare.name == "d/p");
        assert_eq!(bare.scheduler, "default-scheduler");
        let term =
            |key: &str| json!({"matchExpressions": [{"key": key, "operator": "In", "values": ["intel"]}]});
        let affinity = |terms: serde_json::Value| json!({"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}});
        let wired = json!({
            "nodeName": "n", "schedulerName": "kube-fpga", "affinity": affinity(json!([term("fpga-scheduling.io/fpga-vendor")])),
            "containers": [{"name": "c", "resources": {"limits": {"fpga-scheduling.io/accelerated": "1"}}}],
        });
        let wired = pod(&json!({}), &wired).unwrap();
        assert!(!wired.pending && wired.requests_resource() && wired.narrowed);
        assert_eq!(wired.scheduler, "kube-fpga");
        let loose = affinity(json!([term("fpga-scheduling.io/fpga-vendor"), term("zone")]));
        let loose = pod(&vendor, &json!({"affinity": loose, "containers": [{"name": "c"}]})).unwrap();
        assert!(!loose.narrowed, "the other term lets it go anywhere");
        assert!(!wired.by_hand && !wired.at_init);
        let zero = json!({"containers": [{"name": "c", "resources": {"limits": {"fpga-scheduling.io/accelerated": "0"}}}]});
        assert_eq!(pod(&vendor, &zero), None, "zero boards are none");
        let board = json!({"limits": {"fpga-scheduling.io/accelerated": "1"}});
        let folder = json!([{"name": "v", "hostPath": {"path": "/run/fpga/managers"}}]);
        let by_hand = json!({"containers": [{"name": "c", "resources": board}], "volumes": folder});
        assert!(pod(&json!({}), &by_hand).unwrap().by_hand);
        let at_init = |policy: serde_json::Value| {
            let init = json!([{"name": "i", "resources": board, "restartPolicy": policy}]);
            let with = |main: &serde_json::Value| json!({"containers": [main], "initContainers": init});
            [json!({"name": "c"}), json!({"name": "c", "resources": board})]
                .map(|main| pod(&json!({}), &with(&main)).unwrap().at_init)
        };
        assert_eq!((at_init(json!(null)), at_init(json!("Always"))), ([true; 2], [false; 2]));
        let selected =
            json!({"nodeSelector": {"fpga-scheduling.io/board": "u250"}, "containers": [{"name": "c"}]});
        assert!(pod(&vendor, &selected).unwrap().narrowed);
    }
}
