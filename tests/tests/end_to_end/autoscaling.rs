//! The real HorizontalPodAutoscaler scales a function by its requests, out and in: kube-controller-manager asks the API
//! server, and that asks the endpoint picker by the chart's APIService. A real Prometheus with the chart's rules tells the
//! queries of the examples for KEDA and prometheus-adapter the same.

use anyhow::Result;
use fpga_tests::functions::Function;
use fpga_tests::testbed::artifacts;
use fpga_tests::testbed::certificates;
use fpga_tests::testbed::cluster::{BoardSpec, Cluster, ClusterSpec, ExtenderAway, NodeCache, Runtime};
use fpga_tests::testbed::control_plane::ControlPlane;
use fpga_tests::testbed::endpoint_slices::EndpointSlices;
use fpga_tests::testbed::helm;
use fpga_tests::testbed::http_client::HttpClient;
use fpga_tests::testbed::identity::Identity;
use fpga_tests::testbed::invoke::Case;
use fpga_tests::testbed::manifests::kubectl;
use fpga_tests::testbed::programs::repository;
use fpga_tests::testbed::prometheus::{Prometheus, Target};
use fpga_tests::testbed::router::Router;
use fpga_tests::testbed::wait;
use fpga_tests::testbed::workload::Workload;
use k8s_openapi::api::apps::v1::Deployment;
use kube::Api;
use kube::api::PostParams;
use serde_json::{Value, json};
use std::path::Path;
use std::time::Duration;
use tokio::task::JoinSet;

/// The autoscaler looks every 5 s, and the load fades with 15 s.
const LONG: Duration = Duration::from_secs(150);
const API: &str = "v1beta1.external.metrics.k8s.io";
/// Where the picker serves external metrics.
const PORT: u16 = 9466;
/// Token of the function's pods, which names their workload to the boards.
const TOKEN: &str = "a-token-of-the-workload-sobel";
/// Requests in flight for which the autoscaler has a replica.
const PER_REPLICA: usize = 2;
/// Boards, and so most replicas.
const BOARDS: usize = 3;
/// Time for which a request holds a slot of a board: long beside what a busy machine adds to it.
const HOLD: Duration = Duration::from_millis(500);
/// Time after which a further client comes, whatever there is of replicas: 40 requests of a board, four looks of the
/// autoscaler.
const STEP: Duration = Duration::from_secs(20);
/// Longest mean time for which the requests of a step may wait for a slot, in times for which a request holds one, which are
/// longer on a busy machine. On one board the requests of three clients wait for 2 others, and those of four for 3: the second
/// replica must be there by then. With enough replicas they wait for 1 to 1.5.
const WAIT_GOAL: f64 = 2.5;
/// Fewest requests of which a mean is told.
const LEAST_REQUESTS: f64 = 10.0;
const IN_FLIGHT: &str = "/apis/external.metrics.k8s.io/v1beta1/namespaces/default/fpga_function_requests_in_flight?labelSelector=function%3Dsobel";

/// A file of an example, for the test's namespace.
fn example(file: &str) -> Value {
    let path = repository().join("manifests/examples/autoscaling").join(file);
    let text = std::fs::read_to_string(path).unwrap().replace("fpga-functions", "default");
    serde_saphyr::from_str(&text).unwrap()
}

/// The objects of a template of the chart.
fn objects(template: &str, settings: &[&str]) -> Vec<Value> {
    let text = helm::template(template, settings).unwrap();
    text.split("\n---\n")
        .filter_map(|text| serde_saphyr::from_str(text).ok())
        .filter(Value::is_object)
        .collect()
}

async fn apply(plane: &ControlPlane, object: &Value) {
    let file = plane.run_dir().path().join("object.json");
    std::fs::write(&file, object.to_string()).unwrap();
    kubectl(plane, &["apply", "--server-side", "-f", file.to_str().unwrap()]).await.unwrap();
}

