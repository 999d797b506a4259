//! The manager's tenant processes: one per tenant with sessions, bounded in number.
//!
//! A thread for each process starts it, receives its packets, and waits for its end. The thread lives as long
//! as the process: the kernel kills the process with that thread (`PR_SET_PDEATHSIG`). [`TenantProcess`]
//! handles the packets.

use super::folder;
use super::guard;
use super::memory::{self, Running};
use super::packets::{Common, Control, Setup, ToTenant};
use super::process::{self, MemoryLimits};
use super::shared_board::SharedBoard;
use super::tenant_process::{Begin, IDLE_TICK, TASK_IDS, TenantProcess};
use crate::former;
use crate::log::LogArgs;
use crate::pool::LeaseProcesses;
use fpga_board::dispatch::Tenant;
use fpga_board::slots::SessionId;
use fpga_session::health::Health;
use fpga_session::programs::Sources;
use fpga_session::session::Shared;
use fpga_vendor::runtime::Runtime;
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::io;
use std::num::NonZeroU32;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::process::{Child, ExitStatus};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// Time that the processes have to end when the manager ends.
const END_TIMEOUT: Duration = Duration::from_secs(2);
/// Interval at which the end of processes is looked for.
const END_TICK: Duration = Duration::from_millis(2);
/// Time that a killed process has to end before the device counts as unhealthy.
const REAP_TIMEOUT: Duration = Duration::from_secs(5);
/// Most generations of parents that [`TenantProcesses::have`] looks at.
const MAX_GENERATIONS: usize = 64;

/// Settings by which tenant processes are started.
#[derive(Debug, Clone)]
pub struct Plan {
    /// Vendor runtime of the processes.
    pub runtime: Runtime,
    /// Log settings of the processes.
    pub log: LogArgs,
    /// Most processes at a time.
    pub most: usize,
    /// Memory limits of each process.
    pub memory: MemoryLimits,
    /// Bytes of memory that all processes and the manager may use together.
    pub memory_of_all: u64,
    /// Folder in which each process gets a folder.
    pub folder: PathBuf,
    /// The board, if it is reconfigured as a whole.
    pub board: Option<Arc<SharedBoard>>,
    /// Settings that the processes get in their first packet.
    pub common: Common,
}

/// The tenant processes of a manager.
#[derive(Debug)]
pub struct TenantProcesses {
    plan: Plan,
    by_owner: Mutex<BTreeMap<Owner, Arc<TenantProcess>>>,
    /// The processes by their ids; each leads the session of all processes that it starts.
    leaders: Mutex<BTreeMap<u32, Arc<TenantProcess>>>,
    /// Number of processes started so far.
    last: AtomicU64,
}

/// Whose sessions a process serves.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Owner {
    /// All sessions of a tenant that have no lease.
    Tenant(Tenant),
    /// One leased session. The process ends with it.
    Lease(SessionId),
}

/// The reason why a session gets no process.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The greatest number of processes is reached, and all have sessions.
    #[error("{0} tenants and leases use the device, each in a process of its own; no more can at a time")]
    TooMany(usize),
    /// The process can't be started.
    #[error("the tenant's process can't be started: {0}")]
    System(#[from] io::Error),
}

impl TenantProcesses {
    /// An empty pool, with a thread that keeps its processes within their common memory limit.
    ///
    /// # Errors
    /// The thread can't be started.
    pub fn watched(plan: Plan) -> io::Result<Arc<Self>> {
        let memory_of_all = plan.memory_of_all;
        let (by_owner, leaders, last) = (Mutex::default(), Mutex::default(), AtomicU64::new(0));
        let processes = Arc::new(Self { plan, by_owner, leaders, last });
        let watched = Arc::downgrade(&processes);
        memory::watch(move || watched.upgrade().map(|all| all.running()), memory_of_all)?;
        Ok(processes)
    }

