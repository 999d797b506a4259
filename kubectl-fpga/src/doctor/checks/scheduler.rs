//! What can be wrong with kube-scheduler's side of the wiring.

use super::named;
use crate::doctor::facts::{Facts, Looked, Reach};
use crate::doctor::finding::{Finding, Severity};
use crate::doctor::scheduler_config::{Extender, SchedulerConfig};
use fpga_core::names::ACCELERATED_RESOURCE;

/// So many nodes that fit kube-scheduler looks for at least, if there are so many.
const LEAST_SAMPLE: usize = 100;
/// The version in which equal pods began to be placed in batches.
const BATCHING_SINCE: u32 = 35;

fn ours(facts: &Facts) -> Option<(&SchedulerConfig, &Extender)> {
    let (_, config) = facts.config.found()?;
    Some((config, config.ours()?))
}

/// Whether kube-scheduler knows of the extender at all.
#[must_use]
pub fn wired(facts: &Facts) -> Vec<Finding> {
    const CHECK: &str = "wiring";
    let mend = "Add the `extenders` entry of scheduler-config/kube-scheduler.yaml to the file that kube-scheduler is \
                started with (--config), and restart it.";
    let pod = facts.scheduler_pod.found();
    let has_config = |command: &[String]| command.iter().any(|word| word.starts_with("--config"));
    match &facts.config {
        Looked::Found((from, config)) => match config.ours() {
            Some(extender) => {
                vec![Finding::ok(CHECK, format!("{from} names the extender at {}", extender.url_prefix))]
            }
            None => vec![Finding::problem(
                CHECK,
                format!("{from} names no extender of ours"),
                "kube-scheduler never asks: pods go anywhere.",
                mend,
            )],
        },
        Looked::Hidden(_) if pod.is_some_and(|pod| !pod.command.is_empty() && !has_config(&pod.command)) => {
            vec![Finding::problem(
                CHECK,
                "kube-scheduler is started without --config",
                "It knows of no extender: pods go anywhere.",
                mend,
            )]
        }
        Looked::Hidden(why) => vec![Finding::unknown(
            CHECK,
            why,
            "Give the file: --scheduler-config FILE. With kubeadm, --config in /etc/kubernetes/manifests/kube-scheduler.yaml \
             on the control plane names it.",
        )],
    }
}

/// Whether somebody answers where kube-scheduler asks.
#[must_use]
pub fn reach(facts: &Facts) -> Vec<Finding> {
    const CHECK: &str = "reach";
    let Some((_, extender)) = ours(facts) else { return Vec::new() };
    vec![match &facts.reach {
        Looked::Found(Reach::Answers) => Finding::ok(CHECK, format!("{} answers", extender.url_prefix)),
        Looked::Found(Reach::Silent(why)) => Finding::problem(
            CHECK,
            why,
            "Every call fails: FPGA pods stay Pending.",
            "Use the scheduler of the manifests (schedulerName: kube-fpga), which has the extender in its own pod; or write in \
             urlPrefix where the extender is: scheduler-config/README.md, Where the extender is.",
        ),
        Looked::Hidden(why) => Finding::unknown(
            CHECK,
            why,
            format!(
                "On kube-scheduler's machine: curl {}/healthz",
                extender.url_prefix.trim_end_matches('/')
            ),
        ),
    }]
}

/// Whether all verbs are wired.
#[must_use]
pub fn verbs(facts: &Facts) -> Vec<Finding> {
    const CHECK: &str = "verbs";
    let Some((_, extender)) = ours(facts) else { return Vec::new() };
    let verbs = [
        (&extender.filter_verb, "filterVerb", "Pods may be placed on nodes whose boards can't serve them."),
        (
            &extender.prioritize_verb,
            "prioritizeVerb",
            "What the boards really do plays no part in where pods go.",
        ),
        (
            &extender.preempt_verb,
            "preemptVerb",
            "Preemption may evict pods on nodes where that brings no board.",
        ),
    ];
    let mut findings: Vec<Finding> = verbs
        .into_iter()
        .filter(|(verb, _, _)| verb.is_empty())
        .map(|(_, key, why)| {
            let verb = key.trim_end_matches("Verb");
            Finding::problem(CHECK, format!("{key} is not set"), why, format!("Set {key}: {verb}."))
        })
        .collect();
    if !extender.bind_verb.is_empty() {
        findings.push(Finding::problem(
            CHECK,
            "bindVerb is set",
            "The extender creates no bindings: every pod fails when it is bound.",
            "Take bindVerb out.",
        ));
    }
    Finding::or_ok(CHECK, findings, "filter, prioritize and preempt are wired")
}

