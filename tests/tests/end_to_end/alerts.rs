//! The chart's alerts, as Prometheus itself judges them: promtool checks the rules, and evaluates them over made-up series.

use fpga_tests::testbed::helm;
use fpga_tests::testbed::programs::repository;
use serde_json::{Value, json};
use std::path::Path;
use std::process::Command;

const ALERT: &str = "FpgaSchedulerHasNoLeader";
const LEASE: &str = r#"kube_lease_renew_time{namespace="kube-fpga",lease="kube-fpga-scheduler"}"#;

/// Runs promtool in this folder.
fn promtool(folder: &Path, arguments: &[&str]) {
    let program = repository().join("build/promtool/promtool");
    assert!(program.exists(), "{} is missing. Run `make promtool` (once)", program.display());
    let output = Command::new(program).args(arguments).current_dir(folder).output().unwrap();
    let said = [output.stdout, output.stderr].concat();
    assert!(output.status.success(), "promtool {arguments:?}: {}", String::from_utf8_lossy(&said));
}

/// The groups of rules of the chart's `PrometheusRule`: what a rule file of Prometheus has.
fn rules() -> Value {
    let object = helm::template("templates/alerts.yaml", &["monitoring.alerts=true"]).unwrap();
    let mut object: Value = serde_saphyr::from_str(&object).unwrap();
    object["spec"].take()
}

/// A test of the alert over these samples, one each 15 s; `None` for no series. It is silent at the first time and fires at
/// the second, with these labels besides its own.
fn test(samples: Option<&str>, silent_at: &str, fires: Option<(&str, Value)>, annotations: &Value) -> Value {
    let series: Vec<Value> =
        samples.into_iter().map(|samples| json!({"series": LEASE, "values": samples})).collect();
    let mut checks = vec![json!({"eval_time": silent_at, "alertname": ALERT})];
    checks.extend(fires.map(|(at, mut labels)| {
        labels["severity"] = json!("critical");
        let alert = json!({"exp_labels": labels, "exp_annotations": annotations});
        json!({"eval_time": at, "alertname": ALERT, "exp_alerts": [alert]})
    }));
    json!({"interval": "15s", "input_series": series, "alert_rule_test": checks})
}

#[test]
fn the_alert_for_no_leader_fires_when_nobody_renews_the_lease_and_is_silent_while_somebody_does() {
    let rules = rules();
    let annotations = &rules["groups"][0]["rules"][0]["annotations"];
    let of_lease = json!({"namespace": "kube-fpga", "lease": "kube-fpga-scheduler"});
    let tests = [
        // Renewed all the time, and by another replica after a pause of 45 s.
        test(Some("0+15x80"), "20m", None, annotations),
        test(Some("0+15x20 300 300 300 360+15x20"), "6m30s", None, annotations),
        test(Some("0+15x20 300 300 300 360+15x20"), "10m", None, annotations),
        // Renewed until 5 minutes, and then by nobody.
        test(Some("0+15x20 300x40"), "7m", Some(("7m30s", json!({}))), annotations),
        // There is no lease, or nobody tells Prometheus of leases.
        test(None, "45s", Some(("2m", of_lease)), annotations),
    ];
    let folder = tempfile::tempdir().unwrap();
    let file = json!({"rule_files": ["rules.yaml"], "evaluation_interval": "15s", "tests": tests});
    // YAML takes JSON.
    std::fs::write(folder.path().join("rules.yaml"), rules.to_string()).unwrap();
    std::fs::write(folder.path().join("tests.yaml"), file.to_string()).unwrap();
    promtool(folder.path(), &["check", "rules", "rules.yaml"]);
    promtool(folder.path(), &["test", "rules", "tests.yaml"]);
}
