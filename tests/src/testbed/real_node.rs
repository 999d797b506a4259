//! A real node: containerd and kubelet as a cluster has them, joined to the test bed's control plane.
//!
//! Each node is a [`Machine`]: it has mounts and processes of its own, and all of them end with the test program,
//! however that ends. So several nodes run side by side with the usual paths, and nothing stays behind but cgroups,
//! which are removed by [`Cgroup`].

mod boards;
mod cgroup;
mod cluster_dns;
mod config;
mod kubernetes_service;
mod leftovers;
mod machine;
mod programs;
mod services;
mod shipped_images;

pub use boards::{BoardManager, Boards, PluginOptions};
pub use cluster_dns::ClusterDns;
pub use fpga_images::Image;
pub use kubernetes_service::KubernetesService;
pub use leftovers::leftovers;
pub use machine::{Machine, RunMount};
pub use services::{ReadyEndpoints, ServiceProxy};
pub use shipped_images::{envoy_image, shipped_image, shipped_images};

use super::control_plane::ControlPlane;
use super::identity::Identity;
use super::process::Process;
use super::{artifacts, wait};
use anyhow::{Context as _, Result};
use cgroup::Cgroup;
use fpga_images::Compression;
use k8s_openapi::api::core::v1::Node as KubeNode;
use kube::Api;
use programs::Programs;
use std::path::{Path, PathBuf};

/// Address of containerd, on the node.
const CONTAINERD_SOCKET: &str = "/run/containerd/containerd.sock";
/// The image of the containers that hold pods' namespaces.
const PAUSE_IMAGE: &str = "localhost/pause:1";

/// The specification of a real node.
#[derive(Debug, Clone)]
pub struct RealNodeSpec {
    /// Name of the node.
    pub name: String,
    /// Index of the node in the test bed, which gives its addresses.
    pub index: u8,
    /// Whether programs below `/run` can be executed.
    pub run_mount: RunMount,
    /// Images besides the pause image.
    pub images: Vec<Image>,
}

/// A running node. Dropping it kills all its processes and removes its cgroups.
pub struct RealNode {
    // Fields are dropped in this order: a cgroup can be removed when its processes have ended.
    kubelet: Option<Process>,
    containerd: Option<Process>,
    machine: Machine,
    /// Removed when the machine's processes have ended.
    _cgroup: Cgroup,
    spec: RealNodeSpec,
    programs: Programs,
    kubeconfig: PathBuf,
    logs: PathBuf,
    client: kube::Client,
}

impl RealNodeSpec {
    /// A node with the usual `/run` and no image but the pause image.
    #[must_use]
    pub fn new(name: &str, index: u8) -> Self {
        Self { name: name.to_owned(), index, run_mount: RunMount::Executable, images: Vec::new() }
    }
}

impl RealNode {
    /// Fails if this machine can't have nodes.
    ///
    /// # Errors
    /// The error names all that is missing.
    pub fn check_possible() -> Result<()> {
        Programs::find().map(drop)
    }

    /// Starts the node. `plane` must know its name. See [`RealNode::wait_ready`].
    ///
    /// # Errors
    /// This machine can't have nodes, and the error names all that is missing; or a program does not start.
    pub async fn start(spec: RealNodeSpec, plane: &ControlPlane) -> Result<Self> {
        let programs = Programs::find()?;
        let network = plane.network().node(spec.index);
        let dir = plane.run_dir().path().join("nodes").join(&spec.name);
        let logs = plane.run_dir().path().join("logs");
        let cgroup = Cgroup::create(network.host())?;
        let machine = Machine::start(&spec.name, &dir, spec.run_mount, &logs).await?;
        config::write(&dir, &network, &cgroup, &programs)?;
        let kubeconfig = plane.kubeconfig(&Identity::Node(spec.name.clone()))?.to_owned();
        let client = plane.client().clone();
        let mut node = Self {
            kubelet: None,
            containerd: None,
            machine,
            _cgroup: cgroup,
            spec,
            programs,
            kubeconfig,
            logs,
            client,
        };
        node.start_containerd().await?;
        node.import_images().await?;
        node.start_kubelet()?;
        Ok(node)
    }

