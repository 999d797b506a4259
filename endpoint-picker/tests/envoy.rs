//! A real Envoy with the configuration that the chart installs asks the picker: bodies of 10 MB in every mode of the
//! filter, replicas that come, go and are killed, a picker that is killed, and clients that mean no good. `hack/envoy.sh`
//! brings Envoy.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

use axum::Router;
use axum::body::Body;
use axum::extract::State;
use axum::http::{Method, Request, Response};
use axum::routing::any;
use bytes::Bytes;
use fpga_core::bitstream::BitstreamId;
use fpga_core::fixtures::{mk_bitstream, mk_board, mk_state};
use fpga_core::node_state::{DeviceState, NodeState};
use fpga_endpoint_picker::envoy_drain::drain;
use fpga_endpoint_picker::envoy_endpoints::EndpointsFile;
use fpga_endpoint_picker::function::{Function, FunctionName, Replica};
use fpga_endpoint_picker::metrics::Metrics;
use fpga_endpoint_picker::picker::{Limits, Picker};
use fpga_endpoint_picker::routing::Routing;
use fpga_endpoint_picker::server::Port;
use fpga_endpoint_picker::service::Service;
use fpga_endpoint_picker::state::Seen;
use fpga_net::testing::{envoy_config, envoy_ext_proc, envoy_program};
use fpga_node_stream::server::receiver::Taken;
use futures::StreamExt as _;
use hyper::body::Incoming;
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use prometheus_client::registry::Registry;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use tempfile::TempDir;
use tokio::net::TcpListener;
use tokio::runtime::{Builder, Runtime};

const DEADLINE: Duration = Duration::from_secs(30);
/// Name of the file with Envoy's endpoints.
const ENDPOINTS: &str = "endpoints.json";

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
        let echo = |State(name): State<&'static str>, request: Request<Body>| async move {
            let path = request.uri().to_string();
            ([("x-replica", name.to_owned()), ("x-path", path)], request.into_body())
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
struct Served {
    picker: Arc<Picker>,
    address: SocketAddr,
    server: Killable,
    dir: TempDir,
}

