//! Checks of kube-scheduler's configuration.

mod leader;
mod pods;
mod transport;

use crate::doctor::facts::{Facts, Looked, Reach};
use crate::doctor::finding::{Finding, Severity};
use crate::doctor::scheduler_config::{Extender, SchedulerConfig};
use fpga_core::names::ACCELERATED_RESOURCE;
pub use leader::leader;
pub use pods::{managed_resource, sampling, scheduler_name};
pub use transport::{dns, tls};

/// Minor version of Kubernetes since which equal pods may be placed in batches.
const BATCHING_SINCE: u32 = 35;

/// How kube-scheduler handles the resource by which pods ask for boards.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Resource {
    /// kube-scheduler ignores it; it only says which pods are sent to the extender.
    Ignored,
    /// kube-scheduler itself looks for nodes that advertise it.
    Advertised,
    /// kube-scheduler's configuration does not name it, or is unknown.
    Unknown,
}

impl Resource {
    /// As kube-scheduler's configuration has it.
    #[must_use]
    pub fn of(facts: &Facts) -> Self {
        let Some((_, extender)) = ours(facts) else { return Self::Unknown };
        let named = extender.managed().iter().find(|resource| resource.name == ACCELERATED_RESOURCE);
        named.map_or(
            Self::Unknown,
            |named| if named.ignored_by_scheduler { Self::Ignored } else { Self::Advertised },
        )
    }
}

fn ours(facts: &Facts) -> Option<(&SchedulerConfig, &Extender)> {
    let (_, config) = facts.config.found()?;
    Some((config, config.ours()?))
}

/// Whether kube-scheduler's configuration names the extender.
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

/// Whether the extender answers at the URL in kube-scheduler's configuration.
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

/// Whether filter, prioritize and preempt are configured, and bind is not.
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

/// Whether the extender's scores can prevail over the scores of kube-scheduler's plugins.
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
    // A wrong `--scheduler-weight` is worth a warning only if the weight itself is right.
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

/// Whether requests carry node names instead of whole nodes.
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

/// Whether the timeout of a call is short.
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

/// Whether equal pods may be placed in batches.
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
