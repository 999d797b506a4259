//! The ports that the chart declares, whom its NetworkPolicies let in there, and what the book says of both.

use fpga_tests::testbed::helm;
use fpga_tests::testbed::programs::repository;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};

/// Settings with which the chart declares all that it can declare.
pub const EVERYTHING: [&str; 9] = [
    "router.enabled=true",
    "router.replicas=2",
    "router.externalMetrics.enabled=true",
    "pool.enabled=true",
    "pool.slots=2",
    "registry.enabled=true",
    "registry.moves.mode=evict",
    "customResources.ownBitstreams.enabled=true",
    "nodePlugin.library.storeSize=64MiB",
];

/// A program of the chart, by the label of its pods, and a port.
pub type Port = (String, u16);

/// The guard between a tenant's pod and facts about other tenants at a port.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Guard {
    /// A NetworkPolicy: the pod does not get in.
    NetworkPolicy,
    /// The port itself.
    Port,
}

/// A row of the book's table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Row {
    pub guard: Guard,
    /// Whether who gets in reads names of tenants without showing who it is.
    pub names_tenants: bool,
}

/// The objects of the chart with these settings.
pub fn objects(settings: &[&str]) -> Vec<Value> {
    let text = helm::chart(&["manifests/values/pocl.yaml"], settings).unwrap();
    let objects = text.split("\n---\n").filter_map(|text| serde_saphyr::from_str(text).ok());
    objects.filter(Value::is_object).collect()
}

/// The ports of all pods of these objects: those of containers, and those that NetworkPolicies open. Of a range it is the
/// first one.
pub fn declared(objects: &[Value]) -> BTreeSet<Port> {
    let mut ports = BTreeSet::new();
    let mut add = |program: &str, port: &Value| {
        let number = port.as_u64().unwrap_or_else(|| panic!("{program} has the port {port}"));
        ports.insert((program.to_owned(), u16::try_from(number).unwrap()));
    };
    for object in objects {
        let template = &object["spec"]["template"];
        let program = &template["metadata"]["labels"]["app.kubernetes.io/name"];
        for list in ["containers", "initContainers"] {
            for container in template["spec"][list].as_array().into_iter().flatten() {
                for port in container["ports"].as_array().into_iter().flatten() {
                    assert!(port["hostPort"].is_null(), "no policy guards a port of the node: {port}");
                    add(program.as_str().unwrap(), &port["containerPort"]);
                }
            }
        }
        assert_ne!(template["spec"]["hostNetwork"], true, "no policy guards the node's network: {program}");
        if object["kind"] != "NetworkPolicy" {
            continue;
        }
        // A policy of several programs opens all of its ports at each of them.
        let selected = selected(object);
        for program in selected.iter().filter(|_| selected.len() == 1) {
            for port in ingress(object).filter_map(|rule| rule["ports"].as_array()).flatten() {
                add(program, &port["port"]);
            }
        }
    }
    ports
}

/// Whether the NetworkPolicies let pods of any other namespace in at this port, whatever the pods' labels are.
pub fn lets_tenants_in(objects: &[Value], (program, port): &Port) -> bool {
    let mut policies = objects
        .iter()
        .filter(|object| {
            object["kind"] == "NetworkPolicy" && object["spec"]["policyTypes"] != json!(["Egress"])
        })
        .filter(|object| selected(object).contains(program))
        .peekable();
    if policies.peek().is_none() {
        return true;
    }
    let opens = |rule: &Value| {
        rule["ports"].as_array().is_none_or(|ports| {
            ports.iter().any(|open| {
                let first = open["port"].as_u64().unwrap();
                (first..=open["endPort"].as_u64().unwrap_or(first)).contains(&u64::from(*port))
            })
        })
    };
    // Nobody but an administrator labels namespaces. Without a selector of namespaces pods are those of the release.
    let is_strange = |peer: &Value| {
        let namespaces = &peer["namespaceSelector"];
        !peer["ipBlock"].is_null() || namespaces.as_object().is_some_and(serde_json::Map::is_empty)
    };
    policies.any(|policy| {
        ingress(policy).any(|rule| {
            opens(rule) && rule["from"].as_array().is_none_or(|peers| peers.iter().any(is_strange))
        })
    })
}

/// The rules of ingress of a NetworkPolicy.
fn ingress(policy: &Value) -> impl Iterator<Item = &Value> + Clone {
    policy["spec"]["ingress"].as_array().map_or(&[][..], Vec::as_slice).iter()
}

/// The programs that a NetworkPolicy selects.
fn selected(policy: &Value) -> Vec<String> {
    let selector = &policy["spec"]["podSelector"];
    let label = "app.kubernetes.io/name";
    let one = selector["matchLabels"][label].as_str().map(str::to_owned);
    let expressions = selector["matchExpressions"].as_array().into_iter().flatten();
    let listed = expressions
        .filter(|expression| expression["key"] == label && expression["operator"] == "In")
        .flat_map(|expression| expression["values"].as_array().into_iter().flatten());
    one.into_iter().chain(listed.filter_map(Value::as_str).map(str::to_owned)).collect()
}

/// The table of ports in the book.
pub fn book() -> BTreeMap<Port, Row> {
    let text = std::fs::read_to_string(repository().join("book/operate/ports.md")).unwrap();
    let rows = text.lines().filter_map(|line| {
        let cells: Vec<&str> = line.trim_matches('|').split('|').map(str::trim).collect();
        let [port, program, _, guard, names] = cells[..] else { return None };
        // A range is known by its first port.
        let port = port.split('–').next()?.parse().ok()?;
        let guard = if guard.starts_with("NetworkPolicy") { Guard::NetworkPolicy } else { Guard::Port };
        let names_tenants = match names {
            "yes" => true,
            "no" => false,
            other => panic!("the row of the port {port} says {other:?} instead of yes or no"),
        };
        Some(((program.trim_matches('`').to_owned(), port), Row { guard, names_tenants }))
    });
    rows.collect()
}