impl Served {
    fn start(replicas: &[&Server]) -> Self {
        let limits = Limits { endpoints: 3, waiting: 1_000 };
        let picker = Picker::new(limits, Metrics::register(&mut Registry::default()));
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

    fn endpoints(&self) -> PathBuf {
        self.dir.path().join(ENDPOINTS)
    }

    /// Waits until the file for Envoy names as many endpoints.
    async fn until_written(&self, endpoints: usize) {
        let begun = Instant::now();
        loop {
            let text = std::fs::read_to_string(self.endpoints()).unwrap();
            if text.matches("port_value").count() == endpoints {
                return;
            }
            assert!(begun.elapsed() < DEADLINE, "{endpoints} endpoints: {text}");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }
}

fn node(index: usize) -> String {
    format!("node-{index}")
}

/// Tells the picker of the replicas of `default/NAME`, the first on the first node.
fn set_replicas(picker: &Picker, name: &str, servers: &[&Server]) {
    let replica = |(index, server): (usize, &&Server)| Replica {
        address: server.address,
        pod: None,
        node: Some(node(index).into()),
        board: None,
    };
    let function = Function {
        bitstream: Some(BitstreamId::Name(name.to_owned())),
        max_waiting: None,
        replicas: servers.iter().enumerate().map(replica).collect(),
    };
    picker.with(|state, now| state.set_function(&FunctionName::new("default", name), &function, now));
    picker.tell_of_replicas();
}

struct Envoy {
    process: Child,
    url: String,
    admin: SocketAddr,
    client: Client<HttpConnector, Body>,
    _dir: TempDir,
}

/// The shipped configuration, with the bodies of requests and responses in the mode `bodies`.
fn config(listen: SocketAddr, picker: SocketAddr, endpoints: &Path, bodies: &str) -> Value {
    let mut config = envoy_config(listen, picker, endpoints);
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
    async fn start(served: &Served, bodies: &str) -> Self {
        served.until_written(served.picker.with(|state, _| state.endpoints().len())).await;
        // The port is free a moment later, too, as a rule: the system gives out others first.
        let [listen, admin] = [bind().1, bind().1];
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("envoy.json");
        let mut config = config(listen, served.address, &served.endpoints(), bodies);
        let socket = json!({"address": admin.ip().to_string(), "port_value": admin.port()});
        config["admin"] = json!({"address": {"socket_address": socket}});
        std::fs::write(&path, config.to_string()).unwrap();
        let log = std::fs::File::create(dir.path().join("log")).unwrap();
        let process = Command::new(envoy_program())
            .args(["--concurrency", "1", "--log-level", "warning", "--disable-hot-restart"])
            .args(["--drain-strategy", "immediate", "--config-path"])
            .arg(&path)
            .stdout(Stdio::null())
            .stderr(log)
            .spawn()
            .unwrap();
        let client = Client::builder(TokioExecutor::new()).build_http();
        let mut envoy = Self { process, url: format!("http://{listen}"), admin, client, _dir: dir };
        let begun = Instant::now();
        while tokio::net::TcpStream::connect(listen).await.is_err() {
            let log = std::fs::read_to_string(envoy._dir.path().join("log")).unwrap_or_default();
            assert!(envoy.process.try_wait().unwrap().is_none(), "Envoy ended: {log}");
            assert!(begun.elapsed() < DEADLINE, "Envoy does not listen: {log}");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        envoy
    }

    async fn send(
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
        tokio::time::timeout(DEADLINE, self.client.request(request)).await.unwrap().unwrap()
    }

    /// Status, name of the replica, and body of the answer.
    async fn ask(&self, method: Method, path: &str, body: Bytes) -> (u16, String, Bytes) {
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

fn header<'a>(answer: &'a Response<Incoming>, name: &str) -> &'a str {
    answer.headers().get(name).map(|value| value.to_str().unwrap()).unwrap_or_default()
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
        let envoy = Envoy::start(&served, mode).await;
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
    let envoy = Envoy::start(&served, "NONE").await;
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

#[tokio::test]
async fn envoy_uses_a_new_replica_at_once_and_one_that_is_gone_no_longer() {
    let (first, second, third) = (Server::start("first"), Server::start("second"), Server::start("third"));
    let served = Served::start(&[&first]);
    let envoy = Envoy::start(&served, "NONE").await;
    assert_eq!(envoy.ask(Method::GET, "/function/echo", Bytes::new()).await.1, "first");
    // The first is gone from the function, so that only a new endpoint can answer.
    for (servers, name) in [([&second].as_slice(), "second"), (&[&third], "third"), (&[&first], "first")] {
        set_replicas(&served.picker, "echo", servers);
        let begun = Instant::now();
        loop {
            let (status, replica, _) = envoy.ask(Method::GET, "/function/echo", Bytes::new()).await;
            if (status, replica.as_str()) == (200, name) {
                break;
            }
            assert!(begun.elapsed() < DEADLINE, "{name} is not used: {status} {replica}");
        }
        eprintln!("{name} serves {:?} after the picker knew it", begun.elapsed());
    }
    set_replicas(&served.picker, "echo", &[]);
    assert_eq!(envoy.ask(Method::GET, "/function/echo", Bytes::new()).await.0, 503);
}

#[tokio::test]
async fn without_a_picker_each_function_goes_to_its_own_replicas_in_turn() {
    let (first, second, other) = (Server::start("first"), Server::start("second"), Server::start("other"));
    let mut served = Served::start(&[&first, &second]);
    set_replicas(&served.picker, "alone", &[&other]);
    served.until_written(3).await;
    let envoy = Envoy::start(&served, "NONE").await;
    assert_eq!(envoy.ask(Method::GET, "/function/alone", Bytes::new()).await.1, "other");
    served.server.kill();
    let mut answers = BTreeMap::<String, usize>::new();
    for _ in 0..8 {
        *answers.entry(envoy.ask(Method::GET, "/function/echo", Bytes::new()).await.1).or_default() += 1;
        for path in ["/function/alone", "/function/alone.default/x?y=1"] {
            assert_eq!(envoy.ask(Method::GET, path, Bytes::new()).await.1, "other");
        }
    }
    assert_eq!(answers, BTreeMap::from([("first".to_owned(), 4), ("second".to_owned(), 4)]));
    assert_eq!(envoy.ask(Method::GET, "/function/nobody", Bytes::new()).await.0, 503);
}

#[tokio::test]
async fn a_function_sees_the_path_below_its_name_and_no_client_chooses_the_replica() {
    let (first, second) = (Server::start("first"), Server::start("second"));
    let served = Served::start(&[&first, &second]);
    let envoy = Envoy::start(&served, "NONE").await;
    for (path, seen) in [
        ("/function/echo", "/"),
        ("/function/echo/", "/"),
        ("/function/echo.default?a=b", "/?a=b"),
        ("/function/echo/more/of%20it?a=/function/x", "/more/of%20it?a=/function/x"),
        ("/function/./echo//more", "/more"),
    ] {
        let wanted = second.address.to_string();
        let steered = [("x-gateway-destination-endpoint", wanted.as_str())];
        let answer = envoy.send(Method::POST, path, &steered, Bytes::new()).await;
        assert_eq!(answer.status(), 200, "{path}");
        assert_eq!((header(&answer, "x-replica"), header(&answer, "x-path")), ("first", seen), "{path}");
    }
    until_idle(&served.picker).await;
    for (path, status) in [("/", 404), ("/function/echo%2fmore", 400), ("/function/../admin", 404)] {
        assert_eq!(envoy.ask(Method::GET, path, Bytes::new()).await.0, status, "{path}");
    }
    let mut request = Request::get(format!("{}/function/echo", envoy.url));
    for number in 0..150 {
        request = request.header(format!("x-{number}"), "y");
    }
    // Envoy closes the connection: the filter is still asked about the 431.
    let answer = envoy.client.request(request.body(Body::empty()).unwrap());
    let answer = tokio::time::timeout(DEADLINE, answer).await.unwrap();
    assert!(answer.is_err(), "150 headers pass");
    assert_eq!(envoy.ask(Method::GET, "/function/echo", Bytes::new()).await.0, 200);
    until_idle(&served.picker).await;
}

#[tokio::test]
async fn an_envoy_that_is_told_to_drain_ends_connections_and_no_request() {
    let replica = Server::start("first");
    let served = Served::start(&[&replica]);
    let envoy = Envoy::start(&served, "NONE").await;
    let ask = async || {
        let answer = envoy.send(Method::GET, "/function/echo", &[], Bytes::new()).await;
        (answer.status().as_u16(), header(&answer, "connection").to_owned())
    };
    assert_eq!(ask().await, (200, String::new()));
    until_idle(&served.picker).await;
    let (pieces, body) = tokio::sync::mpsc::channel::<Result<Bytes, std::io::Error>>(1);
    let body = Body::from_stream(tokio_stream::wrappers::ReceiverStream::new(body));
    let request = Request::post(format!("{}/function/echo", envoy.url)).body(body).unwrap();
    let running = tokio::spawn(envoy.client.request(request));
    pieces.send(Ok("begun,".into())).await.unwrap();
    let begun = Instant::now();
    while served.picker.census().in_flight != 1 {
        assert!(begun.elapsed() < DEADLINE, "the request does not run");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    drain(envoy.admin).await.unwrap();
    assert_eq!(ask().await, (200, "close".to_owned()), "new connections are still taken");
    pieces.send(Ok("ended".into())).await.unwrap();
    drop(pieces);
    let answer = tokio::time::timeout(DEADLINE, running).await.unwrap().unwrap().unwrap();
    assert_eq!(answer.status(), 200);
    let body = axum::body::to_bytes(Body::new(answer.into_body()), 100).await.unwrap();
    assert_eq!(&body[..], b"begun,ended");
}

#[tokio::test]
async fn replicas_come_and_go_under_load_and_no_request_is_lost() {
    const NAMES: [&str; 8] = ["a", "b", "c", "d", "e", "f", "g", "h"];
    let stays = Server::start("stays");
    let served = Served::start(&[&stays]);
    let envoy = Envoy::start(&served, "NONE").await;
    let end = AtomicBool::new(false);
    let load = async |worker: usize| {
        let mut answered = 0;
        while !end.load(Ordering::Relaxed) {
            let body = Bytes::from(format!("request {answered} of {worker}"));
            let (status, replica, back) = envoy.ask(Method::POST, "/function/echo", body.clone()).await;
            assert_eq!((status, back), (200, body), "by {replica}");
            answered += 1;
        }
        answered
    };
    let change = async {
        // A pod that is told to end serves on for a while: it has requests that were sent to it before.
        let mut ending = Vec::new();
        for name in NAMES {
            let comes = Server::start(name);
            set_replicas(&served.picker, "echo", &[&comes, &stays]);
            let begun = Instant::now();
            while envoy.ask(Method::POST, "/function/echo", Bytes::new()).await.1 != name {
                assert!(begun.elapsed() < DEADLINE, "{name} serves nothing");
            }
            set_replicas(&served.picker, "echo", &[&stays]);
            // A request that begins now knows that it is gone.
            assert_eq!(envoy.ask(Method::POST, "/function/echo", Bytes::new()).await.1, "stays");
            served.until_written(1).await;
            ending.push(comes);
        }
        end.store(true, Ordering::Relaxed);
    };
    let (first, second, third, ()) = futures::join!(load(1), load(2), load(3), change);
    eprintln!("{} requests while {} replicas came and went", first + second + third, NAMES.len());
    until_idle(&served.picker).await;
}
