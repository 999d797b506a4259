use super::*;
use crate::doctor::facts::{
    Certificate, Collectors, FpgaPod, Labelling, Metrics, Node, Replica, Right, SchedulerPod, State,
};
use crate::doctor::finding::Severity;
use crate::doctor::scheduler_config::SchedulerConfig;
use fpga_core::node_state::NodeState;
use serde_json::json;

const SHIPPED: &str = "kind: KubeSchedulerConfiguration
percentageOfNodesToScore: 10
extenders:
- urlPrefix: http://127.0.0.1:9461
  filterVerb: filter
  prioritizeVerb: prioritize
  preemptVerb: preempt
  weight: 10
  nodeCacheCapable: true
  httpTimeout: 1s
  managedResources:
  - name: fpga-scheduling.io/accelerated
    ignoredByScheduler: true
";

fn mk_state() -> NodeState {
    serde_json::from_value(json!({
        "boot": 1, "seq": 1, "heartbeatMs": 60_000, "measuredAtMs": 1_000_000, "windowMs": 300_000, "usageMs": 0,
        "reconfigurationMs": 0, "devices": [{"id": "dm0", "slots": 4, "healthy": true}], "window": {"bucketMs": 1},
    }))
    .unwrap()
}

fn mk_node(name: &str) -> Node {
    let state = State::Known(Box::new(mk_state()));
    Node { name: name.into(), labelled: true, state, written_at_ms: Some(1_002_000) }
}

fn mk_replica(name: &str) -> Replica {
    let view = json!([{"name": "n1", "freshness": "fresh", "source": "stream"},
                      {"name": "n2", "freshness": "fresh", "source": "stream"}]);
    Replica {
        name: name.into(),
        ready: true,
        config: Looked::Found(mk_config("1-2-2", "on")),
        nodes: Looked::Found(serde_json::from_value(view).unwrap()),
        metrics: Looked::Found(Metrics::default()),
        version: Some(env!("CARGO_PKG_VERSION").into()),
    }
}

fn mk_config(weights: &str, anti_herd: &str) -> crate::answers::ConfigView {
    let weights: Vec<f64> = weights.split('-').map(|weight| weight.parse().unwrap()).collect();
    serde_json::from_value(json!({"policy": {
        "weights": {"locality": weights[0], "usage": weights[1], "reconfiguration": weights[2]},
        "max_score": 10, "anti_herd": anti_herd, "schedulerWeight": 10,
    }}))
    .unwrap()
}

/// Some day.
const NOW: i64 = 1_800_000_000;

fn mk_collectors(ready_on: &[&str]) -> Collectors {
    let ready_on = ready_on.iter().map(|node| (*node).to_owned()).collect();
    Collectors { ready_on, labelling: Labelling::ByPeople }
}

/// A cluster in which all is well.
fn mk_facts() -> Facts {
    let pod = FpgaPod { name: "d/p".into(), pending: false, requests_resource: true, narrowed: true };
    let right = Right {
        who: "extender".into(),
        verb: "list",
        resource: "nodes",
        allowed: true,
        needed_for: "It knows nothing.",
    };
    Facts {
        now: NOW,
        kubernetes_minor: Looked::Found(34),
        config: Looked::Found(("file".into(), SchedulerConfig::parse(SHIPPED).unwrap())),
        scheduler_pod: Looked::Found(SchedulerPod {
            name: "kube-scheduler-cp".into(),
            host_network: true,
            dns_policy: "ClusterFirst".into(),
            command: vec!["kube-scheduler".into(), "--config=/x".into()],
        }),
        replicas: Looked::Found(vec![mk_replica("a"), mk_replica("b")]),
        nodes: Looked::Found(vec![mk_node("n1"), mk_node("n2")]),
        pods: Looked::Found(vec![pod]),
        collectors: Looked::Found(mk_collectors(&["n1", "n2"])),
        rights: Looked::Found(vec![right]),
    }
}

fn with_config(from: &str, to: &str) -> Facts {
    assert!(SHIPPED.contains(from));
    let config = SchedulerConfig::parse(&SHIPPED.replace(from, to)).unwrap();
    Facts { config: Looked::Found(("file".into(), config)), ..mk_facts() }
}

fn with_replicas(change: impl Fn(usize, &mut Replica)) -> Facts {
    let mut replicas = vec![mk_replica("a"), mk_replica("b")];
    replicas.iter_mut().enumerate().for_each(|(place, replica)| change(place, replica));
    Facts { replicas: Looked::Found(replicas), ..mk_facts() }
}

