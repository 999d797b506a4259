//! Checks of the extender's replicas.

use crate::doctor::facts::{Facts, Looked, Replica};
use crate::doctor::finding::{Finding, named};
use fpga_extender_api::Rules;
use std::collections::BTreeMap;

/// Metrics of errors that kube-scheduler does not report or hardly explains: name, what is counted, and the
/// consequence.
const ERRORS: [(&str, &str, &str); 5] = [
    (
        "fpga_extender_certificate_unused",
        "ports whose new certificate can't be used",
        "The old one stays in use until it ends. The log says what is wrong with the new files.",
    ),
    (
        "fpga_extender_errors_total",
        "requests that were refused or could not be understood",
        "kube-scheduler tells failed prioritize calls at log level 5 only, and goes on without our scores. The extender's log \
         says what was wrong; a pod whose wishes can't be understood has an event.",
    ),
    (
        "fpga_extender_unreadable_states_total",
        "states that could not be read",
        "Nodes whose state can't be read are never preferred. `kubectl fpga nodes` shows which; a collector of another \
         version may be the reason.",
    ),
    (
        "fpga_extender_left_out_pods_total",
        "pods not expected to use anything, since their node has too many",
        "Pods that come at once may herd there.",
    ),
    (
        "fpga_extender_record_dropped_total",
        "decisions missing in the recording",
        "A replay lacks them. Is the disk full, or slow?",
    ),
];

/// Whether every replica answers and is ready, there are at least two, and their version is the plugin's.
#[must_use]
pub fn replicas(facts: &Facts) -> Vec<Finding> {
    const CHECK: &str = "replicas";
    let replicas = match &facts.replicas {
        Looked::Found(replicas) => replicas,
        Looked::Hidden(why) => {
            let what = "no replica of the extender can be asked";
            return vec![Finding::problem(CHECK, what, why, "Mend what is said, or give --extender URL.")];
        }
    };
    let mut findings = Vec::new();
    let logs = "See `kubectl -n kube-fpga describe pod` and `logs` of it.";
    for replica in replicas {
        let silent = [&replica.nodes.found().is_none(), &!replica.ready];
        if let (Looked::Hidden(why), [true, _]) = (&replica.nodes, silent) {
            findings.push(Finding::problem(CHECK, format!("{} does not answer", replica.name), why, logs));
        } else if !replica.ready {
            let why = "kube-scheduler gets no decisions from it. It gets ready when it has seen all nodes, and pods.";
            findings.push(Finding::problem(CHECK, format!("{} is not ready", replica.name), why, logs));
        }
    }
    let answering =
        replicas.iter().filter(|replica| replica.ready && replica.nodes.found().is_some()).count();
    if replicas.len() == 1 {
        findings.push(Finding::warning(
            CHECK,
            "there is one replica only",
            "While it restarts, FPGA pods wait.",
            "kubectl -n kube-fpga scale deployment/fpga-scheduler-extender --replicas=2",
        ));
    }
    let versions: Vec<&str> = replicas.iter().filter_map(|replica| replica.version.as_deref()).collect();
    let own = env!("CARGO_PKG_VERSION");
    if let Some(other) = versions.iter().find(|version| **version != own) {
        findings.push(Finding::warning(
            CHECK,
            format!("the extender is of version {other}, this plugin of {own}"),
            "What one says the other may not understand; while replicas differ, so may their decisions.",
            "Finish the roll-out, and install the plugin of the same version.",
        ));
    }
    Finding::or_ok(CHECK, findings, format!("{answering} of {} answer and are ready", replicas.len()))
}

