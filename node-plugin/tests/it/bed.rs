//! A node with one board and one plugin, whose API server fails as a test wishes.

use axum::Router;
use axum::extract::{Path, Request, State};
use axum::http::Method;
use axum::middleware::{Next, from_fn_with_state};
use axum::response::{IntoResponse as _, Response};
use axum::routing::{get, put};
use fpga_artifacts::of_bytes;
use fpga_core::bitstream::Digest;
use fpga_core::fixtures::{mk_board, mk_state};
use fpga_core::gate::{GateAnswer, GateRequest, Origin, Others, Residency};
use fpga_core::names::BOARDS_ANNOTATION;
use fpga_core::node_state::{NodeState, encode_whole};
use fpga_test_kit::{Kubelet, Program, Server, programs, status};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::fs;
use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use tempfile::TempDir;
use tokio::sync::watch;

/// The node's board.
pub const BOARD: &str = "dm0";
/// The pods' namespace.
pub const NAMESPACE: &str = "shop";
/// Longest time that a device manager waits for an answer of the gate.
const GATE_TIMEOUT: std::time::Duration = std::time::Duration::from_secs(10);

/// What the API server does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// It answers.
    Answers,
    /// It says that it can't answer, as one whose etcd is away.
    Unavailable,
    /// It takes requests and says nothing, as one behind a broken network.
    Silent,
    /// It answers reads, and says nothing to writes.
    SilentToWrites,
}

/// What the API server has.
#[derive(Clone)]
struct Objects {
    mode: Arc<Mutex<Mode>>,
    /// Pods by name.
    pods: Arc<Mutex<BTreeMap<String, Value>>>,
    /// The number of writes to pods.
    writes: Arc<AtomicUsize>,
    /// Bitstreams by namespace and name.
    bitstreams: Arc<Mutex<BTreeMap<(String, String), Value>>>,
}

/// The node.
pub struct Bed {
    folder: TempDir,
    objects: Objects,
    kubelet: Kubelet,
    plugin: Option<Program>,
    registry: Server,
    /// Whether the registry sends bytes.
    sends: watch::Sender<bool>,
    api_server: Server,
    collector: Server,
    _manager: Server,
}

/// The bytes of a bitstream.
fn content(name: &str) -> Vec<u8> {
    format!("the bytes of {name}").into_bytes()
}

/// The digest of a bitstream.
pub fn digest(name: &str) -> Digest {
    of_bytes(&content(name))
}

