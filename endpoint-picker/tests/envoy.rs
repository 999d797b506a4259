//! A real Envoy asks the picker: bodies of 10 MB in every mode of the filter, a replica that is killed, and a picker that
//! is killed. `hack/envoy.sh` brings Envoy.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

use axum::Router;
use axum::body::Body;
use axum::extract::State;
use axum::http::{Method, Request};
use axum::routing::any;
use bytes::Bytes;
use fpga_core::bitstream::BitstreamId;
use fpga_core::fixtures::{mk_bitstream, mk_board, mk_state};
use fpga_core::node_state::{DeviceState, NodeState};
use fpga_endpoint_picker::function::{Function, FunctionName, Replica};
use fpga_endpoint_picker::metrics::Metrics;
use fpga_endpoint_picker::picker::{Limits, Picker};
use fpga_endpoint_picker::routing::Routing;
use fpga_endpoint_picker::server::Port;
use fpga_endpoint_picker::service::Service;
use fpga_endpoint_picker::state::Seen;
use fpga_node_stream::server::receiver::Taken;
use futures::StreamExt as _;
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use prometheus_client::registry::Registry;
use serde_json::{Value, json};
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tempfile::TempDir;
use tokio::net::TcpListener;
use tokio::runtime::{Builder, Runtime};

const DEADLINE: Duration = Duration::from_secs(30);

/// A server with threads of its own, so that it can be killed with all its connections.
struct Killable(Option<Runtime>);

impl Killable {
    fn start(task: impl Future<Output = ()> + Send + 'static) -> Self {
        let runtime = Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        runtime.spawn(task);
        Self(Some(runtime))
    }

    /// Returns when the listener and all connections are closed.
    fn kill(&mut self) {
        if let Some(runtime) = self.0.take() {
            // Inside of the test's runtime only a thread of its own may wait.
            std::thread::spawn(move || runtime.shutdown_timeout(DEADLINE)).join().unwrap();
        }
    }
}

impl Drop for Killable {
    fn drop(&mut self) {
        self.kill();
    }
}

/// A free port, bound by no runtime yet.
fn bind() -> (std::net::TcpListener, SocketAddr) {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    listener.set_nonblocking(true).unwrap();
    let address = listener.local_addr().unwrap();
    (listener, address)
}

/// A replica: answers with the request's body and its own name in a header.
struct Server {
    address: SocketAddr,
    server: Killable,
}

impl Server {
    fn start(name: &'static str) -> Self {
        let (listener, address) = bind();
        let echo =
            |State(name): State<&'static str>, body: Body| async move { ([("x-replica", name)], body) };
        let router = Router::new().fallback(any(echo)).with_state(name);
        let serve = async {
            let listener = TcpListener::from_std(listener).unwrap();
            axum::serve(listener, router).await.unwrap();
        };
        Self { address, server: Killable::start(serve) }
    }
}

/// The picker: `default/echo` with two replicas, whose bitstream is on the board of the first.
struct Served {
    picker: Arc<Picker>,
    address: SocketAddr,
    server: Killable,
}

impl Served {
    fn start(replicas: &[&Server]) -> Self {
        let limits = Limits { endpoints: 3, waiting: 1_000 };
        let picker = Picker::new(limits, Metrics::register(&mut Registry::default()));
        picker.with(|state, now| {
            let node = |index: usize| format!("node-{index}");
            let replica = |(index, server): (usize, &&Server)| Replica {
                address: server.address,
                pod: None,
                node: Some(node(index).into()),
                board: None,
            };
            let function = Function {
                bitstream: Some(BitstreamId::Name("echo".to_owned())),
                max_waiting: None,
                replicas: replicas.iter().enumerate().map(replica).collect(),
            };
            state.set_function(&FunctionName::new("default", "echo"), &function, now);
            for index in 0..replicas.len() {
                let loaded = if index == 0 { "echo" } else { "other" };
                let known = NodeState {
                    devices: vec![DeviceState { slots: 1, ..mk_board("board-0", &[0]) }],
                    bitstreams: vec![mk_bitstream(loaded, 1_000)],
                    ..mk_state()
                };
                state.set_node(&node(index), "uid", now);
                let taken = state.learn(&node(index), "uid", &known, Seen::Stream, now);
                assert_eq!(taken, Ok(Taken::Yes));
            }
        });
        picker.set_synced();
        let (listener, address) = bind();
        let routing = Routing { fixed: None, namespace: "default".into(), domain: None };
        let service = Service::new(Arc::clone(&picker), routing, 10_000);
        let serving = Arc::clone(&picker);
        let serve = async move {
            let listener = TcpListener::from_std(listener).unwrap();
            let port = Port { listener, tls: None, max_message_bytes: 16 << 20 };
            port.serve(serving, service, std::future::pending()).await.unwrap();
        };
        Self { picker, address, server: Killable::start(serve) }
    }
}

struct Envoy {
    process: Child,
    url: String,
    client: Client<HttpConnector, Body>,
    _dir: TempDir,
}

fn socket(address: SocketAddr) -> Value {
    json!({"socket_address": {"address": address.ip().to_string(), "port_value": address.port()}})
}

