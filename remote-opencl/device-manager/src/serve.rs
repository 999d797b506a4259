//! The command `serve`: builds a manager from its parts and runs it until a signal.

mod args;
mod confinement;
mod gate;
mod isolation;
mod listeners;
mod platform;
mod pool;

use crate::config::Config;
use crate::isolation::folder::Folder;
use crate::isolation::packets::Common;
use crate::memory;
use crate::metrics_server;
use crate::pool::PoolMetrics;
use crate::scrape::AtScrape;
use crate::server::{self, Ended};
use crate::signals::{self, AtEnd};
pub use args::ServeArgs;
use platform::platform_of;
use pool::BoardNames;

use anyhow::{Context as _, anyhow, bail};
use args::Reconfiguration;
use clap::{Args as _, Command, FromArgMatches as _};
pub(crate) use confinement::KernelSupport;
use fpga_core::device::ReconfiguredPart;
use fpga_hook::Reporter;
use fpga_session::builds::Builds;
use fpga_session::catalogue::Catalogue;
use fpga_session::config::{self as sessions, Loads};
use fpga_session::configuration_port::ConfigurationPort;
use fpga_session::confine::{ConfineBuilds, Confinement};
use fpga_session::dispatcher::Dispatcher;
use fpga_session::governor::{self, Governor, Limits};
use fpga_session::health::Health;
use fpga_session::includes::Includes;
use fpga_session::isolate::Isolate;
use fpga_session::metrics::{Metrics, ModelMetrics, PREFIX};
use fpga_session::model::{BoardModel, ModelledBoard};
use fpga_session::printed::Printed;
use fpga_session::programs::Sources;
use fpga_session::quiesce::QuiesceLock;
use fpga_session::reporting::{DeviceFacts, Reports};
use fpga_session::settings::Settings;
use fpga_session::shutdown::Shutdown;
use fpga_session::store::BitstreamStore;
use fpga_session::trace::Trace;
use fpga_vendor::runtime::Runtime;
use prometheus_client::registry::Registry;
use std::ffi::OsString;
use std::num::NonZeroU32;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use tracing::{info, warn};

/// Time for the last reports to the collector when the manager ends.
const LAST_REPORTS: Duration = Duration::from_secs(2);

/// Interval of reports about tasks that have held a slot for at least as long.
const PROGRESS_INTERVAL: Duration = Duration::from_secs(1);

/// A folder that is removed when the manager ends.
struct OwnFolder(PathBuf);