impl Bed {
    /// Starts the node with the plugin, and an API server that answers.
    pub fn start() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| {
            let path = folder.path().join(name);
            fs::create_dir_all(&path).unwrap();
            path
        };
        let manager = path(&format!("run/managers/{BOARD}")).join("dm.sock");
        let objects = Objects {
            mode: Arc::new(Mutex::new(Mode::Answers)),
            pods: Arc::default(),
            writes: Arc::default(),
            bitstreams: Arc::default(),
        };
        let (sends, sending) = watch::channel(true);
        let blob = |Path((_, digest)): Path<(String, String)>| async move {
            sending.clone().wait_for(|sends| *sends).await.unwrap();
            let names = ["sobel", "mm"];
            let found = names.into_iter().find(|name| self::digest(name).to_string() == digest);
            found.map(content).ok_or(axum::http::StatusCode::NOT_FOUND)
        };
        let state = NodeState { devices: vec![mk_board(BOARD, &[])], ..mk_state() };
        let state = encode_whole(&state).unwrap().text;
        let collector = Router::new()
            .route("/v1/state", get(|| async move { state }))
            .route("/v1/plugin", put(|| async { "{}" }).delete(|| async { "{}" }));
        let kubelet = Kubelet::start(path("device-plugins"), &path("pod-resources"));
        let mut bed = Self {
            kubelet,
            plugin: None,
            sends,
            registry: Server::tcp(
                "127.0.0.1:0",
                Router::new().route("/v2/{repository}/blobs/{digest}", get(blob)),
            ),
            api_server: Server::tcp("127.0.0.1:0", api_server(&objects)),
            collector: Server::tcp("127.0.0.1:0", collector),
            _manager: Server::unix(&manager, Router::new()),
            objects,
            folder,
        };
        bed.start_plugin();
        bed
    }

    fn start_plugin(&mut self) {
        let path = |name: &str| self.folder.path().join(name);
        self.api_server.write_kubeconfig(&path("kubeconfig"));
        let mut command = Command::new(programs::built("fpga-node-plugin"));
        command
            .args(["--node-name", "n1", "--collector", &format!("http://{}", self.collector.address())])
            .arg("--run-dir")
            .arg(path("run"))
            .arg("--plugin-dir")
            .arg(path("plugin"))
            .arg("--device-plugins-dir")
            .arg(path("device-plugins"))
            .arg("--pod-resources")
            .arg(path("pod-resources/kubelet.sock"))
            .arg("--library")
            .arg(programs::built("libfpga_opencl_icd.so"))
            .args(["--bitstream-store-size", "16MiB"])
            .args(["--bitstream-hosts", &format!("http://{}", self.registry.address())])
            .arg("--kubeconfig")
            .arg(path("kubeconfig"))
            .env("FPGA_LOG", "fpga_node_plugin=debug");
        self.plugin = Some(Program::start(&mut command));
    }

    /// Kills the plugin and starts it again.
    pub fn restart_plugin(&mut self) {
        self.plugin = None;
        self.start_plugin();
    }

    /// Sets what the API server does from now on.
    pub fn api_server(&self, mode: Mode) {
        *self.objects.mode.lock().unwrap() = mode;
    }

    /// Lets the registry send bytes from now on, or not.
    pub fn registry_sends(&self, sends: bool) {
        self.sends.send_replace(sends);
    }

    /// Adds a Bitstream of the pods' namespace for the node's board.
    pub fn add_bitstream(&self, name: &str) {
        self.add_bitstream_of(NAMESPACE, name, "Same");
    }

    /// Adds a Bitstream for the node's board that a namespace lets others use or not.
    pub fn add_bitstream_of(&self, namespace: &str, name: &str, allowed_from: &str) {
        let registry = self.registry.address();
        let digest = digest(name).to_string();
        let variant = json!({
            "vendor": "intel", "board": "a10", "shell": "1", "digest": digest, "bytes": content(name).len(),
            "source": {"oci": format!("{registry}/{name}@{digest}")},
        });
        let object = json!({
            "apiVersion": "fpga-scheduling.io/v1alpha1", "kind": "Bitstream",
            "metadata": {"namespace": namespace, "name": name},
            "spec": {"variants": [variant], "allowedNamespaces": {"from": allowed_from}},
        });
        self.objects.bitstreams.lock().unwrap().insert((namespace.to_owned(), name.to_owned()), object);
    }

    /// Creates a pod that names a bitstream, and gives it an instance.
    pub async fn admit(&self, pod: &str, bitstream: &str) {
        let resources = json!({"limits": {"fpga-scheduling.io/accelerated": "1"}});
        let object = json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": {
                "namespace": NAMESPACE, "name": pod, "uid": format!("uid-of-{pod}"),
                "annotations": {"fpga-scheduling.io/bitstreams": bitstream},
            },
            "spec": {"nodeName": "n1", "containers": [{"name": "main", "resources": resources}]},
            "status": {"phase": "Running"},
        });
        self.objects.pods.lock().unwrap().insert(pod.to_owned(), object);
        self.kubelet.admit(NAMESPACE, pod).await;
    }

    /// Starts the container of a pod; the error is what the kubelet shows.
    pub async fn start_container(&self, pod: &str) -> Result<(), String> {
        self.kubelet.start_container(pod).await.map_err(|status| status.message().to_owned())
    }

    /// Starts the container of a pod, again and again as the kubelet does, until it has started.
    pub async fn start_container_at_last(&self, pod: &str) {
        while self.start_container(pod).await.is_err() {}
    }

    /// The boards that the annotation of a pod names.
    pub fn announced(&self, pod: &str) -> Option<String> {
        let pods = self.objects.pods.lock().unwrap();
        Some(pods[pod]["metadata"]["annotations"].get(BOARDS_ANNOTATION)?.as_str().unwrap().to_owned())
    }

    /// The number of writes to pods that the API server has taken.
    pub fn writes(&self) -> usize {
        self.objects.writes.load(Ordering::SeqCst)
    }

    /// The tokens that the board's manager reads.
    pub fn tokens(&self) -> Vec<String> {
        let folder = self.folder.path().join("run/tokens").join(BOARD).join(NAMESPACE);
        let files = fs::read_dir(folder).into_iter().flatten().map(|file| file.unwrap().path());
        // A file that will take a token's place has another name, and may be empty or gone.
        let is_token = |file: &PathBuf| !file.file_name().unwrap().as_encoded_bytes().starts_with(b".");
        files.filter(is_token).map(|file| fs::read_to_string(file).unwrap()).collect()
    }

    /// The files that the only container sees as its bitstreams.
    pub fn bitstreams(&self) -> BTreeMap<String, Vec<u8>> {
        let folder = self.only_folder();
        let files = fs::read_dir(folder).unwrap().map(Result::unwrap);
        files.map(|file| (file.file_name().into_string().unwrap(), fs::read(file.path()).unwrap())).collect()
    }

    /// The folder of the bitstreams of the only container.
    pub fn only_folder(&self) -> PathBuf {
        let folders: Vec<_> = fs::read_dir(self.folder.path().join("plugin/bitstreams")).unwrap().collect();
        let [folder] = folders.as_slice() else { panic!("{} containers", folders.len()) };
        folder.as_ref().unwrap().path()
    }

    /// Waits until the plugin has kept what the API server lists.
    pub fn library_is_kept(&self) {
        let kept = self.folder.path().join("plugin/libraries").join(NAMESPACE);
        fpga_test_kit::until("the library to be kept", || kept.exists());
    }

    /// The gate's answer for the container with this token, in the time that a device manager takes for it.
    pub fn gate(&self, token: &str, bitstream: &str) -> GateAnswer {
        let request = GateRequest {
            token: of_bytes(token.as_bytes()),
            board: BOARD.to_owned(),
            bitstream: digest(bitstream),
            origin: Origin::Client,
            residency: Residency::Absent,
            others: Others::Idle,
        };
        let mut stream = fpga_test_kit::until("the gate to listen", || {
            UnixStream::connect(self.folder.path().join("run/gate/gate.sock"))
        });
        stream.set_read_timeout(Some(GATE_TIMEOUT)).unwrap();
        stream.write_all(request.line().unwrap().as_bytes()).unwrap();
        let mut line = Vec::new();
        BufReader::new(stream).read_until(b'\n', &mut line).unwrap();
        GateAnswer::parse(&line).unwrap()
    }
}

