//! The command `serve`: builds a manager from its parts and runs it until a signal.

mod gate;
mod isolation;
mod listeners;

use crate::config::{Config, SharedMemory};
use crate::humane;
use crate::isolation::folder::Folder;
use crate::isolation::packets::Common;
use crate::log::LogArgs;
use crate::memory;
use crate::metrics_server;
use crate::scrape::AtScrape;
use crate::serve::gate::GateArgs;
use crate::server::{self, Ended};
use crate::signals::{self, AtEnd};
use crate::tenant_args::TenantArgs;
use anyhow::{Context as _, bail};
use clap::{Args, ValueEnum};
use fpga_hook::{Endpoint, Reporter};
use fpga_session::builds::Builds;
use fpga_session::catalogue::Catalogue;
use fpga_session::command_ring::CommandRing;
use fpga_session::config as sessions;
use fpga_session::confine::{ConfineBuilds, Confinement};
use fpga_session::dispatcher::Dispatcher;
use fpga_session::governor::{self, Governor, Limits};
use fpga_session::health::Health;
use fpga_session::includes::Includes;
use fpga_session::isolate::Isolate;
use fpga_session::metrics::Metrics;
use fpga_session::programs::Sources;
use fpga_session::quiesce::QuiesceLock;
use fpga_session::reporting::{DeviceFacts, Reports};
use fpga_session::settings::Settings;
use fpga_session::shutdown::Shutdown;
use fpga_session::store::BitstreamStore;
use fpga_session::trace::Trace;
use fpga_vendor as vendor;
use fpga_vendor::runtime::Runtime;
use isolation::IsolationArgs;
use listeners::ListenerArgs;
use prometheus_client::registry::Registry;
use std::net::SocketAddr;
use std::num::NonZeroU32;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use tracing::{info, warn};

/// Time for the last reports to the collector when the manager ends.
const LAST_REPORTS: Duration = Duration::from_secs(2);

/// Interval of reports about tasks that have held a slot for at least as long.
const PROGRESS_INTERVAL: Duration = Duration::from_secs(1);

const CL_PLATFORM_NAME: u32 = 0x0902;

/// Serves sessions until SIGTERM or SIGINT.
#[derive(Debug, Args)]
#[command(
    after_help = "Example:\n  fpga-device-manager serve --listen unix:/run/fpga/dm0.sock --runtime pocl \
                        --bitstreams /var/lib/fpga/bitstreams --collector http://127.0.0.1:9460"
)]
pub struct ServeArgs {
    #[command(flatten)]
    listen: ListenerArgs,

    /// File that gets the bound addresses, one per line as in --listen, once sessions are accepted.
    #[arg(long, env = "FPGA_READY_FILE", value_name = "PATH")]
    ready_file: Option<PathBuf>,

    /// The board's OpenCL runtime: `pocl`, `intel-fpga`, `intel-cpu`, or the path of an ICD.
    #[arg(long, env = "FPGA_RUNTIME", default_value = "pocl")]
    runtime: Runtime,

    /// Id of the device on its node.
    #[arg(long, env = "FPGA_DEVICE_ID", default_value = "dm0")]
    device_id: String,

    /// Vendor as in the node label fpga-scheduling.io/fpga-vendor [default: by the runtime].
    #[arg(long, env = "FPGA_VENDOR")]
    vendor: Option<String>,

    /// Board as in the node label fpga-scheduling.io/board.
    #[arg(long, env = "FPGA_BOARD", default_value = "")]
    board: String,

    /// Shell version as in the node label fpga-scheduling.io/shell-version.
    #[arg(long, env = "FPGA_SHELL", default_value = "")]
    shell: String,

    /// Number of tasks with kernels that run at once, each with its bitstream.
    #[arg(long, env = "FPGA_SLOTS", default_value = "4")]
    slots: NonZeroU32,

    /// Simulated time to load a bitstream into a slot.
    #[arg(long, env = "FPGA_RECONFIGURATION_TIME", default_value = "10ms", value_parser = humane::duration)]
    reconfiguration_time: Duration,

