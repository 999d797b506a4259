//! A tenant process: it serves the sessions of one tenant over its own vendor context, as the manager
//! directs.
//!
//! The process decides nothing about the device: its dispatcher asks the manager for slots and gets grants.
//! Before it loads the vendor it gives up the manager's files (Landlock), its capabilities, and all system
//! calls but those of an OpenCL runtime ([`seccomp`]). The process ends when the control socket is closed.

mod asking;
mod spans;

use super::packets::{Control, FromTenant, Received, Room, Setup, ToTenant};
use super::relay::{Frame, Frames, write_frame};
use super::seccomp::{self, Programs};
use crate::log::LogArgs;
use crate::memory;
use anyhow::{Context as _, bail};
use asking::{AskManager, ToManager};
use clap::Args;
use fpga_board::dispatch::Tenant;
use fpga_board::slots::SessionId;
use fpga_core::device::ReconfiguredPart;
use fpga_session::builds::Builds;
use fpga_session::catalogue::Catalogue;
use fpga_session::config::{Config, Loads};
use fpga_session::confine::{self, ConfineBuilds, Confinement};
use fpga_session::dispatcher::Dispatcher;
use fpga_session::governor::Governor;
use fpga_session::health::Health;
use fpga_session::includes::Includes;
use fpga_session::locality::Locality;
use fpga_session::metrics::{Counted, Metrics};
use fpga_session::outgoing::Outgoing;
use fpga_session::printed::Printed;
use fpga_session::programs::Sources;
use fpga_session::quiesce::QuiesceLock;
use fpga_session::reporting::{Reconfigured, Reports};
use fpga_session::router::Input;
use fpga_session::segments::FdChannel;
use fpga_session::session::{REVOKED, Session, Shared, Who};
use fpga_session::settings::{Current, Settings};
use fpga_session::shutdown::Shutdown;
use fpga_session::store::BitstreamStore;
use fpga_vendor::runtime::Runtime;
use futures::StreamExt as _;
use parking_lot::Mutex;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::thread;
use std::time::Duration;
use tonic::Status;

/// Interval at which the process sends its counters to the manager.
const COUNTED_INTERVAL: Duration = Duration::from_secs(1);
/// The greatest `oom_score_adj`: the kernel kills this process first.
const FIRST_TO_END: &str = "1000";

/// Serves the sessions of one tenant for `serve --isolate process`, which starts it.
#[derive(Debug, Args)]
pub struct TenantProcessArgs {
    /// The runtime.
    #[arg(long)]
    runtime: Runtime,

    #[command(flatten)]
    log: LogArgs,
}

impl TenantProcessArgs {
    /// Serves until the manager closes the control socket.
    ///
    /// # Errors
    /// The reason why the process cannot start, or a packet of the manager that cannot be decoded.
    pub fn run(self) -> anyhow::Result<()> {
        let Self { runtime, log } = self;
        memory::keep_freed();
        let entered = runtime.enter()?;
        log.init()?;
        let control = control().context("a tenant's process is started by `serve --isolate process`")?;
        let Received::Packet(ToTenant::Setup(setup), _) = control.receive_with_descriptor()? else {
            bail!("the manager's first word is missing")
        };
        setup.common.command_ring.set();
        let control = Arc::new(control);
        let gate = AskManager { control: control.clone(), asked: Arc::default() };
        let manager = ToManager(control, gate, Health::of_tenant_process());
        let store = Arc::new(BitstreamStore::in_memory(setup.common.store_limit));
        let catalogue = Arc::new(match &setup.common.bitstreams {
            Some(folder) => Catalogue::read(folder, &store).context("--bitstreams")?,
            None => Catalogue::default(),
        });
        // Builds are confined further than this process, which also has the threads of the vendor's runtime.
        let (confinement, includes) = if setup.common.confine == ConfineBuilds::Off {
            (Confinement::off(), Includes::ignored())
        } else {
            let folder = setup.folder.join("includes");
            std::fs::create_dir_all(&folder).context("the tenant's folder")?;
            let confinement = Confinement::wanted(setup.common.confine, &runtime, &folder)
                .context("--confine-builds required: this kernel has no Landlock (Linux 5.13 or later)")?;
            (confinement, Includes::below(folder).context("the tenant's folder")?)
        };
        let listener = confine(&setup, &runtime)?;
        manager.0.send(&FromTenant::Confined, listener.as_ref().map(AsFd::as_fd), Room::Awaited)?;
        // The manager alone answers the requests of the kernel.
        drop(listener);
        // Its thread is confined as this one.
        let printed = Printed::catch().context("the kernels' output can't be caught")?;
        let early = match setup.common.reconfigured_part {
            ReconfiguredPart::Slot => Vec::new(),
            ReconfiguredPart::Board => until_admitted(&manager.0)?,
        };
        entered.load()?;
        // The manager decides about names. Watching here loads new files, so that clients need not upload
        // them.
        catalogue.watch(store.clone(), || {}).context("cannot start a thread")?;
        let built = (confinement, includes);
        let shared = Arc::new(shared(&setup, &manager, (store, catalogue), built, printed)?);
        count(&shared, &manager).context("cannot start a thread")?;
        for (packet, fd) in early {
            handle(packet, fd, &shared, &setup.tenant, &manager.1)?;
        }
        loop {
            match manager.0.receive_with_descriptor::<ToTenant>() {
                Ok(Received::Packet(packet, fd)) => handle(packet, fd, &shared, &setup.tenant, &manager.1)?,
                Ok(Received::Nothing) => {}
                Ok(Received::End) => break,
                Err(error) => return Err(error).context("the manager can't be understood"),
            }
        }
        // No destructors: those of a vendor's runtime may wait for kernels that don't end.
        // SAFETY: `_exit` takes any status and touches no memory of ours.
        unsafe { libc::_exit(0) }
    }
}

