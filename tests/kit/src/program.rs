//! A program under test, as a child process.

use crate::{patience, until, until_async};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::sync::mpsc;

/// A running or ended child process. Dropping it kills the process and waits for its end.
///
/// The program writes to the output of the test, unless the command says otherwise: the test runner shows both together.
#[derive(Debug)]
pub struct Program {
    name: String,
    child: Child,
}

impl Program {
    /// Starts a program without standard input.
    pub fn start(command: &mut Command) -> Self {
        let name = command.get_program().to_string_lossy().into_owned();
        let child = command.stdin(Stdio::null()).spawn();
        let child = child.unwrap_or_else(|error| panic!("{name} does not start: {error}"));
        Self { name, child }
    }

    /// Waits for the ready file, and returns its lines.
    ///
    /// # Panics
    /// The program ends, or does not write the file in time.
    pub fn ready(&mut self, file: &Path) -> Vec<String> {
        let what = format!("{} to write {}", self.name, file.display());
        let text = until(what, || {
            if let Some(status) = self.status() {
                panic!("{} ended before it was ready: {status}", self.name);
            }
            std::fs::read_to_string(file)
        });
        text.lines().map(str::to_owned).collect()
    }

    #[must_use]
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    #[must_use]
    pub fn pid(&self) -> Pid {
        Pid::from_raw(i32::try_from(self.child.id()).unwrap())
    }

    /// How the program ended; `None` while it runs.
    pub fn status(&mut self) -> Option<ExitStatus> {
        self.child.try_wait().unwrap()
    }

    pub fn is_running(&mut self) -> bool {
        self.status().is_none()
    }

    pub fn signal(&self, signal: Signal) {
        kill(self.pid(), signal).unwrap();
    }

    /// Waits for the end of the program.
    pub fn ended(&mut self) -> ExitStatus {
        until(format!("the end of {}", self.name), || self.child.try_wait().unwrap())
    }

    /// Waits for the end of the program, while the other tasks of the runtime run.
    pub async fn ended_async(&mut self) -> ExitStatus {
        until_async(format!("the end of {}", self.name), async || self.child.try_wait().unwrap()).await
    }

    /// Sends SIGTERM and waits for the end.
    pub fn terminate(&mut self) -> ExitStatus {
        self.signal(Signal::SIGTERM);
        self.ended()
    }

    /// Sends SIGKILL and waits for the end. The program may have ended before.
    pub fn kill(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        self.kill();
    }
}

/// Runs a program without standard input to its end, and returns what it wrote.
///
/// # Panics
/// The program does not end within [`patience`]. It is killed.
pub fn output(command: &mut Command) -> Output {
    let child = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
    let child = child.unwrap_or_else(|error| panic!("{command:?} does not start: {error}"));
    let pid = Pid::from_raw(i32::try_from(child.id()).unwrap());
    let (sender, result) = mpsc::channel();
    std::thread::spawn(move || sender.send(child.wait_with_output()));
    match result.recv_timeout(patience()) {
        Ok(output) => output.unwrap(),
        Err(_) => {
            // The program may end just now.
            let _ = kill(pid, Signal::SIGKILL);
            panic!("{command:?} does not end within {:?}", patience());
        }
    }
}
