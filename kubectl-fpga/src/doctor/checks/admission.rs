//! Checks of admission policies, and of pods that these would refuse.

use crate::doctor::facts::{Facts, FpgaPod, Looked};
use crate::doctor::finding::{Finding, named};

/// Minor version of Kubernetes since which a policy can write the scheduler and the resource into pods.
const ASSIGNING_SINCE: u32 = 36;

/// Whether our admission policies are in force.
#[must_use]
pub fn policies(facts: &Facts) -> Vec<Finding> {
    const CHECK: &str = "policies";
    let policies = match &facts.policies {
        Looked::Found(policies) => policies,
        Looked::Hidden(why) => {
            return vec![Finding::unknown(
                CHECK,
                why,
                "Grant `list` of the admission policies and their bindings.",
            )];
        }
    };
    let unbound: Vec<&str> =
        policies.iter().filter(|policy| !policy.is_bound).map(|policy| policy.name.as_str()).collect();
    let mut findings = Vec::new();
    if !unbound.is_empty() {
        findings.push(Finding::problem(
            CHECK,
            format!("policies without a binding: {}", named(&unbound)),
            "They hold nobody to anything: collectors and node plugins may write to the nodes and pods of others, and pods may \
             pass us by.",
            "helm upgrade brings the bindings of the chart back (manifests/README.md).",
        ));
    }
    let assigns = facts.kubernetes_minor.found().is_none_or(|minor| *minor >= ASSIGNING_SINCE);
    let and = if assigns {
        ""
    } else {
        "; this version of Kubernetes has no policies that assign, so pods must name the scheduler and the resource themselves"
    };
    Finding::or_ok(CHECK, findings, format!("{} are in force{and}", policies.len()))
}

/// Whether pods ask for boards in a way in which they never get one, or reach boards by themselves.
#[must_use]
pub fn pods(facts: &Facts) -> Vec<Finding> {
    const CHECK: &str = "pods";
    let Some(pods) = facts.pods.found() else { return Vec::new() };
    let names = |wanted: &dyn Fn(&FpgaPod) -> bool| -> Vec<&str> {
        pods.iter().filter(|pod| wanted(pod)).map(|pod| pod.name.as_str()).collect()
    };
    let mut findings = Vec::new();
    let init = names(&|pod| pod.at_init);
    if !init.is_empty() {
        findings.push(Finding::problem(
            CHECK,
            format!("pods of which an ordinary init container asks for a board: {}", named(&init)),
            "The kubelet does not tell who such a container is: it never gets a board, and the pod does not start.",
            "Ask in a container, or in an init container with `restartPolicy: Always`.",
        ));
    }
    let by_hand = names(&|pod| pod.by_hand);
    if !by_hand.is_empty() && facts.plugins.found().is_some_and(|plugins| !plugins.is_empty()) {
        findings.push(Finding::warning(
            CHECK,
            format!("pods that mount /run/fpga of the node, or set FPGA_DEVICE_MANAGERS: {}", named(&by_hand)),
            "Their namespace must allow Pod Security `privileged`, and managers that take tokens refuse them.",
            "Take both out: the node plugin gives a container that asks for a board all it needs.",
        ));
    }
    Finding::or_ok(CHECK, findings, format!("{} ask for boards in a way in which they get them", pods.len()))
}
