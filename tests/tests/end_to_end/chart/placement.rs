//! Where the chart's pods may run, and as what: every workload, by the same values.

use super::{RELEASE, render};
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// Every part of the chart.
const ALL: [&str; 2] = [
    "--set",
    "router.enabled=true,registry.enabled=true,pool.enabled=true,boardKinds[0].name=a10,boardKinds[0].image=mine,\
     boardKinds[0].runtime=pocl,boardKinds[0].nodeSelector.board=a10",
];

/// The pods of the rendered workloads, by kind and name.
async fn pods(settings: &[&str]) -> BTreeMap<String, Value> {
    let (well, text) = render(&[&ALL, settings].concat()).await;
    assert!(well, "{text}");
    let objects = text.split("\n---\n").filter(|object| object.contains("\nkind: "));
    let objects = objects.map(|object| serde_saphyr::from_str::<Value>(object).unwrap());
    let with_pods = objects.filter_map(|object| {
        let paths = ["/spec/template/spec", "/spec/jobTemplate/spec/template/spec"];
        let pod = paths.iter().find_map(|path| object.pointer(path).cloned())?;
        let name = |path| object.pointer(path).and_then(Value::as_str).unwrap().to_owned();
        Some((format!("{} {}", name("/kind"), name("/metadata/name")), pod))
    });
    with_pods.collect()
}

#[tokio::test]
async fn no_pod_of_the_chart_gets_to_a_node_that_can_not_run_it() {
    let pods = pods(&[]).await;
    for (name, pod) in &pods {
        let selector = &pod["nodeSelector"];
        let is_ours = selector["kubernetes.io/os"] == "linux" && selector["kubernetes.io/arch"] == "amd64";
        assert!(is_ours, "{name}: {selector} in {RELEASE}");
        for container in
            pod["containers"].as_array().into_iter().chain(pod["initContainers"].as_array()).flatten()
        {
            let resources = &container["resources"];
            assert!(resources["requests"]["cpu"].is_string(), "{name}: {container}");
        }
    }
    assert!(pods.len() >= 9, "{:?}", pods.keys());
    let priorities: BTreeMap<&str, &str> = pods
        .iter()
        .filter_map(|(name, pod)| Some((name.as_str(), pod["priorityClassName"].as_str()?)))
        .collect();
    let node = "system-node-critical";
    let expected = [
        ("DaemonSet fpga-collector", node),
        ("DaemonSet fpga-device-manager-a10", node),
        ("DaemonSet fpga-node-plugin", node),
        ("Deployment fpga-scheduler-extender", "system-cluster-critical"),
    ];
    assert_eq!(priorities, BTreeMap::from(expected));
}

#[tokio::test]
async fn every_workload_takes_the_fields_by_which_pods_are_placed() {
    let term = json!({"matchExpressions": [{"key": "zone", "operator": "In", "values": ["a"]}]});
    let affinity = json!({"nodeAffinity": {
        "requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term.clone(), term]},
    }});
    let own = json!({
        "nodeSelector": {"disk": "ssd", "kubernetes.io/arch": "arm64"},
        "tolerations": [{"key": "mine", "operator": "Exists"}],
        "affinity": affinity,
        "priorityClassName": "ours",
        "imagePullSecrets": [{"name": "own-registry"}],
        "resources": {"requests": {"cpu": 0.5}, "limits": {"memory": "3Gi"}},
    });
    let mut router = own.clone();
    let resources = router.as_object_mut().unwrap().remove("resources").unwrap();
    router["picker"] = json!({ "resources": resources });
    let mut values = json!({"images": {"pullSecrets": ["of-all"]}, "router": router});
    for workload in ["scheduler", "collector", "nodePlugin", "registry", "pool", "jobs"] {
        values[workload] = own.clone();
    }
    let mut kind = own.clone();
    for (key, value) in [("name", "a10"), ("image", "mine"), ("runtime", "pocl")] {
        kind[key] = json!(value);
    }
    values["boardKinds"] = json!([kind]);
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(&file, values.to_string()).unwrap();
    let path = file.path().to_str().unwrap();
    let settings = ["--values", path, "--set", "images.architecture="];
    let pods = pods(&settings).await;
    assert!(pods.len() >= 9, "{:?}", pods.keys());
    for (name, pod) in &pods {
        let selector = &pod["nodeSelector"];
        assert_eq!(
            (&selector["disk"], &selector["kubernetes.io/os"]),
            (&json!("ssd"), &json!("linux")),
            "{name}"
        );
        assert_eq!(selector["kubernetes.io/arch"], "arm64", "{name}");
        assert_eq!(pod["priorityClassName"], "ours", "{name}");
        assert_eq!(pod["imagePullSecrets"], json!([{"name": "of-all"}, {"name": "own-registry"}]), "{name}");
        let tolerations = pod["tolerations"].as_array().unwrap();
        assert!(tolerations.contains(&json!({"key": "mine", "operator": "Exists"})), "{name}");
        let of_nodes = name.starts_with("DaemonSet");
        assert_eq!(tolerations.len(), 1 + usize::from(of_nodes), "{name}: {tolerations:?}");
        let terms = "/affinity/nodeAffinity/requiredDuringSchedulingIgnoredDuringExecution/nodeSelectorTerms";
        let terms = pod.pointer(terms).and_then(Value::as_array).unwrap();
        assert_eq!(terms.len(), 2, "{name}");
        for term in terms {
            let expressions = term["matchExpressions"].as_array().unwrap();
            let has = |key: &str| expressions.iter().any(|expression| expression["key"] == key);
            // Each of the terms is enough, so each must ask for the label of nodes with boards.
            let of_boards = of_nodes && !name.contains("device-manager");
            assert!(has("zone") && has("fpga-scheduling.io/fpga-vendor") == of_boards, "{name}: {term}");
        }
        let containers = pod["containers"].as_array().into_iter().chain(pod["initContainers"].as_array());
        let set = containers.flatten().filter(|container| {
            container["resources"]["limits"]["memory"] == "3Gi"
                && container["resources"]["requests"]["cpu"] == 0.5
        });
        assert!(set.count() >= 1, "{name}: {}", pod["containers"]);
    }
}