fn with_node(change: impl Fn(&mut Node)) -> Facts {
    let mut bad = mk_node("n1");
    change(&mut bad);
    Facts { nodes: Looked::Found(vec![bad, mk_node("n2")]), ..mk_facts() }
}

/// Exactly one finding of `check` is as bad, says `what`, and says how to mend it; and no other check has anything to say.
#[track_caller]
fn only(facts: &Facts, severity: Severity, check: &str, what: &str) {
    let bad: Vec<Finding> =
        run(facts).into_iter().filter(|finding| finding.severity > Severity::Ok).collect();
    let [finding] = bad.as_slice() else { panic!("not one finding: {bad:#?}") };
    assert_eq!((finding.severity, finding.check), (severity, check), "{finding:#?}");
    assert!(finding.what.contains(what), "{finding:#?} has no {what}");
    assert!(!finding.why.is_empty());
    assert!(!finding.mend.is_empty() || severity < Severity::Warning, "{finding:#?}");
}

#[test]
fn where_all_is_well_nothing_is_found() {
    let findings = run(&mk_facts());
    assert!(findings.iter().all(|finding| finding.severity == Severity::Ok), "{findings:#?}");
    assert_eq!(findings.len(), ALL.len() + 1, "every check says that it looked: {findings:#?}");
}

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
        &with_config("ignoredByScheduler: true", "ignoredByScheduler: false"),
        Severity::Problem,
        check,
        "is not true",
    );
    only(
        &with_config("fpga-scheduling.io/accelerated", "example.com/gpu"),
        Severity::Problem,
        check,
        "managedResources has no",
    );
    let all = with_config("managedResources", "others");
    only(&all, Severity::Problem, check, "no managedResources, and ignorable is false");
    let pod = FpgaPod { name: "d/q".into(), narrowed: true, ..FpgaPod::default() };
    only(
        &Facts { pods: Looked::Found(vec![pod]), ..mk_facts() },
        Severity::Problem,
        check,
        "without the resource",
    );
    only(&with_config("  weight", "  ignorable: true\n  weight"), Severity::Note, check, "ignorable is true");
}

