//! The OpenCL programs of the soak test, which don't know about it. Some of them are killed.

use super::managers::Manager;
use anyhow::{Context as _, Result};
use fpga_tests::testbed::chance::Chance;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

/// A program that runs longer than this hangs.
const TOO_LONG: Duration = Duration::from_secs(60);
/// One program in this many is hostile.
const HOSTILE_SHARE: u64 = 8;
/// Token of the hostile tenant.
pub const HOSTILE_TOKEN: &str = "token-of-the-hostile-tenant";
/// Time for which a paused program is stopped.
const PAUSE: Duration = Duration::from_millis(700);

/// The programs and their arguments.
const PROGRAMS: &[(&str, &[&str])] = &[
    ("vector_add", &[]),
    ("vector_add", &["--size", "100"]),
    ("null_kernel", &["--iterations", "500", "--warmup", "10"]),
    ("null_kernel", &["--pipelined", "--iterations", "5000"]),
    ("write_kernel_read", &["--iterations", "500", "--warmup", "10"]),
    ("bandwidth", &["--mib", "33", "--iterations", "2"]),
    ("map_touch", &["--mib", "9", "--iterations", "3"]),
    ("map_unmap", &[]),
    ("two_queues_deadlock", &[]),
    ("user_event_deadlock", &[]),
    ("long_task", &["--seconds", "2", "--kernel-ms", "50"]),
    ("images", &[]),
    ("compile_link", &[]),
    ("callback_status", &[]),
    ("retain_release", &[]),
    ("threads", &[]),
];

/// Arguments of the hostile program: for all managers, and additional ones for managers that isolate tenants in
/// processes.
const HOSTILE: &[&str] = &["--memory", "--bytes", "--includes"];
const HOSTILE_KERNELS: &[&str] = &["--endless", "--calls", "--threads"];

/// Numbers of programs by how they ended.
#[derive(Debug, Default, Clone)]
pub struct Outcomes {
    pub passed: u32,
    pub killed: u32,
    /// Programs whose manager was killed.
    pub lost: u32,
    /// Hostile programs, however they ended.
    pub hostile: u32,
    /// Descriptions and outputs of programs that failed in any other way.
    pub wrong: Vec<String>,
}

/// The running programs.
#[derive(Debug)]
pub struct Clients {
    programs: PathBuf,
    vendors: PathBuf,
    folder: PathBuf,
    mark: String,
    running: Vec<Client>,
    started: u64,
    outcomes: Outcomes,
}

#[derive(Debug)]
struct Client {
    what: String,
    log: PathBuf,
    child: Child,
    since: Instant,
    manager: usize,
    generation: u32,
    intent: Intent,
    fate: Fate,
}

/// Whether a program is hostile.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Intent {
    Good,
    Harm,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fate {
    Runs,
    PausedUntil(Instant),
    Killed,
}

impl Clients {
    /// No programs yet.
    ///
    /// # Errors
    /// The driver is missing, or the folder can't be written.
    pub fn new(programs: PathBuf, icd: &Path, folder: &Path, mark: &str) -> Result<Self> {
        let icd = icd.canonicalize().with_context(|| format!("{} is not built", icd.display()))?;
        let vendors = folder.join("vendors");
        std::fs::create_dir(&vendors)?;
        std::fs::write(vendors.join("fpga.icd"), format!("{}\n", icd.display()))?;
        Ok(Self {
            programs,
            vendors,
            folder: folder.to_owned(),
            mark: mark.to_owned(),
            running: Vec::new(),
            started: 0,
            outcomes: Outcomes::default(),
        })
    }

    /// Number of running programs.
    pub fn count(&self) -> usize {
        self.running.len()
    }

    /// Outcomes of the programs that have ended.
    pub fn outcomes(&self) -> Outcomes {
        self.outcomes.clone()
    }