    /// Begins a session in its tenant's process, which is started if there is none.
    ///
    /// # Errors
    /// [`OpenError`], if there are too many processes or the process can't be started.
    pub fn open(
        self: &Arc<Self>,
        shared: &Arc<Shared>,
        (tenant, owner): (&Tenant, Owner),
        begin: &Begin<'_>,
    ) -> Result<Arc<TenantProcess>, OpenError> {
        let mut by_owner = self.by_owner.lock();
        if let Some(known) = by_owner.get(&owner) {
            if known.begin(begin)? {
                return Ok(known.clone());
            }
            by_owner.remove(&owner);
        }
        if by_owner.len() >= self.plan.most {
            let is_idle = |entry: &(&Owner, &Arc<TenantProcess>)| entry.1.is_idle();
            let idle = by_owner.iter().find(is_idle).map(|(owner, _)| owner.clone());
            let Some(idle) = idle else { return Err(OpenError::TooMany(self.plan.most)) };
            if let Some(idle) = by_owner.remove(&idle) {
                idle.retire();
            }
        }
        let process = self.start(shared, tenant)?;
        process.begin(begin)?;
        by_owner.insert(owner, process.clone());
        Ok(process)
    }

    fn start(self: &Arc<Self>, shared: &Arc<Shared>, tenant: &Tenant) -> io::Result<Arc<TenantProcess>> {
        let number = self.last.fetch_add(1, Ordering::Relaxed) + 1;
        let (control, theirs) = Control::pair()?;
        control.set_timeout(IDLE_TICK)?;
        let folder = self.plan.folder.join(number.to_string());
        std::fs::create_dir(&folder)?;
        let first_task = number.wrapping_mul(TASK_IDS);
        let (account, board) = (shared.governor.tenant(), self.plan.board.clone());
        let process = Arc::new(TenantProcess::new(tenant.clone(), first_task, control, account, board));
        let setup = Setup {
            tenant: tenant.as_str().to_owned(),
            device: shared.config.reports.device().to_owned(),
            quota: shared.config.settings.current().quota(tenant),
            memory: shared.governor.of_tenant(),
            slots: u32::try_from(shared.config.dispatcher.slots())
                .ok()
                .and_then(NonZeroU32::new)
                .unwrap_or(NonZeroU32::MIN),
            first_task,
            folder: folder.clone(),
            common: Common {
                source_as_bitstream: shared.config.sources == Sources::AsBitstream,
                ..self.plan.common.clone()
            },
        };
        process.say(&ToTenant::Setup(Box::new(setup)))?;
        if let Some(board) = &self.plan.board {
            board.joined(process.member(), process.clone());
        }
        let of_thread = (self.clone(), shared.clone(), process.clone());
        thread::Builder::new().name("tenant".to_owned()).spawn(move || {
            let (all, shared, process) = of_thread;
            match all.start_recorded(&folder, theirs) {
                Ok(mut child) => {
                    let tenant = process.tenant().as_str();
                    tracing::info!(tenant, pid = child.id(), "A tenant's process has started");
                    shared.config.metrics.tenant_processes.inc();
                    all.leaders.lock().insert(child.id(), process.clone());
                    let ending = process.serve(child.id(), || all.retires(&process), &shared);
                    process.retire();
                    end_all(&mut child);
                    let status = reaped(&mut child, REAP_TIMEOUT, &shared.config.health);
                    former::forget(&all.records(), child.id());
                    all.leaders.lock().remove(&child.id());
                    process.say_end(&ending, status, &shared);
                    shared.config.metrics.tenant_processes.dec();
                }
                Err(error) => tracing::error!(%error, "A tenant's process can't be started"),
            }
            if let Some(board) = &all.plan.board {
                board.left(process.member());
            }
            process.leave_nothing(&shared);
            // The manager removes the rest of the folder with its own.
            let _ = std::fs::remove_dir_all(&folder);
            all.by_owner.lock().retain(|_, known| !Arc::ptr_eq(known, &process));
        })?;
        Ok(process)
    }

    /// Starts a process and records it, so that the next manager finds it. No task runs in a process that is not recorded:
    /// the thread that calls this takes the process's packets only afterwards.
    fn start_recorded(&self, folder: &Path, control: OwnedFd) -> io::Result<Child> {
        let Plan { runtime, log, memory, .. } = &self.plan;
        let mut child = process::start(runtime, log, folder, control, *memory)?;
        match former::record(&self.records(), child.id()) {
            Ok(()) => Ok(child),
            Err(error) => {
                end_all(&mut child);
                let _ = child.wait();
                Err(error)
            }
        }
    }

    /// Where the processes are recorded.
    fn records(&self) -> PathBuf {
        folder::records(&self.plan.folder)
    }