/// What the bitstream's file is in the container.
pub fn file(name: &str) -> (String, Vec<u8>) {
    (format!("{name}.bitstream"), content(name))
}

fn api_server(objects: &Objects) -> Router {
    let in_mode = |State(objects): State<Objects>, request: Request, next: Next| async move {
        let mode = *objects.mode.lock().unwrap();
        match mode {
            Mode::Answers => next.run(request).await,
            Mode::Unavailable => status(503, "etcd is away"),
            Mode::SilentToWrites if request.method() == Method::GET => next.run(request).await,
            Mode::Silent | Mode::SilentToWrites => std::future::pending().await,
        }
    };
    let found = |found: Option<Value>| -> Response {
        found.map_or_else(|| status(404, "not found"), |object| axum::Json(object).into_response())
    };
    let pod = move |State(objects): State<Objects>, Path(name): Path<String>| async move {
        found(objects.pods.lock().unwrap().get(&name).cloned())
    };
    let patch = move |State(objects): State<Objects>,
                      Path(name): Path<String>,
                      axum::Json(patch): axum::Json<Value>| async move {
        let mut pods = objects.pods.lock().unwrap();
        let pod = pods.get_mut(&name);
        let changed = pod.map(|pod| {
            let annotations = pod["metadata"]["annotations"].as_object_mut().unwrap();
            annotations.extend(patch["metadata"]["annotations"].as_object().unwrap().clone());
            objects.writes.fetch_add(1, Ordering::SeqCst);
            pod.clone()
        });
        found(changed)
    };
    let bitstream = move |State(objects): State<Objects>, Path(key): Path<(String, String)>| async move {
        found(objects.bitstreams.lock().unwrap().get(&key).cloned())
    };
    let bitstreams = |State(objects): State<Objects>, Path(of): Path<String>| async move {
        let all = objects.bitstreams.lock().unwrap();
        let items: Vec<&Value> =
            all.iter().filter(|((namespace, _), _)| *namespace == of).map(|(_, it)| it).collect();
        axum::Json(json!({
            "apiVersion": "fpga-scheduling.io/v1alpha1", "kind": "BitstreamList", "metadata": {},
            "items": items,
        }))
    };
    let group = "/apis/fpga-scheduling.io/v1alpha1/namespaces/{of}/bitstreams";
    Router::new()
        .route("/api/v1/namespaces/shop/pods/{name}", get(pod).patch(patch))
        .route(group, get(bitstreams))
        .route(&format!("{group}/{{name}}"), get(bitstream))
        .layer(from_fn_with_state(objects.clone(), in_mode))
        .with_state(objects.clone())
}
