//! Faults of kube-scheduler's configuration and pod.

use super::*;
use crate::doctor::checks::scheduler;
use std::collections::BTreeSet;

#[test]
fn a_weight_that_plugins_outvote_is_found() {
    only(
        &with_config("weight: 10", "weight: 4"),
        Severity::Problem,
        "weight",
        "at most 400 points, kube-scheduler's plugins 1200",
    );
    only(&with_config("weight: 10", "weight: 5"), Severity::Warning, "weight", "at most 500 points");
    let mend = &scheduler::weight(&with_config("weight: 10", "weight: 1"))[0].mend;
    assert!(mend.contains("to 10 or more"), "{mend}");
}

#[test]
fn an_extender_that_was_told_another_weight_is_found() {
    only(
        &with_config("weight: 10", "weight: 12"),
        Severity::Warning,
        "weight",
        "told that its weight is 10, and it is 12",
    );
}

#[test]
fn a_scheduler_that_knows_of_no_extender_is_found() {
    only(&with_config("extenders:", "others:"), Severity::Problem, "wiring", "names no extender of ours");
    let pod = SchedulerPod {
        command: vec!["kube-scheduler".into(), "--kubeconfig=/x".into()],
        ..SchedulerPod::default()
    };
    let facts = Facts { config: Looked::Hidden("x".into()), scheduler_pod: Looked::Found(pod), ..mk_facts() };
    only(&facts, Severity::Problem, "wiring", "without --config");
    let facts = Facts { config: Looked::Hidden("no ConfigMap".into()), ..mk_facts() };
    only(&facts, Severity::Unknown, "wiring", "could not be checked");
}

#[test]
fn missing_and_wrong_verbs_are_found() {
    only(&with_config("  preemptVerb: preempt\n", ""), Severity::Problem, "verbs", "preemptVerb is not set");
    only(
        &with_config("  weight", "  bindVerb: bind\n  weight"),
        Severity::Problem,
        "verbs",
        "bindVerb is set",
    );
}

#[test]
fn tls_that_protects_nothing_is_found() {
    let https = |more: &str| with_config("http://127.0.0.1:9461", &format!("https://127.0.0.1:9461{more}"));
    only(&https("\n  enableHTTPS: true"), Severity::Problem, "tls", "https without tlsConfig.caData");
    only(&https(""), Severity::Problem, "tls", "https without tlsConfig.caData");
    only(&https("\n  tlsConfig: {insecure: true}"), Severity::Problem, "tls", "insecure is true");
    only(
        &with_config("  weight", "  enableHTTPS: true\n  weight"),
        Severity::Problem,
        "tls",
        "begins with http://",
    );
    only(&with_config("127.0.0.1", "10.0.0.7"), Severity::Warning, "tls", "plain http to 10.0.0.7");
    let fine = run(&https("\n  tlsConfig: {caData: QQ==}"));
    assert!(fine.iter().all(|finding| finding.severity == Severity::Ok), "{fine:#?}");
}

#[test]
fn a_service_name_that_the_scheduler_can_not_resolve_is_found() {
    let name = "https://fpga-scheduler-extender.kube-fpga.svc:9461\n  tlsConfig: {caData: QQ==}";
    let facts = with_config("http://127.0.0.1:9461", name);
    only(&facts, Severity::Problem, "dns", "has dnsPolicy ClusterFirst");
    let pod = SchedulerPod {
        host_network: true,
        dns_policy: "ClusterFirstWithHostNet".into(),
        ..SchedulerPod::default()
    };
    let fine = run(&Facts { scheduler_pod: Looked::Found(pod), ..facts.clone() });
    assert!(fine.iter().all(|finding| finding.severity == Severity::Ok), "{fine:#?}");
    only(
        &Facts { scheduler_pod: Looked::Hidden("x".into()), ..facts },
        Severity::Unknown,
        "dns",
        "could not",
    );
    only(&with_config("http://127.0.0.1:9461", "/fpga"), Severity::Problem, "dns", "is no URL");
}

#[test]
fn whole_nodes_and_long_calls_are_found() {
    only(
        &with_config("nodeCacheCapable: true", "nodeCacheCapable: false"),
        Severity::Warning,
        "cache mode",
        "whole nodes",
    );
    only(&with_config("  httpTimeout: 1s\n", ""), Severity::Warning, "timeout", "5 s by default");
    only(&with_config("httpTimeout: 1s", "httpTimeout: soon"), Severity::Problem, "timeout", "no duration");
}

