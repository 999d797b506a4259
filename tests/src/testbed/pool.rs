//! A pool of lent slots without a cluster: the broker, device managers that lend, and the client program.

use super::cluster::Runtime;
use super::http_client::{Answer, HttpClient};
use super::network::Network;
use super::process::{Process, ProcessSpec};
use super::run_dir::RunDir;
use super::{artifacts, programs, wait};
use anyhow::{Context as _, Result};
use fpga_core::bitstream::Digest;
use fpga_pool_api::v1;
use fpga_pool_api::v1::broker_client::BrokerClient;
use fpga_test_kit::patience;
use nix::sys::signal::Signal;
use serde_json::json;
use sha2::{Digest as _, Sha256};
use std::ffi::OsString;
use std::fmt::Write as _;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use tokio::process::Command;

/// Ports of the broker's gRPC and metrics, and of the managers' sessions and metrics.
const BROKER: u16 = 9480;
const METRICS: u16 = 9481;
const MANAGER: u16 = 9471;
const MANAGER_METRICS: u16 = 9472;
/// Tenants whose jobs the broker takes.
pub const TENANTS: [&str; 2] = ["mill", "shop"];

/// Who sees the whole pool, and changes nothing.
pub const OPERATOR: &str = "operator";

/// How a manager shares its board.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sharing {
    /// Slots of the board.
    pub slots: u32,
    /// Slots that the manager lends to the pool.
    pub lent: u32,
    /// The times of another board (the file of `--model`), which this one stands for.
    pub model: Option<String>,
}

impl Default for Sharing {
    fn default() -> Self {
        Self { slots: 2, lent: 1, model: None }
    }
}

/// How a manager differs from those of [`PoolBed::start_manager`].
#[derive(Debug, Clone)]
pub struct ManagerOptions {
    /// The value of `--runtime`.
    pub runtime: String,
    /// Further arguments.
    pub args: Vec<String>,
    /// Environment variables.
    pub env: Vec<(String, String)>,
    /// The accelerator whose bitstream the manager does not have.
    pub lacks: Option<String>,
}

impl Default for ManagerOptions {
    fn default() -> Self {
        Self { runtime: "pocl".to_owned(), args: Vec::new(), env: Vec::new(), lacks: None }
    }
}

/// A pool whose accelerators are those of `pool/accelerators`.
#[derive(Debug)]
pub struct PoolBed {
    /// The broker; `None` while it is killed.
    broker: Option<Process>,
    managers: Vec<Manager>,
    /// The broker's flags beside those of the test bed.
    broker_flags: Vec<String>,
    bitstreams: PathBuf,
    network: Network,
    run_dir: RunDir,
}

/// A manager and how it is started.
#[derive(Debug)]
struct Manager {
    process: Process,
    spec: ProcessSpec,
    /// The file that it writes when it listens.
    ready: PathBuf,
}

impl PoolBed {
    /// Starts the broker.
    ///
    /// # Errors
    /// A program is not built, or the broker does not become ready.
    pub async fn start() -> Result<Self> {
        Self::start_for(0, Vec::new()).await
    }

    /// Starts the broker with further flags, and with a token for the jobs of each of so many nodes: [`Self::home_token`].
    ///
    /// # Errors
    /// A program is not built, or the broker does not become ready.
    pub async fn start_for(homes: u32, broker_flags: Vec<String>) -> Result<Self> {
        let bitstreams = artifacts::accelerator_bitstreams(Runtime::Pocl)?;
        let (network, run_dir) = (Network::claim()?, RunDir::new()?);
        let write = |name: &str, text: &str| {
            std::fs::write(run_dir.path().join(name), text).with_context(|| format!("can't write {name}"))
        };
        write("library.toml", &library(&bitstreams)?)?;
        write("ticket-key", &"7".repeat(64))?;
        let mut tokens =
            json!({ token("manager"): { "role": "manager" }, token(OPERATOR): { "role": "operator" } });
        for tenant in TENANTS {
            tokens[token(tenant)] = json!({ "role": "client", "tenant": tenant });
        }
        for home in (0..homes).map(node_name) {
            tokens[token(&home)] = json!({ "role": "client", "tenant": TENANTS[0], "node": home });
            write(&format!("{home}.token"), &token(&home))?;
        }
        write("tokens.json", &tokens.to_string())?;
        for name in TENANTS.into_iter().chain(["manager", OPERATOR]) {
            write(&format!("{name}.token"), &token(name))?;
        }
        let mut bed = Self { broker: None, managers: Vec::new(), broker_flags, bitstreams, network, run_dir };
        bed.start_broker().await?;
        Ok(bed)
    }