/// Whether our score counts beside kube-scheduler's plugins.
#[must_use]
pub fn weight(facts: &Facts) -> Vec<Finding> {
    const CHECK: &str = "weight";
    let Some((config, extender)) = ours(facts) else { return Vec::new() };
    let theirs = config.plugin_points();
    let replicas = facts.replicas.found().into_iter().flatten();
    let policies: Vec<_> =
        replicas.filter_map(|replica| replica.config.found()).map(|config| &config.policy).collect();
    let max_score = policies.first().map_or(10, |policy| policy.rules.max_score);
    let ours = extender.weight.saturating_mul(10).saturating_mul(u64::from(max_score));
    let by_plugins = format!("our scores count at most {ours} points, kube-scheduler's plugins {theirs}");
    let mend = format!(
        "Set the extender's weight to {} or more.",
        theirs.div_ceil(10 * u64::from(max_score).max(1)).saturating_mul(5).div_ceil(6).max(1)
    );
    let mut findings = Vec::new();
    if ours.saturating_mul(3) <= theirs {
        findings.push(Finding::problem(
            CHECK,
            format!("weight {}: {by_plugins}", extender.weight),
            "Any plugin that sees a difference outvotes what the boards do.",
            mend,
        ));
    } else if ours.saturating_mul(2) < theirs {
        findings.push(Finding::warning(
            CHECK,
            format!("weight {}: {by_plugins}", extender.weight),
            "Two or three plugins of one mind outvote what the boards do.",
            mend,
        ));
    } else {
        let outvoted = theirs.saturating_sub(ours);
        let more = if outvoted > 0 {
            format!(": all of one mind, they outvote us by {outvoted}")
        } else {
            String::new()
        };
        findings.push(Finding::ok(CHECK, format!("{by_plugins}{more}")));
    }
    let told = policies
        .iter()
        .filter_map(|policy| policy.scheduler_weight)
        .find(|told| u64::from(*told) != extender.weight);
    // What it was told matters once the weight itself is right.
    if let (Some(told), [Finding { severity: Severity::Ok, .. }]) = (told, findings.as_slice()) {
        findings.push(Finding::warning(
            CHECK,
            format!("the extender was told that its weight is {told}, and it is {}", extender.weight),
            "Explanations reckon with the wrong weight: they mislead who asks whether plugins outvoted us.",
            format!(
                "Tell the extender: --scheduler-weight {}, or schedulerWeight in its file.",
                extender.weight
            ),
        ));
    }
    findings
}

/// Whether kube-scheduler knows whom it speaks to.
#[must_use]
pub fn tls(facts: &Facts) -> Vec<Finding> {
    const CHECK: &str = "tls";
    let Some((_, extender)) = ours(facts) else { return Vec::new() };
    let https = extender.url_prefix.starts_with("https://");
    let tls = extender.tls_config.clone().unwrap_or_default();
    let has_ca =
        tls.ca_data.is_some_and(|data| !data.is_empty()) || tls.ca_file.is_some_and(|file| !file.is_empty());
    // Without a host there is more to mend than this: see `dns`.
    let Some(host) = extender.host() else { return Vec::new() };
    let is_local =
        host == "localhost" || host.parse::<std::net::IpAddr>().is_ok_and(|address| address.is_loopback());
    let why = "Whoever gets between may say where pods go.";
    vec![if extender.enable_https && !https {
        Finding::problem(
            CHECK,
            "enableHTTPS is true and urlPrefix begins with http://",
            "enableHTTPS alters only TLS defaults; the URL's scheme decides: nothing is encrypted.",
            "Write https:// in urlPrefix, with tlsConfig.caData; or take enableHTTPS out.",
        )
    } else if https && (tls.insecure || !has_ca) {
        let what = if tls.insecure {
            "tlsConfig.insecure is true"
        } else {
            "https without tlsConfig.caData or caFile"
        };
        // Without enableHTTPS the host's own authorities are asked, which sign no name of a cluster service.
        let why = if tls.insecure || extender.enable_https {
            format!("The extender's certificate is not checked. {why}")
        } else {
            "kube-scheduler's host knows no authority for the extender's certificate: calls fail.".to_owned()
        };
        Finding::problem(
            CHECK,
            what,
            why,
            "Give tlsConfig.caData, the authority of the extender's certificate in base64.",
        )
    } else if https {
        Finding::ok(CHECK, "https with an authority of its own")
    } else if is_local {
        Finding::ok(CHECK, "plain http, within kube-scheduler's own machine")
    } else {
        Finding::warning(
            CHECK,
            format!("plain http to {host}"),
            format!("Nothing on the way is encrypted or checked. {why}"),
            "Give the extender a certificate (manifests/README.md: HTTPS for kube-scheduler), and urlPrefix https:// with \
             tlsConfig.caData.",
        )
    }]
}

