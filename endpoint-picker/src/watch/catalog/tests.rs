use super::*;
use fpga_core::names::BITSTREAMS_ANNOTATION;
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
fn a_pods_own_words_say_its_bitstream_and_whether_it_asks_for_a_board() {
    let hash = "ab".repeat(32);
    let digest = format!("sha256:{hash}");
    for (metadata, bitstream, asks) in [
        (json!({"annotations": {"blastfunction.io/acceleratorhash": hash}}), Some(digest.as_str()), true),
        (
            json!({"annotations": {"blastfunction.io/accelerator": "mm", "blastfunction.io/acceleratorhash": hash}}),
            Some(&digest),
            true,
        ),
        (json!({"annotations": {BITSTREAMS_ANNOTATION: "mm, sobel"}}), Some("mm"), true),
        (json!({"labels": {"fpga-scheduling.io/fpga-vendor": "intel"}}), None, true),
        (json!({"annotations": {"fpga-scheduling.io/slots": "many"}}), None, true),
        (json!({"labels": {"app": "web"}, "annotations": {"note": "x"}}), None, false),
    ] {
        let mut catalog = catalog();
        let mut unnamed = service("web", "");
        unnamed.metadata.annotations = None;
        catalog.service(&unnamed);
        let mut pod = metadata.clone();
        pod["namespace"] = json!("team");
        pod["name"] = json!("a");
        pod["uid"] = json!("u-a");
        catalog.pod(&of(pod));
        let function = catalog.function(&FunctionName::new("team", "web")).unwrap();
        let expected = bitstream.map(|text| text.parse().unwrap());
        assert_eq!(
            (&function.bitstream, function.replicas[0].asks_for_board),
            (&expected, asks),
            "{metadata}"
        );
    }
}

