//! Whether a node takes a pod by the rules of kube-scheduler that depend on this node and this pod alone: cordons, taints,
//! the Ready condition, and the labels that the pod requires. Resources, volumes and other pods are not judged.
//!
//! Where kube-scheduler can't be asked, a wrong "yes" evicts a pod whose replacement stays Pending, and a wrong "no" leaves
//! the pod where it is. So whatever is not understood here is a "no".

use std::collections::BTreeMap;

/// The terms of a node.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct NodeTerms {
    /// Labels of the node.
    pub labels: BTreeMap<String, String>,
    /// Whether the node takes new pods at all.
    pub intake: Intake,
    /// The taints that keep pods off: those with the effects `NoSchedule` and `NoExecute`.
    pub taints: Vec<Taint>,
}

/// Whether a node takes new pods.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Intake {
    /// The node takes pods that tolerate its taints.
    #[default]
    Open,
    /// The node is cordoned (`spec.unschedulable`) or not Ready. A toleration changes nothing here: people drain the node,
    /// or a new pod would not start.
    Closed,
}

/// A taint of a node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Taint {
    /// Its key.
    pub key: String,
    /// Its value; empty if it has none.
    pub value: String,
    /// Its effect, for example `NoSchedule`.
    pub effect: String,
}

/// The terms of a pod.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct PodTerms {
    /// Taints that the pod lives with for as long as it runs.
    pub tolerations: Vec<Toleration>,
    /// Labels that the pod's node must have (`nodeSelector`).
    pub node_selector: BTreeMap<String, String>,
    /// The required node affinity: one of these terms must be met. `None` where the pod has none.
    pub affinity: Option<Vec<AffinityTerm>>,
}

/// A toleration of a pod. Empty texts are absent fields.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Toleration {
    /// The key of the taint; empty with `Exists` for all taints.
    pub key: String,
    /// `Equal`, `Exists`, or empty for `Equal`.
    pub operator: String,
    /// The value of the taint.
    pub value: String,
    /// The effect of the taint; empty for all effects.
    pub effect: String,
}

/// A term of a required node affinity: all parts must be met. A term without parts is met by no node.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct AffinityTerm {
    /// Rules for labels.
    pub labels: Vec<AffinityRule>,
    /// Rules for fields; the API knows `metadata.name` alone.
    pub fields: Vec<AffinityRule>,
}

/// A rule for a label or field.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct AffinityRule {
    /// The key of the label, or the path of the field.
    pub key: String,
    /// `In`, `NotIn`, `Exists`, `DoesNotExist`, `Gt` or `Lt`.
    pub operator: String,
    /// Values of the rule.
    pub values: Vec<String>,
}

impl NodeTerms {
    /// Whether the node, which has this name, takes a pod with these terms.
    #[must_use]
    pub fn take(&self, name: &str, pod: &PodTerms) -> bool {
        let is_tolerated = |taint: &Taint| pod.tolerations.iter().any(|it| it.tolerates(taint));
        let has_label = |(key, value): (&String, &String)| self.labels.get(key) == Some(value);
        self.intake == Intake::Open
            && self.taints.iter().all(is_tolerated)
            && pod.node_selector.iter().all(has_label)
            && pod
                .affinity
                .as_ref()
                .is_none_or(|terms| terms.iter().any(|term| term.is_met(name, &self.labels)))
    }
}

impl Toleration {
    fn tolerates(&self, taint: &Taint) -> bool {
        let concerns = (self.effect.is_empty() || self.effect == taint.effect)
            && (self.key == taint.key || (self.key.is_empty() && self.operator == "Exists"));
        concerns
            && match self.operator.as_str() {
                "Exists" => true,
                "" | "Equal" => self.value == taint.value,
                _ => false,
            }
    }
}

impl AffinityTerm {
    fn is_met(&self, name: &str, labels: &BTreeMap<String, String>) -> bool {
        let field = |rule: &AffinityRule| (rule.key == "metadata.name").then_some(name);
        let label = |rule: &AffinityRule| labels.get(&rule.key).map(String::as_str);
        !(self.labels.is_empty() && self.fields.is_empty())
            && self.labels.iter().all(|rule| rule.is_met(label(rule)))
            && self.fields.iter().all(|rule| field(rule).is_some_and(|name| rule.is_met(Some(name))))
    }
}