/// Writes the chart's certificate for the APIService below `folder`, and applies the APIService with a Service that leads to
/// the picker: pods of modelled nodes have addresses that no Service of the API server can have.
async fn serve_external_metrics(plane: &ControlPlane, folder: &Path) {
    let settings = ["router.enabled=true", "router.externalMetrics.enabled=true"];
    for object in objects("templates/router/rbac.yaml", &settings) {
        apply(plane, &object).await;
    }
    for mut object in objects("templates/router/external-metrics.yaml", &settings) {
        let name = object["metadata"]["name"].as_str().unwrap().to_owned();
        match object["kind"].as_str().unwrap() {
            "APIService" => {
                object["spec"]["service"]["port"] = json!(PORT);
                apply(plane, &object).await;
            }
            "Service" if name == "fpga-external-metrics" => {
                let address = plane.network().control_plane().to_string();
                object["spec"] = json!({"type": "ExternalName", "externalName": address});
                apply(plane, &object).await;
            }
            _ => {}
        }
    }
    certificates::apply(plane, &settings).await.unwrap();
    certificates::make(plane, helm::NAMESPACE).await.unwrap();
    let secret = certificates::secret(plane, helm::NAMESPACE, "fpga-external-metrics-tls").await.unwrap();
    for (file, bytes) in secret {
        std::fs::write(folder.join(file), bytes.0).unwrap();
    }
}

/// A cluster with [`BOARDS`] modelled boards, on which a request of Sobel takes [`HOLD`].
async fn start_cluster(folder: &Path, runtime: Runtime) -> Cluster {
    let model = folder.join("board.toml");
    let text =
        format!("board = \"a board of the test\"\n[[kernel]]\nname = \"sobel\"\nlaunch = \"{HOLD:?}\"\n");
    std::fs::write(&model, text).unwrap();
    let bitstreams = artifacts::bitstreams(runtime).unwrap();
    // As the node plugin names it.
    let tokens = folder.join("tokens");
    std::fs::create_dir_all(tokens.join("default")).unwrap();
    std::fs::write(tokens.join("default/sobel@1"), TOKEN).unwrap();
    let board = |name: &str| BoardSpec {
        slots: 1,
        bitstreams: Some(bitstreams.clone()),
        device_manager_args: ["--model", model.to_str().unwrap(), "--tokens", tokens.to_str().unwrap()]
            .map(str::to_owned)
            .to_vec(),
        ..BoardSpec::new(name, Some(runtime))
    };
    Cluster::start(ClusterSpec {
        boards: (1..=BOARDS).map(|number| board(&format!("n{number}"))).collect(),
        weights: "0.5-2-2-1".to_owned(),
        node_cache: NodeCache::Capable,
        extender_away: ExtenderAway::Wait,
        extender_args: Vec::new(),
    })
    .await
    .unwrap()
}

async fn deploy_sobel(cluster: &Cluster, runtime: Runtime) -> Api<Deployment> {
    let function = artifacts::functions().unwrap().join("sobel");
    let bitstream = artifacts::bitstreams(runtime).unwrap().join("sobel.bitstream");
    let workload = Workload::function("sobel", &function, &bitstream)
        .requires("fpga-vendor", runtime.vendor())
        .env("FPGA_TOKEN", TOKEN)
        // Requests that wait do so for a slot of the board, and not for a process of the function.
        .env("WORKERS", (BOARDS * PER_REPLICA).to_string());
    let deployments: Api<Deployment> = Api::namespaced(cluster.plane().client().clone(), "default");
    let deployment = serde_json::from_value(workload.deployment(1)).unwrap();
    deployments.create(&PostParams::default(), &deployment).await.unwrap();
    wait_for_replicas(cluster, &deployments, 1).await;
    deployments
}