    /// How the board is reconfigured.
    #[arg(long, env = "FPGA_RECONFIGURATION", default_value = "partial")]
    reconfiguration: Reconfiguration,

    /// Count a program from source as a bitstream: it is loaded into a slot like one.
    #[arg(long, env = "FPGA_SOURCE_AS_BITSTREAM")]
    source_as_bitstream: bool,

    /// Pass the commands of clients on this node through shared memory, if the client shares any.
    #[arg(long, env = "FPGA_COMMAND_RING", default_value = "auto")]
    command_ring: CommandRing,

    /// Share memory with clients on this node instead of sending all bytes in messages.
    #[arg(long, env = "FPGA_SHARED_MEMORY", default_value = "on")]
    shared_memory: SharedMemory,

    /// Folder of accelerators, files NAME.bitstream, which give bitstreams their names. Read again every second.
    #[arg(long, env = "FPGA_BITSTREAMS", value_name = "DIR")]
    bitstreams: Option<PathBuf>,

    /// Folder in which bitstreams that clients send outlive the manager [default: memory only].
    #[arg(long, env = "FPGA_STORE", value_name = "DIR")]
    store: Option<PathBuf>,

    /// Maximum bytes of bitstreams that are kept, in memory and in --store; with --isolate process by each tenant's
    /// process [default: a quarter of the memory that the cgroup, or the machine, gives, and at most 1GiB].
    #[arg(long, env = "FPGA_STORE_LIMIT", value_name = "SIZE", value_parser = humane::size)]
    store_limit: Option<u64>,

    /// The node's collector: `http://HOST:PORT` or `unix:/PATH` [default: nothing is reported].
    #[arg(long, env = "FPGA_COLLECTOR")]
    collector: Option<Endpoint>,

    /// File with the token that a collector asks for over TCP (its own --token-file).
    #[arg(long, env = "FPGA_COLLECTOR_TOKEN_FILE", value_name = "PATH", requires = "collector")]
    collector_token_file: Option<PathBuf>,

    /// Serve /metrics, /healthz and /readyz on this address.
    #[arg(long, env = "FPGA_METRICS_LISTEN", value_name = "ADDRESS:PORT")]
    metrics_listen: Option<SocketAddr>,

    /// How long the tasks of a client that has gone may still run. After that --isolate process ends the tenant's
    /// process. Without it the device is reported unhealthy, and the manager drains and ends with status 1, to be
    /// started anew, since no OpenCL runtime can end a kernel.
    #[arg(long, env = "FPGA_ABANDONED_TIMEOUT", default_value = "1m", value_parser = humane::duration)]
    abandoned_timeout: Duration,

    /// How long sessions may go on after SIGTERM. Meanwhile new sessions are refused, /readyz fails and reports how
    /// many are left, the collector is told that the device is unhealthy, and the manager ends with status 0 once
    /// the last session has ended. Sessions that are still open then are ended with an error that says so. A second
    /// signal ends the manager at once.
    #[arg(long, env = "FPGA_DRAIN_TIMEOUT", default_value = "10s", value_parser = humane::duration)]
    drain_timeout: Duration,

    /// How long a marker in one of the manager's own queues may take, while no kernel ends, until the runtime
    /// counts as stuck: the device is then reported unhealthy, and /healthz fails. Must be longer than any kernel
    /// if kernels keep all of a runtime's threads busy. 0s: no probes, for a board that with --isolate process has
    /// room for tenants' processes only.
    #[arg(long, env = "FPGA_STUCK_TIMEOUT", default_value = "1m", value_parser = humane::duration)]
    stuck_timeout: Duration,

    /// The folder of `exec`, for the manager to remove if `exec` is killed before it can.
    #[arg(long, hide = true, value_name = "DIR")]
    own_folder: Option<PathBuf>,

    /// Write a trace of commands and slots to this file, in Chrome's format, up to 256 MiB; with --isolate process
    /// of slots only.
    #[arg(long, env = "FPGA_TRACE", value_name = "FILE")]
    trace: Option<PathBuf>,

