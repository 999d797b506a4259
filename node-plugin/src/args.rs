//! The command line, and the start and end of the plugin's tasks.

use crate::advertised::Offer;
use crate::boards::{self, Boards};
use crate::holders::PodResources;
use crate::identity::Pods;
use crate::kubelet::{Kubelet, remove_dead_sockets};
use crate::layout::{LIBRARY, Layout};
use crate::library_args::LibraryArgs;
use crate::node_bitstreams::NodeBitstreams;
use crate::plugin::{Parts, Plugin};
use crate::turns::Turns;
use crate::{advertised, gate_socket, probes, report, revocation};
use anyhow::{Context as _, bail, ensure};
use clap::Parser;
use fpga_core::board_request::BoardResource;
use fpga_core::gate::Moves;
use fpga_core::names::OWN_PREFIX;
use fpga_hook::Endpoint;
use fpga_net::listen;
use fpga_net::log::LogArgs;
use fpga_net::signals::Signals;
use fpga_net::{kube_config, runtime};
use nix::sys::statvfs::{FsFlags, statvfs};
use std::collections::BTreeSet;
use std::iter;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use tokio::signal::unix::SignalKind;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::sleep;
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

    #[command(flatten)]
    library_args: LibraryArgs,

    /// Let a pod that wants a whole board reconfigured wait until the registry has moved other pods off it: for a registry
    /// with `--moves evict`. Without it such a pod is refused while kernels of others run there.
    #[arg(long, env = "FPGA_MOVES")]
    moves: bool,

    /// Number of containers that can have a board at the same time.
    #[arg(long, env = "FPGA_INSTANCES_PER_BOARD", default_value_t = 16, value_parser = clap::value_parser!(u32).range(1..=1000))]
    instances_per_board: u32,

    /// Vendors for whose boards there is a resource of their own, fpga-scheduling.io/VENDOR, beside
    /// fpga-scheduling.io/accelerated for all boards; comma-separated. kube-scheduler's configuration must list each
    /// of them in managedResources.
    #[arg(long, env = "FPGA_VENDOR_RESOURCES", value_name = "VENDOR", value_delimiter = ',', value_parser = vendor)]
    vendor_resources: Vec<String>,

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

    /// TCP address for probes and metrics; port 0 takes a free one.
    #[arg(long, env = "FPGA_METRICS_LISTEN", value_name = "ADDRESS")]
    metrics_listen: Option<SocketAddr>,

    /// Kubeconfig to reach the API server with. Default: $KUBECONFIG, ~/.kube/config, or the pod's service account.
    #[arg(long, env = "FPGA_KUBECONFIG", value_name = "PATH")]
    kubeconfig: Option<PathBuf>,

    /// Time after SIGTERM, and after the collector has been told, in which pods that are already bound to the node still
    /// get their boards, while the extender places no new ones there. SIGINT or a second signal ends it.
    #[arg(long, env = "FPGA_SHUTDOWN_DELAY", default_value = "5s", value_parser = fpga_net::duration::parse)]
    shutdown_delay: Duration,

    #[command(flatten)]
    log: LogArgs,
}

impl Args {
    /// Runs the plugin until SIGINT or SIGTERM. Containers that have boards keep them.
    ///
    /// # Errors
    /// The reason why the plugin could not start, with what to do about it.
    pub fn run(self) -> anyhow::Result<()> {
        runtime::run(self.serve()).context("cannot start the runtime")?
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
        let library = self.library_args.open(&client, &layout)?;
        let (boards_sender, boards) = watch::channel(Boards::default());
        let plugin = Arc::new(Plugin::recover(Parts {
            layout: layout.clone(),
            pods: Pods { client, node: self.node_name.clone() },
            pod_resources: PodResources { socket: self.pod_resources },
            boards: boards.clone(),
            bitstreams: NodeBitstreams { folder: self.bitstreams, library },
            turns: Turns::new(if self.moves { Moves::On } else { Moves::Off }),
            limit: self.instances_per_board,
        })?);
        remove_dead_sockets(&self.device_plugins_dir);
        let mut tasks = JoinSet::new();
        let vendors: BTreeSet<String> = self.vendor_resources.into_iter().collect();
        for vendor in iter::once(None).chain(vendors.into_iter().map(Some)) {
            let (sender, devices) = watch::channel(Vec::new());
            let offer = Offer { vendor, devices: sender };
            let kubelet = Kubelet {
                folder: self.device_plugins_dir.clone(),
                resource: offer.resource(),
                plugin: Arc::clone(&plugin),
                devices,
            };
            tasks.spawn(advertised::keep(offer, boards.clone(), self.instances_per_board));
            tasks.spawn(kubelet.stay_registered());
        }
        if let Some(address) = self.metrics_listen {
            let listener = listen::bind(address).with_context(|| {
                format!("can't listen on {address}; choose another address with --metrics-listen")
            })?;
            info!(bound = %listener.local_addr()?, "Serving probes and metrics");
            tasks.spawn(probes::serve(listener, Arc::clone(&plugin)));
        }
        let gate = gate_socket::bind(&layout).context("can't make the socket of the gate")?;
        tasks.spawn(gate_socket::serve(gate, Arc::clone(&plugin)));
        tasks.spawn(boards::watch(layout, self.collector.clone(), boards_sender));
        tasks.spawn(revocation::run(Arc::clone(&plugin)));
        info!(node = self.node_name, collector = %self.collector, "The plugin starts");
        // No task ends by itself.
        let signal = tokio::select! {
            ended = tasks.join_next() => bail!("a task of the plugin has ended: {ended:?}"),
            never = report::run(plugin, self.collector.clone()) => match never {},
            signal = signals.next() => signal,
        };
        if signal == SignalKind::terminate() && !self.shutdown_delay.is_zero() {
            info!(delay = ?self.shutdown_delay, "About to end: pods that are bound still get their boards");
            // The extender rejects the node from the collector's next word on, before the kubelet sees the end.
            let left = async {
                report::leave(&self.collector).await;
                sleep(self.shutdown_delay).await;
            };
            tokio::select! {
                ended = tasks.join_next() => bail!("a task of the plugin has ended: {ended:?}"),
                () = left => {}
                _ = signals.next() => {}
            }
        }
        info!("The plugin ends; containers keep their boards");
        Ok(())
    }
}

/// A vendor whose name can be that of a resource.
fn vendor(text: &str) -> Result<String, String> {
    let is_inner = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
    let is_outer = |byte: Option<u8>| byte.is_some_and(|byte| byte.is_ascii_alphanumeric());
    let (first, last) = (text.bytes().next(), text.bytes().last());
    let is_name = is_outer(first) && is_outer(last) && text.bytes().all(is_inner) && text.len() <= 63;
    let resource = format!("{OWN_PREFIX}{text}");
    match BoardResource::named(&resource) {
        Some(BoardResource::OfVendor(_)) if is_name => Ok(text.to_owned()),
        _ => Err("write the vendor as the boards' managers name it, for example intel".to_owned()),
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
