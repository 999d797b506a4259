use super::*;
use serde_json::{Value, json};

fn of<T: serde::de::DeserializeOwned>(value: Value) -> T {
    serde_json::from_value(value).unwrap()
}

fn service(name: &str, function: &str) -> Service {
    of(json!({"metadata": {
        "namespace": "team", "name": name, "labels": {FUNCTION_LABEL: function},
        "annotations": {BITSTREAMS_ANNOTATION: "sobel, blur", MAX_WAITING_ANNOTATION: "7"},
    }}))
}

fn slice(name: &str, endpoints: &[(&str, bool)]) -> EndpointSlice {
    let endpoint = |(pod, ready): &(&str, bool)| {
        json!({
            "addresses": [format!("10.0.0.{}", pod.len())], "conditions": {"ready": ready}, "nodeName": "worker",
            "targetRef": {"kind": "Pod", "name": pod, "namespace": "team", "uid": format!("u-{pod}")},
        })
    };
    of(json!({
        "metadata": {"namespace": "team", "name": name, "labels": {SERVICE_NAME_LABEL: "web"}},
        "addressType": "IPv4", "ports": [{"port": 8080}],
        "endpoints": endpoints.iter().map(endpoint).collect::<Vec<_>>(),
    }))
}

fn pod(name: &str, uid: &str, boards: &str) -> ObjectMeta {
    of(json!({"namespace": "team", "name": name, "uid": uid, "annotations": {BOARDS_ANNOTATION: boards}}))
}

fn catalog() -> Catalog {
    let mut catalog = Catalog::default();
    catalog.service(&service("web", ""));
    catalog.slice(&slice("web-1", &[("a", true), ("bb", true), ("ccc", false)]));
    catalog
}

/// The replicas of a function, each with its boards.
fn replicas(catalog: &Catalog, function: &str) -> Vec<(String, String)> {
    let found = catalog.function(&FunctionName::new("team", function)).unwrap_or_default();
    let text = |replica: Replica| (replica.address.to_string(), replica.boards.join(","));
    found.replicas.into_iter().map(text).collect()
}

fn owned((address, boards): (&str, &str)) -> (String, String) {
    (address.to_owned(), boards.to_owned())
}

#[test]
fn a_function_is_its_service_and_the_endpoints_that_are_ready() {
    let mut catalog = catalog();
    let name = FunctionName::new("team", "web");
    assert_eq!(catalog.changed(), HashSet::from([name.clone()]));
    let function = catalog.function(&name).unwrap();
    assert_eq!(function.bitstream, Some(BitstreamId::Name("sobel".to_owned())));
    assert_eq!(function.max_waiting, Some(7));
    assert_eq!(function.replicas[0].node.as_deref(), Some("worker"));
    assert_eq!(replicas(&catalog, "web"), [("10.0.0.1:8080", ""), ("10.0.0.2:8080", "")].map(owned));
    catalog.service(&service("web", ""));
    catalog.slice(&slice("web-1", &[("a", true), ("bb", true), ("ccc", false)]));
    assert!(catalog.changed().is_empty(), "the same once more is no change");
}

#[test]
fn a_pods_annotation_names_its_boards_and_a_pod_that_ends_gets_nothing_more() {
    let mut catalog = catalog();
    catalog.pod(&pod("a", "u-a", "board-1, board-2,,board-1"));
    catalog.pod(&pod("bb", "u-other", "board-3"));
    assert!(!catalog.changed().is_empty());
    assert_eq!(
        replicas(&catalog, "web"),
        [("10.0.0.1:8080", "board-1,board-2"), ("10.0.0.2:8080", "")].map(owned),
        "the other annotation is that of another pod of the same name"
    );
    let mut ends = pod("a", "u-a", "board-1");
    ends.deletion_timestamp = of(json!("2026-01-01T00:00:00Z"));
    catalog.pod(&ends);
    assert_eq!(catalog.changed().len(), 1);
    assert_eq!(replicas(&catalog, "web"), [("10.0.0.2:8080", "")].map(owned));
}

#[test]
fn a_pod_of_two_services_stays_in_one_when_the_slice_of_the_other_goes() {
    let mut catalog = catalog();
    catalog.service(&service("canary", "canary"));
    let mut other = slice("canary-1", &[("a", true)]);
    other.metadata.labels = of(json!({SERVICE_NAME_LABEL: "canary"}));
    catalog.slice(&other);
    catalog.remove_slice(&("team".to_owned(), "canary-1".to_owned()));
    catalog.changed();
    catalog.pod(&pod("a", "u-a", "board-1"));
    assert_eq!(catalog.changed(), HashSet::from([FunctionName::new("team", "web")]));
    assert_eq!(replicas(&catalog, "web")[0], owned(("10.0.0.1:8080", "board-1")));
}

