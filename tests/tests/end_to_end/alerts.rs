//! The chart's alerts, as Prometheus itself judges them: promtool checks the rules, and evaluates them over made-up series.

use fpga_tests::testbed::helm;
use fpga_tests::testbed::prometheus::promtool;
use serde_json::{Value, json};

pub const LEASE: &str = r#"kube_lease_renew_time{namespace="kube-fpga",lease="kube-fpga-scheduler"}"#;

/// Parts of the chart that have alerts.
const PARTS: [&str; 7] =
    ["scheduler", "collector", "node-plugin", "device-manager", "router", "registry", "pool"];

/// The groups of all alerts of the chart, as a rule file of Prometheus has them.
pub fn rules() -> Value {
    let settings = ["monitoring.alerts", "router.enabled", "registry.enabled", "pool.enabled"];
    let settings = settings.map(|setting| format!("{setting}=true"));
    let settings = settings.each_ref().map(String::as_str);
    let groups: Vec<Value> =
        PARTS.iter().map(|part| Rules::of(part, &settings).0["groups"][0].take()).collect();
    json!({ "groups": groups })
}

/// The rules of a `PrometheusRule` of the chart.
struct Rules(Value);

/// What an alert does over series with samples each 15 s: it is silent at the first time and fires at the second, with these
/// labels besides its own and this text for its value.
struct Case<'c> {
    alert: &'c str,
    series: &'c [(&'c str, &'c str)],
    silent_at: &'c str,
    fires: Option<(&'c str, Value)>,
}

impl Rules {
    fn of(part: &str, settings: &[&str]) -> Self {
        let object = helm::template(&format!("templates/{part}/alerts.yaml"), settings).unwrap();
        let mut object: Value = serde_saphyr::from_str(&object).unwrap();
        // What a rule file of Prometheus has.
        Self(object["spec"].take())
    }

    fn rule(&self, alert: &str) -> &Value {
        let rules = self.0["groups"][0]["rules"].as_array().unwrap();
        rules.iter().find(|rule| rule["alert"] == alert).unwrap()
    }

    /// A test of promtool. Its texts are the rule's, with the values of labels filled in.
    fn test(&self, case: &Case<'_>) -> Value {
        let Case { alert, series, silent_at, fires } = case;
        let series: Vec<Value> =
            series.iter().map(|(series, samples)| json!({"series": series, "values": samples})).collect();
        let mut checks = vec![json!({"eval_time": silent_at, "alertname": alert})];
        let rule = self.rule(alert);
        checks.extend(fires.clone().map(|(at, mut labels)| {
            let mut texts = rule["annotations"].to_string();
            for (name, value) in labels.as_object().unwrap() {
                texts = texts.replace(&format!("{{{{ $labels.{name} }}}}"), value.as_str().unwrap());
            }
            let texts = texts.replace("{{ $value | humanizeDuration }}", "20m 0s");
            let texts: Value = serde_json::from_str(&texts).unwrap();
            labels["severity"] = rule["labels"]["severity"].clone();
            let alert = json!({"exp_labels": labels, "exp_annotations": texts});
            json!({"eval_time": at, "alertname": rule["alert"], "exp_alerts": [alert]})
        }));
        json!({"interval": "15s", "input_series": series, "alert_rule_test": checks})
    }

    fn hold(&self, cases: &[Case<'_>]) {
        let tests: Vec<Value> = cases.iter().map(|case| self.test(case)).collect();
        let folder = tempfile::tempdir().unwrap();
        let file = json!({"rule_files": ["rules.yaml"], "evaluation_interval": "15s", "tests": tests});
        // YAML takes JSON.
        std::fs::write(folder.path().join("rules.yaml"), self.0.to_string()).unwrap();
        std::fs::write(folder.path().join("tests.yaml"), file.to_string()).unwrap();
        promtool(folder.path(), &["check", "rules", "rules.yaml"]).unwrap();
        promtool(folder.path(), &["test", "rules", "tests.yaml"]).unwrap();
    }
}

#[test]
fn the_alert_for_no_leader_fires_when_nobody_renews_the_lease_and_is_silent_while_somebody_does() {
    let rules = Rules::of("scheduler", &["monitoring.alerts=true"]);
    let case =
        |series, silent_at, fires| Case { alert: "FpgaSchedulerHasNoLeader", series, silent_at, fires };
    let of_lease = json!({"namespace": "kube-fpga", "lease": "kube-fpga-scheduler"});
    rules.hold(&[
        // Renewed all the time, and by another replica after a pause of 45 s.
        case(&[(LEASE, "0+15x80")], "20m", None),
        case(&[(LEASE, "0+15x20 300 300 300 360+15x20")], "6m30s", None),
        case(&[(LEASE, "0+15x20 300 300 300 360+15x20")], "10m", None),
        // Renewed until 5 minutes, and then by nobody.
        case(&[(LEASE, "0+15x20 300x40")], "7m", Some(("7m30s", json!({})))),
        // There is no lease, or nobody tells Prometheus of leases.
        case(&[], "45s", Some(("2m", of_lease))),
    ]);
}

#[test]
fn each_alert_of_the_pool_fires_for_its_fault_and_is_silent_without_it() {
    const A: &str = r#"fpga_pool_active{pod="a"}"#;
    const B: &str = r#"fpga_pool_active{pod="b"}"#;
    const BAD: &str = r#"fpga_pool_slots{pod="a",board="u250",state="bad"}"#;
    const FREE: &str = r#"fpga_pool_slots{pod="a",board="u250",state="free"}"#;
    const WAIT: &str = r#"fpga_pool_longest_wait_seconds{pod="a"}"#;
    const MISSED: &str = r#"fpga_pool_groups{pod="a",tenant="team-a",goal="missed"}"#;
    const KEPT: &str = r#"fpga_pool_groups{pod="a",tenant="team-a",goal="kept"}"#;
    let rules = Rules::of("pool", &["monitoring.alerts=true", "pool.enabled=true"]);
    let case = |alert, series, silent_at, fires| Case { alert, series, silent_at, fires };
    rules.hold(&[
        // One replica grants, then the other one, with a pause of 30 s.
        case("FpgaPoolHasNoBroker", &[(A, "1x20 0x40"), (B, "0x22 1x38")], "10m", None),
        // No replica is active any more.
        case("FpgaPoolHasNoBroker", &[(A, "1x20 0x40"), (B, "0x60")], "5m45s", Some(("7m", json!({})))),
        // There is no broker to scrape.
        case("FpgaPoolHasNoBroker", &[], "45s", Some(("2m", json!({})))),
        case("FpgaPoolSlotsBad", &[(FREE, "4x60")], "10m", None),
        // A minute of probes is no fault.
        case("FpgaPoolSlotsBad", &[(BAD, "0x10 1x4 0x40")], "10m", None),
        case("FpgaPoolSlotsBad", &[(BAD, "1x60")], "4m", Some(("6m", json!({"board": "u250"})))),
        case("FpgaPoolJobsWaitLong", &[(WAIT, "800x60")], "10m", None),
        case("FpgaPoolJobsWaitLong", &[(WAIT, "1200x60")], "4m", Some(("6m", json!({})))),
        case("FpgaPoolGoalWillBeMissed", &[(KEPT, "1x60")], "10m", None),
        case(
            "FpgaPoolGoalWillBeMissed",
            &[(MISSED, "1x60")],
            "45s",
            Some(("2m", json!({"tenant": "team-a"}))),
        ),
    ]);
}
