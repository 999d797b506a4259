//! The endpoint picker on a real API server: with its own rights alone it learns functions from Services, replicas from
//! the EndpointSlices that a real controller makes, boards from pods, and what is on boards from a collector's stream.
//! Pods end, come and go while requests are asked for, and one of two pickers is killed.

use fpga_endpoint_picker::ext_proc::external_processor_client::ExternalProcessorClient;
use fpga_endpoint_picker::ext_proc::processing_request::Request as Said;
use fpga_endpoint_picker::ext_proc::processing_response::Response as Answer;
use fpga_endpoint_picker::ext_proc::{HeaderMap, HeaderValue, HttpHeaders, ProcessingRequest};
use fpga_test_kit::patience;
use fpga_tests::testbed::control_plane::ControlPlane;
use fpga_tests::testbed::http_client::HttpClient;
use fpga_tests::testbed::identity::Identity;
use fpga_tests::testbed::manifests;
use fpga_tests::testbed::process::{Process, ProcessSpec};
use fpga_tests::testbed::{programs, wait};
use k8s_openapi::api::core::v1::{Node, Pod, Service};
use kube::Api;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use prost::Message as _;
use serde_json::{Value, json};
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::transport::{Channel, Endpoint};

const NODES: [&str; 2] = ["n1", "n2"];

/// A control plane with two nodes, which exist as objects only, and pickers.
struct Bed {
    plane: ControlPlane,
    http: HttpClient,
    pickers: Vec<Picker>,
}

/// A picker, and a gateway's connection to it.
struct Picker {
    process: Process,
    gateway: Gateway,
    metrics_url: String,
    /// Address for streams of collectors.
    streams: SocketAddr,
}

/// A gateway's connection to the picker.
#[derive(Clone)]
struct Gateway(Channel);

impl Gateway {
    /// The endpoints for a request of the function, or the status of the refusal.
    async fn pick(&self, function: &str) -> Result<Vec<String>, i32> {
        let path = HeaderValue {
            key: ":path".to_owned(),
            raw_value: format!("/function/{function}").into_bytes().into(),
            ..HeaderValue::default()
        };
        let headers = HeaderMap { headers: vec![path] }.encode_to_vec().into();
        let headers = Said::RequestHeaders(HttpHeaders { headers, end_of_stream: true });
        let (messages, receiver) = mpsc::channel(1);
        messages
            .send(ProcessingRequest { request: Some(headers), ..ProcessingRequest::default() })
            .await
            .unwrap();
        let mut client = ExternalProcessorClient::new(self.0.clone());
        let mut answers = client.process(ReceiverStream::new(receiver)).await.unwrap().into_inner();
        match answers.message().await.unwrap().unwrap().response.unwrap() {
            Answer::RequestHeaders(answer) => {
                let mutation = answer.response.unwrap().header_mutation.unwrap();
                let header = mutation.set_headers.into_iter().next().unwrap().header.unwrap();
                let list = String::from_utf8(header.raw_value.to_vec()).unwrap();
                Ok(list.split(',').map(str::to_owned).collect())
            }
            Answer::ImmediateResponse(refusal) => Err(refusal.status.unwrap().code),
            other => panic!("{other:?}"),
        }
    }
}

fn endpoint(pod: u8) -> String {
    format!("10.77.0.{pod}:8080")
}

impl Bed {
    /// A bed with this number of pickers.
    async fn start(pickers: u16) -> Self {
        let plane = ControlPlane::start(&[]).await.unwrap();
        let rights = ["Namespace", "ServiceAccount", "ClusterRole", "ClusterRoleBinding"];
        manifests::apply_kinds(&plane, "router", &rights).await.unwrap();
        for name in NODES {
            let node: Node = serde_json::from_value(json!({"metadata": {"name": name}})).unwrap();
            let nodes: Api<Node> = Api::all(plane.client().clone());
            nodes.create(&PostParams::default(), &node).await.unwrap();
        }
        let http = HttpClient::new(patience());
        let mut bed = Self { plane, http, pickers: Vec::new() };
        for number in 0..pickers {
            let picker = bed.start_picker(number).await;
            bed.pickers.push(picker);
        }
        bed
    }

