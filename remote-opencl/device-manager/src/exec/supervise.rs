//! One thread waits for everything: signals to pass on, children that end, and the manager getting ready.

use super::manager::Manager;
use crate::process::{Inherited, Terminal, bind_to_parent};
use anyhow::{Context as _, bail};
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::{SigSet, Signal, kill};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use nix::unistd::Pid;
use std::io::{self, Read as _};
use std::os::fd::AsFd as _;
use std::os::unix::process::ExitStatusExt as _;
use std::process::{Command, ExitStatus};
use std::time::{Duration, Instant};

/// Time that a manager has to start: a vendor's runtime may compile its library the first time.
const START_TIMEOUT: Duration = Duration::from_secs(60);

/// Time that the manager has to end in order after the program has ended; its sessions have ended by then.
const STOP_TIMEOUT: Duration = Duration::from_secs(2);

/// Longest list of addresses that is accepted from a manager, in bytes.
const MAX_ADDRESSES: usize = 4096;

/// Signals that are passed on. The others stop a process, or report faults of this process.
const PASSED_ON: [Signal; 8] = [
    Signal::SIGHUP,
    Signal::SIGINT,
    Signal::SIGQUIT,
    Signal::SIGTERM,
    Signal::SIGUSR1,
    Signal::SIGUSR2,
    Signal::SIGALRM,
    Signal::SIGWINCH,
];

/// The signals of this process, blocked and read from a file descriptor.
#[derive(Debug)]
pub struct Signals {
    file: SignalFd,
    inherited: Inherited,
}

/// The result of starting a manager.
#[derive(Debug)]
pub enum Started {
    /// The manager listens at these addresses, in the form of `FPGA_DEVICE_MANAGERS`.
    At(String),
    /// A signal came first.
    Interrupted(Signal),
}

/// A signal, and whether it was sent to this process alone or to all processes of the terminal.
#[derive(Debug, Clone, Copy)]
struct Received {
    signal: Signal,
    from_terminal: bool,
}

/// The shell's exit status for a process that a signal ended.
#[must_use]
pub fn status_of_signal(signal: Signal) -> u8 {
    u8::try_from(signal as i32).map_or(u8::MAX, |number| number.saturating_add(128))
}

impl Signals {
    /// Blocks the signals.
    ///
    /// # Errors
    /// A system call fails.
    pub fn block() -> io::Result<Self> {
        let mut signals = SigSet::from_iter(PASSED_ON);
        signals.add(Signal::SIGCHLD);
        let inherited = Inherited::replace_by(&signals)?;
        let file = SignalFd::with_flags(&signals, SfdFlags::SFD_CLOEXEC | SfdFlags::SFD_NONBLOCK)?;
        Ok(Self { file, inherited })
    }

    /// The signal settings for children.
    pub fn inherited(&self) -> Inherited {
        self.inherited
    }

    /// Waits until the manager is ready.
    ///
    /// # Errors
    /// The manager ends before that (it has printed the reason), or takes too long.
    pub fn until_ready(&mut self, manager: &mut Manager) -> anyhow::Result<Started> {
        let deadline = Instant::now() + START_TIMEOUT;
        let mut addresses = Vec::new();
        loop {
            let (readable, _) =
                self.wait(Some(&manager.ready), deadline).context("cannot wait for the manager")?;
            if readable {
                let mut chunk = [0; 512];
                let length = manager.ready.read(&mut chunk).context("cannot hear from the manager")?;
                addresses.extend_from_slice(&chunk[..length]);
                if length == 0 || addresses.len() > MAX_ADDRESSES {
                    bail!("the private manager did not start");
                }
                if addresses.ends_with(b"\n") {
                    let text = String::from_utf8(addresses).context("the manager's addresses")?;
                    return Ok(Started::At(text.trim_end().replace('\n', ",")));
                }
            }
            while let Some(received) = self.next() {
                if matches!(
                    received.signal,
                    Signal::SIGHUP | Signal::SIGINT | Signal::SIGQUIT | Signal::SIGTERM
                ) {
                    return Ok(Started::Interrupted(received.signal));
                }
            }
            if Instant::now() >= deadline {
                bail!("the private manager was not ready after {START_TIMEOUT:?}");
            }
        }
    }

