//! Checks of the pods that kube-scheduler sends to the extender, and of the nodes that it considers for them.

use super::{Resource, ours};
use crate::doctor::facts::{Certificate, Facts, FpgaPod, Looked};
use crate::doctor::finding::{Finding, named};
use crate::doctor::scheduler_config::DEFAULT_SCHEDULER;
use fpga_core::names::{ACCELERATED_RESOURCE, VENDOR_LABEL};

/// kube-scheduler's search stops only after this many feasible nodes, if there are as many.
const LEAST_SAMPLE: usize = 100;
/// Most nodes that our own scheduler judges for a pod, as the chart configures it.
const MOST_JUDGED: usize = 300;
/// Name of the manifests' own scheduler.
const OWN_SCHEDULER: &str = "kube-fpga";

/// Whether FPGA pods, and no others, are sent to the extender.
#[must_use]
pub fn managed_resource(facts: &Facts) -> Vec<Finding> {
    const CHECK: &str = "managed resource";
    let Some((_, extender)) = ours(facts) else { return Vec::new() };
    let ours = extender.managed().iter().find(|resource| resource.name == ACCELERATED_RESOURCE);
    let mut findings = Vec::new();
    match ours {
        Some(_) => {}
        None if !extender.managed().is_empty() => findings.push(Finding::problem(
            CHECK,
            format!("managedResources has no {ACCELERATED_RESOURCE}"),
            "FPGA pods are not sent to the extender: they go anywhere.",
            format!("Add {{name: {ACCELERATED_RESOURCE}}} to managedResources."),
        )),
        None if !extender.ignorable => findings.push(Finding::problem(
            CHECK,
            "no managedResources, and ignorable is false",
            "Every pod of the cluster waits while the extender is away, its own replacement included: a deadlock.",
            "Set ignorable: true, or better: managedResources as in scheduler-config/kube-scheduler.yaml.",
        )),
        None => findings.push(Finding::note(
            CHECK,
            "no managedResources: every pod of the cluster is sent to the extender",
            "All pay for the call. scheduler-config/README.md has the price, and the other wiring.",
        )),
    }
    let advertising: Vec<&str> = {
        let nodes = facts.nodes.found().into_iter().flatten();
        nodes.filter(|node| node.advertised > 0).map(|node| node.name.as_str()).collect()
    };
    match (Resource::of(facts), &facts.nodes) {
        (Resource::Advertised, Looked::Found(_)) if advertising.is_empty() => findings.push(Finding::problem(
            CHECK,
            format!("ignoredByScheduler is not true for {ACCELERATED_RESOURCE}, and no node advertises it"),
            "No pod that requests it is ever placed.",
            "Do node plugins run (manifests/README.md)? Where pods are wired to boards by hand, set ignoredByScheduler: true.",
        )),
        (Resource::Ignored, _) if !advertising.is_empty() => findings.push(Finding::problem(
            CHECK,
            format!("ignoredByScheduler is true, and nodes advertise {ACCELERATED_RESOURCE}: {}", named(&advertising)),
            "kube-scheduler places pods where no instance is left: the kubelet refuses them for good (UnexpectedAdmissionError).",
            "Set ignoredByScheduler: false.",
        )),
        _ => {}
    }
    if ours.is_some() {
        let pods = facts.pods.found().into_iter().flatten();
        let without: Vec<&str> =
            pods.filter(|pod| !pod.requests_resource()).map(|pod| pod.name.as_str()).collect();
        if !without.is_empty() {
            findings.push(Finding::problem(
                CHECK,
                format!("FPGA pods without the resource {ACCELERATED_RESOURCE}: {}", named(&without)),
                "kube-scheduler doesn't ask the extender about them: they go anywhere.",
                format!("Give a container of each the request and limit {ACCELERATED_RESOURCE}: \"1\"."),
            ));
        }
        findings.extend(of_no_node(facts));
        if extender.ignorable {
            findings.push(Finding::note(
                CHECK,
                "ignorable is true",
                "While the extender is away, FPGA pods are placed on nodes whose boards may not fit.",
            ));
        }
    }
    Finding::or_ok(CHECK, findings, format!("pods with {ACCELERATED_RESOURCE} are sent to the extender"))
}