    /// Starts the broker again, at its former address.
    ///
    /// # Errors
    /// The broker does not become ready.
    pub async fn start_broker(&mut self) -> Result<()> {
        let file = |name: &str| self.run_dir.path().join(name);
        let spec = ProcessSpec::new("broker", programs::built("fpga-pool")?, self.run_dir.log("broker"))
            .arg("serve")
            .args([
                "--listen",
                &self.broker_address(),
                "--without-tls",
                "--metrics-listen",
                &self.at(METRICS),
            ])
            .arg("--library")
            .arg(file("library.toml"))
            .arg("--tokens")
            .arg(file("tokens.json"))
            .arg("--ticket-key-file")
            .arg(file("ticket-key"))
            .args(&self.broker_flags);
        let broker = Process::start(&spec)?;
        let ready = format!("http://{}/readyz", self.at(METRICS));
        broker.wait_ready(&HttpClient::new(patience()), &ready, patience()).await?;
        self.broker = Some(broker);
        Ok(())
    }

    /// Ends the broker, and starts one with other flags at its address.
    ///
    /// # Errors
    /// The broker does not become ready.
    pub async fn replace_broker(&mut self, flags: Vec<String>) -> Result<()> {
        self.kill_broker().await;
        self.broker_flags = flags;
        self.start_broker().await
    }

    /// Ends the broker by SIGKILL.
    pub async fn kill_broker(&mut self) {
        if let Some(broker) = self.broker.take() {
            broker.kill().await;
        }
    }

    /// Sends the broker's process a signal that does not end it.
    ///
    /// # Errors
    /// The broker does not run.
    pub fn signal_broker(&self, signal: Signal) -> Result<()> {
        let broker = self.broker.as_ref().context("there is no broker")?;
        broker.check_running()?;
        broker.signal(signal);
        Ok(())
    }

    /// Starts a manager with a board of its own, one slot of which it lends. Its node is `node-INDEX`, from 0.
    ///
    /// # Errors
    /// The manager does not listen.
    pub async fn start_manager(&mut self) -> Result<()> {
        self.start_manager_with(&Sharing::default()).await
    }

    /// Starts a manager with a board of its own, which it shares so. Its node is `node-INDEX`, from 0.
    ///
    /// # Errors
    /// The model can't be written, or the manager does not listen.
    pub async fn start_manager_with(&mut self, sharing: &Sharing) -> Result<()> {
        self.start_manager_as(sharing, &ManagerOptions::default()).await
    }

    /// As [`Self::start_manager_with`], with these options.
    ///
    /// # Errors
    /// As [`Self::start_manager_with`].
    pub async fn start_manager_as(&mut self, sharing: &Sharing, options: &ManagerOptions) -> Result<()> {
        let name = node_name(u32::try_from(self.managers.len())?);
        let Sharing { slots, lent, model } = sharing;
        let model = model.as_ref().map(|model| {
            let path = self.run_dir.path().join(format!("{name}-model.toml"));
            std::fs::write(&path, model).map(|()| path)
        });
        let model = model.transpose().context("can't write the model")?;
        let ready = self.run_dir.path().join(format!("{name}.ready"));
        let index = u8::try_from(self.managers.len()).context("too many managers")?;
        let port = self.manager_address(index).to_string();
        let ManagerOptions { runtime, args, env, lacks } = options;
        let bitstreams = match lacks {
            Some(lacks) => self.bitstreams_without(&name, lacks)?,
            None => self.bitstreams.clone(),
        };
        let spec = ProcessSpec::new(&name, programs::built("fpga-device-manager")?, self.run_dir.log(&name))
            .args([
                "serve",
                "--runtime",
                runtime,
                "--board",
                "cpu",
                "--slots",
                &slots.to_string(),
                "--listen",
            ])
            .arg(format!("unix:{}", self.run_dir.path().join(format!("{name}.sock")).display()))
            .args(["--pool-slots", &lent.to_string(), "--pool-node", &name, "--pool-listen", &port])
            .args(model.iter().flat_map(|path| ["--model".into(), path.clone().into_os_string()]))
            .arg("--insecure-tcp")
            .arg("--pool-broker")
            .arg(format!("http://{}", self.broker_address()))
            .arg("--pool-token-file")
            .arg(self.run_dir.path().join("manager.token"))
            .args(["--metrics-listen", &self.manager_metrics(index)])
            .arg("--bitstreams")
            .arg(bitstreams)
            .arg("--ready-file")
            .arg(&ready)
            .args(args);
        let spec = env.iter().fold(spec, |spec, (name, value)| spec.env(name, value));
        self.managers.push(Manager::start(spec, ready).await?);
        Ok(())
    }