/// Waits until the Deployment has exactly so many replicas, all ready.
async fn wait_for_replicas(cluster: &Cluster, deployments: &Api<Deployment>, replicas: i32) {
    let result = wait::until_within(&format!("{replicas} ready replicas"), LONG, async || {
        cluster.check_running()?;
        let status = deployments.get("sobel").await?.status.unwrap_or_default();
        let all = [status.replicas, status.ready_replicas, status.updated_replicas];
        Ok(all.iter().all(|count| *count == Some(replicas)).then_some(()))
    })
    .await;
    if let Err(error) = result {
        let describe = ["describe", "hpa,deployment", "-n", "default"];
        panic!("{error:#}\n{}", kubectl(cluster.plane(), &describe).await.unwrap_or_default());
    }
}

/// Clients that call the function one request after the other, until they are dropped.
struct Load {
    http: HttpClient,
    url: String,
    case: Case,
    clients: JoinSet<()>,
}

impl Load {
    fn new(url: String) -> Self {
        let (http, case) = (HttpClient::new(LONG), Case::new(Function::Sobel, 32, 1).unwrap());
        Self { http, url, case, clients: JoinSet::new() }
    }

    /// Adds a client.
    fn add(&mut self) {
        let (http, url, case) = (self.http.clone(), self.url.clone(), self.case.clone());
        self.clients.spawn(async move {
            loop {
                // A replica that starts or ends may refuse one.
                if case.invoke_at(&http, &url).await.is_err() {
                    tokio::time::sleep(Duration::from_millis(100)).await;
                }
            }
        });
    }
}

/// What the metrics say of slots: the time that all requests waited for one together, the time that they held one, and
/// their number.
#[derive(Debug, Clone, Copy)]
struct Waits {
    waited_seconds: f64,
    held_seconds: f64,
    requests: f64,
}

impl Waits {
    async fn read(cluster: &Cluster, router: &Router) -> Result<Self> {
        let http = cluster.http();
        let (mut waited_seconds, mut held_seconds) = (0.0, 0.0);
        for board in &cluster.boards {
            let metrics = http.get(&board.manager_metrics_url()).await?;
            waited_seconds += metrics.metric("fpga_device_manager_tenant_queue_seconds_total");
            held_seconds += metrics.metric("fpga_device_manager_slot_seconds_total");
        }
        let metrics = http.get(&router.metrics_url()).await?;
        let requests = metrics.metric("fpga_picker_function_requests_total");
        Ok(Self { waited_seconds, held_seconds, requests })
    }

    /// The mean wait of a request since then, in times for which a request holds a slot; `None` if there were too few.
    fn mean_since(self, then: Self) -> Option<f64> {
        let held_seconds = self.held_seconds - then.held_seconds;
        let is_enough = self.requests - then.requests >= LEAST_REQUESTS && held_seconds > 0.0;
        is_enough.then(|| (self.waited_seconds - then.waited_seconds) / held_seconds)
    }
}

/// Whether the load goes on rising when the requests of a step have waited for longer than [`WAIT_GOAL`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum BeyondGoal {
    GoesOn,
    Ends,
}

/// Lets the load rise by a client every [`STEP`], from those of one replica to those of all boards. Returns the mean wait of
/// each step's requests.
async fn rise(cluster: &Cluster, router: &Router, load: &mut Load, beyond: BeyondGoal) -> Vec<f64> {
    (1..PER_REPLICA).for_each(|_| load.add());
    let mut means = Vec::new();
    let mut clock = tokio::time::interval(STEP);
    clock.tick().await;
    let mut before = Waits::read(cluster, router).await.unwrap();
    for clients in PER_REPLICA..=BOARDS * PER_REPLICA {
        load.add();
        clock.tick().await;
        cluster.check_running().unwrap();
        let now = Waits::read(cluster, router).await.unwrap();
        let mean = now.mean_since(before).expect("this machine is too slow: too few requests in a step");
        println!("{clients} clients: a request waits for {mean:.1} others");
        means.push(mean);
        before = now;
        if beyond == BeyondGoal::Ends && mean > WAIT_GOAL {
            break;
        }
    }
    means
}