/// Waits until the vendor may be used. Returns the packets that came before.
fn until_admitted(control: &Control) -> anyhow::Result<Vec<(ToTenant, Option<OwnedFd>)>> {
    let mut early = Vec::new();
    loop {
        match control.receive_with_descriptor()? {
            Received::Packet(ToTenant::Return { .. }, _) => return Ok(early),
            Received::Packet(packet, fd) => early.push((packet, fd)),
            Received::Nothing => {}
            Received::End => bail!("the manager has gone"),
        }
    }
}

/// Takes the control socket from standard input, and puts `/dev/null` in its place.
fn control() -> io::Result<Control> {
    let control = io::stdin().as_fd().try_clone_to_owned()?;
    nix::sys::socket::getsockopt(&control, nix::sys::socket::sockopt::SockType)?;
    let nothing = std::fs::File::open("/dev/null")?;
    nix::unistd::dup2_stdin(&nothing)?;
    Ok(Control::of(control))
}

/// Gives up what the process does not need, for good. Returns the descriptor over which the kernel reports
/// new threads and processes; `None` without filters of system calls.
fn confine(setup: &Setup, runtime: &Runtime) -> anyhow::Result<Option<OwnedFd>> {
    // When memory runs out, the kernel is to kill a tenant process and never the manager.
    if let Err(error) = std::fs::write("/proc/self/oom_score_adj", FIRST_TO_END) {
        tracing::warn!(%error, "The process can't be made the first to end where memory runs out");
    }
    if setup.common.confine == ConfineBuilds::Off {
        return Ok(None);
    }
    let wanted = setup.common.confine == ConfineBuilds::Wanted;
    confine::drop_capabilities().context("the process can't give up its capabilities")?;
    let bitstreams = setup.common.bitstreams.as_deref();
    match Confinement::of_tenant(runtime, &setup.folder, bitstreams)
        .and_then(|confinement| confinement.enter())
    {
        Ok(()) => {}
        Err(error) if wanted => {
            tracing::warn!(%error, "The kernel has no Landlock: kernels can open what the manager can");
        }
        Err(error) => return Err(error).context("--confine-builds required: this kernel has no Landlock"),
    }
    match seccomp::is_there() {
        Ok(()) => Ok(Some(seccomp::restrict(Programs::of(runtime))?)),
        Err(error) if wanted => {
            tracing::warn!(%error, "The kernel has no seccomp: kernels can make any system call");
            Ok(None)
        }
        Err(error) => Err(error).context("--confine-builds required: this kernel has no seccomp"),
    }
}

fn shared(
    setup: &Setup,
    manager: &ToManager,
    (store, catalogue): (Arc<BitstreamStore>, Arc<Catalogue>),
    (confinement, includes): (Confinement, Includes),
    printed: Printed,
) -> anyhow::Result<Shared> {
    let settings = Settings::new(Current { default_quota: setup.quota, ..Current::default() });
    let of_reports = manager.clone();
    let reports = Reports::above(&setup.device, move |Reconfigured { slot, bitstream, took, .. }| {
        let took_us = u64::try_from(took.as_micros()).unwrap_or(u64::MAX);
        of_reports.say(&FromTenant::Reconfigured { slot: slot.0, bitstream: *bitstream, took_us });
    });
    let gate = manager.1.clone();
    let dispatcher = Dispatcher::below(setup.slots, setup.first_task, Box::new(manager.clone()));
    // The process has one tenant, which may use all the memory of the process. The manager bounds the lasting
    // bytes of all tenants together.
    let governor = Governor::below(Box::new(gate.clone()), setup.memory);
    let metrics = Metrics::default();
    let board = match setup.common.reconfigured_part {
        ReconfiguredPart::Slot => QuiesceLock::default(),
        ReconfiguredPart::Board => {
            let manager = manager.clone();
            let say = Box::new(move |word| manager.say(&FromTenant::Board(word)));
            QuiesceLock::shared(confinement.clone(), metrics.clone(), say)?
        }
    };
    let config = Config {
        metrics,
        board,
        devices: setup.common.devices,
        catalogue,
        reports,
        health: manager.2.clone(),
        loads: Loads::of_board(setup.common.slots),
        confinement,
        builds: Builds::below(Box::new(gate.clone()), setup.common.builds),
        includes,
        reconfiguration_time: setup.common.reconfiguration_time,
        model: None,
        gate: Arc::new(gate),
        tracer: spans::tracer(setup, manager)?,
        sources: if setup.common.source_as_bitstream { Sources::AsBitstream } else { Sources::AnySlot },
        printed: Some(printed),
        ..Config::without_listeners(dispatcher, settings, store)
    };
    Ok(Shared::new(config, governor, Shutdown::new())?)
}