/// Whether kube-scheduler can resolve the extender's name.
#[must_use]
pub fn dns(facts: &Facts) -> Vec<Finding> {
    const CHECK: &str = "dns";
    let Some((_, extender)) = ours(facts) else { return Vec::new() };
    let Some(host) = extender.host() else {
        return vec![Finding::problem(
            CHECK,
            format!("urlPrefix {:?} is no URL", extender.url_prefix),
            "kube-scheduler can't reach the extender.",
            "Write for example http://127.0.0.1:9461.",
        )];
    };
    if host.parse::<std::net::IpAddr>().is_ok() || host == "localhost" {
        return vec![Finding::ok(CHECK, format!("{host} needs no resolving"))];
    }
    let is_service = host.ends_with(".svc") || host.contains(".svc.") || !host.contains('.');
    let mend =
        "Set dnsPolicy: ClusterFirstWithHostNet on kube-scheduler's pod, or give an address in urlPrefix.";
    let why = "The host's network doesn't know the names of cluster services: every call fails, and FPGA pods stay Pending.";
    vec![match &facts.scheduler_pod {
        _ if !is_service => Finding::ok(CHECK, format!("{host} is not a name of the cluster's own DNS")),
        Looked::Found(pod) if pod.host_network && pod.dns_policy != "ClusterFirstWithHostNet" => {
            let what = format!(
                "urlPrefix has {host}, and {} in the host's network has dnsPolicy {}",
                pod.name, pod.dns_policy
            );
            Finding::problem(CHECK, what, why, mend)
        }
        Looked::Found(_) => Finding::ok(CHECK, format!("kube-scheduler's pod resolves {host}")),
        Looked::Hidden(hidden) => Finding::unknown(
            CHECK,
            format!("urlPrefix has {host}, and kube-scheduler's pod can't be looked at: {hidden}"),
            format!("If kube-scheduler is in the host's network: {mend}"),
        ),
    }]
}

/// Whether names are sent instead of whole nodes.
#[must_use]
pub fn cache_mode(facts: &Facts) -> Vec<Finding> {
    const CHECK: &str = "cache mode";
    let Some((_, extender)) = ours(facts) else { return Vec::new() };
    vec![if extender.node_cache_capable {
        Finding::ok(CHECK, "node names are sent, and no whole nodes")
    } else {
        Finding::warning(
            CHECK,
            "nodeCacheCapable is false: whole nodes are sent",
            "A call is a hundred times longer; and what the filter returns replaces kube-scheduler's own view, so that \
             NodeResourcesFit and BalancedAllocation score every node as idle (kubernetes/kubernetes#141781).",
            "Set nodeCacheCapable: true.",
        )
    }]
}