    /// Starts a picker with its own rights, and waits until it is ready.
    async fn start_picker(&self, number: u16) -> Picker {
        let host = self.plane.network().control_plane();
        let [listen, metrics, streams] =
            [9470, 9471, 9472].map(|port| SocketAddr::from((host, port + 10 * number)));
        let name = format!("fpga-endpoint-picker-{number}");
        let program = programs::built("fpga-endpoint-picker").unwrap();
        let spec = ProcessSpec::new(&name, program, self.plane.run_dir().log(&name))
            .args(["--listen".to_owned(), listen.to_string()])
            .args(["--metrics-listen".to_owned(), metrics.to_string()])
            .args(["--stream-listen".to_owned(), streams.to_string()])
            .args(["--stream-without-tls", "--stream-without-token", "--shutdown-delay", "0s"])
            .arg("--kubeconfig")
            .arg(self.plane.kubeconfig(&Identity::Router).unwrap());
        let process = Process::start(&spec).unwrap();
        process.wait_ready(&self.http, &format!("http://{metrics}/readyz"), patience()).await.unwrap();
        let channel = Endpoint::from_shared(format!("http://{listen}")).unwrap();
        let gateway = Gateway(channel.connect().await.unwrap());
        Picker { process, gateway, metrics_url: format!("http://{metrics}/metrics"), streams }
    }

    /// Asks the first picker.
    async fn pick(&self, function: &str) -> Result<Vec<String>, i32> {
        self.pickers[0].gateway.pick(function).await
    }

    fn pods(&self) -> Api<Pod> {
        Api::default_namespaced(self.plane.client().clone())
    }

    /// Creates the Service of a function, whose bitstream has the same name.
    async fn create_function(&self, name: &str) {
        let service: Service = serde_json::from_value(json!({
            "metadata": {
                "name": name, "labels": {"fpga-scheduling.io/function": ""},
                "annotations": {"fpga-scheduling.io/bitstreams": name},
            },
            "spec": {"selector": {"app": name}, "ports": [{"port": 80, "targetPort": 8080}]},
        }))
        .unwrap();
        let services: Api<Service> = Api::default_namespaced(self.plane.client().clone());
        services.create(&PostParams::default(), &service).await.unwrap();
    }

    /// Creates a pod with a board, and says that it is ready, as its kubelet would.
    async fn create_pod(&self, function: &str, number: u8, node: &str, board: &str) {
        let name = pod_name(function, number);
        let pod: Pod = serde_json::from_value(json!({
            "metadata": {
                "name": name, "labels": {"app": function},
                "annotations": {"fpga-scheduling.io/boards": board},
            },
            "spec": {"nodeName": node, "containers": [{"name": "main", "image": "none"}]},
        }))
        .unwrap();
        self.pods().create(&PostParams::default(), &pod).await.unwrap();
        let address = format!("10.77.0.{number}");
        let status = json!({"status": {
            "phase": "Running", "podIP": address, "podIPs": [{"ip": address}],
            "conditions": [{"type": "Ready", "status": "True"}],
        }});
        self.pods().patch_status(&name, &PatchParams::default(), &Patch::Merge(status)).await.unwrap();
    }

    /// Tells a pod to end. No kubelet lets it end, so that its object stays.
    async fn end_pod(&self, function: &str, number: u8) {
        let name = pod_name(function, number);
        self.pods().delete(&name, &DeleteParams::default().grace_period(600)).await.unwrap();
    }

    async fn until(&self, what: &str, mut is_so: impl AsyncFnMut() -> bool) {
        let look = async || {
            self.pickers.iter().try_for_each(|picker| picker.process.check_running())?;
            Ok(is_so().await.then_some(()))
        };
        wait::until(what, look).await.unwrap_or_else(|error| panic!("{error:#}"));
    }

    /// Waits until these endpoints are told for the function, in any order.
    async fn until_picked(&self, function: &str, pods: &[u8]) {
        let mut expected: Vec<String> = pods.iter().map(|pod| endpoint(*pod)).collect();
        expected.sort();
        self.until(&format!("{function} to have {expected:?}"), async || {
            let mut picked = self.pick(function).await.unwrap_or_default();
            picked.sort();
            picked == expected
        })
        .await;
    }

