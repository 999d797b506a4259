//! A machine on this machine: mounts and processes of its own, over the same network and files.
//!
//! `/run` is empty, and `/var/lib` and `/var/log` are folders of the test bed, so programs use their usual paths. The
//! kernel's settings that a kubelet or a CNI plugin writes are ordinary files there. The first process of the PID
//! namespace ends with the test program, and the kernel then kills all others and removes all mounts.

use crate::testbed::process::{Process, ProcessSpec};
use crate::testbed::wait;
use anyhow::{Context as _, Result, ensure};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use std::path::{Path, PathBuf};
use std::process::Output;
use std::time::Duration;

/// The kernel's settings that programs of a node write, with the values that they want.
const SETTINGS: [(&str, &str); 6] = [
    ("vm/overcommit_memory", "1"),
    ("vm/panic_on_oom", "0"),
    ("kernel/panic", "10"),
    ("kernel/panic_on_oops", "1"),
    ("kernel/keys/root_maxkeys", "1000000"),
    ("kernel/keys/root_maxbytes", "25000000"),
];

/// Makes the mounts, says so, and becomes the namespace's first process, to which the kernel gives orphans: a parent
/// that ignores SIGCHLD leaves no zombie.
const INIT: &str = r#"set -eu
dir=$1 options=$2
mount -t tmpfs -o "$options" tmpfs /run
mount --bind "$dir/lib" /var/lib
mount --bind "$dir/log" /var/log
for file in $(cd "$dir/settings" && find . -type f); do
    [ ! -e "/proc/sys/$file" ] || mount --bind "$dir/settings/$file" "/proc/sys/$file"
done
mount --make-rshared /
: >"$dir/mounted"
exec env --ignore-signal=CHLD sleep infinity"#;

/// Whether programs below `/run` can be executed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RunMount {
    /// Programs below `/run` can be executed.
    Executable,
    /// Programs below `/run` can't be executed: some distributions mount it with `noexec`.
    NoExec,
}

/// A running machine. Dropping it kills all its processes.
#[derive(Debug)]
pub struct Machine {
    dir: PathBuf,
    /// `unshare`, the parent of the namespace's first process. It is in the machine's mount namespace.
    init: Process,
}

impl Machine {
    /// Starts a machine whose files are in `dir`, which may be the folder of a machine that was switched off.
    ///
    /// # Errors
    /// The namespaces or the mounts can't be made.
    pub async fn start(name: &str, dir: &Path, run: RunMount, logs: &Path) -> Result<Self> {
        for folder in ["lib", "log"] {
            std::fs::create_dir_all(dir.join(folder)).context("can't make a node's folder")?;
        }
        for (setting, value) in SETTINGS {
            let file = dir.join("settings").join(setting);
            let folder = file.parent().context("a setting has no folder")?;
            std::fs::create_dir_all(folder).context("can't make a node's folder")?;
            std::fs::write(&file, format!("{value}\n")).context("can't write a node's setting")?;
        }
        let mounted = dir.join("mounted");
        let _ = std::fs::remove_file(&mounted);
        let options = match run {
            RunMount::Executable => "nosuid,nodev",
            RunMount::NoExec => "nosuid,nodev,noexec",
        };
        let spec =
            ProcessSpec::new(format!("machine {name}"), "unshare", logs.join(format!("{name}-machine.log")))
                .args(["--mount", "--pid", "--fork", "--mount-proc", "--kill-child=KILL"])
                .args(["--", "sh", "-c", INIT, "init"])
                .arg(dir)
                .arg(options);
        let init = Process::start(&spec)?;
        wait::until(&format!("the mounts of the machine {name}"), async || {
            init.check_running()?;
            Ok(mounted.exists().then_some(()))
        })
        .await?;
        Ok(Self { dir: dir.to_owned(), init })
    }

    /// The folder of the machine's files, which has the same path on the machine.
    #[must_use]
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// The path by which this program reaches the file `path` of the machine.
    #[must_use]
    pub fn path(&self, path: impl AsRef<Path>) -> PathBuf {
        let root = PathBuf::from(format!("/proc/{}/root", self.init.pid()));
        root.join(path.as_ref().strip_prefix("/").unwrap_or(path.as_ref()))
    }

    /// The specification of a program on the machine, for [`Machine::spawn`].
    #[must_use]
    pub fn process(&self, name: &str, program: &Path, log: &Path) -> ProcessSpec {
        ProcessSpec::new(name, "nsenter", log).args(self.nsenter()).arg(program)
    }

    /// Starts a program on the machine. Signals reach nsenter, which has started it: see [`Machine::terminate`]; a
    /// kill ends both.
    ///
    /// # Errors
    /// The program can't be started.
    #[allow(clippy::needless_pass_by_value, reason = "a specification is used once")]
    pub fn spawn(&self, spec: ProcessSpec) -> Result<Process> {
        Process::start(&spec)
    }

    /// Sends SIGTERM to the program that [`Machine::spawn`] started, and SIGKILL if it hasn't ended after `grace`.
    pub async fn terminate(&self, process: &Process, grace: Duration) {
        for child in children_of(process.pid()) {
            // The only possible error is that the program has ended by itself.
            let _ = kill(Pid::from_raw(child), Signal::SIGTERM);
        }
        if tokio::time::timeout(grace, process.wait()).await.is_err() {
            process.kill().await;
        }
    }

    /// Runs a program on the machine and returns its output.
    ///
    /// # Errors
    /// The program can't be started, or fails; the error has its output.
    pub async fn run(&self, program: &Path, arguments: &[&str]) -> Result<Output> {
        let output = tokio::process::Command::new("nsenter")
            .args(self.nsenter())
            .arg(program)
            .args(arguments)
            .kill_on_drop(true)
            .output()
            .await
            .context("can't start nsenter")?;
        let error = String::from_utf8_lossy(&output.stderr);
        ensure!(
            output.status.success(),
            "{} {arguments:?} failed ({}): {error}",
            program.display(),
            output.status
        );
        Ok(output)
    }

    fn nsenter(&self) -> [String; 3] {
        let namespaces = format!("/proc/{}/ns", self.init.pid());
        [format!("--mount={namespaces}/mnt"), format!("--pid={namespaces}/pid_for_children"), "--".to_owned()]
    }

    /// Fails if the machine has been switched off.
    ///
    /// # Errors
    /// The first process has ended.
    pub fn check_running(&self) -> Result<()> {
        self.init.check_running()
    }

    /// Kills all processes of the machine.
    pub async fn switch_off(&self) {
        self.init.kill().await;
    }
}

/// The processes whose parent is `pid`.
fn children_of(pid: i32) -> Vec<i32> {
    let processes = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    let ids = processes.filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
    ids.filter(|id| parent_of(*id) == Some(pid)).collect()
}

fn parent_of(pid: i32) -> Option<i32> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name of the program is in parentheses, and may have any character. State and parent come next.
    let (_, after_name) = stat.rsplit_once(')')?;
    after_name.split_whitespace().nth(1)?.parse().ok()
}
