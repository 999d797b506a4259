//! The terms of nodes and pods, read from their objects.

use fpga_core::node_terms::{AffinityRule, AffinityTerm, Intake, NodeTerms, PodTerms, Taint, Toleration};
use k8s_openapi::api::core::v1::{Affinity, Node, NodeSelectorRequirement, NodeSelectorTerm};
use std::collections::BTreeMap;

/// The terms of a node. Without the condition `Ready` its taints alone decide: the node controller taints such nodes.
#[must_use]
pub fn node_terms(node: &Node) -> NodeTerms {
    let spec = node.spec.as_ref();
    let is_cordoned = spec.and_then(|spec| spec.unschedulable) == Some(true);
    let conditions = node.status.iter().flat_map(|status| status.conditions.iter().flatten());
    let is_ready = conditions.into_iter().all(|it| it.type_ != "Ready" || it.status == "True");
    let taints = spec.into_iter().flat_map(|spec| spec.taints.iter().flatten());
    // `PreferNoSchedule` keeps no pod off.
    let taints = taints.filter(|taint| matches!(taint.effect.as_str(), "NoSchedule" | "NoExecute"));
    NodeTerms {
        labels: node.metadata.labels.clone().unwrap_or_default(),
        intake: if is_cordoned || !is_ready { Intake::Closed } else { Intake::Open },
        taints: taints
            .map(|taint| Taint {
                key: taint.key.clone(),
                value: taint.value.clone().unwrap_or_default(),
                effect: taint.effect.clone(),
            })
            .collect(),
    }
}

/// The terms of a pod, from the fields of its specification. A toleration for a limited time is left out: the node would
/// evict the pod again.
#[must_use]
pub fn pod_terms(
    tolerations: Option<&Vec<k8s_openapi::api::core::v1::Toleration>>,
    node_selector: Option<&BTreeMap<String, String>>,
    affinity: Option<&Affinity>,
) -> PodTerms {
    let lasting = tolerations.into_iter().flatten().filter(|it| it.toleration_seconds.is_none());
    let text = |text: &Option<String>| text.clone().unwrap_or_default();
    let required = affinity
        .and_then(|affinity| affinity.node_affinity.as_ref())
        .and_then(|affinity| affinity.required_during_scheduling_ignored_during_execution.as_ref());
    PodTerms {
        tolerations: lasting
            .map(|it| Toleration {
                key: text(&it.key),
                operator: text(&it.operator),
                value: text(&it.value),
                effect: text(&it.effect),
            })
            .collect(),
        node_selector: node_selector.cloned().unwrap_or_default(),
        affinity: required.map(|required| required.node_selector_terms.iter().map(affinity_term).collect()),
    }
}

fn affinity_term(term: &NodeSelectorTerm) -> AffinityTerm {
    let rules = |rules: &Option<Vec<NodeSelectorRequirement>>| {
        let rule = |rule: &NodeSelectorRequirement| AffinityRule {
            key: rule.key.clone(),
            operator: rule.operator.clone(),
            values: rule.values.clone().unwrap_or_default(),
        };
        rules.iter().flatten().map(rule).collect()
    };
    AffinityTerm { labels: rules(&term.match_expressions), fields: rules(&term.match_fields) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use k8s_openapi::api::core::v1::PodSpec;
    use serde_json::{Value, json};

    fn take(node: Value, pod: Value) -> bool {
        let node: Node = serde_json::from_value(node).unwrap();
        let mut spec = pod;
        spec["containers"] = json!([]);
        let spec: PodSpec = serde_json::from_value(spec).unwrap();
        let pod = pod_terms(spec.tolerations.as_ref(), spec.node_selector.as_ref(), spec.affinity.as_ref());
        node_terms(&node).take("n", &pod)
    }

    #[test]
    fn a_node_that_would_not_take_a_pod_is_known_by_its_object() {
        let condition =
            |status: &str| json!({"status": {"conditions": [{"type": "Ready", "status": status}]}});
        let taint =
            |effect: &str| json!({"spec": {"taints": [{"key": "fpga", "value": "a", "effect": effect}]}});
        let tolerates = |more: Value| {
            let mut toleration = json!({"key": "fpga", "operator": "Exists"});
            toleration.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
            json!({"tolerations": [toleration]})
        };
        let labelled = || json!({"metadata": {"labels": {"zone": "a"}}});
        let required = |zone: &str| {
            let rule = json!({"key": "zone", "operator": "In", "values": [zone]});
            let terms = json!({"nodeSelectorTerms": [{"matchExpressions": [rule]}]});
            json!({"affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}}})
        };
        for (what, node, pod, expected) in [
            ("an empty node", json!({}), json!({}), true),
            ("cordoned", json!({"spec": {"unschedulable": true}}), json!({}), false),
            ("uncordoned", json!({"spec": {"unschedulable": false}}), json!({}), true),
            ("Ready", condition("True"), json!({}), true),
            ("not Ready", condition("False"), json!({}), false),
            ("unknown", condition("Unknown"), json!({}), false),
            ("tainted", taint("NoSchedule"), json!({}), false),
            ("tainted for running pods", taint("NoExecute"), json!({}), false),
            ("tainted mildly", taint("PreferNoSchedule"), json!({}), true),
            ("tolerated", taint("NoSchedule"), tolerates(json!({})), true),
            (
                "tolerated for a while",
                taint("NoExecute"),
                tolerates(json!({"tolerationSeconds": 300})),
                false,
            ),
            ("selected", labelled(), json!({"nodeSelector": {"zone": "a"}}), true),
            ("not selected", labelled(), json!({"nodeSelector": {"zone": "b"}}), false),
            ("required", labelled(), required("a"), true),
            ("not required", labelled(), required("b"), false),
        ] {
            assert_eq!(take(node, pod), expected, "{what}");
        }
    }
}
