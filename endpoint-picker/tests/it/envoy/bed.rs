//! Replicas, a picker, and an Envoy with the configuration that the chart installs.

use axum::Router;
use axum::body::Body;
use axum::extract::State;
use axum::http::{Method, Request, Response};
use axum::routing::any;
use bytes::Bytes;
use fpga_core::bitstream::BitstreamId;
use fpga_core::fixtures::{mk_bitstream, mk_board, mk_state};
use fpga_core::node_state::{DeviceState, NodeState};
use fpga_endpoint_picker::envoy_endpoints::EndpointsFile;
use fpga_endpoint_picker::function::{Function, FunctionName, Replica};
use fpga_endpoint_picker::metrics::Metrics;
use fpga_endpoint_picker::picker::{Limits, Picker};
use fpga_endpoint_picker::routing::Routing;
use fpga_endpoint_picker::server::Port;
use fpga_endpoint_picker::service::Service;
use fpga_endpoint_picker::state::Seen;
use fpga_node_stream::server::receiver::Taken;
use fpga_test_kit::{
    Program, envoy_config, envoy_ext_proc, envoy_program, http, patience, until, until_async,
};
use fpga_traces::tracer::Tracer;
use futures::StreamExt as _;
use hyper::body::Incoming;
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use prometheus_client::registry::Registry;
use serde_json::{Value, json};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::Command;
use std::sync::Arc;
use tempfile::TempDir;
use tokio::net::TcpListener;
use tokio::runtime::{Builder, Runtime};

/// Name of the file with Envoy's endpoints.
const ENDPOINTS: &str = "endpoints.json";

/// A server with threads of its own, so that it can be killed with all its connections.
pub struct Killable(Option<Runtime>);

impl Killable {
    pub fn start(task: impl Future<Output = ()> + Send + 'static) -> Self {
        let runtime = Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        runtime.spawn(task);
        Self(Some(runtime))
    }