    /// Makes a folder with all bitstreams but that of an accelerator.
    fn bitstreams_without(&self, manager: &str, accelerator: &str) -> Result<PathBuf> {
        let folder = self.run_dir.path().join(format!("{manager}-bitstreams"));
        std::fs::create_dir_all(&folder).context("can't make a folder for bitstreams")?;
        let lacking = OsString::from(format!("{accelerator}.bitstream"));
        for entry in std::fs::read_dir(&self.bitstreams).context("can't read the folder of bitstreams")? {
            let entry = entry?;
            if entry.file_name() != lacking {
                std::fs::copy(entry.path(), folder.join(entry.file_name()))
                    .context("can't copy a bitstream")?;
            }
        }
        Ok(folder)
    }

    /// Ends a manager by SIGKILL.
    pub async fn kill_manager(&self, index: usize) {
        if let Some(manager) = self.managers.get(index) {
            manager.process.kill().await;
        }
    }

    /// Sends a manager's process a signal that does not end it. The processes that the manager has started get none.
    ///
    /// # Errors
    /// The manager does not run.
    pub fn signal_manager(&self, index: usize, signal: Signal) -> Result<()> {
        let manager = self.managers.get(index).context("no such manager")?;
        manager.process.check_running()?;
        manager.process.signal(signal);
        Ok(())
    }

    /// Starts a manager again that has ended, as it was started before.
    ///
    /// # Errors
    /// There is no such manager, or it does not listen.
    pub async fn restart_manager(&mut self, index: usize) -> Result<()> {
        let manager = self.managers.get_mut(index).context("no such manager")?;
        let _ = std::fs::remove_file(&manager.ready);
        *manager = Manager::start(manager.spec.clone(), manager.ready.clone()).await?;
        Ok(())
    }

    /// Where clients on other nodes reach a manager.
    #[must_use]
    pub fn manager_address(&self, index: u8) -> SocketAddr {
        SocketAddr::from((self.network.node(index).host(), MANAGER))
    }

    /// A run of `fpga-acc run` of a tenant's process on a node, with pipes for its input and output. What it says goes to
    /// the standard error.
    ///
    /// # Errors
    /// The program is not built.
    pub fn job(&self, tenant: &str, node: &str, args: &[&str]) -> Result<Command> {
        let mut command = Command::new(programs::built("fpga-acc")?);
        command
            .arg("run")
            .args(args)
            .env("FPGA_POOL", self.broker_address())
            .env("FPGA_POOL_TOKEN_FILE", self.token_file(tenant))
            .env("FPGA_NODE_NAME", node)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .kill_on_drop(true);
        Ok(command)
    }

    /// A sum of a metric of the broker over all its labels.
    ///
    /// # Errors
    /// The broker does not answer.
    pub async fn metric(&self, name: &str) -> Result<f64> {
        let answer = HttpClient::new(patience()).get(&self.metrics_url()).await?;
        Ok(answer.metric(name))
    }

    /// The ids of the managers' processes.
    pub fn manager_processes(&self) -> impl Iterator<Item = u32> {
        self.managers.iter().filter_map(|manager| manager.process.pid().try_into().ok())
    }

    /// Number of lent slots that are free, by the word of their managers.
    ///
    /// # Errors
    /// A manager does not answer.
    pub async fn free_slots(&self) -> Result<f64> {
        self.sum_over_managers(|answer| answer.sample("fpga_device_manager_pool_slots{state=\"free\"}")).await
    }

