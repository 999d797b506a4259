//! Device managers that are killed and restarted at the same address.

use anyhow::{Context as _, Result, bail};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use std::fs::OpenOptions;
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

const START: Duration = Duration::from_secs(60);
const STOP: Duration = Duration::from_secs(30);

/// A device manager across its restarts.
#[derive(Debug)]
pub struct Manager {
    name: String,
    command: PathBuf,
    args: Vec<String>,
    folder: PathBuf,
    mark: String,
    metrics: SocketAddr,
    child: Child,
    addresses: Vec<String>,
    /// Number of starts. A program that ran across a restart may have failed.
    generation: u32,
    restarts: Restarts,
}

/// How a manager is ended before it is started again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    /// By SIGKILL.
    Kill,
    /// By SIGTERM: the manager drains first.
    Drain,
}

/// Number of restarts by the way in which the manager was ended.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Restarts {
    /// Restarts after SIGKILL.
    pub kills: u32,
    /// Restarts after SIGTERM.
    pub drains: u32,
}

impl std::iter::Sum for Restarts {
    fn sum<I: Iterator<Item = Self>>(all: I) -> Self {
        all.fold(Self::default(), |sum, one| Self {
            kills: sum.kills + one.kills,
            drains: sum.drains + one.drains,
        })
    }
}

impl Manager {
    /// Starts a manager.
    ///
    /// # Errors
    /// The manager does not become ready.
    pub fn start(
        program: &Path,
        folder: &Path,
        name: &str,
        runtime: &str,
        mark: &str,
        args: &[&str],
    ) -> Result<Self> {
        // A free port: the listener that found it is closed here.
        let metrics = TcpListener::bind("127.0.0.1:0")?.local_addr()?;
        let listen = format!("unix:{}", folder.join(format!("{name}.sock")).display());
        let mut all = vec![
            "serve".to_owned(),
            "--listen".to_owned(),
            listen,
            "--runtime".to_owned(),
            runtime.to_owned(),
        ];
        all.extend(
            ["--slots", "2", "--policy", "drr", "--drain-timeout", "5s", "--metrics-listen"]
                .map(str::to_owned),
        );
        all.extend([metrics.to_string(), "--ready-file".to_owned()]);
        all.push(folder.join(format!("{name}.ready")).display().to_string());
        all.extend(args.iter().map(|arg| (*arg).to_owned()));
        let (command, folder, mark) = (program.to_owned(), folder.to_owned(), mark.to_owned());
        let (child, addresses) = spawn(&command, &all, &folder, name, &mark)?;
        let name = name.to_owned();
        Ok(Self {
            name,
            command,
            args: all,
            folder,
            mark,
            metrics,
            child,
            addresses,
            generation: 1,
            restarts: Restarts::default(),
        })
    }

    /// Name of the manager.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Addresses at which the manager listens.
    pub fn addresses(&self) -> &[String] {
        &self.addresses
    }

    /// Number of starts so far.
    pub fn generation(&self) -> u32 {
        self.generation
    }

    /// Whether each tenant has its own process.
    pub fn isolates(&self) -> bool {
        self.args.windows(2).any(|pair| pair == ["--isolate", "process"])
    }

    /// Number of restarts so far.
    pub fn restarts(&self) -> Restarts {
        self.restarts
    }

    /// Id of the manager's process.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Ends the manager and starts it again at the same address.
    ///
    /// # Errors
    /// The manager does not end, or does not become ready.
    pub fn restart(&mut self, end: End) -> Result<()> {
        match end {
            End::Kill => {
                self.child.kill()?;
                self.child.wait()?;
                self.restarts.kills += 1;
            }
            End::Drain => {
                self.stop()?;
                self.restarts.drains += 1;
            }
        }
        self.generation += 1;
        (self.child, self.addresses) =
            spawn(&self.command, &self.args, &self.folder, &self.name, &self.mark)?;
        Ok(())
    }

    /// Ends the manager by SIGTERM and returns its exit status.
    ///
    /// # Errors
    /// The manager does not end in time.
    pub fn stop(&mut self) -> Result<String> {
        kill(Pid::from_raw(i32::try_from(self.pid())?), Signal::SIGTERM)?;
        let until = Instant::now() + STOP;
        while Instant::now() < until {
            if let Some(status) = self.child.try_wait()? {
                return Ok(status.code().map_or_else(|| status.to_string(), |code| code.to_string()));
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        bail!("manager {} does not end", self.name)
    }

    /// The value of a metric.
    ///
    /// # Errors
    /// `/metrics` can't be read or lacks the metric.
    pub fn metric(&self, name: &str) -> Result<i64> {
        let mut stream =
            TcpStream::connect(self.metrics).with_context(|| format!("metrics of {}", self.name))?;
        stream.set_read_timeout(Some(STOP))?;
        stream.write_all(b"GET /metrics HTTP/1.1\r\nHost: soak\r\nConnection: close\r\n\r\n")?;
        let mut text = String::new();
        stream.read_to_string(&mut text)?;
        let line = text.lines().find_map(|line| line.strip_prefix(&format!("fpga_device_manager_{name} ")));
        Ok(line.with_context(|| format!("{name} is no metric of {}", self.name))?.parse()?)
    }

    /// Whether the manager has no session.
    ///
    /// # Errors
    /// `/metrics` can't be read.
    pub fn is_idle(&self) -> Result<bool> {
        Ok(self.metric("sessions")? == 0)
    }
}

impl Drop for Manager {
    fn drop(&mut self) {
        // The process may have ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn spawn(
    command: &Path,
    args: &[String],
    folder: &Path,
    name: &str,
    mark: &str,
) -> Result<(Child, Vec<String>)> {
    let ready = folder.join(format!("{name}.ready"));
    match std::fs::remove_file(&ready) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err(error.into()),
        _ => {}
    }
    let log = OpenOptions::new().create(true).append(true).open(folder.join(format!("{name}.log")))?;
    let mut child = Command::new(command)
        .args(args)
        .env("TMPDIR", folder)
        .env("SOAK_MARK", mark)
        .stdin(Stdio::null())
        .stdout(log.try_clone()?)
        .stderr(log)
        .spawn()?;
    let until = Instant::now() + START;
    while Instant::now() < until {
        if let Ok(text) = std::fs::read_to_string(&ready) {
            return Ok((child, text.lines().map(str::to_owned).collect()));
        }
        if let Some(status) = child.try_wait()? {
            bail!("manager {name} ended: {status}; see {name}.log");
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    let _ = child.kill();
    let _ = child.wait();
    bail!("manager {name} is not ready")
}

#[cfg(test)]
mod tests {
    use super::*;
    use fpga_tests::testbed::programs::built;

    #[test]
    fn a_restart_by_sigterm_is_no_kill() {
        let folder = tempfile::tempdir().unwrap();
        let program = built("fpga-device-manager").unwrap();
        let mut manager = Manager::start(&program, folder.path(), "m", "pocl", "soak-test", &[]).unwrap();
        manager.restart(End::Drain).unwrap();
        assert_eq!((manager.restarts(), manager.generation()), (Restarts { kills: 0, drains: 1 }, 2));
        manager.restart(End::Kill).unwrap();
        assert_eq!((manager.restarts(), manager.generation()), (Restarts { kills: 1, drains: 1 }, 3));
    }
}
