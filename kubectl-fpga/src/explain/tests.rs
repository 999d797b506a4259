use super::*;
use serde_json::json;

fn explanation(at: u64, scores: &[(&str, u32)]) -> Explanation {
    let nodes = scores.iter().map(|(node, score)| {
        json!({
            "node": node, "source": "stream", "score": score, "freshness": "fresh", "capped": "no", "mean": 0.5,
            "locality": {"value": 1.0, "basis": "measured"}, "usage": {"value": 0.25, "basis": "measured"},
            "queue": {"value": 0.0, "basis": "unweighted"},
            "measured": {"usageMs": 9000, "reconfigurationMs": 12, "ageMs": 300, "freeSlots": 2},
            "expected": {"usageMs": 4000, "pods": 1.5},
        })
    });
    let nodes: Vec<_> = nodes.collect();
    serde_json::from_value(json!({
        "rules": {"weights": {"locality": 1.0, "usage": 2.0, "queue": 0.0}, "max_score": 10, "stale": {}, "anti_herd": "on"},
        "namespace": "d", "name": "p", "uid": "u",
        "requirement": {"vendor": "intel", "board": null, "platform": "PoCL", "slots": 1, "boards": 2, "max_utilization": 900, "bitstreams": ["sobel"], "loaded": ["mm"]},
        "filter": {"atMs": at - 1, "nodes": [
            {"node": "n8", "source": "none", "rejection": "cordoned", "cordons": ["board dm0 is cordoned: fan is loud"]},
            {"node": "n9", "source": "none", "rejection": "board"}, {"node": "n1", "source": "stream", "rejection": null}]},
        "prioritize": {"atMs": at, "nodes": nodes},
    }))
    .unwrap()
}

fn text(node: Option<&str>, scores: &[(&str, u32)]) -> String {
    let told = Told { replica: "r1".into(), explanation: explanation(1_760_000_000_000, scores) };
    let (namespace, pod, others) = ("d".into(), "p".into(), BTreeMap::new());
    let placed = Placed {
        uid: Some("u".to_owned()),
        waits: node.is_none().then(|| "0/1 nodes are available".to_owned()),
        node: node.map(str::to_owned),
        boards: node.map(|_| "dm0,dm1".to_owned()),
        boards_reason: node
            .map(|_| "main: dm0 (bitstream loaded, 1 % used, 0 containers)\nside: dm1".to_owned()),
    };
    Explained { namespace, pod, placed, told, others }.text(false, Colours::Off)
}

#[test]
fn every_term_is_shown_in_the_final_order_and_who_could_outvote_us() {
    let text = text(Some("n1"), &[("n2", 3), ("n1", 9)]);
    for part in [
        "asks for   vendor intel, platform PoCL, 2 boards, boards used for 90 % at most, 1 slots at least, bitstreams sobel, loaded bitstreams mm",
        "decided    2025-10-09T08:53:20.000Z by r1",
        "is on      n1, boards dm0,dm1\n    main: dm0 (bitstream loaded, 1 % used, 0 containers)\n    side: dm1\n",
        "1 of 3 nodes passed",
        "board: n9",
        "cordoned: n8\n             n8: board dm0 is cordoned: fan is loud\n",
        "LOCALITY×1  USAGE×2",
        "→  n1    9      1.00        0.25     9s used, 12ms reconf  +4s of 1.5 pods  300ms  stream",
        "one score is worth 100 (weight 10): ours count up to 1000, its default plugins up to 1200, so that they can outvote us by 200",
        "Our best is n1, 600 points ahead of the next",
        "The pod is on n1: one of our best.",
    ] {
        assert!(text.contains(part), "{text}\nhas no {part}");
    }
    assert!(!text.contains("QUEUE"), "a signal without weight is left out");
    assert!(text.find("n1    9") < text.find("n2    3"));
}

#[test]
fn a_pod_that_is_elsewhere_is_told_how_far_behind_it_is() {
    assert!(text(Some("n2"), &[("n2", 3), ("n1", 9)]).contains("600 points behind our best"));
    assert!(text(Some("n7"), &[("n2", 3), ("n1", 9)]).contains("not among the candidates"));
    assert!(text(None, &[("n2", 9), ("n1", 9)]).contains("All nodes have the same score"));
    assert!(
        text(None, &[("n2", 9), ("n1", 9), ("n3", 8)]).contains("2 nodes are our best, 100 points ahead")
    );
}

#[test]
fn the_latest_of_all_replicas_is_told() {
    let said = |replica: &str, answer| Answered { replica: replica.to_owned(), answer };
    let silent = || Problem::Silent { part: Part::Extender, replica: "c".into(), error: "x".into() };
    let answers = vec![
        said("a", Ok(Some(explanation(5, &[])))),
        said("b", Ok(Some(explanation(9, &[])))),
        said("c", Err(silent())),
        said("d", Ok(None)),
    ];
    let (told, others, problems) = latest(answers, None).unwrap();
    assert_eq!((told.unwrap().replica.as_str(), others["a"], problems.len()), ("b", 5, 1));
    assert!(latest(vec![said("c", Err(silent()))], None).is_err());
    assert!(latest(vec![said("d", Ok(None)), said("c", Err(silent()))], None).unwrap().0.is_none());
}

#[test]
fn a_pod_is_named_in_the_ways_that_kubectl_knows() {
    let arg = |namespace: Option<&str>, name: &str| {
        Ok(PodArg { namespace: namespace.map(str::to_owned), name: name.to_owned() })
    };
    assert_eq!(pod("a/b"), arg(Some("a"), "b"));
    assert_eq!(pod("b"), arg(None, "b"));
    assert_eq!(pod("pod/b"), arg(None, "b"));
    for bad in ["", "a/", "/b", "a/b/c", "a b", "../x"] {
        assert!(pod(bad).is_err(), "{bad}");
    }
}

#[test]
fn what_is_wrong_with_a_pods_wishes_is_told_instead_of_them() {
    let mut explanation = explanation(1_760_000_000_000, &[]);
    explanation.prioritize = None;
    explanation.problem = Some("annotation fpga-scheduling.io/slots: write a whole number".into());
    let told = Told { replica: "r1".into(), explanation };
    let (namespace, pod, others) = ("d".into(), "p".into(), BTreeMap::new());
    let text =
        Explained { namespace, pod, placed: Placed::default(), told, others }.text(false, Colours::Off);
    assert!(text.contains("can't be understood: annotation fpga-scheduling.io/slots: write"), "{text}");
    assert!(!text.contains("No scores"), "{text}");
}

#[test]
fn a_decision_about_an_earlier_pod_of_the_same_name_is_none() {
    let answers = || {
        let answer = Ok(Some(explanation(1_760_000_000_000, &[("n1", 1)])));
        vec![Answered { replica: "r1".to_owned(), answer }]
    };
    assert!(latest(answers(), Some("u")).unwrap().0.is_some());
    assert!(latest(answers(), Some("another")).unwrap().0.is_none());
    assert!(latest(answers(), None).unwrap().0.is_some(), "the API server does not tell");
}

#[test]
fn a_pod_that_kube_scheduler_itself_turned_away_is_told_so() {
    let waits = Some("0/1 nodes are available: 1 Insufficient fpga-scheduling.io/accelerated.".to_owned());
    let told = forgotten("d/p", Some(&Some(Placed { waits, ..Placed::default() })));
    for part in ["kube-scheduler says: 0/1 nodes", "kube-scheduler itself rejected all nodes", "instances"] {
        assert!(told.contains(part), "{told}");
    }
    assert!(!forgotten("d/p", Some(&None)).contains("rejected all nodes"));
}