/// Envoy's configuration, with the bodies of requests and responses in the mode `bodies`.
fn bootstrap(listen: u16, picker: SocketAddr, replicas: &[SocketAddr], bodies: &str) -> Value {
    let endpoints = |addresses: &[SocketAddr]| {
        let endpoint = |address: &SocketAddr| json!({"endpoint": {"address": socket(*address)}});
        json!([{"lb_endpoints": addresses.iter().map(endpoint).collect::<Vec<_>>()}])
    };
    let route = |matched: Value, retry_on: &str| {
        json!({"match": matched, "route": {
            "cluster": "functions", "timeout": "30s",
            "retry_policy": {"retry_on": retry_on, "retriable_status_codes": [503], "num_retries": 2},
        }})
    };
    let idempotent = json!({"prefix": "/", "headers": [{
        "name": ":method", "string_match": {"safe_regex": {"regex": "GET|HEAD|OPTIONS|PUT|DELETE"}},
    }]});
    // A request that a replica may have begun is tried again only if its method is idempotent.
    let retry_on = "connect-failure,refused-stream,reset-before-request,retriable-status-codes";
    let trailers = if bodies == "FULL_DUPLEX_STREAMED" { "SEND" } else { "SKIP" };
    let ext_proc = json!({
        "@type": "type.googleapis.com/envoy.extensions.filters.http.ext_proc.v3.ExternalProcessor",
        "grpc_service": {"envoy_grpc": {"cluster_name": "picker"}},
        "failure_mode_allow": bodies != "FULL_DUPLEX_STREAMED",
        "message_timeout": "2s",
        "processing_mode": {
            "request_header_mode": "SEND", "response_header_mode": "SEND", "response_trailer_mode": "SEND",
            "request_trailer_mode": trailers, "request_body_mode": bodies, "response_body_mode": bodies,
        },
        "metadata_options": {
            "forwarding_namespaces": {"untyped": ["envoy.lb"]}, "receiving_namespaces": {"untyped": ["envoy.lb"]},
        },
    });
    let router = json!({"@type": "type.googleapis.com/envoy.extensions.filters.http.router.v3.Router"});
    let manager = json!({
        "@type": "type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager",
        "stat_prefix": "functions",
        "route_config": {"virtual_hosts": [{
            "name": "functions", "domains": ["*"], "request_body_buffer_limit": 16 << 20,
            "routes": [
                route(idempotent, &format!("{retry_on},reset")),
                route(json!({"prefix": "/"}), retry_on),
            ],
        }]},
        "http_filters": [
            {"name": "envoy.filters.http.ext_proc", "typed_config": ext_proc},
            {"name": "envoy.filters.http.router", "typed_config": router},
        ],
    });
    let fallback = json!({
        "name": "envoy.load_balancing_policies.round_robin",
        "typed_config": {"@type": "type.googleapis.com/envoy.extensions.load_balancing_policies.round_robin.v3.RoundRobin"},
    });
    let override_host = json!({
        "@type": "type.googleapis.com/envoy.extensions.load_balancing_policies.override_host.v3.OverrideHost",
        "override_host_sources": [
            {"metadata": {"key": "envoy.lb", "path": [{"key": "x-gateway-destination-endpoint"}]}},
        ],
        "selected_host_key": {"key": "envoy.lb", "path": [{"key": "x-gateway-destination-endpoint-served"}]},
        "fallback_policy": {"policies": [{"typed_extension_config": fallback}]},
    });
    let policy =
        json!({"name": "envoy.load_balancing_policies.override_host", "typed_config": override_host});
    let http2 = json!({
        "@type": "type.googleapis.com/envoy.extensions.upstreams.http.v3.HttpProtocolOptions",
        "explicit_http_config": {"http2_protocol_options": {}},
    });
    let listen: SocketAddr = ([127, 0, 0, 1], listen).into();
    json!({"static_resources": {
        "listeners": [{
            "name": "functions", "address": socket(listen), "per_connection_buffer_limit_bytes": 16 << 20,
            "filter_chains": [{"filters": [
                {"name": "envoy.filters.network.http_connection_manager", "typed_config": manager},
            ]}],
        }],
        "clusters": [
            {
                "name": "functions", "type": "STATIC", "connect_timeout": "1s",
                "per_connection_buffer_limit_bytes": 16 << 20,
                "load_assignment": {"cluster_name": "functions", "endpoints": endpoints(replicas)},
                "load_balancing_policy": {"policies": [{"typed_extension_config": policy}]},
            },
            {
                "name": "picker", "type": "STATIC", "connect_timeout": "1s",
                "load_assignment": {"cluster_name": "picker", "endpoints": endpoints(&[picker])},
                "typed_extension_protocol_options": {"envoy.extensions.upstreams.http.v3.HttpProtocolOptions": http2},
            },
        ],
    }})
}