    /// Runs the program to its end. Returns its exit status as a shell reports it.
    ///
    /// # Errors
    /// The program can't be started.
    pub fn run(&mut self, mut command: Command, manager: &mut Manager) -> io::Result<u8> {
        bind_to_parent(&mut command, self.inherited, Signal::SIGKILL, Terminal::Shared);
        let mut child = command.spawn()?;
        let pid = Pid::from_raw(i32::try_from(child.id()).unwrap_or(i32::MAX));
        loop {
            if let Some(status) = child.try_wait()? {
                return Ok(shell_status(status));
            }
            // Waits for a manager that has ended, so that it does not stay as a zombie; the program gets
            // errors from OpenCL.
            manager.has_ended();
            self.wait(None, Instant::now() + Duration::from_secs(3600))?;
            while let Some(received) = self.next() {
                // The terminal has sent the signal to the program itself.
                if received.signal != Signal::SIGCHLD && !received.from_terminal {
                    // The child has not been waited for, so its id is not reused yet.
                    let _ = kill(pid, received.signal);
                }
            }
        }
    }

    /// Ends the manager: in order, or at once if that takes too long or a signal comes.
    pub fn stop(&mut self, manager: &mut Manager) {
        manager.terminate();
        self.until_ended(manager, STOP_TIMEOUT);
        manager.kill();
    }

    /// Waits until the manager has ended, the timeout has passed, or a terminating signal comes.
    fn until_ended(&mut self, manager: &mut Manager, timeout: Duration) {
        let deadline = Instant::now() + timeout;
        while !manager.has_ended() && Instant::now() < deadline {
            if self.wait(None, deadline).is_err() {
                return;
            }
            while let Some(received) = self.next() {
                if matches!(received.signal, Signal::SIGINT | Signal::SIGTERM | Signal::SIGQUIT) {
                    return;
                }
            }
        }
    }

    /// Waits for a signal or for `other`. Returns whether `other` is readable, and whether a signal came.
    fn wait(&self, other: Option<&std::fs::File>, deadline: Instant) -> io::Result<(bool, bool)> {
        let left = deadline.saturating_duration_since(Instant::now());
        // Rounded up, so that waits do not end just before the deadline again and again.
        let left = left + Duration::from_millis(1);
        let timeout = PollTimeout::try_from(left).unwrap_or(PollTimeout::MAX);
        let mut files = vec![PollFd::new(self.file.as_fd(), PollFlags::POLLIN)];
        files.extend(other.map(|other| PollFd::new(other.as_fd(), PollFlags::POLLIN)));
        match poll(&mut files, timeout) {
            Ok(_) | Err(Errno::EINTR) => {}
            Err(error) => return Err(error.into()),
        }
        let ready = |at: usize| files.get(at).and_then(PollFd::any).unwrap_or(false);
        Ok((ready(1), ready(0)))
    }

    fn next(&self) -> Option<Received> {
        let info = self.file.read_signal().ok().flatten()?;
        let signal = Signal::try_from(i32::try_from(info.ssi_signo).ok()?).ok()?;
        // Signals from the keys of a terminal have positive codes, which only the kernel uses; those of
        // kill(2) have others.
        Some(Received { signal, from_terminal: info.ssi_code > 0 && signal != Signal::SIGCHLD })
    }
}

fn shell_status(status: ExitStatus) -> u8 {
    let number = status.code().or_else(|| status.signal().map(|signal| signal + 128)).unwrap_or(255);
    u8::try_from(number).unwrap_or(u8::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_exit_status_is_what_a_shell_says() {
        assert_eq!(shell_status(ExitStatus::from_raw(7 << 8)), 7);
        assert_eq!(shell_status(ExitStatus::from_raw(libc::SIGKILL)), 137);
        assert_eq!(status_of_signal(Signal::SIGINT), 130);
    }
}