/// Pods that ask for a resource of ours that kube-scheduler does not know and no node offers.
fn of_no_node(facts: &Facts) -> Option<Finding> {
    let pods = facts.pods.found().into_iter().flatten().filter(|pod| !unmanaged(facts, pod).is_empty());
    let pods: Vec<String> =
        pods.map(|pod| format!("{} ({})", pod.name, unmanaged(facts, pod).join(", "))).collect();
    (!pods.is_empty()).then(|| {
        Finding::problem(
            "managed resource",
            format!("FPGA pods with a resource that no node plugin offers: {}", named(&pods)),
            "They stay Pending, whatever their scheduler is.",
            format!(
                "Ask for {ACCELERATED_RESOURCE}, with the pod's label {VENDOR_LABEL}; or add the vendor to \
                 scheduler.vendorResources of the chart."
            ),
        )
    })
}

/// Our resources that the pod asks for and that kube-scheduler's configuration does not have among others of ours.
fn unmanaged<'p>(facts: &Facts, pod: &'p FpgaPod) -> Vec<&'p str> {
    let Some((_, extender)) = ours(facts) else { return Vec::new() };
    let managed = |resource: &str| extender.managed().iter().any(|managed| managed.name == resource);
    if !managed(ACCELERATED_RESOURCE) {
        return Vec::new();
    }
    pod.resources.iter().map(String::as_str).filter(|resource| !managed(resource)).collect()
}

/// Whether FPGA pods name a scheduler that asks the extender.
#[must_use]
pub fn scheduler_name(facts: &Facts) -> Vec<Finding> {
    const CHECK: &str = "scheduler name";
    let Some((config, _)) = ours(facts) else { return Vec::new() };
    let Some(pods) = facts.pods.found() else { return Vec::new() };
    let mut asking = config.scheduler_names();
    asking.extend(facts.own_schedulers.iter().map(String::as_str));
    // An extender with an authority for client certificates serves a kube-scheduler in another pod: the cluster's
    // own.
    let is_reachable =
        |certificate: &Certificate| certificate.port == "http" && certificate.which == "client_ca";
    let metrics = facts.known_replicas().iter().filter_map(|replica| replica.metrics.found());
    if metrics.flat_map(|metrics| &metrics.certificates).any(is_reachable) {
        asking.push(DEFAULT_SCHEDULER);
    }
    let is_other =
        |pod: &&FpgaPod| !asking.contains(&pod.scheduler.as_str()) && unmanaged(facts, pod).is_empty();
    let others: Vec<&FpgaPod> = pods.iter().filter(is_other).collect();
    let named_by = |is_ours: bool| -> Vec<String> {
        let pods = others.iter().filter(|pod| pod.requests_resource() == is_ours);
        pods.map(|pod| format!("{} ({})", pod.name, pod.scheduler)).collect()
    };
    let mend = format!(
        "Write `schedulerName: {}` into the specification of each pod, or of the template that makes it: the name of a pod that \
         exists can't be changed. Or have the cluster's own kube-scheduler ask the extender: scheduler-config/README.md, Where \
         the extender is.",
        asking.first().copied().unwrap_or(OWN_SCHEDULER)
    );
    let kinds = [
        (named_by(true), fate_with_resource(facts)),
        (
            named_by(false),
            "Nobody asks the extender about them: they go anywhere, whatever the boards there are and do."
                .to_owned(),
        ),
    ];
    let findings = kinds.into_iter().filter(|(pods, _)| !pods.is_empty()).map(|(pods, why)| {
        let what = format!("FPGA pods whose scheduler does not ask the extender: {}", named(&pods));
        Finding::problem(CHECK, what, why, mend.clone())
    });
    Finding::or_ok(CHECK, findings.collect(), "all FPGA pods name a scheduler that asks the extender")
}

/// What becomes of pods that request the resource and whose scheduler does not ask the extender.
fn fate_with_resource(facts: &Facts) -> String {
    let anywhere = format!(
        "they go to any node that offers {ACCELERATED_RESOURCE}, whatever their labels and annotations ask for, and where \
         its boards don't fit, their containers don't start"
    );
    let why = match &facts.nodes {
        Looked::Found(nodes) if nodes.iter().any(|node| node.advertised > 0) => anywhere,
        Looked::Found(_) => format!("no node offers {ACCELERATED_RESOURCE}, so they stay Pending"),
        Looked::Hidden(_) => format!("{anywhere}; without such a node they stay Pending"),
    };
    format!("Nobody asks the extender about them: {why}.")
}

