//! Faults where node plugins advertise boards, and of what is installed for that.

use super::*;
use crate::doctor::checks::scheduler::sampling;

fn with_advertising_node(change: impl Fn(&mut Node)) -> Facts {
    let mut facts = mk_advertising();
    if let Looked::Found(nodes) = &mut facts.nodes {
        change(&mut nodes[0]);
    }
    facts
}

#[test]
fn a_resource_that_nobody_advertises_and_one_that_is_ignored_though_advertised_are_found() {
    let check = "managed resource";
    let ignored = Facts { nodes: mk_advertising().nodes, ..mk_facts() };
    only(&ignored, Severity::Problem, check, "nodes advertise fpga-scheduling.io/accelerated: n1, n2");
    let mut nobody = Facts { nodes: mk_facts().nodes, ..mk_advertising() };
    for node in nobody.nodes.found().into_iter().flatten() {
        assert_eq!(node.advertised, 0);
    }
    // Without boards no plugin can advertise any.
    if let Looked::Found(nodes) = &mut nobody.nodes {
        nodes.iter_mut().for_each(|node| node.state = State::Absent);
    }
    let found = run(&nobody);
    let of_resource = found.iter().find(|finding| finding.check == check).unwrap();
    assert!(of_resource.severity == Severity::Problem && of_resource.what.contains("no node advertises it"));
}

#[test]
fn nodes_without_a_plugin_and_kubelets_that_offer_nothing_are_found() {
    let check = "node plugins";
    let one = |facts: Facts| Facts { plugins: Looked::Found(vec!["n2".into()]), ..facts };
    only(&one(mk_advertising()), Severity::Problem, check, "without a ready node plugin: n1");
    let tainted = one(with_advertising_node(|node| node.taints = vec!["gpu".into()]));
    let mend = &node_parts::plugins(&tainted)[0].mend;
    assert!(mend.contains("cover their taints: gpu?"), "{mend}");
    let silent = with_advertising_node(|node| node.advertised = 0);
    only(&silent, Severity::Problem, check, "offers no board, though a node plugin runs: n1");
    let hidden = Facts { plugins: Looked::Hidden("forbidden".into()), ..mk_advertising() };
    only(&hidden, Severity::Unknown, check, "could not");
}

#[test]
fn device_managers_that_nothing_bounds_or_that_do_not_run_are_found() {
    let with = |set: ManagerSet| Facts { managers: Looked::Found(vec![set]), ..mk_advertising() };
    let check = "device managers";
    let unbounded = ManagerSet { memory_limit: MemoryLimit::Missing, ..mk_managers() };
    only(&with(unbounded), Severity::Problem, check, "a10 has no limit of memory");
    let nowhere = ManagerSet { wanted: 0, ready: 0, ..mk_managers() };
    only(&with(nowhere), Severity::Warning, check, "runs on no node");
    let half = ManagerSet { ready: 1, ..mk_managers() };
    only(&with(half), Severity::Problem, check, "ready on 1 of 2 nodes");
}

#[test]
fn policies_that_are_not_in_force_and_pods_that_they_would_refuse_are_found() {
    let policy = Policy { name: "MutatingAdmissionPolicy kube-fpga-assign".into(), is_bound: false };
    let unbound = Facts { policies: Looked::Found(vec![policy]), ..mk_advertising() };
    only(
        &unbound,
        Severity::Problem,
        "policies",
        "without a binding: MutatingAdmissionPolicy kube-fpga-assign",
    );
    let with = |pod: FpgaPod| Facts { pods: Looked::Found(vec![pod]), ..mk_advertising() };
    let init = FpgaPod { at_init: true, ..mk_pod("d/q") };
    only(&with(init), Severity::Problem, "pods", "an ordinary init container asks for a board: d/q");
    let by_hand = FpgaPod { by_hand: true, ..mk_pod("d/q") };
    only(&with(by_hand.clone()), Severity::Warning, "pods", "set FPGA_DEVICE_MANAGERS: d/q");
    // Where no node plugin runs, this is the way.
    let alone = Facts { pods: Looked::Found(vec![by_hand]), ..mk_facts() };
    assert!(run(&alone).iter().all(|finding| finding.severity == Severity::Ok));
}

#[test]
fn several_leaders_and_none_are_found() {
    let check = "leader";
    let none = "leaderElection: {leaderElect: false}\nextenders:";
    only(&with_config("extenders:", none), Severity::Warning, check, "leaderElect is false");
    let with = |lease: Lease| Facts { lease: Looked::Found(Some(lease)), ..mk_advertising() };
    only(&with(Lease::default()), Severity::Problem, check, "has no leader");
    let silent = Lease { holder: Some("a".into()), renewed: NOW - 60, duration_s: 15 };
    only(&with(silent), Severity::Problem, check, "silent for 60 s");
}

#[test]
fn an_own_scheduler_that_was_told_no_size_of_the_cluster_is_found_where_boards_are_missed() {
    let nodes = (0..2_000).map(|number| Node {
        labelled: number < 250,
        advertised: 16 * u64::from(number < 250),
        ..mk_node(&format!("n{number}"))
    });
    let nodes: Vec<Node> = nodes.collect();
    let names = || (0..250).map(|number| format!("n{number}")).collect::<Vec<_>>();
    let named: Vec<String> = names();
    let named: Vec<&str> = named.iter().map(String::as_str).collect();
    let facts = Facts {
        nodes: Looked::Found(nodes),
        plugins: Looked::Found(names()),
        collectors: Looked::Found(mk_collectors(&named)),
        ..mk_advertising()
    };
    let [found] = sampling(&facts).try_into().unwrap();
    assert!(found.severity == Severity::Warning && found.what.contains("sees 200 of the 250"), "{found:#?}");
    assert!(found.mend.contains("2000"), "{found:#?}");
}