#[test]
fn pods_that_sampling_may_miss_are_found_in_large_clusters_only() {
    let pod = FpgaPod { name: "d/q".into(), requests_resource: true, ..FpgaPod::default() };
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
fn an_extender_that_is_away_or_alone_or_behind_is_found() {
    only(
        &with_replicas(|place, replica| replica.ready = place > 0),
        Severity::Problem,
        "replicas",
        "a is not ready",
    );
    let silent = |place: usize, replica: &mut Replica| {
        if place == 0 {
            replica.nodes = Looked::Hidden("connection refused".into());
            replica.config = Looked::Hidden("connection refused".into());
        }
    };
    only(&with_replicas(silent), Severity::Problem, "replicas", "a does not answer");
    only(
        &Facts { replicas: Looked::Found(vec![mk_replica("a")]), ..mk_facts() },
        Severity::Warning,
        "replicas",
        "one replica",
    );
    let other = |_: usize, replica: &mut Replica| replica.version = Some("0.0.9".into());
    only(&with_replicas(other), Severity::Warning, "replicas", "version 0.0.9");
    let gone = Facts { replicas: Looked::Hidden("no Service".into()), ..mk_facts() };
    let findings = run(&gone);
    assert!(
        findings.iter().any(|finding| finding.check == "replicas" && finding.severity == Severity::Problem)
    );
}

#[test]
fn replicas_that_disagree_are_found() {
    let weights = |place: usize, replica: &mut Replica| {
        if place == 1 {
            replica.config = Looked::Found(mk_config("1-2-3", "on"));
        }
    };
    only(&with_replicas(weights), Severity::Problem, "agreement", "a and b go by different rules");
    let blind = |place: usize, replica: &mut Replica| {
        if let (1, Looked::Found(nodes)) = (place, &mut replica.nodes) {
            nodes[0].freshness = "stale".into();
        }
    };
    only(&with_replicas(blind), Severity::Warning, "agreement", "n1");
    let fewer = |place: usize, replica: &mut Replica| {
        if let (1, Looked::Found(nodes)) = (place, &mut replica.nodes) {
            nodes.truncate(1);
        }
    };
    only(&with_replicas(fewer), Severity::Warning, "agreement", "different numbers");
    let broken = |place: usize, replica: &mut Replica| {
        if let (0, Looked::Found(config)) = (place, &mut replica.config) {
            config.file = serde_json::from_value(
                json!({"path": "/etc/weights.yaml", "problem": {"line": 3, "text": "no number"}}),
            )
            .unwrap();
        }
    };
    only(
        &with_replicas(broken),
        Severity::Problem,
        "agreement",
        "can't take its configuration file /etc/weights.yaml",
    );
}

#[test]
fn weights_that_let_pods_herd_are_found() {
    let rules = |weights: &'static str, anti_herd: &'static str| {
        with_replicas(move |_, replica| replica.config = Looked::Found(mk_config(weights, anti_herd)))
    };
    only(&rules("4-2-2", "on"), Severity::Problem, "herd", "usage and reconfiguration together 4");
    only(&rules("3-2-2", "on"), Severity::Warning, "herd", "locality counts 3, usage 2");
    only(&rules("1-2-2", "off"), Severity::Warning, "herd", "anti-herd is off");
    assert!(run(&rules("0-0-0", "on")).iter().all(|finding| finding.severity == Severity::Ok));
}

#[test]
fn errors_that_nobody_would_see_are_found() {
    let facts = with_replicas(|place, replica| {
        if place == 0 {
            let sums = [("fpga_extender_errors_total".to_owned(), 3.0)].into();
            replica.metrics = Looked::Found(Metrics { sums, ..Metrics::default() });
        }
    });
    only(&facts, Severity::Warning, "errors", "a: 3 requests");
}

#[test]
fn certificates_that_end_are_found_before_they_do() {
    let ends_in = |days: i64, port: &'static str, which: &'static str| {
        with_replicas(move |_, replica| {
            let expires = NOW + days * 86_400;
            let certificate = Certificate { port: port.into(), which: which.into(), expires };
            let certificates = vec![certificate];
            replica.metrics = Looked::Found(Metrics { certificates, ..Metrics::default() });
        })
    };
    let check = "certificates";
    only(&ends_in(-3, "http", "own"), Severity::Problem, check, "of the http port of b ended 3 days ago");
    only(&ends_in(0, "http", "client_ca"), Severity::Problem, check, "an authority for clients");
    only(&ends_in(20, "stream", "own"), Severity::Warning, check, "ends in 20 days");
    only(&ends_in(1, "stream", "client_ca"), Severity::Warning, check, "ends in 1 days");
    let fine = run(&ends_in(21, "stream", "own"));
    let told = fine.iter().find(|finding| finding.check == check).unwrap();
    assert_eq!((told.severity, told.what.as_str()), (Severity::Ok, "the first of 1 ends in 21 days"));
}

#[test]
fn collectors_that_do_not_stream_are_found_with_what_they_were_refused_for() {
    let sources = |sources: [&'static str; 2], refused: &'static [(&'static str, f64)]| {
        with_replicas(move |place, replica| {
            if let Looked::Found(nodes) = &mut replica.nodes {
                for (node, source) in nodes.iter_mut().zip(sources) {
                    node.source = source.into();
                }
            }
            if place == 0 {
                let refused_streams =
                    refused.iter().map(|(reason, count)| ((*reason).to_owned(), *count)).collect();
                replica.metrics = Looked::Found(Metrics { refused_streams, ..Metrics::default() });
            }
        })
    };
    let (check, both) = ("streams", ["stream", "stream"]);
    only(&sources(["watched", "stream"], &[]), Severity::Warning, check, "to every replica: n1");
    for (reason, hint) in [
        ("token", "Kubernetes 1.32"),
        ("other_node", "spec.nodeName"),
        ("not_ready", "tokenreviews"),
        ("unknown_node", "kubectl get nodes"),
        ("other_uid", "made anew"),
        ("introduction", "same version"),
    ] {
        let refused: &'static [_] = Box::leak(Box::new([(reason, 2.0)]));
        let facts = sources(["watched", "watched"], refused);
        only(&facts, Severity::Warning, check, "to every replica: n1, n2");
        let finding = streams::streams(&facts).remove(0);
        assert!(
            finding.why.contains("Refused since the start: 2 ") && finding.mend.contains(hint),
            "{finding:#?}"
        );
    }
    only(&sources(both, &[("token", 1.0)]), Severity::Note, check, "streams were refused: 1 for want");
    only(&sources(["watched", "watched"], &[]), Severity::Note, check, "no collector streams");
    // A collector that restarts is no news.
    let restarted = run(&sources(both, &[("replaced", 3.0), ("silent", 2.0)]));
    assert!(restarted.iter().all(|finding| finding.severity == Severity::Ok), "{restarted:#?}");
    // One replica that a collector doesn't reach is enough.
    let one = with_replicas(|place, replica| {
        if let (1, Looked::Found(nodes)) = (place, &mut replica.nodes) {
            nodes[1].source = "watched".into();
        }
    });
    only(&one, Severity::Warning, check, "to every replica: n2");
}

#[test]
fn nodes_that_can_not_be_judged_are_found() {
    let check = "node states";
    only(&with_node(|node| node.state = State::Absent), Severity::Problem, check, "without a state: n1");
    only(
        &with_node(|node| node.state = State::Unreadable("x".into())),
        Severity::Problem,
        check,
        "can't be read: n1",
    );
    let unlabelled = with_node(|node| node.labelled = false);
    only(&unlabelled, Severity::Problem, check, "without the label");
    let mend = |facts: &Facts| nodes::states(facts).remove(0).mend;
    assert!(mend(&unlabelled).starts_with("kubectl label node"));
    let told = Collectors { labelling: Labelling::ByCollectors, ..mk_collectors(&["n1", "n2"]) };
    let told = Facts { collectors: Looked::Found(told), ..unlabelled };
    assert!(mend(&told).contains("overlays/label-node") && mend(&told).contains("and don't"));
    let no_board = |node: &mut Node| {
        node.state = State::Known(Box::new(NodeState { devices: Vec::new(), ..mk_state() }));
    };
    only(&with_node(no_board), Severity::Problem, check, "knows of no board: n1");
    let sick = |node: &mut Node| {
        let mut state = mk_state();
        state.devices[0].health = fpga_core::device::Health::Unhealthy;
        node.state = State::Known(Box::new(state));
    };
    only(&with_node(sick), Severity::Problem, check, "doesn't answer: n1");
    let stale = |_: usize, replica: &mut Replica| {
        if let Looked::Found(nodes) = &mut replica.nodes {
            nodes[0].freshness = "stale".into();
        }
    };
    only(&with_replicas(stale), Severity::Problem, check, "silent for three heartbeats: n1");
    let truncated =
        |node: &mut Node| node.state = State::Known(Box::new(NodeState { truncated: 2, ..mk_state() }));
    only(&with_node(truncated), Severity::Note, check, "4 KiB: n1");
    let none =
        Facts { nodes: Looked::Found(vec![Node { name: "x".into(), ..Node::default() }]), ..mk_facts() };
    only(&none, Severity::Warning, check, "no node has a board");
}

#[test]
fn labelled_nodes_without_a_collector_are_found() {
    let missing = Facts { collectors: Looked::Found(mk_collectors(&["n2"])), ..mk_facts() };
    only(&missing, Severity::Note, "collectors", "without a collector's pod: n1");
    let silent = Facts {
        replicas: with_replicas(|_, replica| {
            if let Looked::Found(nodes) = &mut replica.nodes {
                nodes[0].freshness = "absent".into();
            }
        })
        .replicas,
        ..missing
    };
    only(&silent, Severity::Problem, "collectors", "without a collector that is ready: n1");
}

#[test]
fn clocks_that_go_wrong_are_found() {
    only(
        &with_node(|node| node.written_at_ms = Some(940_000)),
        Severity::Warning,
        "clocks",
        "n1 (60 s ahead)",
    );
    only(
        &with_node(|node| node.written_at_ms = Some(1_100_000)),
        Severity::Warning,
        "clocks",
        "n1 (100 s behind)",
    );
}

#[test]
fn rights_that_are_missing_are_found() {
    let right = Right {
        who: "collector".into(),
        verb: "patch",
        resource: "nodes",
        allowed: false,
        needed_for: "No node state is ever published.",
    };
    only(
        &Facts { rights: Looked::Found(vec![right]), ..mk_facts() },
        Severity::Problem,
        "rights",
        "may not patch nodes",
    );
    only(
        &Facts { rights: Looked::Hidden("forbidden".into()), ..mk_facts() },
        Severity::Unknown,
        "rights",
        "could not",
    );
}
