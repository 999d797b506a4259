//! Checks of the nodes: states, labels, collectors and clocks.

use crate::doctor::facts::{Facts, Labelling, Looked, Node, State};
use crate::doctor::finding::{Finding, named};
use fpga_core::device::Health;
use fpga_core::node_state::LeftOut;
use std::collections::BTreeMap;

/// Least difference of clocks that is a finding, in milliseconds. The network delays no write by so much.
const SKEW_MS: u64 = 10_000;

fn ours(facts: &Facts) -> Vec<&Node> {
    let nodes = facts.nodes.found().into_iter().flatten();
    nodes.filter(|node| node.labelled || node.state != State::Absent).collect()
}

/// Whether every node with a board has a fresh state and healthy boards.
#[must_use]
pub fn states(facts: &Facts) -> Vec<Finding> {
    const CHECK: &str = "node states";
    if let Looked::Hidden(why) = &facts.nodes {
        return vec![Finding::unknown(CHECK, why, "Grant `list nodes`.")];
    }
    let nodes = ours(facts);
    if nodes.is_empty() {
        return vec![Finding::warning(
            CHECK,
            "no node has a board",
            "No FPGA pod can be placed.",
            "kubectl label node NODE fpga-scheduling.io/fpga-vendor=VENDOR, for each that has one.",
        )];
    }
    let mut findings = Vec::new();
    let names = |wanted: &dyn Fn(&Node) -> bool| -> Vec<&str> {
        nodes.iter().filter(|node| wanted(node)).map(|node| node.name.as_str()).collect()
    };
    let mut tell = |names: &[&str], what: &str, why: &str, mend: &str| {
        if !names.is_empty() {
            findings.push(Finding::problem(CHECK, format!("{what}: {}", named(names)), why, mend));
        }
    };
    let logs = "See `kubectl -n kube-fpga logs` of the collector on that node.";
    tell(
        &names(&|node| node.state == State::Absent),
        "labelled nodes without a state",
        "Nothing is known of their boards: by default they are preferred to none.",
        "Does a collector run there, may it patch the node, and does a device manager or the OpenCL layer tell it of a board?",
    );
    for node in &nodes {
        if let State::Unreadable(error) = &node.state {
            let why = format!("{error}. Such a node is never preferred.");
            tell(
                &[&node.name],
                "a state that can't be read",
                &why,
                "Bring collector and extender to the same version.",
            );
        }
    }
    let unlabelled = |node: &Node| !node.labelled && node.state != State::Absent;
    tell(
        &names(&unlabelled),
        "nodes with a state and without the label fpga-scheduling.io/fpga-vendor",
        "Pods with the required node affinity are never placed there.",
        mend_labels(facts),
    );
    let known = |node: &Node| match &node.state {
        State::Known(state) => Some(state.clone()),
        State::Absent | State::Unreadable(_) => None,
    };
    let no_board = |node: &Node| known(node).is_some_and(|state| state.devices.is_empty());
    tell(
        &names(&no_board),
        "nodes whose collector knows of no board",
        "Every FPGA pod is rejected there.",
        "Does the device manager run there, and reach the collector's socket?",
    );
    let sick = |node: &Node| {
        known(node).is_some_and(|state| {
            state.devices.iter().any(|device| state.reported_health(device) == Health::Unhealthy)
        })
    };
    tell(
        &names(&sick),
        "nodes with a board that doesn't answer",
        "Pods that need it are rejected there.",
        "See `kubectl fpga nodes -o wide`, and the log of its device manager.",
    );
    let freshness = seen(facts);
    let stale: Vec<&str> = nodes
        .iter()
        .filter(|node| {
            freshness.get(node.name.as_str()).is_some_and(|seen| seen.iter().all(|seen| *seen == "stale"))
        })
        .map(|node| node.name.as_str())
        .collect();
    tell(
        &stale,
        "nodes that have been silent for three heartbeats",
        "What their boards do is not known any more: by default they are preferred to none.",
        logs,
    );
    let cordoned = names(&|node| known(node).is_some_and(|state| !state.cordons.is_empty()));
    if !cordoned.is_empty() {
        findings.push(Finding::note(
            CHECK,
            format!("nodes with a board out of rotation: {}", named(&cordoned)),
            "It gets no new pods; `kubectl fpga boards` says why, and `kubectl fpga uncordon NODE/BOARD` ends it.",
        ));
    }
    let shortened = names(&|node| known(node).is_some_and(|state| !state.left_out.is_nothing()));
    if !shortened.is_empty() {
        let mut left_out = LeftOut::default();
        nodes.iter().filter_map(|node| known(node)).for_each(|state| left_out += state.left_out);
        findings.push(Finding::note(
            CHECK,
            format!("annotations that left something out, {left_out}: {}", named(&shortened)),
            "Nobody is rejected for what was left out; where collectors stream, the extender has it all the same.",
        ));
    }
    Finding::or_ok(CHECK, findings, format!("all {} nodes with boards have a fresh state", nodes.len()))
}