/// Whether all replicas have the same rules and see the same nodes.
#[must_use]
pub fn rules(facts: &Facts) -> Vec<Finding> {
    const CHECK: &str = "agreement";
    let replicas = facts.known_replicas();
    let mut findings = Vec::new();
    let policies: Vec<_> =
        replicas.iter().filter_map(|replica| Some((&replica.name, replica.config.found()?))).collect();
    for (name, config) in &policies {
        let Some(problem) = config.file.as_ref().and_then(|file| file.problem.as_ref()) else { continue };
        let path = config.file.as_ref().map(|file| file.path.display().to_string()).unwrap_or_default();
        findings.push(Finding::problem(
            CHECK,
            format!("{name} can't take its configuration file {path}"),
            format!("It goes on with the last good one: {problem}"),
            "Mend the file; the extender takes it within seconds.",
        ));
    }
    if let [(first, config), others @ ..] = policies.as_slice()
        && let Some((other, differing)) = others.iter().find(|(_, other)| other.policy != config.policy)
    {
        findings.push(Finding::problem(
            CHECK,
            format!("{first} and {other} go by different rules"),
            format!(
                "Which one kube-scheduler asks decides where pods go: {:?} or {:?}.",
                config.policy, differing.policy
            ),
            "Give all replicas the same flags and file; restart those that are behind.",
        ));
    }
    let counts: BTreeMap<usize, &str> = replicas
        .iter()
        .filter_map(|replica| Some((replica.nodes.found()?.len(), replica.name.as_str())))
        .collect();
    if counts.len() > 1 {
        findings.push(Finding::warning(
            CHECK,
            "the replicas see different numbers of nodes",
            format!("{counts:?}: one is behind, or its watch is broken (fpga_extender_watch_errors_total)."),
            "If it stays so, restart the one that sees less.",
        ));
    }
    let unequal = seen_differently(replicas);
    if !unequal.is_empty() {
        findings.push(Finding::warning(
            CHECK,
            format!("nodes that one replica has fresh states of and another has not: {}", named(&unequal)),
            "Which replica kube-scheduler asks decides what such a node is worth.",
            "A collector streams to all replicas: does its --extenders name the headless Service, and does a network policy \
             let it through?",
        ));
    }
    if policies.is_empty() {
        return findings;
    }
    Finding::or_ok(CHECK, findings, "all replicas go by the same rules and see the same nodes")
}

/// Nodes whose state is fresh in one replica and not in another.
fn seen_differently(replicas: &[Replica]) -> Vec<String> {
    let mut fresh: BTreeMap<&str, (usize, usize)> = BTreeMap::new();
    for view in replicas.iter().filter_map(|replica| replica.nodes.found()).flatten() {
        let (seen, fresh) = fresh.entry(&view.name).or_default();
        *seen += 1;
        *fresh += usize::from(view.freshness == "fresh");
    }
    let unequal = fresh.into_iter().filter(|(_, (seen, fresh))| *fresh > 0 && fresh < seen);
    unequal.map(|(name, _)| name.to_owned()).collect()
}

/// Whether the weights and anti-herd prevent pods from herding on one node.
#[must_use]
pub fn herd(facts: &Facts) -> Vec<Finding> {
    const CHECK: &str = "herd";
    let rules = facts.known_replicas().iter().find_map(|replica| replica.config.found());
    let Some(Rules { weights, anti_herd, .. }) = rules.map(|config| &config.policy.rules) else {
        return vec![Finding::unknown(CHECK, "no replica tells its weights", "")];
    };
    let weight = |signal: &str| weights.get(signal).copied().unwrap_or_default();
    let (usage, reconfiguration) = (weight("usage"), weight("reconfiguration"));
    // A loaded bitstream is also local: both signals draw pods to the same node.
    let locality = weight("locality") + weight("loaded");
    let mend = "Choose a locality weight below the usage weight, for example --weights 1-2-2; or keep it, if following the \
                bitstream is worth a queue (reconfiguration of seconds).";
    let mut findings = Vec::new();
    if locality > 0.0 && locality >= usage + reconfiguration {
        findings.push(Finding::problem(
            CHECK,
            format!(
                "locality counts {locality}, usage and reconfiguration together {}",
                usage + reconfiguration
            ),
            "The one node that has a bitstream wins against any load: all pods of a function go there.",
            mend,
        ));
    } else if locality > 0.0 && locality >= usage {
        findings.push(Finding::warning(
            CHECK,
            format!("locality counts {locality}, usage {usage}"),
            "Where reconfiguration time is equal everywhere, pods herd where the bitstream is: measured at three times the mean \
             with 1-1-1, all on one node with 3-2-2.",
            mend,
        ));
    }
    if anti_herd == "off" {
        findings.push(Finding::warning(
            CHECK,
            "anti-herd is off",
            "Usage follows a placement by seconds to minutes: pods that come at once go to one node.",
            "Take --anti-herd off out.",
        ));
    }
    Finding::or_ok(CHECK, findings, "the weights let usage win over locality, and anti-herd is on")
}

/// Whether a metric counts errors.
#[must_use]
pub fn errors(facts: &Facts) -> Vec<Finding> {
    const CHECK: &str = "errors";
    let mut findings = Vec::new();
    let mut looked = false;
    for replica in facts.known_replicas() {
        let Some(metrics) = replica.metrics.found() else { continue };
        looked = true;
        for (metric, what, why) in ERRORS {
            let count = metrics.sums.get(metric).copied().unwrap_or_default();
            if count > 0.0 {
                findings.push(Finding::warning(
                    CHECK,
                    format!("{}: {count} {what}", replica.name),
                    why,
                    format!("Watch {metric}: it counts from the start of the replica, and matters if it still rises."),
                ));
            }
        }
    }
    if looked { Finding::or_ok(CHECK, findings, "no replica counts errors") } else { findings }
}
