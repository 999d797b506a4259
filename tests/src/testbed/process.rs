//! A supervised child process in its own process group, with its output in a file. It ends with the test bed in any
//! case.
//!
//! The kernel kills a child when the *thread* that forked it ends (PR_SET_PDEATHSIG), so a single thread that lives
//! as long as the program forks all children. A panic, Ctrl-C or SIGKILL of the program leaves no process behind.

use super::http_client::HttpClient;
use super::wait;
use anyhow::{Context as _, Result, bail};
use fpga_test_kit::patience;
use nix::sys::signal::{Signal, kill, killpg};
use nix::sys::wait::{Id, WaitPidFlag, waitid};
use nix::unistd::Pid;
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs::{File, OpenOptions};
use std::io::{Read as _, Seek as _, SeekFrom};
use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc;
use std::sync::{Arc, Condvar, LazyLock, Mutex, PoisonError};
use std::time::Duration;
use tokio::sync::watch;

/// The specification of a process.
#[derive(Debug, Clone)]
pub struct ProcessSpec {
    /// Name of the process in messages.
    pub name: String,
    /// The program: a path, or a name that is looked up in `PATH`.
    pub program: PathBuf,
    /// Arguments of the program.
    pub args: Vec<OsString>,
    /// Variables that are added to the environment or replaced in it.
    pub env: BTreeMap<String, String>,
    /// Whether the process inherits the caller's environment.
    pub inherit_env: InheritEnv,
    /// File to which standard output and standard error are appended.
    pub log: PathBuf,
    /// Working directory; `None` for the caller's.
    pub working_dir: Option<PathBuf>,
}

/// Whether a child inherits the caller's environment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum InheritEnv {
    /// The child inherits all variables.
    Yes,
    /// The child inherits no variable.
    No,
}

/// A running or ended child. Dropping it kills its whole process group.
#[derive(Debug)]
pub struct Process {
    name: String,
    log: PathBuf,
    shared: Arc<Shared>,
    exit: watch::Receiver<Option<ExitStatus>>,
}

#[derive(Debug)]
struct Shared {
    pid: Pid,
    /// Locked while a signal is sent, so that a reaped pid is never signalled.
    reaped: Mutex<bool>,
    /// Notified when the child has been reaped.
    ended: Condvar,
}

impl ProcessSpec {
    /// A process that runs `program` with the caller's environment and its output in `log`.
    pub fn new(name: impl Into<String>, program: impl Into<PathBuf>, log: impl Into<PathBuf>) -> Self {
        Self {
            name: name.into(),
            program: program.into(),
            args: Vec::new(),
            env: BTreeMap::new(),
            inherit_env: InheritEnv::Yes,
            log: log.into(),
            working_dir: None,
        }
    }

    /// Adds an argument.
    #[must_use]
    pub fn arg(mut self, arg: impl Into<OsString>) -> Self {
        self.args.push(arg.into());
        self
    }

    /// Adds arguments.
    #[must_use]
    pub fn args<A: Into<OsString>>(mut self, args: impl IntoIterator<Item = A>) -> Self {
        self.args.extend(args.into_iter().map(Into::into));
        self
    }

    /// Sets a variable.
    #[must_use]
    pub fn env(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.env.insert(name.into(), value.into());
        self
    }

    fn command(&self) -> Result<Command> {
        let log = OpenOptions::new()
            .create(true)
            .append(true)
            .open(&self.log)
            .with_context(|| format!("can't write the log {}", self.log.display()))?;
        let mut command = Command::new(&self.program);
        if self.inherit_env == InheritEnv::No {
            command.env_clear();
        }
        command.args(&self.args).envs(&self.env).stdin(Stdio::null()).process_group(0);
        command.stdout(log.try_clone().context("can't duplicate the log")?).stderr(log);
        if let Some(dir) = &self.working_dir {
            command.current_dir(dir);
        }
        Ok(command)
    }
}

impl Process {
    /// Starts the process.
    ///
    /// # Errors
    /// The log can't be written, or the program can't be started.
    pub fn start(spec: &ProcessSpec) -> Result<Self> {
        let name = spec.name.clone();
        let child = fork_on_the_spawner(spec.command()?)
            .with_context(|| format!("can't start {name} ({})", spec.program.display()))?;
        let pid = Pid::from_raw(i32::try_from(child.id()).context("pid out of range")?);
        let shared = Arc::new(Shared { pid, reaped: Mutex::new(false), ended: Condvar::new() });
        let (send, exit) = watch::channel(None);
        let waiter = Arc::clone(&shared);
        std::thread::Builder::new()
            .name(format!("wait-{name}"))
            .spawn(move || wait_for(child, &waiter, &send))
            .context("can't start a thread")?;
        Ok(Self { name, log: spec.log.clone(), shared, exit })
    }

    /// Name of the process.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Id of the process.
    #[must_use]
    pub fn pid(&self) -> i32 {
        self.shared.pid.as_raw()
    }

    /// The exit status; `None` while the process runs.
    #[must_use]
    pub fn exit_status(&self) -> Option<ExitStatus> {
        *self.exit.borrow()
    }

    /// Path of the log.
    #[must_use]
    pub fn log(&self) -> &Path {
        &self.log
    }

    /// The last bytes of the log as text.
    #[must_use]
    pub fn log_tail(&self) -> String {
        tail_of(&self.log)
    }

    /// Fails with the end of the log if the process has ended.
    ///
    /// # Errors
    /// The process has ended.
    pub fn check_running(&self) -> Result<()> {
        match self.exit_status() {
            None => Ok(()),
            Some(status) => bail!("{} ended ({status}); the end of its log:\n{}", self.name, self.log_tail()),
        }
    }