/// How to mend a missing label, which depends on whether collectors label their nodes.
fn mend_labels(facts: &Facts) -> &'static str {
    match facts.collectors.found().map(|collectors| collectors.labelling) {
        Some(Labelling::ByCollectors) => {
            "Collectors are told to label their nodes (--label-node), and don't: is the policy that lets them applied \
             (collector.labelNode of the chart), and do all boards of the node agree? The collector's log says."
        }
        Some(Labelling::ByPeople) | None => {
            "kubectl label node NODE fpga-scheduling.io/fpga-vendor=VENDOR, or let collectors do it: \
             manifests/values/label-node.yaml."
        }
    }
}

/// For each node, the freshness of its state in each replica.
fn seen(facts: &Facts) -> BTreeMap<&str, Vec<&str>> {
    let mut seen: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    let replicas = facts.replicas.found().into_iter().flatten();
    for view in replicas.filter_map(|replica| replica.nodes.found()).flatten() {
        seen.entry(&view.name).or_default().push(&view.freshness);
    }
    seen
}

/// Whether a ready collector runs on every labelled node.
#[must_use]
pub fn collectors(facts: &Facts) -> Vec<Finding> {
    const CHECK: &str = "collectors";
    let running = match &facts.collectors {
        Looked::Found(collectors) => &collectors.ready_on,
        Looked::Hidden(why) => {
            return vec![Finding::unknown(CHECK, why, "Grant `list pods` in the extender's namespace.")];
        }
    };
    let labelled: Vec<&str> = {
        let nodes = facts.nodes.found().into_iter().flatten();
        nodes.filter(|node| node.labelled).map(|node| node.name.as_str()).collect()
    };
    let without: Vec<&str> =
        labelled.iter().filter(|node| !running.iter().any(|there| there == *node)).copied().collect();
    // A collector may run outside the manifests: a node with a fresh state has one.
    let freshness = seen(facts);
    let (telling, silent): (Vec<&str>, Vec<&str>) =
        without.iter().partition(|node| freshness.get(**node).is_some_and(|seen| seen.contains(&"fresh")));
    let mut findings = Vec::new();
    if !silent.is_empty() {
        findings.push(Finding::problem(
            CHECK,
            format!("labelled nodes without a collector that is ready: {}", named(&silent)),
            "What their boards do is not measured.",
            "kubectl -n kube-fpga get pods -o wide -l app.kubernetes.io/name=fpga-collector; a taint may keep the DaemonSet away.",
        ));
    }
    if !telling.is_empty() {
        findings.push(Finding::note(
            CHECK,
            format!("nodes that tell their state without a collector's pod: {}", named(&telling)),
            "A collector that was started otherwise than by the manifests is not restarted by Kubernetes.",
        ));
    }
    Finding::or_ok(CHECK, findings, format!("one is ready on each of {} labelled nodes", labelled.len()))
}

/// Whether the nodes' clocks agree with the API server's.
#[must_use]
pub fn clocks(facts: &Facts) -> Vec<Finding> {
    const CHECK: &str = "clocks";
    let mut wrong = Vec::new();
    let mut looked = 0;
    for node in ours(facts) {
        let (State::Known(state), Some(written)) = (&node.state, node.written_at_ms) else { continue };
        looked += 1;
        let measured = state.measured_at.0;
        let skew = measured.abs_diff(written);
        if skew > SKEW_MS {
            let sign = if measured > written { "ahead" } else { "behind" };
            wrong.push(format!("{} ({} s {sign})", node.name, skew / 1_000));
        }
    }
    if !wrong.is_empty() {
        return vec![Finding::warning(
            CHECK,
            format!("nodes whose clock differs from the API server's: {}", named(&wrong)),
            "Decisions count ages on the extender's own clock and are right all the same; dates in states, logs and \
             certificates are not, and events \"from the future\" are cut.",
            "Start chrony or another NTP client on the node. The API server tells whole seconds: less than 10 s is not told.",
        )];
    }
    if looked == 0 {
        Vec::new()
    } else {
        vec![Finding::ok(CHECK, format!("those of {looked} nodes go right"))]
    }
}