/// The number of feasible nodes after which the search of kube-scheduler 1.36 stops, in a cluster of `nodes`:
/// `percentageOfNodesToScore` of them, or a percentage that depends on their number.
fn sample(nodes: usize, percentage: Option<u32>) -> usize {
    let adapted = || 50_usize.saturating_sub(nodes / 125).max(5);
    let percentage = percentage.map_or_else(adapted, |percentage| percentage as usize);
    (nodes * percentage / 100).max(LEAST_SAMPLE).min(nodes)
}

/// Whether the search of kube-scheduler considers nodes with boards, and all of them.
#[must_use]
pub fn sampling(facts: &Facts) -> Vec<Finding> {
    const CHECK: &str = "sampling";
    let (nodes, with_boards) = match &facts.nodes {
        Looked::Found(nodes) => (nodes.len(), nodes.iter().filter(|node| node.labelled).count()),
        Looked::Hidden(why) => return vec![Finding::unknown(CHECK, why, "Grant `list nodes`.")],
    };
    let pods = match &facts.pods {
        Looked::Found(pods) => pods,
        Looked::Hidden(why) => {
            return vec![Finding::unknown(CHECK, why, "Grant `list pods` in all namespaces.")];
        }
    };
    let percentages = facts.config.found().map_or(vec![None], |(_, config)| config.percentages());
    // The profile that sees the fewest nodes decides.
    let samples = percentages.into_iter().map(|percentage| sample(nodes, percentage));
    let sample = samples.min().unwrap_or(nodes);
    // Where kube-scheduler looks for the resource itself, it finds no other nodes.
    let resource = Resource::of(facts);
    let is_narrowed =
        |pod: &FpgaPod| pod.narrowed || (resource == Resource::Advertised && pod.requests_resource());
    let open: Vec<&str> = pods.iter().filter(|pod| !is_narrowed(pod)).map(|pod| pod.name.as_str()).collect();
    vec![if sample == nodes {
        Finding::ok(CHECK, "kube-scheduler looks at all nodes")
    } else if !open.is_empty() {
        Finding::problem(
            CHECK,
            format!("FPGA pods without a required node affinity on our labels: {}", named(&open)),
            format!(
                "With {nodes} nodes kube-scheduler stops looking once it has found {sample}, before it asks the extender, \
                 and doesn't go on when the extender rejects them: such pods stay Pending though boards are free."
            ),
            "Give each pod the required node affinity on fpga-scheduling.io/fpga-vendor (scheduler-config/README.md), or set \
             percentageOfNodesToScore: 100.",
        )
    } else if resource == Resource::Advertised && sample < with_boards.min(MOST_JUDGED) {
        Finding::warning(
            CHECK,
            format!("a decision sees {sample} of the {with_boards} nodes with boards"),
            format!(
                "Our own scheduler can judge {MOST_JUDGED}: a bitstream that few nodes hold may be with none of those that it sees."
            ),
            format!(
                "Set scheduler.nodes of the chart to the number of nodes of the cluster, {nodes}, and upgrade."
            ),
        )
    } else if with_boards > sample {
        Finding::note(
            CHECK,
            format!("a decision sees {sample} of the {with_boards} nodes with boards"),
            "kube-scheduler stops looking once it has found so many. Load spreads all the same, but a bitstream that few nodes \
             hold may be with none of them: narrow such pods further by node affinity (board, shell-version), or raise \
             percentageOfNodesToScore and pay for the names in each call.",
        )
    } else {
        Finding::ok(
            CHECK,
            "all FPGA pods narrow their nodes themselves, and all nodes with boards are looked at",
        )
    }]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_number_of_judged_nodes_is_the_charts() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../manifests/chart/templates/_helpers.tpl");
        let helpers = std::fs::read_to_string(path).unwrap();
        let definition = format!("{{{{- define \"mostJudged\" -}}}}{MOST_JUDGED}{{{{- end }}}}");
        assert!(helpers.contains(&definition), "the chart has no {definition}");
    }
}