    /// Whether the process at the other end of a connection, as the kernel identifies it, is a tenant process
    /// or was started by one. A connection from there is made by a tenant's kernel under the manager's own
    /// user. The id 0 stands for a process outside this PID namespace.
    #[must_use]
    pub fn have(&self, pid: u32) -> bool {
        let leaders = self.leaders.lock();
        // Without seccomp a process can leave its session, but it cannot change its parents.
        let family =
            std::iter::successors(Some(pid), |child| guard::parent_of(*child).filter(|parent| *parent > 1));
        pid != 0
            && !leaders.is_empty()
            && (guard::session_of(pid).is_some_and(|leader| leaders.contains_key(&leader))
                || family.take(MAX_GENERATIONS).any(|process| leaders.contains_key(&process)))
    }

    /// Whether the process has been idle for long, and so retires. The lock keeps [`Self::open`] from giving
    /// it a session meanwhile.
    fn retires(&self, process: &TenantProcess) -> bool {
        let _by_owner = self.by_owner.lock();
        process.retires_if_idle()
    }

    /// The running processes by their ids.
    fn running(&self) -> Running {
        self.leaders.lock().clone()
    }

    fn all(&self) -> Vec<Arc<TenantProcess>> {
        self.by_owner.lock().values().cloned().collect()
    }

    /// Sends the changed quotas to all processes.
    pub fn settings_changed(&self, shared: &Shared) {
        let current = shared.config.settings.current();
        for process in self.all() {
            process.tell(&ToTenant::Quota(current.quota(process.tenant())));
        }
    }

    /// Waits until the process of a leased session has ended and was waited for.
    pub async fn lease_has_ended(&self, session: SessionId) {
        while self.has_process(session) {
            tokio::time::sleep(END_TICK).await;
        }
    }

    /// Tells all processes to end their sessions.
    pub fn end_sessions(&self) {
        for process in self.all() {
            process.tell(&ToTenant::End);
        }
    }

    /// Ends all processes, whatever they run, and waits for their end, at most 2 s.
    pub async fn end(&self) {
        let deadline = Instant::now() + END_TIMEOUT;
        for process in self.all() {
            process.retire();
        }
        while !self.by_owner.lock().is_empty() && Instant::now() < deadline {
            tokio::time::sleep(END_TICK).await;
        }
    }
}

impl LeaseProcesses for TenantProcesses {
    fn has_process(&self, session: SessionId) -> bool {
        self.by_owner.lock().contains_key(&Owner::Lease(session))
    }

    fn end_process(&self, session: SessionId) {
        let process = self.by_owner.lock().get(&Owner::Lease(session)).cloned();
        if let Some(process) = process {
            process.is_stuck();
        }
    }
}

/// Kills a tenant process and all processes of its group, which are those that it has started. The process
/// may already have ended, but only the caller waits for it, so its id is not reused yet.
fn end_all(child: &mut Child) {
    if let Ok(group) = i32::try_from(child.id()) {
        // An error means that no process of the group is left.
        let _ =
            nix::sys::signal::killpg(nix::unistd::Pid::from_raw(group), nix::sys::signal::Signal::SIGKILL);
    }
    let _ = child.kill();
}

/// Waits for a killed process. One that has not ended in time waits in a driver: nothing can end it, and it may still use the
/// device, which is unhealthy until it has ended.
fn reaped(child: &mut Child, timeout: Duration, health: &Health) -> io::Result<ExitStatus> {
    let deadline = Instant::now() + timeout;
    while Instant::now() < deadline {
        if let Some(status) = child.try_wait()? {
            return Ok(status);
        }
        thread::sleep(END_TICK);
    }
    tracing::error!(pid = child.id(), "A tenant's process was killed and does not end");
    let _lingers = health.process_lingers();
    child.wait()
}

#[cfg(test)]
mod tests {
    use super::*;
    use fpga_board::health::Fault;
    use fpga_test_kit::until;
    use std::process::Command;

    #[test]
    fn a_process_that_does_not_end_in_time_makes_the_device_unhealthy_until_it_has_ended() {
        let health = Health::new(Duration::MAX);
        let mut child = Command::new("sleep").arg("1000").spawn().unwrap();
        let pid = nix::unistd::Pid::from_raw(child.id().try_into().unwrap());
        let of_thread = health.clone();
        let waits = thread::spawn(move || reaped(&mut child, Duration::from_millis(1), &of_thread));
        until("it lingers", || health.fault() == Some(Fault::Lingers));
        nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGKILL).unwrap();
        assert!(!waits.join().unwrap().unwrap().success());
        assert_eq!(health.fault(), None);
    }
}