/// Whether the right pods are sent.
#[must_use]
pub fn managed_resource(facts: &Facts) -> Vec<Finding> {
    const CHECK: &str = "managed resource";
    let Some((_, extender)) = ours(facts) else { return Vec::new() };
    let ours = extender.managed().iter().find(|resource| resource.name == ACCELERATED_RESOURCE);
    let mut findings = Vec::new();
    match ours {
        Some(resource) if !resource.ignored_by_scheduler => findings.push(Finding::problem(
            CHECK,
            format!("ignoredByScheduler is not true for {ACCELERATED_RESOURCE}"),
            "No node advertises the resource: no pod that requests it is ever placed.",
            "Set ignoredByScheduler: true.",
        )),
        Some(_) => {}
        None if !extender.managed().is_empty() => findings.push(Finding::problem(
            CHECK,
            format!("managedResources has no {ACCELERATED_RESOURCE}"),
            "FPGA pods are not sent to the extender: they go anywhere.",
            format!("Add {{name: {ACCELERATED_RESOURCE}, ignoredByScheduler: true}} to managedResources."),
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
    if ours.is_some() {
        let pods = facts.pods.found().into_iter().flatten();
        let without: Vec<&str> =
            pods.filter(|pod| !pod.requests_resource).map(|pod| pod.name.as_str()).collect();
        if !without.is_empty() {
            findings.push(Finding::problem(
                CHECK,
                format!("FPGA pods without the resource {ACCELERATED_RESOURCE}: {}", named(&without)),
                "kube-scheduler doesn't ask the extender about them: they go anywhere.",
                format!("Give a container of each the request and limit {ACCELERATED_RESOURCE}: \"1\"."),
            ));
        }
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

/// Whether a call may take long.
#[must_use]
pub fn timeout(facts: &Facts) -> Vec<Finding> {
    const CHECK: &str = "timeout";
    let Some((_, extender)) = ours(facts) else { return Vec::new() };
    vec![match extender.timeout_ms() {
        None => Finding::problem(
            CHECK,
            format!("httpTimeout {:?} is no duration", extender.http_timeout.as_deref().unwrap_or_default()),
            "kube-scheduler doesn't start with it.",
            "Write httpTimeout: 1s.",
        ),
        Some(millis) if millis > 2_000 => Finding::warning(
            CHECK,
            format!(
                "httpTimeout is {} s{}",
                millis / 1_000,
                if extender.http_timeout.is_none() { " by default" } else { "" }
            ),
            "Filter and prioritize are within the serial scheduling cycle: an extender that hangs stops all pods so long, \
             time after time.",
            "Set httpTimeout: 1s.",
        ),
        Some(millis) => Finding::ok(CHECK, format!("httpTimeout is {millis} ms")),
    }]
}

/// How many nodes that fit kube-scheduler 1.36 looks for in a cluster of `nodes`: `percentageOfNodesToScore` of all, or what it
/// makes of their number.
fn sample(nodes: usize, percentage: Option<u32>) -> usize {
    let adapted = || 50_usize.saturating_sub(nodes / 125).max(5);
    let percentage = percentage.map_or_else(adapted, |percentage| percentage as usize);
    (nodes * percentage / 100).max(LEAST_SAMPLE).min(nodes)
}

/// Whether kube-scheduler looks at the nodes with boards before it has enough others, and at all of them.
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
    let sample = sample(nodes, facts.config.found().and_then(|(_, config)| config.percentage()));
    let open: Vec<&str> = pods.iter().filter(|pod| !pod.narrowed).map(|pod| pod.name.as_str()).collect();
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

/// Whether equal pods are placed in batches.
#[must_use]
pub fn batching(facts: &Facts) -> Vec<Finding> {
    const CHECK: &str = "batching";
    let minor = match &facts.kubernetes_minor {
        Looked::Found(minor) => *minor,
        Looked::Hidden(why) => return vec![Finding::unknown(CHECK, why, "")],
    };
    let gate = |word: &str| word.contains("OpportunisticBatching=false");
    let is_off = facts.scheduler_pod.found().is_some_and(|pod| pod.command.iter().any(|word| gate(word)));
    if minor < BATCHING_SINCE || is_off {
        return vec![Finding::ok(CHECK, "equal pods are not placed in batches")];
    }
    let replicas = facts.replicas.found().into_iter().flatten();
    let metrics = replicas.filter_map(|replica| replica.metrics.found());
    let alone: f64 = metrics
        .map(|metrics| {
            metrics.sums.get("fpga_extender_single_node_filters_total").copied().unwrap_or_default()
        })
        .sum();
    vec![Finding::note(
        CHECK,
        format!(
            "Kubernetes 1.{minor} places equal pods in batches; {alone} filter calls so far had one node only"
        ),
        "Where a node takes one pod only, kube-scheduler may try its next one from a list up to 500 ms old, and asks \
         filter, not prioritize. Nothing is wrong with such placements but their order; \
         --feature-gates=OpportunisticBatching=false on kube-scheduler ends it.",
    )]
}