    /// Returns when the listener and all connections are closed.
    pub fn kill(&mut self) {
        if let Some(runtime) = self.0.take() {
            // Inside of the test's runtime only a thread of its own may wait.
            std::thread::spawn(move || runtime.shutdown_timeout(patience())).join().unwrap();
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

/// A replica: answers with the request's body, and with its own name, the path, and the trace in headers.
pub struct Server {
    pub address: SocketAddr,
    pub server: Killable,
}

impl Server {
    pub fn start(name: &'static str) -> Self {
        let (listener, address) = bind();
        let echo = |State(name): State<&'static str>, request: Request<Body>| async move {
            let path = request.uri().to_string();
            let sent = request.headers().get("traceparent").map(|value| value.to_str().unwrap().to_owned());
            let told =
                [("x-replica", name.to_owned()), ("x-path", path), ("x-trace", sent.unwrap_or_default())];
            (told, request.into_body())
        };
        let router = Router::new().fallback(any(echo)).with_state(name);
        let serve = async {
            let listener = TcpListener::from_std(listener).unwrap();
            axum::serve(listener, router).await.unwrap();
        };
        Self { address, server: Killable::start(serve) }
    }
}

/// The picker: `default/echo` with two replicas, whose bitstream is on the board of the first. It writes Envoy's endpoints.
pub struct Served {
    pub picker: Arc<Picker>,
    pub address: SocketAddr,
    pub server: Killable,
    dir: TempDir,
}

impl Served {
    pub fn start(replicas: &[&Server]) -> Self {
        Self::start_traced(replicas, Tracer::off())
    }

    pub fn start_traced(replicas: &[&Server], tracer: Tracer) -> Self {
        let limits = Limits { endpoints: 3, waiting: 1_000 };
        let picker = Picker::traced(limits, Metrics::register(&mut Registry::default()), tracer);
        set_replicas(&picker, "echo", replicas);
        picker.with(|state, now| {
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
        let dir = tempfile::tempdir().unwrap();
        let file = EndpointsFile::create(dir.path().join(ENDPOINTS), "default".into()).unwrap();
        let serving = Arc::clone(&picker);
        let serve = async move {
            let listener = TcpListener::from_std(listener).unwrap();
            let port = Port { listener, tls: None, max_message_bytes: 16 << 20 };
            tokio::select! {
                served = port.serve(Arc::clone(&serving), service, std::future::pending()) => served.unwrap(),
                () = file.keep(serving) => {}
            }
        };
        Self { picker, address, server: Killable::start(serve), dir }
    }

    pub fn endpoints(&self) -> PathBuf {
        self.dir.path().join(ENDPOINTS)
    }

    /// Waits until the file for Envoy names as many endpoints.
    pub async fn until_written(&self, endpoints: usize) {
        until_async(format!("{endpoints} endpoints"), async || {
            let text = std::fs::read_to_string(self.endpoints()).unwrap();
            if text.matches("port_value").count() == endpoints { Ok(()) } else { Err(text) }
        })
        .await;
    }
}

fn node(index: usize) -> String {
    format!("node-{index}")
}

/// Tells the picker of the replicas of `default/NAME`, the first on the first node.
pub fn set_replicas(picker: &Picker, name: &str, servers: &[&Server]) {
    let replica = |(index, server): (usize, &&Server)| Replica {
        address: server.address,
        hosts: Vec::new(),
        pod: None,
        node: Some(node(index).into()),
        boards: Vec::new(),
        asks_for_board: true,
    };
    let function = Function {
        bitstream: Some(BitstreamId::Name(name.to_owned())),
        max_waiting: None,
        replicas: servers.iter().enumerate().map(replica).collect(),
    };
    picker.with(|state, now| state.set_function(&FunctionName::new("default", name), &function, now));
    picker.tell_of_replicas();
}

pub struct Envoy {
    _program: Program,
    pub url: String,
    pub admin: SocketAddr,
    pub client: Client<HttpConnector, Body>,
    _dir: TempDir,
}

/// The shipped configuration, with the bodies of requests and responses in the mode `bodies`.
fn config(pickers: &[&Served], bodies: &str) -> Value {
    let any_port = SocketAddr::from(([127, 0, 0, 1], 0));
    let mut config = envoy_config(any_port, pickers[0].address, &pickers[0].endpoints());
    let clusters = config["static_resources"]["clusters"].as_array_mut().unwrap();
    let cluster = clusters.iter_mut().find(|cluster| cluster["name"] == "picker").unwrap();
    let endpoints = cluster["load_assignment"]["endpoints"][0]["lb_endpoints"].as_array_mut().unwrap();
    endpoints.extend(pickers[1..].iter().map(|picker| {
        let (address, port) = (picker.address.ip().to_string(), picker.address.port());
        json!({"endpoint": {"address": {"socket_address": {"address": address, "port_value": port}}}})
    }));
    let ext_proc = envoy_ext_proc(&mut config);
    let mode = &mut ext_proc["processing_mode"];
    (mode["request_body_mode"], mode["response_body_mode"]) = (json!(bodies), json!(bodies));
    if bodies == "FULL_DUPLEX_STREAMED" {
        mode["request_trailer_mode"] = json!("SEND");
        // Envoy takes this mode only where an error of the picker fails the request.
        ext_proc["failure_mode_allow"] = json!(false);
    }
    config
}

impl Envoy {
    pub async fn start(served: &Served, bodies: &str) -> Self {
        Self::start_with(&[served], bodies).await
    }

    /// An Envoy that asks these pickers, and takes the endpoints from the first one.
    pub async fn start_with(pickers: &[&Served], bodies: &str) -> Self {
        for served in pickers {
            served.until_written(served.picker.with(|state, _| state.endpoints().len())).await;
        }
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("envoy.json");
        let mut config = config(pickers, bodies);
        config["admin"] = json!({"address": {"socket_address": {"address": "127.0.0.1", "port_value": 0}}});
        std::fs::write(&path, config.to_string()).unwrap();
        let admin = dir.path().join("admin");
        let mut command = Command::new(envoy_program());
        command
            .args(["--concurrency", "1", "--log-level", "warning", "--disable-hot-restart"])
            .args(["--drain-strategy", "immediate", "--config-path"])
            .arg(&path)
            .arg("--admin-address-path")
            .arg(&admin);
        let mut program = Program::start(&mut command);
        // Envoy makes the file before it writes the address.
        let admin = until("Envoy's admin address", || {
            assert!(program.is_running(), "Envoy has ended");
            std::fs::read_to_string(&admin).unwrap_or_default().parse::<SocketAddr>()
        });
        let of_admin = |path| http::get(&admin.to_string(), path).text;
        // Envoy listens when it knows the first address of a cluster: it would ask one picker, and another one a moment later.
        until_async("an Envoy for which all pickers are healthy", async || {
            let text = of_admin("/clusters");
            let healthy =
                |line: &&str| line.starts_with("picker::") && line.ends_with("::health_flags::healthy");
            if text.lines().filter(healthy).count() == pickers.len() { Ok(()) } else { Err(text) }
        })
        .await;
        let url = until_async("Envoy's port", async || {
            let text = of_admin("/listeners");
            let port = text.lines().find_map(|line| line.strip_prefix("functions::"));
            port.map(|address| format!("http://{address}")).ok_or(text)
        })
        .await;
        let client = Client::builder(TokioExecutor::new()).build_http();
        Self { _program: program, url, admin, client, _dir: dir }
    }

    pub async fn send(
        &self,
        method: Method,
        path: &str,
        headers: &[(&str, &str)],
        body: Bytes,
    ) -> Response<Incoming> {
        let mut request = Request::builder().method(method).uri(format!("{}{path}", self.url));
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let request = request.body(Body::from(body)).unwrap();
        tokio::time::timeout(patience(), self.client.request(request)).await.unwrap().unwrap()
    }

    /// Status, name of the replica, and body of the answer.
    pub async fn ask(&self, method: Method, path: &str, body: Bytes) -> (u16, String, Bytes) {
        let answer = self.send(method, path, &[], body).await;
        let (status, replica) = (answer.status().as_u16(), header(&answer, "x-replica").to_owned());
        let mut body = Body::new(answer.into_body()).into_data_stream();
        let mut bytes = Vec::new();
        while let Some(piece) = body.next().await {
            bytes.extend_from_slice(&piece.unwrap());
        }
        (status, replica, bytes.into())
    }
}

pub fn header<'a>(answer: &'a Response<Incoming>, name: &str) -> &'a str {
    answer.headers().get(name).map(|value| value.to_str().unwrap()).unwrap_or_default()
}

pub async fn until_idle(picker: &Picker) {
    until_async("no request in flight", async || match picker.census() {
        census if census.in_flight == 0 => Ok(()),
        census => Err(format!("{census:?}")),
    })
    .await;
}