impl Drop for OwnFolder {
    fn drop(&mut self) {
        // `exec`, which made the folder, may have removed it.
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

impl ServeArgs {
    /// Serves until a signal.
    ///
    /// # Errors
    /// The cause that keeps the manager from starting, and how to remove it.
    pub fn run(self) -> anyhow::Result<()> {
        self.check()?;
        let Self {
            listen,
            ready_file,
            runtime,
            device,
            device_id,
            vendor,
            board,
            shell,
            slots,
            reconfiguration_time,
            model,
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
            traces,
            builds,
            client_memory,
            client_memory_of_tenant,
            confine_builds,
            isolation,
            tenant_args,
            gate,
            pool,
            log,
        } = self;
        memory::keep_freed();
        let builds = builds.map_or_else(Builds::by_processors, Builds::at_most);
        let names = BoardNames { id: &device_id, kind: &board, shell: &shell };
        let reconfigured_part = match reconfiguration {
            Reconfiguration::Partial => ReconfiguredPart::Slot,
            Reconfiguration::Full => ReconfiguredPart::Board,
        };
        let lent = pool.lent(slots, reconfigured_part, names)?;
        // Without other slots these are not used: sessions without a lease are refused.
        let own_slots = NonZeroU32::new(slots.get() - lent.map_or(0, NonZeroU32::get));
        let model = model.as_deref().map(BoardModel::read).transpose().context("--model")?;
        let reconfiguration_time =
            model.as_ref().and_then(BoardModel::reconfiguration).unwrap_or(reconfiguration_time);
        let store_limit = store_limit.unwrap_or_else(governor::default_store_limit);
        let governor = governor(client_memory, client_memory_of_tenant, store_limit)?;
        let tls = listen.tls()?;
        let tenants = tenant_args.read().context("--tenants")?;
        let access = listen.access()?;
        let entered = runtime.enter()?;
        command_ring.set();
        log.init()?;
        warn_of_missing_confinement(confine_builds, isolation.isolate)?;
        let at_end = AtEnd::default();
        let shutdown = Shutdown::new();
        signals::handle(shutdown.clone(), at_end.clone(), drain_timeout).context("cannot handle signals")?;

        let (pool_listener, pool_port) = pool.bind()?.unzip();
        let pool_tls = pool_port.map(|port| listen.pool_tls(pool.reach(port))).transpose()?.flatten();
        let brokers = lent.map(|_| pool.brokers(names, pool_tls.clone())).transpose()?;
        let (mut listeners, bound) = listen.bind(shared_memory, &at_end)?;
        listeners.extend(pool_listener);
        let common = Common {
            devices: device,
            slots,
            reconfigured_part,
            reconfiguration_time,
            source_as_bitstream,
            bitstreams: bitstreams.clone(),
            store_limit,
            confine: confine_builds,
            builds: builds.most_of_tenant(),
            command_ring,
            records_traces: traces.otlp_endpoint.is_some(),
        };
        let isolation = isolation.plan(common, &runtime, log, &at_end)?;
        // All sessions are those of one program.
        let printed = own_folder.is_some().then(Printed::catch).transpose();
        let printed = printed.context("the kernels' output can't be caught")?;
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
        metrics.slots.set(i64::from(own_slots.map_or(0, NonZeroU32::get)));
        let lending = lent
            .map(|lent| pool.lending(lent, slots, (&bound, pool_port), PoolMetrics::register(&mut registry)));
        let devices = device.among(&entered.load()?)?;
        let (platform, first_device) = devices.first().copied().unzip();
        let facts = DeviceFacts {
            id: device_id,
            vendor: vendor.unwrap_or_else(|| runtime.vendor().to_owned()),
            platform: platform_of(platform, model.as_ref()),
            board,
            shell,
            slots: own_slots.map_or(0, NonZeroU32::get),
            reconfigured_part,
        };
        let port = ConfigurationPort::default();
        let model = model
            .map(|model| {
                info!(
                    board = model.board(),
                    kernels = model.kernels(),
                    ?reconfiguration_time,
                    "The board is modelled: all times of kernels are those of --model"
                );
                let metrics = ModelMetrics::register(&mut registry, model.board());
                let loads = (reconfiguration_time, port.clone());
                ModelledBoard::start(model, slots, loads, Arc::clone(&catalogue), metrics)
            })
            .transpose()
            .context("cannot start a thread")?
            .map(Arc::new);
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
        let tracer = traces.tracer("fpga-device-manager", vec![("fpga.device", facts.id.clone())])?;
        tracer.register(registry.sub_registry_with_prefix(PREFIX));
        let metrics_address = match &metrics_listen {
            Some(address) => {
                let bound = metrics_server::start(address, registry, shutdown.clone(), health.clone())
                    .with_context(|| format!("--metrics-listen {address}"))?;
                info!(%bound, "Serving metrics");
                Some(bound)
            }
            None => None,
        };
        let id = facts.id.clone();
        info!(device = %id, platform = %facts.platform, slots, bitstreams = catalogue.len(), "Serving");
        let reports =
            Reports::new(reporter.clone(), facts, Arc::clone(&catalogue), metrics.clone(), trace.clone());
        let of_reports = reports.clone();
        catalogue
            .watch(Arc::clone(&store), move || of_reports.names_changed())
            .context("cannot start a thread")?;
        let dispatcher =
            Dispatcher::new(own_slots.unwrap_or(NonZeroU32::MIN), tenants.rules.clone(), reports.clone());
        let preload = gate.preload.iter().map(|name| {
            catalogue.named(name).with_context(|| format!("--preload: --bitstreams has no {name}.bitstream"))
        });
        dispatcher.preload(preload.collect::<anyhow::Result<Vec<_>>>()?).context("--preload")?;
        let board = match (reconfiguration, isolation.as_ref().and_then(|plan| plan.board.as_ref())) {
            (Reconfiguration::Partial, _) => QuiesceLock::default(),
            (Reconfiguration::Full, None) => QuiesceLock::whole(confinement.clone(), metrics.clone()),
            (Reconfiguration::Full, Some(board)) => board
                .lock_of_manager(confinement.clone(), metrics.clone())
                .context("cannot start a thread")?,
        };
        let dispatcher = Arc::new(dispatcher);
        let sessions = sessions::Config {
            devices: device,
            loads: Loads::of_board(slots),
            port,
            board,
            gate: gate.open(&access, &dispatcher)?,
            dispatcher,
            health: health.clone(),
            trace,
            tracer,
            confinement,
            builds,
            includes,
            settings: Settings::new(tenants),
            store,
            catalogue,
            reports,
            metrics,
            reconfiguration_time,
            model,
            abandoned_grace: abandoned_timeout,
            sources: if source_as_bitstream { Sources::AsBitstream } else { Sources::AnySlot },
            printed,
        };
        let config = Config {
            sessions,
            access,
            tls,
            pool_tls,
            tenant_args,
            keepalive: listen.keepalive(),
            drain_timeout,
            reconnect_grace: gate.reconnect_grace,
            shared_memory,
            lending,
            brokers,
        };
        if let Some(path) = &ready_file {
            listeners::say_ready(path, &bound, metrics_address.as_ref())
                .with_context(|| format!("cannot write --ready-file {}", path.display()))?;
        }
        if reporter.is_some() || metrics_address.is_some() {
            health.report_to(config.sessions.reports.clone()).context("cannot start a thread")?;
            if let Some(device) = first_device
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

impl ServeArgs {
    /// Checks that the values of flags fit each other.
    fn check(&self) -> anyhow::Result<()> {
        if self.reconfiguration == Reconfiguration::Full && self.slots.get() != 1 {
            bail!("--reconfiguration full: such a board has one slot; write --slots 1");
        }
        if self.isolation.isolate == Isolate::Protocol {
            return Ok(());
        }
        if self.store.is_some() {
            bail!(
                "--store can't be had with --isolate process: what a tenant brings is kept in its process; leave \
                 --store out"
            );
        }
        if self.model.is_some() {
            bail!(
                "--model can't be had with --isolate process, whose processes know nothing of each other's slots: write \
                 `--isolate protocol`, or leave --model out"
            );
        }
        Ok(())
    }
}

/// Checks arguments of `serve` without running it, and that this kernel confines tenants as they require.
///
/// # Errors
/// The message that `serve` would end with.
pub(crate) fn check(arguments: &[OsString], kernel: KernelSupport) -> anyhow::Result<()> {
    let command = ServeArgs::augment_args(Command::new("serve").no_binary_name(true));
    let matches = command.try_get_matches_from(arguments).map_err(|error| anyhow!("{}", error.render()))?;
    let args = ServeArgs::from_arg_matches(&matches).map_err(|error| anyhow!("{}", error.render()))?;
    args.check()?;
    kernel.check(args.confine_builds, args.isolation.isolate)?;
    Ok(())
}

/// Warns of confinement that is switched off or that this kernel lacks.
///
/// # Errors
/// If confinement is required and this kernel lacks a part of it.
fn warn_of_missing_confinement(confine: ConfineBuilds, isolate: Isolate) -> anyhow::Result<()> {
    for missing in KernelSupport::of_this_kernel().check(confine, isolate)? {
        warn!("Tenants are not confined: {missing}");
    }
    if confine == ConfineBuilds::Off && isolate == Isolate::Process {
        warn!("--confine-builds off: a tenant's kernels can do what the manager's user can");
    }
    Ok(())
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
