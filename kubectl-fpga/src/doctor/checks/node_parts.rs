//! Checks of what gives boards to pods on the nodes: node plugins and device managers.

use super::scheduler::Resource;
use crate::doctor::facts::{Facts, Looked, MemoryLimit, Node, State};
use crate::doctor::finding::{Finding, named};
use fpga_core::device::Health;

/// Whether each node with boards has a ready node plugin, and offers its boards.
#[must_use]
pub fn plugins(facts: &Facts) -> Vec<Finding> {
    const CHECK: &str = "node plugins";
    let running = match &facts.plugins {
        Looked::Found(running) => running,
        Looked::Hidden(why) => {
            return vec![Finding::unknown(CHECK, why, "Grant `list pods` in the extender's namespace.")];
        }
    };
    if running.is_empty() && Resource::of(facts) != Resource::Advertised {
        return vec![Finding::ok(CHECK, "none is needed: pods are wired to their boards by hand")];
    }
    let nodes: Vec<&Node> = facts.nodes.found().into_iter().flatten().filter(|node| node.labelled).collect();
    let names = |wanted: &dyn Fn(&Node) -> bool| -> Vec<&str> {
        nodes.iter().filter(|node| wanted(node)).map(|node| node.name.as_str()).collect()
    };
    let runs = |node: &Node| running.contains(&node.name);
    let without = names(&|node| !runs(node));
    let mut findings = Vec::new();
    if !without.is_empty() {
        let mut taints: Vec<&str> = nodes
            .iter()
            .filter(|node| !runs(node))
            .flat_map(|node| &node.taints)
            .map(String::as_str)
            .collect();
        taints.sort_unstable();
        taints.dedup();
        let tolerated = match taints.as_slice() {
            [] => String::new(),
            taints => format!(
                " Do nodes.taint and nodes.tolerations of the chart cover their taints: {}?",
                named(taints)
            ),
        };
        findings.push(Finding::problem(
            CHECK,
            format!("nodes with boards and without a ready node plugin: {}", named(&without)),
            "No pod gets a board there.",
            format!("kubectl -n kube-fpga describe daemonset fpga-node-plugin.{tolerated}"),
        ));
    }
    let has_board = |node: &Node| match &node.state {
        State::Known(state) => {
            state.devices.iter().any(|device| state.reported_health(device) == Health::Healthy)
        }
        State::Absent | State::Unreadable(_) => false,
    };
    let silent = names(&|node| runs(node) && node.advertised == 0 && has_board(node));
    if !silent.is_empty() {
        findings.push(Finding::problem(
            CHECK,
            format!("nodes whose kubelet offers no board, though a node plugin runs: {}", named(&silent)),
            "kube-scheduler places no pod there.",
            "See `kubectl -n kube-fpga logs` of the plugin on that node: did it register with the kubelet, and does it see the \
             managers below /run/fpga/managers? A kubelet with another --root-dir needs nodePlugin.kubeletDir of the chart.",
        ));
    }
    Finding::or_ok(CHECK, findings, format!("one is ready on each of {} nodes with boards", nodes.len()))
}

/// Whether device managers run, and can't use up the memory of their nodes.
#[must_use]
pub fn managers(facts: &Facts) -> Vec<Finding> {
    const CHECK: &str = "device managers";
    let sets = match &facts.managers {
        Looked::Found(sets) => sets,
        Looked::Hidden(why) => {
            let mend = "Grant `list daemonsets` in the extender's namespace.";
            return vec![Finding::unknown(CHECK, why, mend)];
        }
    };
    let mut findings = Vec::new();
    for set in sets {
        if set.memory_limit == MemoryLimit::Missing {
            findings.push(Finding::problem(
                CHECK,
                format!("{} has no limit of memory", set.name),
                "A tenant's buffers are the manager's memory: a single tenant can use up the node's.",
                "Set resources.limits.memory of the board kind in the chart's values.",
            ));
        }
        if set.wanted == 0 {
            findings.push(Finding::warning(
                CHECK,
                format!("{} runs on no node", set.name),
                "Nobody serves boards of this kind.",
                "Which nodes have the labels of the board kind's nodeSelector?",
            ));
        } else if set.ready < set.wanted {
            findings.push(Finding::problem(
                CHECK,
                format!("{} is ready on {} of {} nodes", set.name, set.ready, set.wanted),
                "The boards of the others are not served.",
                "kubectl -n kube-fpga get pods -o wide -l app.kubernetes.io/name=fpga-device-manager, and the log of those that \
                 are not ready.",
            ));
        }
    }
    Finding::or_ok(CHECK, findings, format!("{} kinds of boards are served", sets.len()))
}