#[test]
fn pods_that_are_not_sent_or_never_fit_are_found() {
    let check = "managed resource";
    only(
        &with_config("fpga-scheduling.io/accelerated", "example.com/gpu"),
        Severity::Problem,
        check,
        "managedResources has no",
    );
    let all = with_config("managedResources", "others");
    only(&all, Severity::Problem, check, "no managedResources, and ignorable is false");
    let pod = FpgaPod { resources: BTreeSet::new(), ..mk_pod("d/q") };
    only(
        &Facts { pods: Looked::Found(vec![pod]), ..mk_facts() },
        Severity::Problem,
        check,
        "without the resource",
    );
    only(&with_config("  weight", "  ignorable: true\n  weight"), Severity::Note, check, "ignorable is true");
}

#[test]
fn pods_whose_scheduler_does_not_ask_are_found() {
    let check = "scheduler name";
    let own = with_config("extenders:", "profiles: [{schedulerName: kube-fpga}]\nextenders:");
    only(&own, Severity::Problem, check, "d/p (default-scheduler)");
    let [finding] = scheduler::scheduler_name(&own).try_into().unwrap();
    assert!(
        finding.why.contains("stay Pending") && finding.mend.contains("`schedulerName: kube-fpga`"),
        "{finding:#?}"
    );

    let pods = |pods: Vec<FpgaPod>| Facts { pods: Looked::Found(pods), ..own.clone() };
    let ours = FpgaPod { scheduler: "kube-fpga".into(), ..mk_pod("d/q") };
    let fine = run(&pods(vec![ours.clone()]));
    assert!(fine.iter().all(|finding| finding.severity == Severity::Ok), "{fine:#?}");
    let placed = FpgaPod { resources: BTreeSet::new(), ..mk_pod("d/r") };
    let found = scheduler::scheduler_name(&pods(vec![placed, mk_pod("d/p"), ours.clone()]));
    let [waiting, anywhere] = found.as_slice() else { panic!("{found:#?}") };
    assert!(waiting.what.contains("d/p") && !waiting.what.contains("d/q"), "{waiting:#?}");
    assert!(anywhere.what.contains("d/r") && anywhere.why.contains("go anywhere"), "{anywhere:#?}");

    // The cluster's own kube-scheduler has the extender in its configuration, and the manifests' own runs as well.
    let both = Facts {
        own_schedulers: vec!["kube-fpga".into()],
        pods: Looked::Found(vec![mk_pod("d/p"), ours]),
        ..mk_facts()
    };
    assert_eq!(scheduler::scheduler_name(&both)[0].severity, Severity::Ok);
    // An extender that requires client certificates is meant for the cluster's own kube-scheduler.
    let mut mtls = own;
    let authority =
        Certificate { port: "http".into(), which: "client_ca".into(), expires: NOW + 90 * 86_400 };
    let metrics = Metrics { certificates: vec![authority], ..Metrics::default() };
    mtls.replicas = Looked::Found(
        ["a", "b"].map(|name| Replica { metrics: Looked::Found(metrics.clone()), ..mk_replica(name) }).into(),
    );
    assert_eq!(scheduler::scheduler_name(&mtls)[0].severity, Severity::Ok);
}

#[test]
fn what_becomes_of_pods_whose_scheduler_does_not_ask_depends_on_what_nodes_offer() {
    let own = Facts {
        config: with_config("extenders:", "profiles: [{schedulerName: kube-fpga}]\nextenders:").config,
        ..mk_facts()
    };
    let why = |nodes: Looked<Vec<Node>>| {
        let [finding] = scheduler::scheduler_name(&Facts { nodes, ..own.clone() }).try_into().unwrap();
        finding.why
    };
    let offered = why(mk_advertising().nodes);
    assert!(offered.contains("go to any node") && !offered.contains("Pending"), "{offered}");
    let missing = why(mk_facts().nodes);
    assert!(missing.contains("stay Pending") && !missing.contains("any node that"), "{missing}");
    let unknown = why(Looked::Hidden("forbidden".into()));
    assert!(unknown.contains("go to any node") && unknown.contains("without such a node"), "{unknown}");
}

#[test]
fn a_pod_with_a_resource_that_no_node_plugin_offers_is_not_told_to_name_another_scheduler() {
    let own = with_config("extenders:", "profiles: [{schedulerName: kube-fpga}]\nextenders:");
    let xilinx = FpgaPod { resources: ["fpga-scheduling.io/xilinx".to_owned()].into(), ..mk_pod("d/q") };
    let facts = Facts { pods: Looked::Found(vec![xilinx]), ..own };
    only(&facts, Severity::Problem, "managed resource", "d/q (fpga-scheduling.io/xilinx)");
}