fn handle(
    packet: ToTenant,
    fd: Option<OwnedFd>,
    shared: &Arc<Shared>,
    tenant: &str,
    gate: &AskManager,
) -> anyhow::Result<()> {
    match packet {
        ToTenant::Setup(_) => {}
        ToTenant::Open { session, shares_memory_with } => {
            let link = fd.context("a session without a link")?;
            let locality = shares_memory_with.map_or(Locality::Remote, Locality::SharesMemory);
            let (shared, tenant) = (shared.clone(), Tenant::new(tenant));
            thread::Builder::new().name("session".to_owned()).spawn(move || {
                if let Err(error) = session_of(&shared, SessionId(session), tenant, locality, link) {
                    tracing::debug!(%error, "A session's link failed");
                }
            })?;
        }
        ToTenant::FdChannel { session } => {
            if let Some(fd) = fd {
                shared.router.send(SessionId(session), Input::FdChannel(FdChannel::of(fd)));
            }
        }
        ToTenant::Revoked { session } => {
            // The client gets the manager's status.
            let status = Box::new(Status::unauthenticated(REVOKED));
            shared.router.send(SessionId(session), Input::Revoked(status));
        }
        ToTenant::Yield { session } => shared.router.send(SessionId(session), Input::Yield),
        ToTenant::Granted(granted) => {
            // No session of this process has the id 0, so the router delivers the grant to the task's session
            // or returns it.
            shared.router.deliver(vec![granted.into()], SessionId(0), &shared.config.dispatcher);
        }
        ToTenant::Leave { round } => shared.config.board.leave(round),
        ToTenant::Return { images } => shared.config.board.may_return(images),
        ToTenant::Answer { question, refused } => gate.answered(question, refused),
        ToTenant::Quota(quota) => {
            shared.config.settings.replace(Current { default_quota: quota, ..Current::default() });
        }
        ToTenant::End => shared.shutdown.end(),
    }
    Ok(())
}

/// Serves a session to its end, on a thread of its own.
fn session_of(
    shared: &Arc<Shared>,
    id: SessionId,
    tenant: Tenant,
    locality: Locality,
    link: OwnedFd,
) -> io::Result<()> {
    let link = std::os::unix::net::UnixStream::from(link);
    link.set_nonblocking(true)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let (read, mut write) = tokio::net::UnixStream::from_std(link)?.into_split();
        let Some(account) = shared.quotas.enter(&tenant) else {
            let status =
                Status::resource_exhausted("the tenant has all the sessions that it may have; end some");
            return write_frame(&mut write, &Frame::Status(status)).await;
        };
        let Some(budget) = account.bytes().session() else {
            let status =
                Status::resource_exhausted("the tenant has no memory left for another session; end some");
            return write_frame(&mut write, &Frame::Status(status)).await;
        };
        let (outgoing, mut messages) = Outgoing::new(budget.clone(), shared.config.metrics.clone());
        // The manager knows the token, and asks with it.
        let who = Who { id, tenant, token: None, account, locality };
        let (session, input) = Session::new(shared.clone(), who, budget, outgoing);
        // If the link fails, the messages are dropped, which ends the session.
        let upwards = async move {
            let mut last = Frame::End;
            while let Some(item) = messages.next().await {
                match item {
                    Ok(message) => write_frame(&mut write, &Frame::Message(Box::new(message))).await?,
                    // The session's final status does not wait for tasks that never end.
                    Err(status) => {
                        last = Frame::Status(status);
                        break;
                    }
                }
            }
            write_frame(&mut write, &last).await
        };
        let (written, ()) = tokio::join!(upwards, session.run(input, Frames::of(read)));
        written
    })
}

/// Starts the thread that sends changes of the counters to the manager.
fn count(shared: &Arc<Shared>, manager: &ToManager) -> io::Result<()> {
    let (metrics, tracer) = (shared.config.metrics.clone(), shared.config.tracer.clone());
    let manager = manager.clone();
    let told = Mutex::new(Counted::default());
    thread::Builder::new().name("counts".to_owned()).spawn(move || {
        loop {
            thread::sleep(COUNTED_INTERVAL);
            let now = metrics.counted(&tracer);
            let news = now.since(&std::mem::replace(&mut *told.lock(), now));
            if news != Counted::default() {
                manager.say(&FromTenant::Counted(news));
            }
        }
    })?;
    Ok(())
}
