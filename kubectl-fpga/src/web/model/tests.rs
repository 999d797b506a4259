use super::tables::Position;
use super::*;
use fpga_extender_api::NodeView;
use serde_json::{Value, json};

fn state(seq: u64, loaded: &[u32]) -> Value {
    json!({
        "v": 1, "boot": 1, "seq": seq, "heartbeatMs": 10_000, "measuredAtMs": 1_000_000, "windowMs": 300_000,
        "usageMs": 300_000, "reconfigurationMs": 0, "window": {"bucketMs": 10_000},
        "devices": [{"id": "dm0", "vendor": "intel", "board": "a10", "shell": "1", "slots": 2, "loaded": loaded,
                     "usageMs": 300_000, "healthy": true}],
        "bitstreams": [{"name": "sobel", "lastUsedAgoMs": 0}, {"name": "mm", "lastUsedAgoMs": 0}],
    })
}

fn node(name: &str, state: Option<&str>) -> ObjectMeta {
    let annotations = state.map(|state| json!({ANNOTATION: state}));
    serde_json::from_value(json!({"name": name, "annotations": annotations})).unwrap()
}

fn view(name: &str, seq: u64, loaded: &[u32]) -> NodeView {
    let view = json!({"name": name, "freshness": "fresh", "source": "stream",
        "known": {"ageMs": 200, "version": {}, "usageMs": 60_000, "reconfigurationMs": 0, "state": state(seq, loaded)}});
    serde_json::from_value(view).unwrap()
}

fn whole(views: Vec<NodeView>) -> NodeChanges {
    NodeChanges { version: String::new(), is_whole: true, gone: Vec::new(), nodes: views }
}

fn pod(name: &str, node: Option<&str>) -> Pod {
    let pod = json!({
        "metadata": {"namespace": "shop", "name": name, "uid": name,
                     "annotations": {"fpga-scheduling.io/bitstreams": "sobel"}},
        "spec": {"nodeName": node, "containers": []},
    });
    serde_json::from_value(pod).unwrap()
}

fn row(model: &Model, table: Table, key: &str) -> Value {
    model.tables().row(table, key).map_or(Value::Null, |row| serde_json::from_str(row).unwrap())
}

/// The moments without their times, in their order.
fn moments(model: &Model) -> Vec<Value> {
    let text = model.tables().after(Position::Beginning, usize::MAX).unwrap().text;
    let message: Value = serde_json::from_str(&text).unwrap();
    let rows = message["rows"].as_array().unwrap().iter().filter(|row| row[0] == "moments");
    rows.map(|row| {
        let mut moment = row[2].clone();
        moment.as_object_mut().unwrap().remove("atMs");
        moment
    })
    .collect()
}

const NOW: u64 = 1_005_000;

#[test]
fn the_newer_of_annotation_and_stream_is_shown() {
    let mut model = Model::default();
    model.node(&node("n", Some(&state(2, &[0]).to_string())), NOW);
    assert_eq!(row(&model, Table::Nodes, "n")["source"], "annotation");
    assert_eq!(row(&model, Table::Nodes, "n")["usage"], 500);
    model.heard(whole(vec![view("n", 3, &[0, 1])]), NOW);
    let shown = row(&model, Table::Nodes, "n");
    assert_eq!((&shown["source"], &shown["usage"]), (&json!("stream"), &json!(100)));
    model.node(&node("n", Some(&state(4, &[1]).to_string())), NOW);
    assert_eq!(row(&model, Table::Nodes, "n")["boards"][0]["slots"], json!([null, "mm"]));
    let (loaded, evicted) = ("loaded", "evicted");
    assert_eq!(
        moments(&model),
        [
            json!({"what": loaded, "node": "n", "board": "dm0", "bitstream": "mm", "evicted": null}),
            json!({"what": evicted, "node": "n", "board": "dm0", "bitstream": "sobel"}),
        ]
    );
}

#[test]
fn what_the_extender_said_is_not_shown_when_it_does_not_answer_any_more() {
    let mut model = Model::default();
    model.heard(whole(vec![view("n", 3, &[0])]), NOW);
    assert_eq!(row(&model, Table::Nodes, "n")["freshness"], "fresh");
    model.deaf(NOW);
    assert_eq!(row(&model, Table::Nodes, "n"), Value::Null);
    model.node(&node("n", Some(&state(3, &[0]).to_string())), NOW);
    assert_eq!(row(&model, Table::Nodes, "n")["freshness"], "fresh");
    model.age(&model.node_names(), NOW + 60_000);
    assert_eq!(row(&model, Table::Nodes, "n")["freshness"], "stale", "three heartbeats have passed");
}

