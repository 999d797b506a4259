//! A node of a cluster around a manager: the collector and the node plugin in processes of their own, and of the API
//! server the Bitstreams.

use crate::harness::{Board, Client, Manager, digest_of};
use crate::service::board::{FULL, PARTIAL};
use axum::extract::{Path as Of, State};
use axum::routing::get;
use axum::{Json, Router};
use fpga_test_kit::{Program, kubeconfig, patience, programs, until_async};
use parking_lot::Mutex;
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use tokio::sync::watch;

/// The namespace of the library.
const LIBRARY: &str = "library";

/// A node with one board that is reconfigured as a whole, `dm0`.
pub struct Node {
    folder: tempfile::TempDir,
    pub api: Api,
    pub board: Board,
    plugin: Option<Program>,
    /// Further flags of the plugin.
    plugin_flags: &'static [&'static str],
    _collector: Program,
}

/// The Bitstreams of an API server.
#[derive(Clone)]
pub struct Api {
    objects: Arc<Mutex<Vec<Value>>>,
    /// Whether questions are answered.
    answers: watch::Sender<bool>,
    /// Number of questions that came.
    asked: watch::Sender<usize>,
    address: String,
}

/// A container that has boards, as the plugin's checkpoint has it.
pub struct Container {
    pub namespace: &'static str,
    pub pod: &'static str,
    pub board: &'static str,
}

impl Container {
    /// The token of the container.
    pub fn token(&self) -> String {
        format!("token-of-{}-{}-0123456789abcdef", self.namespace, self.pod)
    }
}

impl Api {
    async fn start() -> Self {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = format!("http://{}", listener.local_addr().unwrap());
        let (objects, answers, asked) = (Arc::default(), watch::Sender::new(true), watch::Sender::new(0));
        let api = Self { objects, answers, asked, address };
        let list = async |State(api): State<Self>, Of(namespace): Of<String>| {
            api.asked.send_modify(|asked| *asked += 1);
            // The sender of the channel is in `api`.
            let _ = api.answers.subscribe().wait_for(|answers| *answers).await;
            let mut items = api.objects.lock().clone();
            items.retain(|object| object["metadata"]["namespace"] == namespace.as_str());
            Json(json!({
                "apiVersion": "fpga-scheduling.io/v1alpha1", "kind": "BitstreamList", "metadata": {}, "items": items,
            }))
        };
        let path = "/apis/fpga-scheduling.io/v1alpha1/namespaces/{namespace}/bitstreams";
        let router = Router::new().route(path, get(list)).with_state(api.clone());
        tokio::spawn(async move { axum::serve(listener, router).await });
        api
    }

    /// Applies a Bitstream with these bytes: of the library for all, or of a namespace for itself.
    pub fn apply(&self, namespace: Option<&str>, name: &str, bytes: &[u8]) {
        let from = if namespace.is_some() { "Same" } else { "All" };
        let variant = json!({
            "vendor": "intel", "board": "a10", "shell": "1", "regionSize": 1, "bytes": bytes.len(),
            "digest": digest_of(bytes).to_string(), "source": {"https": "https://files.example/x"},
        });
        self.objects.lock().push(json!({
            "apiVersion": "fpga-scheduling.io/v1alpha1", "kind": "Bitstream",
            "metadata": {"namespace": namespace.unwrap_or(LIBRARY), "name": name},
            "spec": {"variants": [variant], "allowedNamespaces": {"from": from}},
        }));
    }

    /// Gives answers from now on, or none.
    pub fn answer(&self, answers: bool) {
        self.answers.send_replace(answers);
    }

    /// Waits until the API server has been asked more than `before` times.
    pub async fn is_asked(&self, before: usize) {
        let mut asked = self.asked.subscribe();
        let more = asked.wait_for(|asked| *asked > before);
        tokio::time::timeout(patience(), more).await.unwrap().unwrap();
    }

    pub fn times_asked(&self) -> usize {
        *self.asked.borrow()
    }
}

impl Node {
    /// A node on which these containers have boards.
    pub async fn start(containers: &[&Container]) -> Self {
        Self::start_with(containers, &[]).await
    }

