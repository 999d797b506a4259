//! Finds out the facts. It only reads, and goes on when something is refused.

use super::facts::{Facts, FpgaPod, Looked, Node, Replica, Right, SchedulerPod, State};
use super::scheduler_config::SchedulerConfig;
use crate::connection::{Cluster, ConnectArgs};
use crate::extender;
use crate::problem::{Grant, Problem};
use fpga_core::names::{ACCELERATED_RESOURCE, BOARD_LABEL, SHELL_LABEL, VENDOR_LABEL};
use fpga_core::node_state::{ANNOTATION, FIELD_MANAGER, decode};
use fpga_core::requirement::{PodText, Requirement};
use futures::future::join_all;
use k8s_openapi::api::authorization::v1::{ResourceAttributes, SubjectAccessReview, SubjectAccessReviewSpec};
use k8s_openapi::api::core::v1::{ConfigMap, Container, Node as KubeNode, Pod};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Api;
use kube::api::{ListParams, PostParams};
use serde::Deserialize;
use std::collections::BTreeMap;
use std::path::Path;

/// Objects per request.
const PAGE: u32 = 500;

/// Who must be allowed to do what, and what else happens.
const NEEDED: [Needed; 9] = [
    ("fpga-scheduler-extender", "list", "", "nodes", "It never gets ready: it knows no nodes."),
    ("fpga-scheduler-extender", "watch", "", "nodes", "It never gets ready: it knows no nodes."),
    ("fpga-scheduler-extender", "get", "", "nodes", "It may fail to follow the nodes."),
    ("fpga-scheduler-extender", "list", "", "pods", NO_PODS),
    ("fpga-scheduler-extender", "watch", "", "pods", NO_PODS),
    ("fpga-scheduler-extender", "get", "", "pods", "It may fail to follow the pods."),
    (
        "fpga-scheduler-extender",
        "create",
        "authentication.k8s.io",
        "tokenreviews",
        "It can't tell whose token a collector shows: streams are refused, and states come by annotation.",
    ),
    (
        "fpga-collector",
        "get",
        "",
        "nodes",
        "It can't tell which publication was its last: states may be taken for old ones.",
    ),
    ("fpga-collector", "patch", "", "nodes", "No node state is ever published."),
];

const NO_PODS: &str = "It never gets ready while anti-herd is on: it can't see where pods are.";