    /// Starts a random program at a random manager.
    ///
    /// # Errors
    /// The program can't be started.
    pub fn start(&mut self, managers: &[Manager], chance: &mut Chance) -> Result<()> {
        let at = usize::try_from(chance.below(u64::try_from(managers.len())?))?;
        let manager = managers.get(at).context("no manager")?;
        let address = chance.of(manager.addresses()).context("no address")?;
        let intent = if chance.below(HOSTILE_SHARE) == 0 { Intent::Harm } else { Intent::Good };
        let (program, args) = match intent {
            Intent::Good => *chance.of(PROGRAMS).context("no program")?,
            Intent::Harm => {
                let kernels = if manager.isolates() { HOSTILE_KERNELS } else { &[] };
                let ways: Vec<_> = HOSTILE.iter().chain(kernels).collect();
                ("hostile", std::slice::from_ref(*chance.of(&ways).context("no way")?))
            }
        };
        self.started += 1;
        let log = self.folder.join(format!("client-{}.log", self.started));
        let output = File::create(&log)?;
        let mut command = Command::new(self.programs.join(program));
        command.args(args).env("OCL_ICD_VENDORS", &self.vendors).env("FPGA_DEVICE_MANAGERS", address);
        command.env("TMPDIR", &self.folder).env("SOAK_MARK", &self.mark);
        if intent == Intent::Harm {
            // Hostile programs belong to another tenant than the others, which have no token.
            command.env("FPGA_TOKEN", HOSTILE_TOKEN);
        }
        if chance.below(4) == 0 {
            command.env("FPGA_SHARED_MEMORY", "off");
        }
        let child = command.stdin(Stdio::null()).stdout(output.try_clone()?).stderr(output).spawn()?;
        let what = format!("{program} {args:?} at {} ({address})", manager.name());
        let generation = manager.generation();
        self.running.push(Client {
            what,
            log,
            child,
            since: Instant::now(),
            manager: at,
            generation,
            intent,
            fate: Fate::Runs,
        });
        Ok(())
    }

    /// Records programs that have ended, resumes paused ones whose time is over, and kills hanging ones.
    ///
    /// # Errors
    /// A system call fails.
    pub fn look_after(&mut self, managers: &[Manager]) -> Result<()> {
        let mut left = Vec::new();
        for mut client in self.running.drain(..) {
            if let Fate::PausedUntil(moment) = client.fate
                && Instant::now() >= moment
            {
                client.signal(Signal::SIGCONT)?;
                client.fate = Fate::Runs;
            }
            let hangs = client.since.elapsed() > TOO_LONG;
            if hangs {
                client.child.kill()?;
            }
            let ended = if hangs { Some(client.child.wait()?) } else { client.child.try_wait()? };
            let Some(status) = ended else {
                left.push(client);
                continue;
            };
            let same = managers.get(client.manager).map(Manager::generation) == Some(client.generation);
            self.outcomes.note(&client, status, hangs, same);
            std::fs::remove_file(&client.log)?;
        }
        self.running = left;
        Ok(())
    }

    /// Kills a random program.
    ///
    /// # Errors
    /// The system call fails.
    pub fn kill_one(&mut self, chance: &mut Chance) -> Result<()> {
        let count = u64::try_from(self.running.len())?;
        let at = usize::try_from(chance.below(count))?;
        if let Some(client) = self.running.get_mut(at) {
            client.child.kill()?;
            client.fate = Fate::Killed;
        }
        Ok(())
    }

    /// Stops a random program for some time, in which it reads nothing.
    ///
    /// # Errors
    /// The system call fails.
    pub fn pause_one(&mut self, chance: &mut Chance) -> Result<()> {
        let count = u64::try_from(self.running.len())?;
        let at = usize::try_from(chance.below(count))?;
        if let Some(client) = self.running.get_mut(at)
            && client.fate == Fate::Runs
        {
            client.signal(Signal::SIGSTOP)?;
            client.fate = Fate::PausedUntil(Instant::now() + PAUSE);
        }
        Ok(())
    }

    /// Resumes all paused programs.
    ///
    /// # Errors
    /// A system call fails.
    pub fn resume_all(&mut self) -> Result<()> {
        for client in &mut self.running {
            if matches!(client.fate, Fate::PausedUntil(_)) {
                client.signal(Signal::SIGCONT)?;
                client.fate = Fate::Runs;
            }
        }
        Ok(())
    }
}

impl Client {
    fn signal(&self, signal: Signal) -> Result<()> {
        // The child has not been waited for, so its process id is still its own.
        Ok(kill(Pid::from_raw(i32::try_from(self.child.id())?), signal)?)
    }
}

impl Drop for Clients {
    fn drop(&mut self) {
        for client in &mut self.running {
            let _ = client.child.kill();
            let _ = client.child.wait();
        }
    }
}

impl Outcomes {
    fn note(&mut self, client: &Client, status: ExitStatus, hangs: bool, same_manager: bool) {
        use std::os::unix::process::ExitStatusExt as _;
        let by_signal = status.signal().is_some();
        match client.fate {
            _ if client.intent == Intent::Harm => self.hostile += 1,
            _ if status.success() => self.passed += 1,
            Fate::Killed if !hangs => self.killed += 1,
            // A program whose manager was killed must exit with an error: not by a signal, and not by hanging.
            _ if !hangs && !same_manager && !by_signal => self.lost += 1,
            _ => {
                let said = std::fs::read_to_string(&client.log).unwrap_or_default();
                let ended = if hangs { "hangs".to_owned() } else { status.to_string() };
                self.wrong.push(format!("{}: {ended}\n{said}", client.what));
            }
        }
    }
}