    /// Maximum number of programs that are built at a time. One tenant's builds leave a place free for others
    /// [default: the number of processors plus one].
    #[arg(long, env = "FPGA_BUILDS", value_name = "NUMBER")]
    builds: Option<std::num::NonZeroUsize>,

    /// Maximum bytes that all clients together make the manager hold: messages, staged data, shared segments, and
    /// sessions themselves [default: three quarters of the memory that the cgroup, or the machine, gives, less
    /// --store-limit].
    #[arg(long, env = "FPGA_CLIENT_MEMORY", value_name = "SIZE", value_parser = humane::size)]
    client_memory: Option<u64>,

    /// Maximum of these bytes for one tenant [default: half of --client-memory].
    #[arg(long, env = "FPGA_CLIENT_MEMORY_OF_TENANT", value_name = "SIZE", value_parser = humane::size)]
    client_memory_of_tenant: Option<u64>,

    /// Whether programs are built confined, so that sources can include no files of the manager except the
    /// runtime's.
    #[arg(long, env = "FPGA_CONFINE_BUILDS", default_value = "wanted")]
    confine_builds: ConfineBuilds,

    #[command(flatten)]
    isolation: IsolationArgs,

    #[command(flatten)]
    tenant_args: TenantArgs,

    #[command(flatten)]
    gate: GateArgs,

    #[command(flatten)]
    log: LogArgs,
}

/// A folder that is removed when the manager ends.
struct OwnFolder(PathBuf);

