//! Faults of the extender's replicas and of their certificates.

use super::*;

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