    /// A sum of a metric over all managers and all its labels.
    ///
    /// # Errors
    /// A manager does not answer.
    pub async fn metric_of_managers(&self, name: &str) -> Result<f64> {
        self.sum_over_managers(|answer| answer.metric(name)).await
    }

    async fn sum_over_managers(&self, of: impl Fn(&Answer) -> f64) -> Result<f64> {
        let (http, mut sum) = (HttpClient::new(patience()), 0.0);
        for index in 0..u8::try_from(self.managers.len())? {
            sum += of(&http.get(&self.manager_metrics_url(index)).await?);
        }
        Ok(sum)
    }

    /// The URL of the broker's metrics.
    #[must_use]
    pub fn metrics_url(&self) -> String {
        format!("http://{}/metrics", self.at(METRICS))
    }

    /// The URL of a manager's metrics.
    #[must_use]
    pub fn manager_metrics_url(&self, index: u8) -> String {
        format!("http://{}/metrics", self.manager_metrics(index))
    }

    fn manager_metrics(&self, index: u8) -> String {
        format!("{}:{MANAGER_METRICS}", self.network.node(index).host())
    }

    /// What an operator sees of the pool.
    ///
    /// # Errors
    /// The broker does not answer.
    pub async fn look(&self) -> Result<v1::Pool> {
        let mut broker = BrokerClient::connect(format!("http://{}", self.broker_address())).await?;
        Ok(broker.look(v1::LookRequest { token: token(OPERATOR) }).await?.into_inner())
    }

    /// Fails if the broker or a manager has ended.
    ///
    /// # Errors
    /// The first that has ended, with the end of its log.
    pub fn check_running(&self) -> Result<()> {
        let managers = self.managers.iter().map(|manager| &manager.process);
        self.broker.iter().chain(managers).try_for_each(Process::check_running)
    }

    /// The file with the token of a tenant, or of [`OPERATOR`].
    #[must_use]
    pub fn token_file(&self, tenant: &str) -> PathBuf {
        self.run_dir.path().join(format!("{tenant}.token"))
    }

    /// The file with the token of the jobs of a node.
    #[must_use]
    pub fn home_token(&self, home: u32) -> PathBuf {
        self.token_file(&node_name(home))
    }

    /// Keeps the logs after the end.
    pub fn keep_logs(&mut self) {
        self.run_dir.keep();
    }

    /// Address of the broker, as a socket has it.
    #[must_use]
    pub fn broker_socket(&self) -> SocketAddr {
        SocketAddr::from((self.network.control_plane(), BROKER))
    }

    /// The folder with the logs.
    #[must_use]
    pub fn logs(&self) -> &Path {
        self.run_dir.path()
    }

    /// The file of the broker's log.
    #[must_use]
    pub fn log_of_broker(&self) -> PathBuf {
        self.run_dir.log("broker")
    }

    /// Address of the broker, `HOST:PORT`.
    #[must_use]
    pub fn broker_address(&self) -> String {
        self.at(BROKER)
    }

    fn at(&self, port: u16) -> String {
        format!("{}:{port}", self.network.control_plane())
    }
}

impl Manager {
    async fn start(spec: ProcessSpec, ready: PathBuf) -> Result<Self> {
        let process = Process::start(&spec)?;
        wait::until(&format!("{} to listen", spec.name), async || {
            process.check_running()?;
            Ok(ready.exists().then_some(()))
        })
        .await?;
        Ok(Self { process, spec, ready })
    }
}

/// Name of a node.
#[must_use]
pub fn node_name(index: u32) -> String {
    format!("node-{index}")
}

/// The token of a tenant, or of the managers.
fn token(name: &str) -> String {
    format!("{name}-token-of-a-test-bed")
}

/// The broker's library with all bitstreams of the folder.
fn library(bitstreams: &Path) -> Result<String> {
    let mut text = String::new();
    for entry in std::fs::read_dir(bitstreams).context("can't read the folder of bitstreams")? {
        let path = entry?.path();
        let name = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        let bytes = std::fs::read(&path).with_context(|| format!("can't read {}", path.display()))?;
        let digest = Digest::from_bytes(Sha256::digest(bytes).into());
        let _ = writeln!(text, "[[accelerators.{name}]]\nboard = \"cpu\"\ndigest = \"{digest}\"\n");
    }
    Ok(text)
}