#[test]
fn a_service_of_two_families_and_several_ports_has_one_replica_for_each_pod_at_the_port_of_its_requests() {
    let found = |ports: Value, annotation: Option<&str>| -> Vec<String> {
        let mut catalog = Catalog::default();
        let mut service = service("web", "");
        if let Some(port) = annotation {
            service
                .metadata
                .annotations
                .get_or_insert_default()
                .insert(PORT_ANNOTATION.to_owned(), port.to_owned());
        }
        catalog.service(&service);
        for (name, family) in [("web-4", "IPv4"), ("web-6", "IPv6")] {
            let mut slice = slice(name, &[("a", true), ("bb", true)]);
            slice.address_type = family.to_owned();
            slice.ports = of(ports.clone());
            for (number, endpoint) in slice.endpoints.iter_mut().flatten().enumerate() {
                if family == "IPv6" {
                    endpoint.addresses = vec![format!("fd00::{}", number + 1)];
                }
            }
            catalog.slice(&slice);
        }
        replicas(&catalog, "web").into_iter().map(|(address, _)| address).collect()
    };
    let named = json!([{"name": "metrics", "port": 9090}, {"name": "http", "port": 8080}]);
    let by_protocol = json!([{"name": "http", "port": 9090}, {"name": "web", "port": 8080, "appProtocol": "kubernetes.io/h2c"}]);
    let at_8080 = ["10.0.0.1:8080", "10.0.0.2:8080"];
    assert_eq!(found(named.clone(), None), at_8080);
    assert_eq!(found(by_protocol, None), at_8080);
    for port in ["metrics", "9090"] {
        assert_eq!(found(named.clone(), Some(port)), ["10.0.0.1:9090", "10.0.0.2:9090"]);
    }
    assert_eq!(found(named, Some("none")), [""; 0]);
}

#[test]
fn no_annotation_makes_a_pod_have_boards_without_end() {
    let mut catalog = catalog();
    let boards: Vec<String> = (0..1_000).map(|number| format!("board-{number}")).collect();
    catalog.pod(&pod("a", "u-a", &boards.join(",")));
    assert_eq!(replicas(&catalog, "web")[0].1.split(',').count(), MOST_BOARDS);
}

#[test]
fn two_services_may_be_one_function_and_lists_that_lack_an_object_remove_it() {
    let mut catalog = catalog();
    catalog.service(&service("web", "edges"));
    assert!(catalog.function(&FunctionName::new("team", "web")).is_none(), "it has another name now");
    assert_eq!(replicas(&catalog, "edges").len(), 2);
    catalog.retain_slices(&HashSet::new());
    assert_eq!(replicas(&catalog, "edges").len(), 0);
    catalog.service(&service("canary", "edges"));
    catalog.remove_service(&("team".to_owned(), "web".to_owned()));
    assert!(catalog.function(&FunctionName::new("team", "edges")).is_some());
    catalog.retain_services(&HashSet::new());
    assert!(catalog.function(&FunctionName::new("team", "edges")).is_none());
    catalog.pod(&pod("a", "u-a", "board-1"));
    catalog.retain_pods(&HashSet::new());
    let Catalog { services, slices, pods, of_service, of_function, of_pod, changed } = catalog;
    assert!(services.is_empty() && slices.is_empty() && pods.is_empty() && of_service.is_empty());
    assert!(of_function.is_empty() && of_pod.is_empty() && !changed.is_empty());
}

#[test]
fn what_makes_no_sense_is_no_function_and_no_endpoint() {
    let mut catalog = Catalog::default();
    catalog.service(&service("web", "No_Label"));
    assert!(catalog.changed().is_empty());
    catalog.service(&service("web", ""));
    let mut odd = slice("web-1", &[("a", true)]);
    odd.ports = None;
    catalog.slice(&odd);
    catalog.slice(&of(json!({
        "metadata": {"namespace": "team", "name": "x", "labels": {SERVICE_NAME_LABEL: "web"}},
        "addressType": "FQDN", "ports": [{"port": 70_000}, {"port": 80}],
        "endpoints": [{"addresses": ["a.example"]}, {"addresses": []}],
    })));
    assert_eq!(replicas(&catalog, "web").len(), 0);
}