    /// Name of the node.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.spec.name
    }

    /// The machine that the node runs on, on which a test can start programs.
    #[must_use]
    pub fn machine(&self) -> &Machine {
        &self.machine
    }

    /// Starts containerd and waits until it answers.
    ///
    /// # Errors
    /// containerd does not answer in time.
    pub async fn start_containerd(&mut self) -> Result<()> {
        let log = self.log("containerd");
        let config = self.machine.dir().join("containerd.toml");
        let process = self.machine.spawn(
            self.machine
                .process("containerd", &self.programs.containerd(), &log)
                .env("PATH", self.programs.path()?)
                .arg("--config")
                .arg(config),
        )?;
        wait::until("containerd to answer", async || {
            process.check_running()?;
            self.ctr(&["version"]).await.map(Some)
        })
        .await?;
        self.containerd = Some(process);
        Ok(())
    }

    /// Starts the kubelet.
    ///
    /// # Errors
    /// The program can't be started.
    pub fn start_kubelet(&mut self) -> Result<()> {
        let log = self.log("kubelet");
        let spec = self
            .machine
            .process("kubelet", &self.programs.kubelet(), &log)
            .env("PATH", self.programs.path()?)
            .arg("--config")
            .arg(self.machine.dir().join("kubelet.json"))
            .arg("--kubeconfig")
            .arg(&self.kubeconfig)
            .arg(format!("--hostname-override={}", self.spec.name));
        self.kubelet = Some(self.machine.spawn(spec)?);
        Ok(())
    }

    /// Kills the kubelet, as a crash would. Containers go on.
    pub async fn kill_kubelet(&mut self) {
        if let Some(kubelet) = self.kubelet.take() {
            kubelet.kill().await;
        }
    }

    /// Kills containerd, as a crash would. Containers go on.
    pub async fn kill_containerd(&mut self) {
        if let Some(containerd) = self.containerd.take() {
            containerd.kill().await;
        }
    }

    async fn import_images(&self) -> Result<()> {
        let pause = artifacts::node_images()?.join("pause");
        let pause = Image::new(PAUSE_IMAGE, "/pause").file("/pause", pause);
        for image in [&pause].into_iter().chain(&self.spec.images) {
            let archive = self.machine.dir().join("image.tar");
            image
                .write(&archive, Compression::None)
                .with_context(|| format!("can't make the image {}", image.name()))?;
            let path = archive.to_str().context("the path of the image is not UTF-8")?;
            self.ctr(&["--namespace", "k8s.io", "images", "import", path]).await?;
            std::fs::remove_file(&archive).context("can't remove the image's archive")?;
        }
        Ok(())
    }

    /// Gives an image of the node a second name. Both are as containerd has them, with a registry.
    ///
    /// # Errors
    /// The node has no such image.
    pub async fn tag_image(&self, image: &str, name: &str) -> Result<()> {
        self.ctr(&["--namespace", "k8s.io", "images", "tag", image, name]).await
    }

    /// Runs ctr, containerd's command, on the node.
    async fn ctr(&self, arguments: &[&str]) -> Result<()> {
        let ctr = self.programs.ctr();
        let mut command = vec!["--address", CONTAINERD_SOCKET];
        command.extend(arguments);
        self.machine.run(&ctr, &command).await.map(drop)
    }

    /// Waits until pods can be placed on the node.
    ///
    /// # Errors
    /// The node does not become ready in time; the error has the end of the kubelet's log.
    pub async fn wait_ready(&self) -> Result<()> {
        let nodes: Api<KubeNode> = Api::all(self.client.clone());
        let ready = wait::until(&format!("the node {} to be ready", self.name()), async || {
            self.check_running()?;
            let node = nodes.get(self.name()).await?;
            let tainted = node.spec.and_then(|spec| spec.taints).is_some_and(|taints| !taints.is_empty());
            let status = node.status.unwrap_or_default();
            let ready =
                status.conditions.into_iter().flatten().any(|c| c.type_ == "Ready" && c.status == "True");
            Ok((ready && !tainted).then_some(()))
        })
        .await;
        let log = |process: &Process| process.log_tail();
        ready.with_context(|| {
            format!("the end of the kubelet's log:\n{}", self.kubelet.as_ref().map(log).unwrap_or_default())
        })
    }

    /// Fails with the end of the log if a program that should run has ended.
    ///
    /// # Errors
    /// A program has ended.
    pub fn check_running(&self) -> Result<()> {
        self.machine.check_running()?;
        self.containerd.iter().chain(&self.kubelet).try_for_each(Process::check_running)
    }

    /// What a pod's container has written so far: its current log and those before it.
    #[must_use]
    pub fn container_log(&self, namespace: &str, pod: &str, container: &str) -> String {
        let logs = self.machine.path("/var/log/pods");
        let prefix = format!("{namespace}_{pod}_");
        let folders = std::fs::read_dir(logs).into_iter().flatten().flatten();
        let of_pod = folders.filter(|folder| folder.file_name().to_string_lossy().starts_with(&prefix));
        let files =
            of_pod.flat_map(|folder| std::fs::read_dir(folder.path().join(container)).into_iter().flatten());
        files.flatten().filter_map(|file| std::fs::read_to_string(file.path()).ok()).collect()
    }

    fn log(&self, program: &str) -> PathBuf {
        self.logs.join(format!("{}-{program}.log", self.spec.name))
    }

    /// The folder of the test bed's logs.
    #[must_use]
    pub fn logs(&self) -> &Path {
        &self.logs
    }

    /// Ends all processes of the node at once, like a machine that is switched off, and removes its cgroups.
    pub async fn stop(mut self) {
        self.kill_kubelet().await;
        self.kill_containerd().await;
        self.machine.switch_off().await;
    }
}