impl Envoy {
    async fn start(picker: SocketAddr, replicas: &[&Server], bodies: &str) -> Self {
        let program = Path::new(env!("CARGO_MANIFEST_DIR")).join("../build/envoy/envoy");
        assert!(program.exists(), "Envoy is missing: run hack/envoy.sh");
        // The port is free a moment later, too, as a rule: the system gives out others first.
        let listen = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap().port();
        let replicas: Vec<SocketAddr> = replicas.iter().map(|server| server.address).collect();
        let dir = tempfile::tempdir().unwrap();
        let config = dir.path().join("envoy.json");
        std::fs::write(&config, bootstrap(listen, picker, &replicas, bodies).to_string()).unwrap();
        let log = std::fs::File::create(dir.path().join("log")).unwrap();
        let process = Command::new(program)
            .args(["--concurrency", "1", "--log-level", "warning", "--disable-hot-restart", "--config-path"])
            .arg(&config)
            .stdout(Stdio::null())
            .stderr(log)
            .spawn()
            .unwrap();
        let client = Client::builder(TokioExecutor::new()).build_http();
        let mut envoy = Self { process, url: format!("http://127.0.0.1:{listen}"), client, _dir: dir };
        let begun = Instant::now();
        while tokio::net::TcpStream::connect(("127.0.0.1", listen)).await.is_err() {
            let log = std::fs::read_to_string(envoy._dir.path().join("log")).unwrap_or_default();
            assert!(envoy.process.try_wait().unwrap().is_none(), "Envoy ended: {log}");
            assert!(begun.elapsed() < DEADLINE, "Envoy does not listen: {log}");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        envoy
    }

    /// Status, name of the replica, and body of the answer.
    async fn ask(&self, method: Method, path: &str, body: Bytes) -> (u16, String, Bytes) {
        let url = format!("{}{path}", self.url);
        let request = Request::builder().method(method).uri(url).body(Body::from(body)).unwrap();
        let answer = tokio::time::timeout(DEADLINE, self.client.request(request)).await.unwrap().unwrap();
        let status = answer.status().as_u16();
        let replica = answer.headers().get("x-replica").map(|name| name.to_str().unwrap().to_owned());
        let mut body = Body::new(answer.into_body()).into_data_stream();
        let mut bytes = Vec::new();
        while let Some(piece) = body.next().await {
            bytes.extend_from_slice(&piece.unwrap());
        }
        (status, replica.unwrap_or_default(), bytes.into())
    }
}

impl Drop for Envoy {
    fn drop(&mut self) {
        // An error means that it has ended.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

async fn until_idle(picker: &Picker) {
    let begun = Instant::now();
    while picker.census().in_flight != 0 {
        assert!(begun.elapsed() < DEADLINE, "{:?}", picker.census());
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

#[tokio::test]
async fn bodies_of_ten_megabytes_pass_unchanged_in_every_mode() {
    let (first, second) = (Server::start("first"), Server::start("second"));
    let served = Served::start(&[&first, &second]);
    let body: Bytes =
        (0..10_000_000_u32).map(|i| (i.wrapping_mul(2_654_435_761) >> 7).to_le_bytes()[0]).collect();
    for mode in ["NONE", "BUFFERED", "STREAMED", "FULL_DUPLEX_STREAMED"] {
        let envoy = Envoy::start(served.address, &[&first, &second], mode).await;
        let (status, replica, back) = envoy.ask(Method::POST, "/function/echo", body.clone()).await;
        assert_eq!((status, replica.as_str()), (200, "first"), "{mode}");
        assert!(back == body, "{mode}: {} bytes and not the same", back.len());
        let (status, replica, back) = envoy.ask(Method::POST, "/function/echo/", Bytes::new()).await;
        assert_eq!((status, replica.as_str(), back.len()), (200, "first", 0), "{mode}");
        assert_eq!(envoy.ask(Method::POST, "/function/nobody", Bytes::new()).await.0, 404, "{mode}");
        until_idle(&served.picker).await;
    }
}

#[tokio::test]
async fn a_killed_replica_costs_a_retry_and_a_killed_picker_only_its_choice() {
    let (mut first, second) = (Server::start("first"), Server::start("second"));
    let mut served = Served::start(&[&first, &second]);
    let envoy = Envoy::start(served.address, &[&first, &second], "NONE").await;
    assert_eq!(envoy.ask(Method::POST, "/function/echo", "x".into()).await.1, "first");
    until_idle(&served.picker).await;
    first.server.kill();
    let begun = Instant::now();
    loop {
        // Envoy may send the first of these on the connection of before the kill, and see only then that it is closed.
        let (status, replica, body) = envoy.ask(Method::PUT, "/function/echo", "body".into()).await;
        assert_eq!((status, &body[..]), (200, b"body".as_slice()));
        if replica == "second" {
            break;
        }
        assert!(begun.elapsed() < DEADLINE, "the first still answers");
    }
    assert_eq!(
        envoy.ask(Method::POST, "/function/echo", "x".into()).await.0,
        200,
        "the next endpoint is tried"
    );
    until_idle(&served.picker).await;
    served.server.kill();
    for _ in 0..6 {
        assert_eq!(
            envoy.ask(Method::POST, "/function/echo", "x".into()).await.0,
            200,
            "without a picker requests go on"
        );
    }
}