#[test]
fn changes_leave_the_other_nodes_as_they_were_until_these_are_too_old() {
    let mut model = Model::default();
    let names = ["a", "b", "c"];
    model.heard(whole(names.map(|name| view(name, 1, &[0])).into()), NOW);
    let changes = NodeChanges {
        version: String::new(),
        is_whole: false,
        gone: vec!["c".to_owned(), "b".to_owned()],
        nodes: vec![view("b", 2, &[0, 1])],
    };
    model.heard(changes, NOW + 25_000);
    let slots = |model: &Model, name| row(model, Table::Nodes, name)["boards"][0]["slots"].clone();
    assert_eq!(slots(&model, "a"), json!(["sobel", null]));
    assert_eq!(slots(&model, "b"), json!(["sobel", "mm"]), "it has gone and is there again");
    assert_eq!(row(&model, Table::Nodes, "c"), Value::Null);
    model.age(&model.node_names(), NOW + 35_000);
    let freshness = ["a", "b"].map(|name| row(&model, Table::Nodes, name)["freshness"].clone());
    assert_eq!(freshness, ["stale", "fresh"]);
    model.heard(whole(vec![view("a", 1, &[0])]), NOW + 35_000);
    assert_eq!(row(&model, Table::Nodes, "b"), Value::Null, "who is not among all nodes has gone");
}

#[test]
fn nodes_without_boards_are_not_shown_and_unreadable_states_are() {
    let mut model = Model::default();
    model.node(&node("plain", None), NOW);
    model.node(&node("broken", Some("{")), NOW);
    assert_eq!(row(&model, Table::Nodes, "plain"), Value::Null);
    let broken = row(&model, Table::Nodes, "broken");
    assert_eq!(broken["freshness"], "unreadable");
    assert!(broken["problem"].is_string(), "{broken}");
    model.only_nodes(&["plain".to_owned()].into());
    assert_eq!(row(&model, Table::Nodes, "broken"), Value::Null);
}

#[test]
fn pods_are_shown_as_they_come_are_placed_and_go() {
    let mut model = Model::default();
    assert!(model.listed_pod(&pod("old", Some("n"))));
    model.pod(&pod("new", None), NOW);
    model.pod(&pod("new", Some("n")), NOW);
    assert_eq!(row(&model, Table::Pods, "shop/new")["node"], "n");
    model.only_pods(&["shop/new".to_owned()].into(), NOW);
    assert_eq!(
        moments(&model),
        [
            json!({"what": "waits", "pod": "shop/new"}),
            json!({"what": "placed", "pod": "shop/new", "node": "n"}),
            json!({"what": "gone", "pod": "shop/old"}),
        ]
    );
    assert_eq!(row(&model, Table::Pods, "shop/old"), Value::Null);
}

#[test]
fn moments_and_decisions_are_bounded_and_the_oldest_go() {
    let mut model = Model::default();
    let many = u64::try_from(MAX_DECISIONS).unwrap().max(MAX_MOMENTS) + 10;
    for index in 0..many {
        model.pod(&pod(&index.to_string(), None), NOW);
        let decision = json!({"namespace": "shop", "name": index.to_string(), "uid": "u", "atMs": index, "bitstreams": [],
            "candidates": 3, "passed": 0, "rejections": {"FPGA vendor does not match": 3}, "best": []});
        model.decided(vec![serde_json::from_value(decision).unwrap()]);
    }
    assert_eq!(moments(&model).len(), usize::try_from(MAX_MOMENTS).unwrap());
    assert_eq!(model.decisions.len(), MAX_DECISIONS);
    assert_eq!(row(&model, Table::Decisions, "shop/0"), Value::Null);
    assert_ne!(row(&model, Table::Decisions, &format!("shop/{}", many - 1)), Value::Null);
}

#[test]
fn the_requests_in_flight_of_all_pickers_count() {
    let view = |in_flight: usize| {
        let replica = json!({"address": "10.0.0.1:80", "node": "n", "board": "dm0", "fresh": true, "inFlight": in_flight,
            "slots": 2, "idleWithBitstream": 0, "idle": 0, "waiting": in_flight});
        let function = json!({"namespace": "d", "name": "f", "bitstream": "sobel", "inFlight": in_flight, "perSecond": 1.0,
            "meanInFlight": 1.0, "recommendedReplicas": 1, "replicas": [replica]});
        serde_json::from_value::<FunctionView>(function).unwrap()
    };
    let mut model = Model::default();
    model.functions(vec![view(2), view(3)]);
    let function = row(&model, Table::Functions, "d/f");
    assert_eq!((&function["inFlight"], &function["replicas"][0]["inFlight"]), (&json!(5), &json!(5)));
    assert_eq!(function["replicas"][0]["waiting"], 3);
    model.functions(Vec::new());
    assert_eq!(row(&model, Table::Functions, "d/f"), Value::Null);
}