/// Account, verb, group, resource, and what happens without.
type Needed = (&'static str, &'static str, &'static str, &'static str, &'static str);

#[derive(Deserialize)]
struct Version {
    version: String,
}

/// All that can be found out.
///
/// # Errors
/// [`Problem`] if the API server can't be reached, or doesn't know us.
pub(super) async fn facts(
    connect: &ConnectArgs,
    cluster: &Cluster,
    scheduler_config: Option<&Path>,
) -> Result<Facts, Problem> {
    let version = cluster.client.apiserver_version().await;
    let kubernetes_minor =
        match version.map_err(|error| api(cluster, &error, None, "get", "--non-resource-url=/version")) {
            Ok(version) => minor(&version.minor),
            Err(problem @ (Problem::Unreachable { .. } | Problem::Unauthorized(_))) => return Err(problem),
            Err(problem) => Looked::Hidden(problem.to_string()),
        };
    let scheduler = scheduler_pod(cluster).await;
    let config = match scheduler_config {
        Some(path) => read_config(path)?,
        None => find_config(cluster, scheduler.found()).await,
    };
    let scheduler_pod = match scheduler {
        Looked::Found(pod) => Looked::Found(summary(&pod)),
        Looked::Hidden(why) => Looked::Hidden(why),
    };
    let (replicas, nodes, pods, collectors, rights) = futures::join!(
        replicas(connect, cluster),
        nodes(cluster),
        pods(cluster),
        collectors(connect, cluster),
        rights(connect, cluster),
    );
    Ok(Facts { kubernetes_minor, config, scheduler_pod, replicas, nodes, pods, collectors, rights })
}

fn api(
    cluster: &Cluster,
    error: &kube::Error,
    namespace: Option<&'static str>,
    verbs: &'static str,
    resources: &'static str,
) -> Problem {
    let grant = Grant { namespace, verbs, resources };
    Problem::of_api(error, &cluster.server, "the API server refuses", &grant)
}

fn looked<T>(result: Result<T, Problem>) -> Looked<T> {
    result.map_or_else(|problem| Looked::Hidden(problem.to_string()), Looked::Found)
}

/// `35+` in some clouds.
fn minor(text: &str) -> Looked<u32> {
    let digits: String = text.chars().take_while(char::is_ascii_digit).collect();
    match digits.parse() {
        Ok(minor) => Looked::Found(minor),
        Err(_) => Looked::Hidden(format!("the API server's version {text:?} is no number")),
    }
}

async fn scheduler_pod(cluster: &Cluster) -> Looked<Pod> {
    let pods: Api<Pod> = Api::namespaced(cluster.client.clone(), "kube-system");
    match pods.list(&ListParams::default().labels("component=kube-scheduler")).await {
        Ok(list) => match list.items.into_iter().next() {
            Some(pod) => Looked::Found(pod),
            None => Looked::Hidden(
                "no pod in kube-system has the label component=kube-scheduler: it runs outside the cluster"
                    .to_owned(),
            ),
        },
        Err(error) => Looked::Hidden(api(cluster, &error, Some("kube-system"), "list", "pods").to_string()),
    }
}

fn summary(pod: &Pod) -> SchedulerPod {
    let spec = pod.spec.clone().unwrap_or_default();
    let words = |container: &Container| {
        container.command.iter().chain(&container.args).flatten().cloned().collect::<Vec<_>>()
    };
    SchedulerPod {
        name: pod.metadata.name.clone().unwrap_or_default(),
        host_network: spec.host_network.unwrap_or_default(),
        dns_policy: spec.dns_policy.clone().unwrap_or_else(|| "ClusterFirst".to_owned()),
        command: spec.containers.first().map(words).unwrap_or_default(),
    }
}

fn read_config(path: &Path) -> Result<Looked<(String, SchedulerConfig)>, Problem> {
    let problem = |error: String| Problem::Other { doing: format!("can't read {}", path.display()), error };
    let text = std::fs::read_to_string(path).map_err(|error| problem(error.to_string()))?;
    let config = SchedulerConfig::parse(&text).map_err(problem)?;
    Ok(Looked::Found((path.display().to_string(), config)))
}

/// In the ConfigMaps that kube-scheduler's pod mounts, else in all of kube-system.
async fn find_config(cluster: &Cluster, scheduler: Option<&Pod>) -> Looked<(String, SchedulerConfig)> {
    let maps: Api<ConfigMap> = Api::namespaced(cluster.client.clone(), "kube-system");
    let maps = match maps.list(&ListParams::default()).await {
        Ok(maps) => maps.items,
        Err(error) => {
            return Looked::Hidden(
                api(cluster, &error, Some("kube-system"), "list", "configmaps").to_string(),
            );
        }
    };
    let volumes = scheduler.and_then(|pod| pod.spec.as_ref()?.volumes.as_deref()).unwrap_or_default();
    let mounted: Vec<&str> =
        volumes.iter().filter_map(|volume| Some(volume.config_map.as_ref()?.name.as_str())).collect();
    let mut unreadable = None;
    for map in &maps {
        let name = map.metadata.name.as_deref().unwrap_or_default();
        if !mounted.is_empty() && !mounted.contains(&name) {
            continue;
        }
        for (key, text) in map.data.iter().flatten() {
            if !text.contains("kind: KubeSchedulerConfiguration") {
                continue;
            }
            match SchedulerConfig::parse(text) {
                Ok(config) => {
                    return Looked::Found((format!("ConfigMap kube-system/{name} ({key})"), config));
                }
                Err(error) => {
                    unreadable = Some(format!("ConfigMap kube-system/{name} ({key}) can't be read: {error}"));
                }
            }
        }
    }
    let nothing = "kube-scheduler's configuration is no ConfigMap of kube-system; it may be a file on the control plane";
    Looked::Hidden(unreadable.unwrap_or_else(|| nothing.to_owned()))
}

async fn replicas(connect: &ConnectArgs, cluster: &Cluster) -> Looked<Vec<Replica>> {
    let found = match extender::find(connect, cluster).await {
        Ok(found) => found,
        Err(problem) => return Looked::Hidden(problem.to_string()),
    };
    let asked = found.iter().map(async |replica| {
        let (config, nodes, metrics, ready, version) = futures::join!(
            replica.ask("/config"),
            replica.ask("/nodes"),
            replica.text("/metrics"),
            replica.text("/readyz"),
            replica.ask::<Version>("/version"),
        );
        Replica {
            name: replica.name.clone(),
            ready: replica.ready && ready.is_ok(),
            config: looked(config).and_some(),
            nodes: looked(nodes).and_some(),
            metrics: match looked(metrics) {
                Looked::Found(text) => Looked::Found(sums(&text.unwrap_or_default())),
                Looked::Hidden(why) => Looked::Hidden(why),
            },
            version: version.ok().flatten().map(|version| version.version),
        }
    });
    Looked::Found(join_all(asked).await)
}

impl<T> Looked<Option<T>> {
    fn and_some(self) -> Looked<T> {
        match self {
            Self::Found(Some(found)) => Looked::Found(found),
            Self::Found(None) => Looked::Hidden("it doesn't tell; it may be of another version".to_owned()),
            Self::Hidden(why) => Looked::Hidden(why),
        }
    }
}

/// Per metric the sum of its samples.
fn sums(text: &str) -> BTreeMap<String, f64> {
    let mut sums = BTreeMap::new();
    for line in text.lines().filter(|line| !line.starts_with('#')) {
        let Some((key, value)) = line.rsplit_once(' ') else { continue };
        let Ok(value) = value.parse::<f64>() else { continue };
        let name = key.split_once('{').map_or(key, |(name, _)| name);
        *sums.entry(name.to_owned()).or_default() += value;
    }
    sums
}

async fn nodes(cluster: &Cluster) -> Looked<Vec<Node>> {
    let nodes: Api<KubeNode> = Api::all(cluster.client.clone());
    let mut params = ListParams::default().limit(PAGE);
    let mut all = Vec::new();
    loop {
        let page = match nodes.list_metadata(&params).await {
            Ok(page) => page,
            Err(error) => return Looked::Hidden(api(cluster, &error, None, "list", "nodes").to_string()),
        };
        all.extend(page.items.iter().map(|node| node_of(&node.metadata)));
        match page.metadata.continue_.filter(|token| !token.is_empty()) {
            Some(token) => params = params.continue_token(&token),
            None => return Looked::Found(all),
        }
    }
}

fn node_of(node: &ObjectMeta) -> Node {
    let annotation = node.annotations.as_ref().and_then(|annotations| annotations.get(ANNOTATION));
    let state = match annotation.map(|text| decode(text)) {
        None => State::Absent,
        Some(Err(error)) => State::Unreadable(error.to_string()),
        Some(Ok(state)) => State::Known(Box::new(state)),
    };
    let fields = node.managed_fields.as_deref().unwrap_or_default();
    let by_collector = fields.iter().filter(|entry| entry.manager.as_deref() == Some(FIELD_MANAGER));
    let times = by_collector.filter_map(|entry| u64::try_from(entry.time.as_ref()?.0.as_millisecond()).ok());
    Node {
        name: node.name.clone().unwrap_or_default(),
        labelled: node.labels.as_ref().is_some_and(|labels| labels.contains_key(VENDOR_LABEL)),
        state,
        written_at_ms: times.max(),
    }
}

async fn pods(cluster: &Cluster) -> Looked<Vec<FpgaPod>> {
    let pods: Api<Pod> = Api::all(cluster.client.clone());
    let mut params = ListParams::default().limit(PAGE);
    let mut all = Vec::new();
    loop {
        let page = match pods.list(&params).await {
            Ok(page) => page,
            Err(error) => return Looked::Hidden(api(cluster, &error, None, "list", "pods").to_string()),
        };
        all.extend(page.items.iter().filter_map(fpga_pod));
        match page.metadata.continue_.filter(|token| !token.is_empty()) {
            Some(token) => params = params.continue_token(&token),
            None => return Looked::Found(all),
        }
    }
}

/// The pod, if it asks for an FPGA and has not ended.
fn fpga_pod(pod: &Pod) -> Option<FpgaPod> {
    let spec = pod.spec.as_ref()?;
    let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
    if matches!(phase, Some("Succeeded" | "Failed")) {
        return None;
    }
    let quantities = |containers: &[Container]| {
        let quantity = |container: &Container| {
            let resources = container.resources.as_ref()?;
            let maps = [resources.limits.as_ref(), resources.requests.as_ref()];
            let mut found = maps.into_iter().flatten().filter_map(|map| map.get(ACCELERATED_RESOURCE));
            found.next().map(|quantity| quantity.0.clone())
        };
        containers.iter().filter_map(quantity).collect::<Vec<String>>()
    };
    let containers = quantities(&spec.containers);
    let init_containers = quantities(spec.init_containers.as_deref().unwrap_or_default());
    fn texts(all: &[String]) -> Vec<&str> {
        all.iter().map(String::as_str).collect()
    }
    let pairs = |map: &Option<BTreeMap<String, String>>| {
        map.iter().flatten().map(|(key, value)| (key.clone(), value.clone())).collect::<Vec<_>>()
    };
    let (labels, annotations) = (pairs(&pod.metadata.labels), pairs(&pod.metadata.annotations));
    let asked = Requirement::of_pod(PodText {
        labels: labels.iter().map(|(key, value)| (key.as_str(), value.as_str())),
        annotations: annotations.iter().map(|(key, value)| (key.as_str(), value.as_str())),
        containers: &texts(&containers),
        init_containers: &texts(&init_containers),
    });
    if matches!(asked, Ok(None)) {
        return None;
    }
    let namespace = pod.metadata.namespace.as_deref().unwrap_or_default();
    Some(FpgaPod {
        name: format!("{namespace}/{}", pod.metadata.name.as_deref().unwrap_or_default()),
        pending: spec.node_name.is_none(),
        requests_resource: !containers.is_empty() || !init_containers.is_empty(),
        narrowed: is_narrowed(pod),
    })
}

/// Whether a required node affinity or a node selector has one of our labels.
fn is_narrowed(pod: &Pod) -> bool {
    let ours = |key: &str| [VENDOR_LABEL, BOARD_LABEL, SHELL_LABEL].contains(&key);
    let Some(spec) = &pod.spec else { return false };
    let selector = spec.node_selector.as_ref().is_some_and(|selector| selector.keys().any(|key| ours(key)));
    let required = spec.affinity.as_ref().and_then(|affinity| {
        affinity.node_affinity.as_ref()?.required_during_scheduling_ignored_during_execution.as_ref()
    });
    // Terms are alternatives: each of them must narrow.
    let affinity = required.is_some_and(|required| {
        let terms = &required.node_selector_terms;
        let narrows = |expressions: &Option<Vec<k8s_openapi::api::core::v1::NodeSelectorRequirement>>| {
            let positive = |operator: &str| matches!(operator, "In" | "Exists");
            expressions.iter().flatten().any(|one| ours(&one.key) && positive(&one.operator))
        };
        !terms.is_empty() && terms.iter().all(|term| narrows(&term.match_expressions))
    });
    selector || affinity
}

async fn collectors(connect: &ConnectArgs, cluster: &Cluster) -> Looked<Vec<String>> {
    let pods: Api<Pod> = Api::namespaced(cluster.client.clone(), &connect.extender_namespace);
    let ours = ListParams::default().labels("app.kubernetes.io/name=fpga-collector");
    match pods.list(&ours).await {
        Ok(list) => Looked::Found(list.items.iter().filter(|pod| is_ready(pod)).filter_map(on).collect()),
        Err(error) => Looked::Hidden(api(cluster, &error, Some("kube-fpga"), "list", "pods").to_string()),
    }
}

fn on(pod: &Pod) -> Option<String> {
    pod.spec.as_ref()?.node_name.clone()
}

fn is_ready(pod: &Pod) -> bool {
    let conditions = pod.status.as_ref().and_then(|status| status.conditions.as_deref()).unwrap_or_default();
    conditions.iter().any(|condition| condition.type_ == "Ready" && condition.status == "True")
}

async fn rights(connect: &ConnectArgs, cluster: &Cluster) -> Looked<Vec<Right>> {
    let reviews: Api<SubjectAccessReview> = Api::all(cluster.client.clone());
    let asked = NEEDED.map(async |(account, verb, group, resource, needed_for)| {
        let who = format!("system:serviceaccount:{}:{account}", connect.extender_namespace);
        let attributes = ResourceAttributes {
            verb: Some(verb.to_owned()),
            group: Some(group.to_owned()),
            resource: Some(resource.to_owned()),
            ..ResourceAttributes::default()
        };
        let review = SubjectAccessReview {
            spec: SubjectAccessReviewSpec {
                user: Some(who.clone()),
                resource_attributes: Some(attributes),
                ..SubjectAccessReviewSpec::default()
            },
            ..SubjectAccessReview::default()
        };
        let review = reviews.create(&PostParams::default(), &review).await;
        let review = review.map_err(|error| {
            api(cluster, &error, None, "create", "subjectaccessreviews.authorization.k8s.io")
        })?;
        let allowed = review.status.is_some_and(|status| status.allowed);
        Ok::<Right, Problem>(Right { who, verb, resource, allowed, needed_for })
    });
    looked(join_all(asked).await.into_iter().collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn pod(labels: &serde_json::Value, spec: &serde_json::Value) -> Option<FpgaPod> {
        let pod = json!({"metadata": {"name": "p", "namespace": "d", "labels": labels}, "spec": spec});
        fpga_pod(&serde_json::from_value(pod).unwrap())
    }

    #[test]
    fn fpga_pods_are_told_from_others_and_how_they_are_wired_is_seen() {
        let vendor = json!({"fpga-scheduling.io/fpga-vendor": "intel"});
        assert_eq!(pod(&json!({}), &json!({"containers": [{"name": "c"}]})), None);
        let bare = pod(&vendor, &json!({"containers": [{"name": "c"}]})).unwrap();
        assert!(bare.pending && !bare.requests_resource && !bare.narrowed && bare.name == "d/p");
        let term =
            |key: &str| json!({"matchExpressions": [{"key": key, "operator": "In", "values": ["intel"]}]});
        let affinity = |terms: serde_json::Value| json!({"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}});
        let wired = json!({
            "nodeName": "n", "affinity": affinity(json!([term("fpga-scheduling.io/fpga-vendor")])),
            "containers": [{"name": "c", "resources": {"limits": {"fpga-scheduling.io/accelerated": "1"}}}],
        });
        let wired = pod(&json!({}), &wired).unwrap();
        assert!(!wired.pending && wired.requests_resource && wired.narrowed);
        let loose = affinity(json!([term("fpga-scheduling.io/fpga-vendor"), term("zone")]));
        let loose = pod(&vendor, &json!({"affinity": loose, "containers": [{"name": "c"}]})).unwrap();
        assert!(!loose.narrowed, "the other term lets it go anywhere");
        let selected =
            json!({"nodeSelector": {"fpga-scheduling.io/board": "u250"}, "containers": [{"name": "c"}]});
        assert!(pod(&vendor, &selected).unwrap().narrowed);
    }

    #[test]
    fn metrics_are_summed_over_their_labels() {
        let sums = sums("# HELP a b\nx_total{a=\"1\"} 2\nx_total{a=\"2\"} 3\ny 0.5\n# EOF\n");
        assert_eq!((sums["x_total"], sums["y"], sums.len()), (5.0, 0.5, 2));
    }

    #[test]
    fn versions_of_clouds_are_read() {
        assert_eq!((minor("36"), minor("35+")), (Looked::Found(36), Looked::Found(35)));
        assert!(matches!(minor(""), Looked::Hidden(_)));
    }
}