    /// Waits until the program answers a GET of `url` with success.
    ///
    /// # Errors
    /// The process has ended, or `time` is over.
    pub async fn wait_ready(&self, http: &HttpClient, url: &str, time: Duration) -> Result<()> {
        wait::until_within(&format!("{} to be ready", self.name), time, async || {
            self.check_running()?;
            Ok(http.get(url).await?.status.is_success().then_some(()))
        })
        .await
    }

    /// Sends a signal: SIGKILL to the whole process group, other signals to the process only, like container
    /// runtimes. Does nothing if the process has ended.
    pub fn signal(&self, signal: Signal) {
        self.shared.signal(signal);
    }

    /// Waits until the process ends.
    pub async fn wait(&self) -> ExitStatus {
        let mut exit = self.exit.clone();
        match exit.wait_for(Option::is_some).await {
            Ok(status) => status.unwrap_or_else(|| ExitStatus::from_raw(0)),
            // The waiter thread always sends a status before it ends. If it ever didn't, the process would be gone
            // too.
            Err(_) => ExitStatus::from_raw(Signal::SIGKILL as i32),
        }
    }

    /// Sends SIGTERM, and SIGKILL if the process hasn't ended after `grace`.
    pub async fn stop(&self, grace: Duration) -> ExitStatus {
        self.signal(Signal::SIGTERM);
        if let Ok(status) = tokio::time::timeout(grace, self.wait()).await {
            return status;
        }
        self.kill().await
    }

    /// Sends SIGKILL and waits until the process ends.
    pub async fn kill(&self) -> ExitStatus {
        self.signal(Signal::SIGKILL);
        self.wait().await
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.signal(Signal::SIGKILL);
        // The folder with the process's files is often removed next.
        let reaped = self.shared.reaped.lock().unwrap_or_else(PoisonError::into_inner);
        let _ = self.shared.ended.wait_timeout_while(reaped, patience(), |reaped| !*reaped);
    }
}

impl Shared {
    fn signal(&self, signal: Signal) {
        let reaped = self.reaped.lock().unwrap_or_else(PoisonError::into_inner);
        if !*reaped {
            // The only possible error is ESRCH: the process has ended by itself.
            let _ = if signal == Signal::SIGKILL { killpg(self.pid, signal) } else { kill(self.pid, signal) };
        }
    }
}

/// The last 2000 bytes of a text file, for error messages.
#[must_use]
pub fn tail_of(path: &Path) -> String {
    const BYTES: u64 = 2000;
    let read = || -> std::io::Result<String> {
        let mut file = File::open(path)?;
        let length = file.metadata()?.len();
        file.seek(SeekFrom::Start(length.saturating_sub(BYTES)))?;
        let mut bytes = Vec::new();
        file.read_to_end(&mut bytes)?;
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    };
    read().unwrap_or_else(|error| format!("({}: {error})", path.display()))
}

fn wait_for(mut child: Child, shared: &Shared, exit: &watch::Sender<Option<ExitStatus>>) {
    // Wait without reaping first, so that the process group still exists when its remaining processes are killed.
    while let Err(nix::errno::Errno::EINTR) =
        waitid(Id::Pid(shared.pid), WaitPidFlag::WEXITED | WaitPidFlag::WNOWAIT)
    {}
    let mut reaped = shared.reaped.lock().unwrap_or_else(PoisonError::into_inner);
    let _ = killpg(shared.pid, Signal::SIGKILL);
    let status = child.wait().unwrap_or_else(|_| ExitStatus::from_raw(0));
    *reaped = true;
    drop(reaped);
    shared.ended.notify_all();
    exit.send_replace(Some(status));
}

type ForkOrder = (Command, mpsc::SyncSender<std::io::Result<Child>>);

/// The thread that forks all children; it lives as long as the program.
static SPAWNER: LazyLock<Mutex<mpsc::Sender<ForkOrder>>> = LazyLock::new(|| {
    let (send, receive) = mpsc::channel::<ForkOrder>();
    // If the thread can't be started, `receive` is dropped and every order fails.
    let _ = std::thread::Builder::new().name("spawner".into()).spawn(move || {
        for (mut command, reply) in receive {
            end_with_this_thread(&mut command);
            let _ = reply.send(command.spawn());
        }
    });
    Mutex::new(send)
});

fn fork_on_the_spawner(command: Command) -> Result<Child> {
    let (reply, child) = mpsc::sync_channel(1);
    let spawner = SPAWNER.lock().unwrap_or_else(PoisonError::into_inner);
    spawner.send((command, reply)).ok().context("the spawner thread is gone")?;
    drop(spawner);
    Ok(child.recv().context("the spawner thread is gone")??)
}

#[allow(unsafe_code, reason = "the only way to run code between fork and exec")]
fn end_with_this_thread(command: &mut Command) {
    let parent = nix::unistd::getpid();
    let set = move || {
        nix::sys::prctl::set_pdeathsig(Signal::SIGKILL)?;
        // If the parent has already ended, the signal would never be sent.
        if nix::unistd::getppid() != parent {
            return Err(std::io::Error::from_raw_os_error(libc::ESRCH));
        }
        Ok(())
    };
    // SAFETY: between fork and exec only async-signal-safe calls are allowed; `set` makes two system calls (prctl,
    // getppid), allocates nothing and takes no lock.
    unsafe {
        command.pre_exec(set);
    }
}
