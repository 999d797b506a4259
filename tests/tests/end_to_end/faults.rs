//! Each alert of the chart fires for its fault and no other one does: promtool evaluates all rules over the series of a
//! healthy site with one fault.

use crate::alerts::rules;
use fpga_tests::testbed::prometheus::promtool;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};

/// The series of a healthy site with two nodes, with a sample each 15 s.
const HEALTHY: [(&str, &str); 40] = [
    (LEASE, "0+15x400"),
    (SETTINGS, "1x400"),
    (CERTIFICATE, "31536000x400"),
    (UNUSED, "0x400"),
    (r#"fpga_extender_nodes{pod="e",state="fresh"}"#, "2x400"),
    (STALE, "0x400"),
    (HALF_SECOND, "0+10x400"),
    (r#"fpga_extender_request_duration_seconds_bucket{pod="e",verb="filter",le="5.0"}"#, "0+10x400"),
    (r#"fpga_extender_request_duration_seconds_bucket{pod="e",verb="filter",le="+Inf"}"#, "0+10x400"),
    (r#"fpga_collector_devices{node="n1"}"#, "1x400"),
    (COLLECTOR, "1x400"),
    (CHECKPOINT, "0x400"),
    (r#"fpga_device_manager_slots{node="n1",board="a-0"}"#, "4x400"),
    (r#"fpga_device_manager_healthy{node="n1",board="a-0"}"#, "1x400"),
    (r#"fpga_device_manager_supervised_ready{node="n1",board="a-0"}"#, "1x400"),
    (COLD, "0+1x400"),
    (r#"fpga_device_manager_slot_seconds_total{node="n1",board="a-0"}"#, "0+10x400"),
    (SLOTS, "4x400"),
    (WELL, "1x400"),
    (READY, "1x400"),
    (RESTARTS, "0x400"),
    (r#"fpga_device_manager_discovery_failures_total{node="n1"}"#, "0x400"),
    (DISCOVERY, "0x400"),
    (FILES, "0x400"),
    (r#"fpga_device_manager_slot_seconds_total{node="n2",board="a-0"}"#, "0+10x400"),
    (r#"fpga_device_manager_reconfiguration_seconds_total{node="n2",board="a-0"}"#, "0+1x400"),
    (r#"fpga_node_plugin_kept_off_controllers{node="n1"}"#, "0x400"),
    (PLUGIN, "0x400"),
    (FETCHES, "0x400"),
    (REPLICAS, "4x400"),
    (RESIDENT, "0+100x400"),
    (REFUSED, "0x400"),
    (LEADS, "1x400"),
    (WRITES, "0x400"),
    (STUCK, "0x400"),
    (BROKER, "1x400"),
    (r#"fpga_pool_active{pod="q"}"#, "0x400"),
    (BAD, "0x400"),
    (WAIT, "10x400"),
    (GOALS, "0x400"),
];
const LEASE: &str = r#"kube_lease_renew_time{namespace="kube-fpga",lease="kube-fpga-scheduler"}"#;
const SETTINGS: &str = r#"fpga_extender_config_valid{pod="e"}"#;
const CERTIFICATE: &str =
    r#"fpga_extender_certificate_expires_seconds{pod="e",port="stream",certificate="own"}"#;
const UNUSED: &str = r#"fpga_extender_certificate_unused{pod="e",port="stream"}"#;
const STALE: &str = r#"fpga_extender_nodes{pod="e",state="stale"}"#;
const HALF_SECOND: &str = r#"fpga_extender_request_duration_seconds_bucket{pod="e",verb="filter",le="0.5"}"#;
const COLLECTOR: &str = r#"fpga_collector_devices{node="n2"}"#;
const CHECKPOINT: &str = r#"fpga_collector_checkpoint_failures_total{node="n2"}"#;
const COLD: &str = r#"fpga_device_manager_reconfiguration_seconds_total{node="n1",board="a-0"}"#;
const SLOTS: &str = r#"fpga_device_manager_slots{node="n2",board="a-0"}"#;
const WELL: &str = r#"fpga_device_manager_healthy{node="n2",board="a-0"}"#;
const READY: &str = r#"fpga_device_manager_supervised_ready{node="n2",board="a-0"}"#;
const RESTARTS: &str = r#"fpga_device_manager_supervised_restarts_total{node="n2",board="a-0"}"#;
const DISCOVERY: &str = r#"fpga_device_manager_discovery_failures_total{node="n2"}"#;
const FILES: &str = r#"fpga_device_manager_bitstream_files_refused{node="n2",board="a-0"}"#;
const PLUGIN: &str = r#"fpga_node_plugin_kept_off_controllers{node="n2"}"#;
const FETCHES: &str = r#"fpga_node_plugin_bitstream_store_failures_total{node="n2"}"#;
const REPLICAS: &str = r#"fpga_picker_replicas{pod="r"}"#;
const RESIDENT: &str = r#"fpga_picker_choices_total{pod="r",basis="resident"}"#;
const IN_FLIGHT: &str = r#"fpga_picker_choices_total{pod="r",basis="in_flight"}"#;
const REFUSED: &str = r#"fpga_picker_refusals_total{pod="r",reason="no_endpoint"}"#;
const LEADS: &str = r#"fpga_registry_leads{pod="g"}"#;
const WRITES: &str = r#"fpga_registry_write_errors_total{pod="g"}"#;
const STUCK: &str = r#"fpga_registry_moves_total{pod="g",outcome="stuck"}"#;
const BROKER: &str = r#"fpga_pool_active{pod="p"}"#;
const BAD: &str = r#"fpga_pool_slots{pod="p",board="u250",state="bad"}"#;
const WAIT: &str = r#"fpga_pool_longest_wait_seconds{pod="p"}"#;
const GOALS: &str = r#"fpga_pool_groups{pod="p",tenant="team-a",goal="missed"}"#;

/// The value of a series from the fault on, which comes after 5 minutes: there is none any more.
const GONE: &str = "stale";
/// The time at which an alert and no other fires: later than any alert waits.
const FIRES_AT: &str = "40m";

/// An alert, what its fault changes, the last time at which nothing fires, and the labels of the alert.
type Fault = (&'static str, Vec<(&'static str, &'static str)>, &'static str, Value);

/// The faults. Samples up to the 21st are those of a healthy site.
fn faults() -> Vec<Fault> {
    let on_n2 = || json!({"node": "n2"});
    let board_on_n2 = || json!({"node": "n2", "board": "a-0"});
    let port = || json!({"port": "stream"});
    vec![
        ("FpgaSchedulerHasNoLeader", vec![(LEASE, "0+15x20 300x380")], "7m", json!({})),
        // Filter calls take longer than half a second from now on.
        ("FpgaExtenderSlow", vec![(HALF_SECOND, "0+10x20 200x380")], "9m", json!({"verb": "filter"})),
        ("FpgaExtenderSettingsRefused", vec![(SETTINGS, "1x20 0x380")], "7m", json!({})),
        (
            "FpgaCertificateEnds",
            vec![(CERTIFICATE, "31536000x20 600000x380")],
            "15m",
            json!({"port": "stream", "certificate": "own"}),
        ),
        ("FpgaCertificateUnused", vec![(UNUSED, "0x20 1x380")], "15m", port()),
        // Three minutes later its state is too old.
        (
            "FpgaCollectorAbsent",
            vec![(COLLECTOR, GONE), (CHECKPOINT, GONE), (STALE, "0x32 1x368")],
            "10m",
            on_n2(),
        ),
        ("FpgaNodeStatesStale", vec![(STALE, "0x20 1x380")], "10m", json!({})),
        ("FpgaCollectorCannotStore", vec![(CHECKPOINT, "0x20 0+1x380")], "10m", on_n2()),
        ("FpgaBoardUnhealthy", vec![(WELL, "1x20 0x380")], "7m", board_on_n2()),
        (
            "FpgaBoardLost",
            vec![(READY, GONE), (RESTARTS, GONE), (SLOTS, GONE), (WELL, GONE), (FILES, GONE)],
            "10m",
            board_on_n2(),
        ),
        // The manager waits for something, and tells nothing.
        (
            "FpgaBoardHasNoManager",
            vec![(READY, "1x20 0x380"), (SLOTS, GONE), (WELL, GONE), (FILES, GONE)],
            "15m",
            board_on_n2(),
        ),
        // The manager ends every 15 s, and never becomes ready.
        (
            "FpgaManagerRestarts",
            vec![
                (RESTARTS, "0x20 0+1x380"),
                (READY, "1x20 0x380"),
                (SLOTS, GONE),
                (WELL, GONE),
                (FILES, GONE),
            ],
            "6m",
            board_on_n2(),
        ),
        ("FpgaDevicesNotListed", vec![(DISCOVERY, "0x20 0+1x380")], "15m", on_n2()),
        ("FpgaBitstreamFilesRefused", vec![(FILES, "0x20 2x380")], "10m", board_on_n2()),
        // A slot loads for 14 s of 15, which is three quarters of the time for which both slots are held.
        ("FpgaColdStartsPrevail", vec![(COLD, "0+1x20 20+14x380")], "20m", json!({})),
        ("FpgaNodePluginAbsent", vec![(PLUGIN, GONE), (FETCHES, GONE)], "10m", on_n2()),
        ("FpgaNodeKeepsPodsOff", vec![(PLUGIN, "0x20 1x380")], "15m", on_n2()),
        ("FpgaBitstreamsNotFetched", vec![(FETCHES, "0x20 0+1x380")], "10m", on_n2()),
        ("FpgaRouterAbsent", vec![(REPLICAS, GONE), (RESIDENT, GONE), (REFUSED, GONE)], "7m", json!({})),
        // A third of the requests.
        ("FpgaRouterRefuses", vec![(REFUSED, "0x20 0+50x380")], "10m", json!({"reason": "no_endpoint"})),
        (
            "FpgaRouterGuesses",
            vec![(RESIDENT, "0+100x20 2000x380"), (IN_FLIGHT, "0x20 0+100x380")],
            "15m",
            json!({}),
        ),
        ("FpgaRegistryHasNoLeader", vec![(LEADS, "1x20 0x380")], "7m", json!({})),
        ("FpgaRegistryWritesFail", vec![(WRITES, "0x20 0+1x380")], "15m", json!({})),
        ("FpgaMovesStuck", vec![(STUCK, "0x20 1x380")], "6m", json!({"outcome": "stuck"})),
        ("FpgaPoolHasNoBroker", vec![(BROKER, "1x20 0x380")], "6m", json!({})),
        ("FpgaPoolSlotsBad", vec![(BAD, "0x20 1x380")], "10m", json!({"board": "u250"})),
        ("FpgaPoolJobsWaitLong", vec![(WAIT, "10x20 1200x380")], "10m", json!({})),
        ("FpgaPoolGoalWillBeMissed", vec![(GOALS, "0x20 1x380")], "6m", json!({"tenant": "team-a"})),
    ]
}

/// The alerts of all groups, without their texts, which promtool would compare.
fn without_texts(mut rules: Value) -> Value {
    for group in rules["groups"].as_array_mut().unwrap() {
        for rule in group["rules"].as_array_mut().unwrap() {
            rule.as_object_mut().unwrap().remove("annotations");
        }
    }
    rules
}

/// The alerts of all groups by name.
fn by_name(rules: &Value) -> BTreeMap<String, Value> {
    let groups = rules["groups"].as_array().unwrap().iter();
    let alerts = groups.flat_map(|group| group["rules"].as_array().unwrap());
    alerts.map(|alert| (alert["alert"].as_str().unwrap().to_owned(), alert.clone())).collect()
}

/// A test of promtool: nothing fires up to a time, and then this alert alone, if there is one.
fn test(
    names: &BTreeMap<String, Value>,
    changes: &[(&str, &str)],
    silent_at: &str,
    fires: Option<(&str, Value)>,
) -> Value {
    let mut series: BTreeMap<&str, String> =
        HEALTHY.into_iter().map(|(series, samples)| (series, samples.to_owned())).collect();
    for (changed, samples) in changes {
        let samples = if *samples == GONE { "1x20 stale".to_owned() } else { (*samples).to_owned() };
        series.insert(changed, samples);
    }
    let series: Vec<Value> =
        series.into_iter().map(|(series, samples)| json!({"series": series, "values": samples})).collect();
    let mut checks = Vec::new();
    for name in names.keys() {
        checks.push(json!({"eval_time": silent_at, "alertname": name}));
        let alerts: Vec<Value> = fires
            .iter()
            .filter(|(firing, _)| firing == name)
            .map(|(_, labels)| {
                let mut labels = labels.clone();
                labels["severity"] = names[name]["labels"]["severity"].clone();
                json!({"exp_labels": labels})
            })
            .collect();
        checks.push(json!({"eval_time": FIRES_AT, "alertname": name, "exp_alerts": alerts}));
    }
    let title = fires.map_or("nothing", |(name, _)| name);
    json!({"name": title, "interval": "15s", "input_series": series, "alert_rule_test": checks})
}

#[test]
fn each_alert_fires_for_its_fault_and_no_other_one_does() {
    let rules = rules();
    let (names, faults) = (by_name(&rules), faults());
    let tried: BTreeSet<&str> = faults.iter().map(|(name, ..)| *name).collect();
    assert_eq!(
        names.keys().map(String::as_str).collect::<BTreeSet<_>>(),
        tried,
        "alerts, and those with a fault"
    );
    let mut tests = vec![test(&names, &[], "15m", None)];
    for (name, changes, silent_at, labels) in &faults {
        tests.push(test(&names, changes, silent_at, Some((name, labels.clone()))));
        // Texts name no label that the alert lacks.
        for text in names[*name]["annotations"].as_object().unwrap().values() {
            for label in text.as_str().unwrap().split("$labels.").skip(1) {
                let label = label.split([' ', '}']).next().unwrap();
                assert!(labels[label].is_string(), "{name} has no label {label}");
            }
        }
    }
    let folder = tempfile::tempdir().unwrap();
    let write =
        |file: &str, content: Value| std::fs::write(folder.path().join(file), content.to_string()).unwrap();
    write("rules.yaml", rules.clone());
    promtool(folder.path(), &["check", "rules", "rules.yaml"]).unwrap();
    write("rules.yaml", without_texts(rules));
    write("tests.yaml", json!({"rule_files": ["rules.yaml"], "evaluation_interval": "15s", "tests": tests}));
    promtool(folder.path(), &["test", "rules", "tests.yaml"]).unwrap();
}

#[test]
fn each_alert_asks_for_metrics_that_there_are_and_names_its_runbook() {
    let known = crate::dashboards::known_metrics();
    for (name, alert) in by_name(&rules()) {
        let expression = alert["expr"].as_str().unwrap();
        let asked = crate::dashboards::metrics_in(expression);
        let unknown: Vec<_> = asked.iter().filter(|metric| !known.contains(**metric)).collect();
        assert!(unknown.is_empty(), "{name}: no service has {unknown:?}");
        assert!(!asked.is_empty() || expression.contains("kube_lease_renew_time"), "{name}: {expression}");
        let runbook = format!("book/operate/runbooks.md#{}", name.to_lowercase());
        assert_eq!(alert["annotations"]["runbook_url"], runbook);
        let severity = alert["labels"]["severity"].as_str().unwrap();
        assert!(["critical", "warning"].contains(&severity), "{name}: {severity}");
    }
}