/// Checks that Prometheus answers the queries of the examples and knows what the chart's rules record.
async fn prometheus_tells(prometheus: &Prometheus, http: &HttpClient, rules: &Value) {
    let triggers = example("keda.yaml")["spec"]["triggers"].take();
    let triggers = triggers.as_array().unwrap();
    let mut queries: Vec<String> =
        triggers.iter().map(|trigger| trigger["metadata"]["query"].as_str().unwrap().to_owned()).collect();
    for rule in example("prometheus-adapter.yaml")["rules"]["external"].as_array().unwrap() {
        // As the adapter fills in the template for an HPA of the namespace.
        let (series, query) = (rule["seriesQuery"].as_str().unwrap(), rule["metricsQuery"].as_str().unwrap());
        let selected = if series.starts_with("fpga:workload_") { "workload" } else { "function" };
        let namespaced = rule["resources"]["overrides"].as_object().unwrap().keys().next().unwrap();
        let matchers = format!("{namespaced}=\"default\",{selected}=\"sobel\"");
        queries.push(query.replace("<<.Series>>", series).replace("<<.LabelMatchers>>", &matchers));
    }
    for of_boards in ["fpga:workload_slots_held", "fpga:workload_slot_wait_seconds"] {
        let asking = queries.iter().filter(|query| query.contains(of_boards)).count();
        assert_eq!(asking, 2, "both examples have {of_boards}");
    }
    let recorded = rules["groups"][0]["rules"].as_array().unwrap();
    queries.extend(recorded.iter().map(|rule| rule["record"].as_str().unwrap().to_owned()));
    for query in queries {
        let is_right = |value: f64| value > 0.0;
        let told = async || {
            let series = prometheus.query(http, &query).await?;
            Ok(matches!(&series[..], [(_, value)] if is_right(*value)).then_some(()))
        };
        wait::until_within(&format!("Prometheus to have one series of {query}"), LONG, told).await.unwrap();
    }
}

/// The picker's port for people.
fn router_read_address(plane: &ControlPlane) -> String {
    format!("{}:{}", plane.network().control_plane(), fpga_tests::testbed::picker::READ_PORT)
}

#[tokio::test]
async fn helm_refuses_to_serve_external_metrics_where_something_else_does() {
    let plane = ControlPlane::start(&[]).await.unwrap();
    let template = async || {
        let mut command = tokio::process::Command::new(helm::helm().unwrap());
        command
            .args(["template", "kube-fpga", "manifests/chart", "--namespace", helm::NAMESPACE])
            .args(["--dry-run=server", "--show-only", "templates/router/external-metrics.yaml"])
            .args(["--set", "router.enabled=true,router.externalMetrics.enabled=true"])
            .env("KUBECONFIG", plane.kubeconfig(&Identity::Admin).unwrap())
            .env("HOME", plane.run_dir().path())
            .current_dir(repository());
        let output = command.output().await.unwrap();
        (output.status.success(), String::from_utf8([output.stdout, output.stderr].concat()).unwrap())
    };
    let (well, text) = template().await;
    assert!(well && text.contains("kind: APIService"), "{text}");
    let mut service: Value = objects(
        "templates/router/external-metrics.yaml",
        &["router.enabled=true", "router.externalMetrics.enabled=true"],
    )
    .into_iter()
    .find(|object| object["kind"] == "APIService")
    .unwrap();
    service["spec"]["service"] = json!({"name": "keda-operator-metrics-apiserver", "namespace": "keda"});
    apply(&plane, &service).await;
    let (well, text) = template().await;
    assert!(!well && text.contains("is served by keda/keda-operator-metrics-apiserver already"), "{text}");
    plane.stop().await;
}