    /// As [`Self::start`], with these flags of the plugin beside others.
    pub async fn start_with(containers: &[&Container], plugin_flags: &'static [&'static str]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let api = Api::start().await;
        let path = |name: &str| folder.path().join(name);
        for name in ["run/managers/dm0", "run/tokens/dm0", "plugin", "device-plugins", "checkpoint"] {
            std::fs::create_dir_all(path(name)).unwrap();
        }
        std::fs::write(path("library.so"), "a library").unwrap();
        std::fs::write(path("kubeconfig"), kubeconfig(&api.address)).unwrap();
        std::fs::write(path("plugin/allocations.json"), checkpoint(containers).to_string()).unwrap();
        let collector = ["--node-name", "n1", "--no-publish", "--listen-unix"].map(str::to_owned);
        let (socket, records) = (text(&path("collector.sock")), text(&path("checkpoint")));
        let collector = [collector.as_slice(), &[socket, "--checkpoint-dir".to_owned(), records]].concat();
        let collector = Program::start(Command::new(programs::built("fpga-collector")).args(&collector));
        let board = Board::new();
        let mut node = Self { folder, api, board, plugin: None, plugin_flags, _collector: collector };
        node.start_plugin().await;
        node
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// The socket of the gate.
    pub fn gate(&self) -> PathBuf {
        self.path("run/gate/gate.sock")
    }

    /// Starts the plugin, and waits for its gate.
    pub async fn start_plugin(&mut self) {
        let flags = [
            ("--node-name", "n1".to_owned()),
            ("--collector", format!("unix:{}", text(&self.path("collector.sock")))),
            ("--run-dir", text(&self.path("run"))),
            ("--plugin-dir", text(&self.path("plugin"))),
            ("--library", text(&self.path("library.so"))),
            ("--device-plugins-dir", text(&self.path("device-plugins"))),
            ("--pod-resources", text(&self.path("no-kubelet.sock"))),
            ("--kubeconfig", text(&self.path("kubeconfig"))),
            ("--bitstream-store-size", "1MiB".to_owned()),
            ("--library-namespace", LIBRARY.to_owned()),
        ];
        let mut command = Command::new(programs::built("fpga-node-plugin"));
        for (flag, value) in flags {
            command.args([flag, &value]);
        }
        self.plugin = Some(Program::start(command.args(self.plugin_flags)));
        let gate = self.gate();
        until_async("the plugin has its gate", async || {
            std::os::unix::net::UnixStream::connect(&gate).is_ok()
        })
        .await;
    }

    /// Kills the plugin.
    pub fn kill_plugin(&mut self) {
        self.plugin = None;
    }

    /// A manager of the board that asks the plugin, for this long at most. The board is reconfigured as a whole.
    pub fn manager(&self, timeout: &str) -> Manager {
        let flags = self.flags(timeout);
        let flags: Vec<&str> = FULL.iter().copied().chain(flags.iter().map(String::as_str)).collect();
        self.board.manager(&flags)
    }

    /// A manager with a process for each tenant. Of the board a slot is reconfigured.
    pub fn manager_of_processes(&self) -> Manager {
        let flags = self.flags("30s");
        let flags: Vec<&str> = PARTIAL.iter().copied().chain(flags.iter().map(String::as_str)).collect();
        self.board.manager_of_processes(&flags)
    }

    fn flags(&self, timeout: &str) -> Vec<String> {
        let flags = [
            ("--listen", format!("unix:{}", text(&self.path("run/managers/dm0/dm.sock")))),
            ("--tokens", text(&self.path("run/tokens/dm0"))),
            ("--collector", format!("unix:{}", text(&self.path("collector.sock")))),
            ("--gate-socket", text(&self.gate())),
            ("--gate-timeout", timeout.to_owned()),
            ("--vendor", "intel".to_owned()),
            ("--board", "a10".to_owned()),
            ("--shell", "1".to_owned()),
        ];
        flags.into_iter().flat_map(|(flag, value)| [flag.to_owned(), value]).collect()
    }

    /// Makes a token count for the manager that no container has.
    pub fn forge(&self, namespace: &str, token: &str) {
        let folder = self.path("run/tokens/dm0").join(namespace);
        std::fs::create_dir_all(&folder).unwrap();
        std::fs::write(folder.join("forged"), token).unwrap();
    }
}

/// A session of a container.
pub async fn session(manager: &Manager, container: &Container) -> Client {
    Client::with_token(manager.channel().await, &container.token()).await
}

fn text(path: &Path) -> String {
    path.to_str().unwrap().to_owned()
}

/// The plugin's checkpoint, as it writes it.
fn checkpoint(containers: &[&Container]) -> Value {
    let allocation = |(number, container): (usize, &&Container)| {
        let Container { namespace, pod, board } = container;
        let allocation = json!({
            "number": number, "instances": [format!("{board}-{number}")],
            "claim": {
                "owner": {"namespace": namespace, "pod": pod, "uid": format!("uid-of-{pod}"), "container": "main"},
                "boards": [board], "token": container.token(), "workload": format!("deployment-of-{pod}"),
            },
        });
        (format!("allocation-{number}"), allocation)
    };
    let by_id: serde_json::Map<String, Value> = containers.iter().enumerate().map(allocation).collect();
    json!({"version": 1, "allocations": {"next": containers.len(), "byId": by_id}})
}
