//! The command line, and the start and end of the plugin's tasks.

use crate::boards::{self, Boards};
use crate::holders::PodResources;
use crate::identity::Pods;
use crate::kubelet::{Kubelet, remove_dead_sockets};
use crate::layout::{LIBRARY, Layout};
use crate::plugin::{Parts, Plugin};
use crate::{advertised, revocation};
use anyhow::{Context as _, bail, ensure};
use clap::Parser;
use fpga_core::names::ACCELERATED_RESOURCE;
use fpga_hook::Endpoint;
use fpga_net::kube_config;
use fpga_net::log::LogArgs;
use fpga_net::signals::Signals;
use nix::sys::statvfs::{FsFlags, statvfs};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tokio::sync::watch;
use tracing::info;

const EXAMPLES: &str = "Example, as the DaemonSet does it:
  fpga-node-plugin --node-name worker-1 --collector unix:/run/fpga/collector.sock";

/// Gives containers that ask for fpga-scheduling.io/accelerated boards, a token for them, and the client library: a
/// device plugin of the node's kubelet.
#[derive(Debug, Parser)]
#[command(name = "fpga-node-plugin", version, after_help = EXAMPLES)]
#[command(mut_arg("log", |log| log.default_value("fpga_node_plugin=info,warn")))]
pub struct Args {
    /// Name of the node that the plugin runs on.
    #[arg(long, env = "FPGA_NODE_NAME")]
    node_name: String,

    /// The node's collector, which knows the state of the boards: `http://HOST:PORT` or `unix:/PATH`.
    #[arg(long, env = "FPGA_COLLECTOR", default_value = "unix:/run/fpga/collector.sock")]
    collector: Endpoint,

    /// Folder of the node for what containers and managers share: managers/BOARD/dm.sock, which the managers make, and
    /// tokens/BOARD, which is the manager's --tokens.
    #[arg(long, env = "FPGA_RUN_DIR", value_name = "DIR", default_value = "/run/fpga")]
    run_dir: PathBuf,

    /// Group of managers that do not run as root: it may read tokens, and make the folders of boards' sockets.
    #[arg(long, env = "FPGA_MANAGERS_GID", value_name = "GID")]
    managers_gid: Option<u32>,

    /// Folder of the node for the client library and for what survives a restart. Programs on its file system must be
    /// executable.
    #[arg(
        long,
        env = "FPGA_PLUGIN_DIR",
        value_name = "DIR",
        default_value = "/var/lib/kubelet/plugins/fpga-scheduling.io"
    )]
    plugin_dir: PathBuf,

    /// The client library, which is copied to --plugin-dir and mounted into containers.
    #[arg(
        long,
        env = "FPGA_CLIENT_LIBRARY",
        value_name = "PATH",
        default_value = "/usr/lib/kube-fpga/libfpga_opencl_icd.so"
    )]
    library: PathBuf,

    /// Folder of the node with bitstreams, which containers see as /run/fpga/bitstreams.
    #[arg(long, env = "FPGA_BITSTREAMS", value_name = "DIR")]
    bitstreams: Option<PathBuf>,

    /// Number of containers that can have a board at the same time.
    #[arg(long, env = "FPGA_INSTANCES_PER_BOARD", default_value_t = 16, value_parser = clap::value_parser!(u32).range(1..=1000))]
    instances_per_board: u32,

    /// The kubelet's folder of device plugins. It does not depend on the kubelet's --root-dir.
    #[arg(
        long,
        env = "FPGA_DEVICE_PLUGINS_DIR",
        value_name = "DIR",
        default_value = "/var/lib/kubelet/device-plugins"
    )]
    device_plugins_dir: PathBuf,

    /// The kubelet's socket for PodResources, in the kubelet's --root-dir.
    #[arg(
        long,
        env = "FPGA_POD_RESOURCES",
        value_name = "PATH",
        default_value = "/var/lib/kubelet/pod-resources/kubelet.sock"
    )]
    pod_resources: PathBuf,

    /// Kubeconfig to reach the API server with. Default: $KUBECONFIG, ~/.kube/config, or the pod's service account.
    #[arg(long, env = "FPGA_KUBECONFIG", value_name = "PATH")]
    kubeconfig: Option<PathBuf>,

    #[command(flatten)]
    log: LogArgs,
}

impl Args {
    /// Runs the plugin until SIGINT or SIGTERM. Containers that have boards keep them.
    ///
    /// # Errors
    /// The reason why the plugin could not start, with what to do about it.
    pub fn run(self) -> anyhow::Result<()> {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(2)
            .enable_all()
            .build()
            .context("cannot start the runtime")?;
        runtime.block_on(self.serve())
    }

    async fn serve(self) -> anyhow::Result<()> {
        self.log.init()?;
        let mut signals = Signals::install().context("cannot take signals")?;
        let config = kube_config::load(self.kubeconfig.as_deref(), None).await?;
        let client = kube::Client::try_from(config).context("cannot make a client of the kubeconfig")?;
        let layout = Layout { run: self.run_dir, plugin: self.plugin_dir, managers_gid: self.managers_gid };
        layout.make().with_context(|| {
            format!("can't make the folders below {} and {}", layout.run.display(), layout.plugin.display())
        })?;
        ensure_executable(&layout.library_folder())?;
        layout.install_library(&self.library).with_context(|| {
            format!("can't install {}; write --library /PATH/TO/{LIBRARY}", self.library.display())
        })?;
        if let Some(folder) = self.bitstreams.as_deref().filter(|folder| !folder.is_dir()) {
            bail!("--bitstreams {} is no folder", folder.display());
        }
        let resource = ACCELERATED_RESOURCE.to_owned();
        let (boards_sender, boards) = watch::channel(Boards::default());
        let (devices_sender, devices) = watch::channel(Vec::new());
        let plugin = Arc::new(Plugin::recover(Parts {
            layout: layout.clone(),
            pods: Pods { client, node: self.node_name.clone(), resource: resource.clone() },
            pod_resources: PodResources { socket: self.pod_resources, resource: resource.clone() },
            boards: boards.clone(),
            bitstreams: self.bitstreams,
            limit: self.instances_per_board,
        })?);
        remove_dead_sockets(&self.device_plugins_dir);
        let kubelet =
            Kubelet { folder: self.device_plugins_dir, resource, plugin: Arc::clone(&plugin), devices };
        info!(node = self.node_name, collector = %self.collector, "The plugin starts");
        // None of these ends by itself.
        tokio::select! {
            () = boards::watch(layout, self.collector, boards_sender) => {}
            () = advertised::keep(boards, self.instances_per_board, devices_sender) => {}
            () = revocation::run(plugin) => {}
            () = kubelet.stay_registered() => {}
            _ = signals.next() => {}
        }
        info!("The plugin ends; containers keep their boards");
        Ok(())
    }
}

/// Containers load the library from this folder's file system, so it must not be mounted with `noexec`.
fn ensure_executable(folder: &Path) -> anyhow::Result<()> {
    let file_system = statvfs(folder).with_context(|| format!("can't look at {}", folder.display()))?;
    ensure!(
        !file_system.flags().contains(FsFlags::ST_NOEXEC),
        "the file system of {} is mounted with noexec, and no container could load the client library from it; write \
         --plugin-dir DIR, a folder on another file system",
        folder.display()
    );
    Ok(())
}