#[test]
fn an_endpoint_without_a_pod_may_be_on_the_only_board_of_its_node() {
    let mut catalog = catalog();
    let mut bare = slice("web-1", &[("a", true)]);
    bare.endpoints.as_mut().unwrap()[0].target_ref = None;
    catalog.slice(&bare);
    let function = catalog.function(&FunctionName::new("team", "web")).unwrap();
    assert!(function.replicas[0].asks_for_board);
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

/// A Service with two pods, `a` and `bb`, and slices of both families with these ports.
struct DualStack {
    service: Service,
    ports: Value,
}

impl DualStack {
    fn new(ports: Value) -> Self {
        Self { service: service("web", ""), ports }
    }

    fn annotated(mut self, port: &str) -> Self {
        let annotations = self.service.metadata.annotations.get_or_insert_default();
        annotations.insert(PORT_ANNOTATION.to_owned(), port.to_owned());
        self
    }

    fn spec(mut self, spec: Value) -> Self {
        self.service.spec = of(spec);
        self
    }

    fn add_to(&self, catalog: &mut Catalog) {
        catalog.service(&self.service);
        let name = self.service.metadata.name.as_deref().unwrap();
        for (family, address) in [("IPv4", "10.0.0."), ("IPv6", "fd00::")] {
            let mut slice = slice(&format!("{name}-{family}"), &[("a", true), ("bb", true)]);
            slice.metadata.labels = of(json!({SERVICE_NAME_LABEL: name}));
            slice.address_type = family.to_owned();
            slice.ports = of(self.ports.clone());
            for (number, endpoint) in slice.endpoints.iter_mut().flatten().enumerate() {
                endpoint.addresses = vec![format!("{address}{}", number + 1)];
            }
            catalog.slice(&slice);
        }
    }

    fn addresses(&self) -> Vec<String> {
        let mut catalog = Catalog::default();
        self.add_to(&mut catalog);
        addresses(&catalog)
    }
}

fn addresses(catalog: &Catalog) -> Vec<String> {
    replicas(catalog, "web").into_iter().map(|(address, _)| address).collect()
}

#[test]
fn the_port_of_requests_is_http_by_protocol_or_by_name_and_never_that_of_metrics() {
    let at_8080 = ["10.0.0.1:8080", "10.0.0.2:8080"];
    let metrics = |protocol| json!({"name": "metrics", "port": 9090, "appProtocol": protocol});
    for ports in [
        json!([{"name": "metrics", "port": 9090}, {"name": "http", "port": 8080}]),
        json!([{"name": "metrics", "port": 9090}, {"name": "web", "port": 8080}]),
        json!([{"name": "http-metrics", "port": 9090}, {"name": "http-web", "port": 8080}]),
        json!([{"name": "admin", "port": 9090}, {"name": "http2-web", "port": 8080}]),
        json!([{"name": "http", "port": 9090}, {"name": "web", "port": 8080, "appProtocol": "kubernetes.io/h2c"}]),
        json!([{"name": "tls", "port": 9090, "appProtocol": "https"}, {"name": "web", "port": 8080, "appProtocol": "HTTP"}]),
        json!([metrics("http"), {"name": "web", "port": 8080, "appProtocol": "http"}]),
        json!([metrics("http"), {"name": "http", "port": 8080, "appProtocol": "http"}]),
        json!([metrics("http"), {"name": "web", "port": 8080}]),
        json!([{"name": "db", "port": 9090, "appProtocol": "postgresql"}, {"name": "web", "port": 8080}]),
        json!([{"name": "http", "port": 9090, "protocol": "UDP"}, {"name": "web", "port": 8080, "protocol": "TCP"}]),
        json!([{"port": 8080}]),
    ] {
        assert_eq!(DualStack::new(ports.clone()).addresses(), at_8080, "{ports}");
    }
    assert_eq!(DualStack::new(json!([{"name": "quic", "port": 1, "protocol": "UDP"}])).addresses(), [""; 0]);
}

#[test]
fn the_annotation_names_a_port_by_name_by_the_services_number_or_by_the_pods() {
    let ports = json!([{"name": "metrics", "port": 9090}, {"name": "http", "port": 8080}]);
    let found = |annotation: &str| {
        let service = json!({"ports": [{"name": "metrics", "port": 8080}, {"name": "http", "port": 80}]});
        DualStack::new(ports.clone()).spec(service).annotated(annotation).addresses()
    };
    for port in ["metrics", "9090", "8080", " metrics "] {
        assert_eq!(found(port), ["10.0.0.1:9090", "10.0.0.2:9090"], "{port}");
    }
    for port in ["http", "80"] {
        assert_eq!(found(port), ["10.0.0.1:8080", "10.0.0.2:8080"], "{port}");
    }
    assert_eq!(found("none"), [""; 0]);
    // The only port of a Service has no name.
    let unnamed = DualStack::new(json!([{"name": "", "port": 8080}])).spec(json!({"ports": [{"port": 80}]}));
    assert_eq!(unnamed.annotated("80").addresses(), ["10.0.0.1:8080", "10.0.0.2:8080"]);
}

#[test]
fn a_pod_of_two_families_is_one_replica_at_its_services_first_family_and_known_by_both_addresses() {
    let ports = || json!([{"name": "http", "port": 8080}]);
    let ipv6_first = DualStack::new(ports()).spec(json!({"ipFamilies": ["IPv6", "IPv4"]}));
    assert_eq!(ipv6_first.addresses(), ["[fd00::1]:8080", "[fd00::2]:8080"]);
    let mut catalog = Catalog::default();
    DualStack::new(ports()).add_to(&mut catalog);
    let function = catalog.function(&FunctionName::new("team", "web")).unwrap();
    assert_eq!(function.replicas.len(), 2);
    for address in ["10.0.0.1:8080", "[fd00::1]:8080", "[fd00::1]:9000"] {
        assert!(function.replicas[0].is_at(address.parse().unwrap()), "{address}");
    }
    assert!(!function.replicas[0].is_at("10.0.0.2:8080".parse().unwrap()));
    // A family that goes leaves the replica at the other one.
    catalog.remove_slice(&("team".to_owned(), "web-IPv4".to_owned()));
    assert_eq!(addresses(&catalog), ["[fd00::1]:8080", "[fd00::2]:8080"]);
}

#[test]
fn a_pod_of_two_services_is_called_at_the_port_that_is_known_best() {
    let mut catalog = Catalog::default();
    let mut other = DualStack::new(json!([{"name": "admin", "port": 80}]));
    other.service.metadata.name = Some("admin".to_owned());
    other.service.metadata.labels = of(json!({FUNCTION_LABEL: "web"}));
    other.add_to(&mut catalog);
    DualStack::new(json!([{"name": "web", "port": 8080}])).annotated("web").add_to(&mut catalog);
    assert_eq!(addresses(&catalog), ["10.0.0.1:8080", "10.0.0.2:8080"]);
}

#[test]
fn the_pods_of_an_inference_pool_are_called_at_its_first_target_port() {
    let mut catalog = Catalog::new(Some(FunctionName::new("team", "web")));
    DualStack::new(json!([{"name": "http", "port": 8080}])).annotated("none").add_to(&mut catalog);
    catalog.changed();
    let mut pool = |ports: Value| {
        catalog.pool(&of(json!({"metadata": {"name": "web"}, "spec": {"targetPorts": ports}})));
        (addresses(&catalog), catalog.changed().len())
    };
    let at = |port: u16| [1, 2].map(|pod| format!("10.0.0.{pod}:{port}")).to_vec();
    assert_eq!(pool(json!([{"number": 9000}, {"number": 9001}])), (at(9000), 1));
    assert_eq!(pool(json!([{"number": 9000}])), (at(9000), 0), "nothing changed");
    assert_eq!(pool(json!([{"number": 70_000}])), (Vec::new(), 1), "the annotation names no port");
    catalog.remove_pool();
    assert!(catalog.changed().is_empty());
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
    let Catalog { services, slices, pods, of_service, of_function, of_pod, changed, .. } = catalog;
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