mod timing {
    use super::*;

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    #[ignore = "measures the machine: make test-timing"]
    async fn the_autoscaler_scales_a_function_out_before_its_requests_wait_long_and_in_when_they_end() {
        let folder = tempfile::tempdir().unwrap();
        let runtime = Runtime::from_env().unwrap();
        let cluster = start_cluster(folder.path(), runtime).await;
        let (plane, http) = (cluster.plane(), cluster.http().clone());
        let ip = plane.network().control_plane();
        serve_external_metrics(plane, folder.path()).await;
        let file = |name: &str| folder.path().join(name).display().to_string();
        let (listen, certificate, key) = (format!("{ip}:{PORT}"), file("tls.crt"), file("tls.key"));
        let router = Router::start(
            plane,
            &http,
            &[
                ["--external-metrics-listen", &listen],
                ["--external-metrics-tls-cert", &certificate],
                ["--external-metrics-tls-key", &key],
                // This picker alone, as all pickers are asked.
                ["--pickers", &router_read_address(plane)],
            ]
            .concat(),
        )
        .await
        .unwrap();
        let slices = EndpointSlices::keep(plane.client(), "default");
        let deployments = deploy_sobel(&cluster, runtime).await;
        slices.create_function("sobel").await.unwrap();

        kubectl(
            plane,
            &["wait", "--for=condition=Available", &format!("apiservice/{API}"), "--timeout=120s"],
        )
        .await
        .unwrap();
        let items = async || {
            let list: Value = serde_json::from_str(&kubectl(plane, &["get", "--raw", IN_FLIGHT]).await?)?;
            Ok(list["items"].as_array().filter(|items| !items.is_empty()).cloned())
        };
        let idle = wait::until_within("the function to have a metric", LONG, items).await.unwrap();
        assert_eq!(
            (&idle[0]["value"], &idle[0]["metricLabels"]["function"]),
            (&json!("0m"), &json!("sobel"))
        );
        // The API server asks who may ask.
        let collector = plane.client_of(&Identity::Collector).await.unwrap();
        let refused = collector.request_text(http::Request::get(IN_FLIGHT).body(Vec::new()).unwrap()).await;
        assert!(refused.unwrap_err().to_string().contains("forbidden"));

        let rules = objects("templates/rules.yaml", &["monitoring.rules=true"]).remove(0)["spec"].take();
        let mut targets = vec![Target::new(&router.metrics_url())];
        targets.extend(cluster.boards.iter().map(|board| Target::new(&board.manager_metrics_url())));
        let prometheus = Prometheus::start(ip, plane.run_dir(), &http, &targets, &rules).await.unwrap();

        let mut hpa = example("hpa.yaml");
        hpa["spec"]["behavior"]["scaleDown"]["stabilizationWindowSeconds"] = json!(0);
        apply(plane, &hpa).await;
        let mut load = Load::new(router.url("default", "sobel"));
        let means = rise(&cluster, &router, &mut load, BeyondGoal::GoesOn).await;
        if means.iter().any(|mean| *mean > WAIT_GOAL) {
            let describe = ["describe", "hpa,deployment", "-n", "default"];
            panic!("{means:?}\n{}", kubectl(plane, &describe).await.unwrap_or_default());
        }
        wait_for_replicas(&cluster, &deployments, i32::try_from(BOARDS).unwrap()).await;
        prometheus_tells(&prometheus, &http, &rules).await;
        router.check_running().unwrap();
        drop(load);
        wait_for_replicas(&cluster, &deployments, 1).await;

        // The same load without the autoscaler: it, and nothing else, holds the goal.
        kubectl(plane, &["delete", "hpa", "sobel", "-n", "default"]).await.unwrap();
        let mut load = Load::new(router.url("default", "sobel"));
        let means = rise(&cluster, &router, &mut load, BeyondGoal::Ends).await;
        assert!(means.iter().any(|mean| *mean > WAIT_GOAL), "{means:?}");
        wait_for_replicas(&cluster, &deployments, 1).await;
        drop(load);
        prometheus.kill().await;
        router.stop().await;
        cluster.stop().await;
    }
}