impl Drop for OwnFolder {
    fn drop(&mut self) {
        // `exec`, which made the folder, may have removed it.
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// How a board is reconfigured.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Reconfiguration {
    /// One slot at a time, while the others run on.
    Partial,
    /// The whole board, which has one slot. Every context of the vendor is destroyed and made again, with the
    /// contents of its buffers.
    Full,
}

impl ServeArgs {
    /// Serves until a signal.
    ///
    /// # Errors
    /// The cause that keeps the manager from starting, and how to remove it.
    pub fn run(self) -> anyhow::Result<()> {
        let Self {
            listen,
            ready_file,
            runtime,
            device_id,
            vendor,
            board,
            shell,
            slots,
            reconfiguration_time,
            reconfiguration,
            source_as_bitstream,
            shared_memory,
            command_ring,
            bitstreams,
            store,
            store_limit,
            collector,
            collector_token_file: token_file,
            metrics_listen,
            abandoned_timeout,
            stuck_timeout,
            drain_timeout,
            own_folder,
            trace,
            builds,
            client_memory,
            client_memory_of_tenant,
            confine_builds,
            isolation,
            tenant_args,
            gate,
            log,
        } = self;
        memory::keep_freed();
        let builds = builds.map_or_else(Builds::by_processors, Builds::at_most);
        if isolation.isolate == Isolate::Process && store.is_some() {
            bail!(
                "--store can't be had with --isolate process: what a tenant brings is kept in its process; leave \
                 --store out"
            );
        }
        if reconfiguration == Reconfiguration::Full {
            if slots.get() != 1 {
                bail!("--reconfiguration full: such a board has one slot; write --slots 1");
            }
            if isolation.isolate == Isolate::Process {
                bail!(
                    "--reconfiguration full: not with --isolate process, whose contexts are in other processes"
                );
            }
        }
        let store_limit = store_limit.unwrap_or_else(governor::default_store_limit);
        let governor = governor(client_memory, client_memory_of_tenant, store_limit)?;
        let tls = listen.tls()?;
        let tenants = tenant_args.read().context("--tenants")?;
        let access = listen.access()?;
        let entered = runtime.enter()?;
        command_ring.set();
        log.init()?;
        let at_end = AtEnd::default();
        let shutdown = Shutdown::new();
        signals::handle(shutdown.clone(), at_end.clone(), drain_timeout).context("cannot handle signals")?;

        let (listeners, bound) = listen.bind(shared_memory, &at_end)?;
        let common = Common {
            slots,
            reconfiguration_time,
            source_as_bitstream,
            bitstreams: bitstreams.clone(),
            store_limit,
            confine: confine_builds,
            builds: builds.most_of_tenant(),
            command_ring,
        };
        let isolation = isolation.plan(common, &runtime, log, &at_end)?;
        if let Some(folder) = own_folder {
            at_end.add(OwnFolder(folder));
        }
        let trace = trace.as_deref().map(Trace::to).transpose().context("--trace")?.unwrap_or_default();
        let (confinement, includes) = confinement(confine_builds, &runtime, &at_end)?;
        let store = Arc::new(match &store {
            Some(folder) => BitstreamStore::in_folder(store_limit, folder)?,
            None => BitstreamStore::in_memory(store_limit),
        });
        let catalogue = Arc::new(match &bitstreams {
            Some(folder) => Catalogue::read(folder, &store).context("--bitstreams")?,
            None => Catalogue::default(),
        });
        let mut registry = Registry::default();
        let metrics = Metrics::register(&mut registry, &device_id);
        metrics.slots.set(i64::from(slots.get()));
        let platforms = entered.load()?;
        let facts = DeviceFacts {
            id: device_id,
            vendor: vendor.unwrap_or_else(|| runtime.vendor().to_owned()),
            platform: platforms.first().map(|platform| platform_name(*platform)).unwrap_or_default(),
            board,
            shell,
            slots: slots.get(),
        };
        let reporter = collector
            .map(|endpoint| fpga_hook::Config { token_file, ..fpga_hook::Config::new(endpoint) })
            .map(Reporter::start)
            .transpose()
            .context("--collector")?;
        let health = Health::new(stuck_timeout);
        let (of_store, of_catalogue) = (Arc::clone(&store), Arc::clone(&catalogue));
        AtScrape {
            store: of_store,
            catalogue: of_catalogue,
            reporter: reporter.clone(),
            trace: trace.clone(),
            health: health.clone(),
            shutdown: shutdown.clone(),
            builds: builds.clone(),
        }
        .register(&mut registry);
        if let Some(address) = metrics_listen {
            let bound = metrics_server::start(address, registry, shutdown.clone(), health.clone())
                .with_context(|| format!("--metrics-listen {address}"))?;
            info!(%bound, "Serving metrics");
        }
        let id = facts.id.clone();
        info!(device = %id, platform = %facts.platform, slots, bitstreams = catalogue.len(), "Serving");
        let reports =
            Reports::new(reporter.clone(), facts, Arc::clone(&catalogue), metrics.clone(), trace.clone());
        let of_reports = reports.clone();
        catalogue
            .watch(Arc::clone(&store), move || of_reports.names_changed())
            .context("cannot start a thread")?;
        let dispatcher = Dispatcher::new(slots, tenants.rules.clone(), reports.clone());
        let preload = gate.preload.iter().map(|name| {
            catalogue.named(name).with_context(|| format!("--preload: --bitstreams has no {name}.bitstream"))
        });
        dispatcher.preload(preload.collect::<anyhow::Result<Vec<_>>>()?).context("--preload")?;
        let board = match reconfiguration {
            Reconfiguration::Partial => QuiesceLock::default(),
            Reconfiguration::Full => QuiesceLock::whole(confinement.clone()),
        };
        let sessions = sessions::Config {
            board,
            dispatcher: Arc::new(dispatcher),
            gate: Arc::new(gate.may_reconfigure),
            health: health.clone(),
            trace,
            confinement,
            builds,
            includes,
            settings: Settings::new(tenants),
            store,
            catalogue,
            reports,
            metrics,
            reconfiguration_time,
            abandoned_grace: abandoned_timeout,
            sources: if source_as_bitstream { Sources::AsBitstream } else { Sources::AnySlot },
        };
        let config = Config {
            sessions,
            access,
            tls,
            tenant_args,
            keepalive: listen.keepalive(),
            drain_timeout,
            reconnect_grace: gate.reconnect_grace,
            shared_memory,
        };
        if let Some(path) = &ready_file {
            listeners::say_ready(path, &bound)
                .with_context(|| format!("cannot write --ready-file {}", path.display()))?;
        }
        if reporter.is_some() || metrics_listen.is_some() {
            health.report_to(config.sessions.reports.clone()).context("cannot start a thread")?;
            let device =
                platforms.first().and_then(|platform| vendor::devices(*platform).ok()?.first().copied());
            if let Some(device) = device
                && !stuck_timeout.is_zero()
            {
                let isolate = if isolation.is_some() { Isolate::Process } else { Isolate::Protocol };
                health
                    .probe(device, config.sessions.board.clone(), isolate)
                    .context("cannot start a thread")?;
            }
        }
        if reporter.is_some() {
            tell_progress(&config.sessions.dispatcher).context("cannot start a thread")?;
        }
        let served =
            server::serve(config, governor, isolation, listeners, &shutdown).context("the service ended");
        if let Some(reporter) = reporter {
            // The last events go first, since the collector attributes them to the device, which is removed after
            // them.
            let flushed = reporter.flush(LAST_REPORTS);
            reporter.device_gone(&id);
            if let Err(unsent) = flushed.and_then(|()| reporter.shutdown(LAST_REPORTS)) {
                warn!(%unsent, "Last reports were not delivered");
            }
        }
        if shutdown.has_failed() {
            signals::end(&at_end, 1);
        }
        if served? == Ended::TasksRun {
            signals::end(&at_end, 0);
        }
        at_end.drop_all();
        Ok(())
    }
}

/// The limits of what clients make the manager hold, from the flags or from the memory that the process may use.
fn governor(
    client_memory: Option<u64>,
    of_tenant: Option<u64>,
    store_limit: u64,
) -> anyhow::Result<Governor> {
    let bytes = client_memory.unwrap_or_else(|| governor::default_limit(store_limit));
    if bytes < governor::LEAST_BYTES {
        bail!(
            "--client-memory {bytes} is too little for any session; write {}MiB or more",
            governor::LEAST_BYTES >> 20
        );
    }
    let of_tenant = of_tenant.unwrap_or(bytes / 2);
    Ok(Governor::new(Limits::of(bytes), Limits::of(of_tenant)))
}

/// The confinement of builds, and the folder for the clients' include files.
fn confinement(
    wanted: ConfineBuilds,
    runtime: &Runtime,
    at_end: &AtEnd,
) -> anyhow::Result<(Confinement, Includes)> {
    if wanted == ConfineBuilds::Off {
        return Ok((Confinement::off(), Includes::ignored()));
    }
    let folder = Folder::make().context("no temporary folder for what sources include")?;
    let path = folder.path().join("includes");
    at_end.add(folder);
    std::fs::create_dir(&path).context("no temporary folder for what sources include")?;
    let includes = Includes::below(path.clone()).context("no temporary folder for what sources include")?;
    let confinement = Confinement::wanted(wanted, runtime, &path)
        .context("--confine-builds required: this kernel has no Landlock (Linux 5.13 or later)")?;
    Ok((confinement, includes))
}

fn tell_progress(dispatcher: &Arc<Dispatcher>) -> std::io::Result<()> {
    let dispatcher = Arc::downgrade(dispatcher);
    std::thread::Builder::new().name("progress".to_owned()).spawn(move || {
        while let Some(dispatcher) = dispatcher.upgrade() {
            dispatcher.report_progress(PROGRESS_INTERVAL);
            drop(dispatcher);
            std::thread::sleep(PROGRESS_INTERVAL);
        }
    })?;
    Ok(())
}

fn platform_name(platform: vendor::PlatformId) -> String {
    let bytes = vendor::platform_info(platform, CL_PLATFORM_NAME).unwrap_or_default();
    String::from_utf8_lossy(&bytes).trim_end_matches('\0').to_owned()
}