#[test]
fn pods_that_sampling_may_miss_are_found_in_large_clusters_only() {
    let pod = FpgaPod { narrowed: false, ..mk_pod("d/q") };
    let small = Facts { pods: Looked::Found(vec![pod]), ..mk_facts() };
    assert!(sampling_of(&small).severity == Severity::Ok);
    let mut nodes = vec![mk_node("n1"), mk_node("n2")];
    nodes.extend((0..200).map(|number| Node { name: format!("plain{number}"), ..Node::default() }));
    let large = Facts { nodes: Looked::Found(nodes), ..small };
    only(&large, Severity::Problem, "sampling", "d/q");
    let all = Facts { config: sampled_at(100), ..large };
    assert!(sampling_of(&all).severity == Severity::Ok);
}

#[test]
fn decisions_that_see_a_part_of_the_boards_are_noted() {
    let with = |boards: usize, percentage: u32| Facts {
        nodes: Looked::Found(
            (0..1_000)
                .map(|number| Node { labelled: number < boards, ..mk_node(&format!("n{number}")) })
                .collect(),
        ),
        config: sampled_at(percentage),
        ..mk_facts()
    };
    let seen = |boards, percentage| {
        let finding = sampling_of(&with(boards, percentage));
        (finding.severity, finding.what)
    };
    assert_eq!(seen(100, 10).0, Severity::Ok);
    assert_eq!(seen(101, 1), (Severity::Note, "a decision sees 100 of the 101 nodes with boards".to_owned()));
    assert_eq!(seen(420, 0).0, Severity::Ok, "0 is what kube-scheduler makes of the number");
    assert_eq!(seen(421, 0), (Severity::Note, "a decision sees 420 of the 421 nodes with boards".to_owned()));
    assert_eq!(seen(1_000, 100).0, Severity::Ok);
}

#[test]
fn a_profile_without_percentage_has_the_common_one_and_zero_is_adapted_to_the_number_of_nodes() {
    let common = "percentageOfNodesToScore: 10\n";
    let nodes: Vec<Node> = (0..1_000).map(|number| mk_node(&format!("n{number}"))).collect();
    for (text, sample) in [
        ("percentageOfNodesToScore: 20\nprofiles: []\n", 200),
        ("percentageOfNodesToScore: 10\nprofiles: [{percentageOfNodesToScore: 60}]\n", 600),
        // The profile without a percentage sees the fewest nodes.
        ("percentageOfNodesToScore: 20\nprofiles: [{percentageOfNodesToScore: 60}, {}]\n", 200),
        ("profiles: [{percentageOfNodesToScore: 60}, {}]\n", 420),
        // The 0 of a profile is adapted, whatever the common percentage is.
        ("percentageOfNodesToScore: 20\nprofiles: [{percentageOfNodesToScore: 0}]\n", 420),
        ("profiles: [{percentageOfNodesToScore: 0}, {percentageOfNodesToScore: 30}]\n", 300),
    ] {
        let facts = Facts { nodes: Looked::Found(nodes.clone()), ..with_config(common, text) };
        let expected = format!("a decision sees {sample} of the 1000 nodes with boards");
        assert_eq!(sampling_of(&facts).what, expected, "{text}");
    }
}

/// The shipped configuration with another `percentageOfNodesToScore`.
fn sampled_at(percentage: u32) -> Looked<(String, SchedulerConfig)> {
    let Facts { config, .. } =
        with_config("percentageOfNodesToScore: 10\n", &format!("percentageOfNodesToScore: {percentage}\n"));
    config
}

fn sampling_of(facts: &Facts) -> Finding {
    scheduler::sampling(facts).remove(0)
}

#[test]
fn batches_of_equal_pods_are_noted() {
    let facts = Facts { kubernetes_minor: Looked::Found(36), ..mk_facts() };
    only(&facts, Severity::Note, "batching", "places equal pods in batches");
}

#[test]
fn a_url_that_nobody_answers_is_found() {
    let silent = Reach::Silent("http://127.0.0.1:9461 is the machine of kube-scheduler-cp itself".into());
    let facts = Facts { reach: Looked::Found(silent), ..mk_facts() };
    only(&facts, Severity::Problem, "reach", "is the machine of kube-scheduler-cp itself");
    let facts = Facts { reach: Looked::Hidden("it does not answer here".into()), ..mk_facts() };
    only(&facts, Severity::Unknown, "reach", "could not be checked");
}