    async fn stop(self) {
        for Picker { process, .. } in &self.pickers {
            assert!(process.stop(patience()).await.success(), "{}", process.log_tail());
        }
        self.plane.stop().await;
    }
}

fn pod_name(function: &str, number: u8) -> String {
    format!("{function}-{number}")
}

/// A collector of the node, with a board on which the bitstream is loaded. It streams to the picker and to nobody else.
async fn start_collector(bed: &Bed, index: u8, board: &str, bitstream: &str) -> Process {
    let node = NODES[usize::from(index)];
    let nodes: Api<Node> = Api::all(bed.plane.client().clone());
    let uid = nodes.get(node).await.unwrap().metadata.uid.unwrap();
    let (network, run_dir) = (bed.plane.network(), bed.plane.run_dir());
    let address = format!("{}:9460", network.node(index).host());
    let name = format!("collector-{node}");
    let spec = ProcessSpec::new(&name, programs::built("fpga-collector").unwrap(), run_dir.log(&name))
        .args(programs::collector_args(node, &address, &run_dir.path().join(&name)))
        // The board reports once.
        .args(["--device-timeout", "1h", "--no-publish", "--node-uid", &uid, "--pickers"])
        .arg(
            bed.pickers
                .iter()
                .map(|picker| format!("http://{}", picker.streams))
                .collect::<Vec<_>>()
                .join(","),
        )
        // A name that nobody knows keeps the collector from no other replica.
        .args(["--extenders", "dns:nobody.invalid:9463"])
        .args(["--stream-without-tls", "--stream-without-token"]);
    let collector = Process::start(&spec).unwrap();
    let loaded = json!([{"id": bitstream, "digest": format!("sha256:{}", "00".repeat(32))}]);
    let device: Value =
        json!({"id": board, "vendor": "intel", "slots": 1, "health": "healthy", "loaded": loaded});
    let url = format!("http://{address}/v1/devices/{board}");
    wait::until("the collector to take the board", async || {
        collector.check_running()?;
        let answer = bed.http.put(&url, device.to_string()).await?;
        anyhow::ensure!(answer.status.is_success(), "{}", answer.text());
        Ok(Some(()))
    })
    .await
    .unwrap_or_else(|error| panic!("{error:#}"));
    collector
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn requests_go_where_the_bitstream_is_by_a_collectors_stream_also_when_one_of_two_pickers_is_killed() {
    let mut bed = Bed::start(2).await;
    assert_eq!(bed.pick("sobel").await, Err(404));
    bed.create_function("sobel").await;
    bed.until("the function to be known", async || bed.pick("sobel").await == Err(503)).await;
    let collectors =
        [start_collector(&bed, 0, "dm0", "other").await, start_collector(&bed, 1, "dm0", "sobel").await];
    bed.create_pod("sobel", 1, "n1", "dm0").await;
    bed.create_pod("sobel", 2, "n2", "dm0").await;
    let lines = [
        "fpga_picker_replicas 2",
        "fpga_picker_boards{board=\"fresh\"} 2",
        "fpga_picker_nodes{source=\"stream\"} 2",
    ];
    for picker in &bed.pickers {
        bed.until("replicas and their boards to be known", async || {
            let metrics = bed.http.get(&picker.metrics_url).await.unwrap().text();
            lines.iter().all(|line| metrics.lines().any(|shown| shown == *line))
        })
        .await;
    }
    assert_eq!(bed.pick("sobel").await, Ok(vec![endpoint(2), endpoint(1)]));
    // Each picker knows everything by itself, so that the other one's requests lose nothing but its counts.
    let killed = bed.pickers.remove(0);
    killed.process.kill().await;
    assert_eq!(bed.pick("sobel").await, Ok(vec![endpoint(2), endpoint(1)]));
    let metrics = bed.http.get(&bed.pickers[0].metrics_url).await.unwrap().text();
    assert!(metrics.contains("fpga_picker_choices_total{basis=\"resident\"} 1"), "{metrics}");
    // A picker that comes back knows the node by its stream again, though collectors are told nothing of it.
    let again = bed.start_picker(0).await;
    bed.until("the picker that came back to have the streams", async || {
        let metrics = bed.http.get(&again.metrics_url).await.unwrap().text();
        lines.iter().all(|line| metrics.lines().any(|shown| shown == *line))
    })
    .await;
    assert_eq!(again.gateway.pick("sobel").await, Ok(vec![endpoint(2), endpoint(1)]));
    bed.pickers.push(again);
    for collector in &collectors {
        assert!(collector.stop(patience()).await.success(), "{}", collector.log_tail());
    }
    bed.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_pod_that_ends_gets_nothing_once_the_api_server_has_said_so() {
    let bed = Bed::start(1).await;
    for function in ["sobel", "later"] {
        bed.create_function(function).await;
    }
    bed.create_pod("sobel", 1, "n1", "dm0").await;
    bed.create_pod("sobel", 2, "n2", "dm0").await;
    bed.create_pod("later", 3, "n1", "dm0").await;
    bed.until_picked("sobel", &[1, 2]).await;
    bed.until_picked("later", &[3]).await;
    bed.end_pod("sobel", 1).await;
    bed.end_pod("later", 3).await;
    // The picker takes the changes of pods in the order in which the API server tells them: when it knows that the
    // second pod ends, it knows that the first one does.
    bed.until("the later pod to be known as ending", async || bed.pick("later").await == Err(503)).await;
    for _ in 0..200 {
        assert_eq!(bed.pick("sobel").await, Ok(vec![endpoint(2)]));
    }
    bed.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn calls_go_on_while_the_api_server_is_silent_and_new_replicas_count_when_it_is_back() {
    let bed = Bed::start(1).await;
    bed.create_function("sobel").await;
    bed.create_pod("sobel", 1, "n1", "dm0").await;
    bed.until_picked("sobel", &[1]).await;
    bed.plane.stop_answering();
    for _ in 0..200 {
        assert_eq!(bed.pick("sobel").await, Ok(vec![endpoint(1)]));
    }
    let ready = bed.http.get(&bed.pickers[0].metrics_url.replace("/metrics", "/readyz")).await.unwrap();
    assert!(ready.status.is_success(), "gateways keep asking it: {}", ready.text());
    bed.plane.answer_again();
    bed.create_pod("sobel", 2, "n2", "dm0").await;
    bed.until_picked("sobel", &[1, 2]).await;
    bed.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn replicas_come_and_go_under_load_and_every_request_gets_one_that_is_there() {
    let bed = Bed::start(1).await;
    bed.create_function("sobel").await;
    bed.create_function("barrier").await;
    // This pod stays, and the others come and go.
    bed.create_pod("sobel", 100, "n1", "dm0").await;
    bed.until_picked("sobel", &[100]).await;
    let (end, asked) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
    let load: Vec<_> = (0..4)
        .map(|_| {
            let (gateway, end, asked) =
                (bed.pickers[0].gateway.clone(), Arc::clone(&end), Arc::clone(&asked));
            tokio::spawn(async move {
                while !end.load(Ordering::Relaxed) {
                    let picked = gateway.pick("sobel").await;
                    assert!(picked.as_ref().is_ok_and(|endpoints| !endpoints.is_empty()), "{picked:?}");
                    asked.fetch_add(1, Ordering::Relaxed);
                }
            })
        })
        .collect();
    for round in 1..=6 {
        let (comes, barrier) = (round, round + 50);
        bed.create_pod("sobel", comes, "n2", "dm0").await;
        bed.create_pod("barrier", barrier, "n2", "dm0").await;
        bed.until_picked("sobel", &[comes, 100]).await;
        bed.until_picked("barrier", &[barrier]).await;
        bed.end_pod("sobel", comes).await;
        bed.end_pod("barrier", barrier).await;
        bed.until("the barrier to be known", async || bed.pick("barrier").await == Err(503)).await;
        for _ in 0..50 {
            assert_eq!(bed.pick("sobel").await, Ok(vec![endpoint(100)]), "round {round}");
        }
    }
    end.store(true, Ordering::Relaxed);
    for task in load {
        task.await.unwrap();
    }
    eprintln!("{} requests beside, none without a replica", asked.load(Ordering::Relaxed));
    bed.stop().await;
}