impl AffinityRule {
    fn is_met(&self, found: Option<&str>) -> bool {
        let is_among = || found.is_some_and(|found| self.values.iter().any(|value| value == found));
        let compared = || {
            let [value] = self.values.as_slice() else { return None };
            Some(found?.parse::<i64>().ok()?.cmp(&value.parse().ok()?))
        };
        match self.operator.as_str() {
            "In" => is_among(),
            "NotIn" => !is_among(),
            "Exists" => found.is_some(),
            "DoesNotExist" => found.is_none(),
            "Gt" => compared().is_some_and(std::cmp::Ordering::is_gt),
            "Lt" => compared().is_some_and(std::cmp::Ordering::is_lt),
            _ => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn toleration(key: &str, operator: &str, value: &str, effect: &str) -> Toleration {
        let [key, operator, value, effect] = [key, operator, value, effect].map(str::to_owned);
        Toleration { key, operator, value, effect }
    }

    fn rule(key: &str, operator: &str, values: &[&str]) -> AffinityRule {
        let values = values.iter().map(|value| (*value).to_owned()).collect();
        AffinityRule { key: key.into(), operator: operator.into(), values }
    }

    fn node() -> NodeTerms {
        let labels = [("zone", "a"), ("rack", "7"), ("odd", "x7")];
        let labels = labels.map(|(key, value)| (key.to_owned(), value.to_owned())).into();
        NodeTerms { labels, ..NodeTerms::default() }
    }

    #[test]
    fn a_taint_is_tolerated_as_kubernetes_documents_it() {
        let taint = Taint { key: "fpga".into(), value: "a10".into(), effect: "NoSchedule".into() };
        let tainted = NodeTerms { taints: vec![taint], ..node() };
        for (tolerations, expected) in [
            (vec![], false),
            (vec![toleration("fpga", "Equal", "a10", "NoSchedule")], true),
            (vec![toleration("fpga", "", "a10", "")], true),
            (vec![toleration("fpga", "Equal", "u280", "NoSchedule")], false),
            (vec![toleration("fpga", "Exists", "", "")], true),
            (vec![toleration("fpga", "Exists", "", "NoExecute")], false),
            (vec![toleration("", "Exists", "", "")], true),
            (vec![toleration("", "Equal", "a10", "")], false),
            (vec![toleration("gpu", "Exists", "", "")], false),
            (vec![toleration("fpga", "Gt", "1", "")], false),
            (vec![toleration("gpu", "Exists", "", ""), toleration("fpga", "Exists", "", "")], true),
        ] {
            let pod = PodTerms { tolerations, ..PodTerms::default() };
            assert_eq!(tainted.take("n", &pod), expected, "{pod:?}");
            assert!(node().take("n", &pod), "without a taint");
            let closed = NodeTerms { intake: Intake::Closed, ..node() };
            assert!(!closed.take("n", &pod), "closed");
        }
    }

    #[test]
    fn labels_and_the_name_are_required_as_kubernetes_documents_it() {
        for (required, expected) in [
            (rule("zone", "In", &["b", "a"]), true),
            (rule("zone", "In", &["b"]), false),
            (rule("none", "In", &["b"]), false),
            (rule("zone", "NotIn", &["a"]), false),
            (rule("none", "NotIn", &["a"]), true),
            (rule("zone", "Exists", &[]), true),
            (rule("none", "Exists", &[]), false),
            (rule("zone", "DoesNotExist", &[]), false),
            (rule("none", "DoesNotExist", &[]), true),
            (rule("rack", "Gt", &["6"]), true),
            (rule("rack", "Gt", &["7"]), false),
            (rule("rack", "Lt", &["8"]), true),
            (rule("odd", "Gt", &["6"]), false),
            (rule("rack", "Gt", &["6", "5"]), false),
            (rule("zone", "Like", &["a"]), false),
        ] {
            let term = AffinityTerm { labels: vec![required], fields: Vec::new() };
            let pod = PodTerms { affinity: Some(vec![term]), ..PodTerms::default() };
            assert_eq!(node().take("n", &pod), expected, "{pod:?}");
        }
        let named =
            |name: &str| AffinityTerm { labels: vec![], fields: vec![rule("metadata.name", "In", &[name])] };
        let takes = |affinity: Vec<AffinityTerm>| {
            node().take("n", &PodTerms { affinity: Some(affinity), ..PodTerms::default() })
        };
        assert!(takes(vec![named("m"), named("n")]) && !takes(vec![named("m")]));
        assert!(!takes(vec![]) && !takes(vec![AffinityTerm::default()]), "nothing is met by no node");
        let other_field =
            AffinityTerm { labels: vec![], fields: vec![rule("metadata.uid", "NotIn", &["n"])] };
        assert!(!takes(vec![other_field]));
        let selects = |key: &str, value: &str| {
            let node_selector = [(key.to_owned(), value.to_owned())].into();
            node().take("n", &PodTerms { node_selector, ..PodTerms::default() })
        };
        assert!(selects("zone", "a") && !selects("zone", "b") && !selects("none", "a"));
    }
}
