//! Tenant processes of managers that have ended: which of them still run, and their end.
//!
//! The kernel kills a tenant process together with its manager (`PR_SET_PDEATHSIG`), but a little later: when the next
//! manager starts, a process of the former one may still run a task on a board. So a manager records its tenant processes
//! in its folder, and a manager that lends slots ends those of former managers before it registers with a broker (rule 6 of
//! the lease protocol).
//!
//! A record has the process's id as its name and the time of its start as its content, by which a later process with the
//! same id is another one. The manager alone writes records. A lock that the process inherits would be simpler, but code of
//! its tenant could give it up and run on.

use crate::process::stat_field;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use std::fs;
use std::io;
use std::os::fd::{AsFd as _, OwnedFd};
use std::path::Path;

/// A process of a former manager, which may still run.
#[derive(Debug)]
pub struct FormerProcess {
    pid: u32,
    /// Refers to this process even when another one gets its id.
    process: OwnedFd,
}

/// Records a process that this one has started, in the folder `records`.
///
/// # Errors
/// The record can't be written, or the process has been waited for.
pub fn record(records: &Path, pid: u32) -> io::Result<()> {
    let started = start_time_of(pid)?;
    // The content is there as soon as the name is.
    let new = records.join(format!("new-{pid}"));
    fs::write(&new, started)?;
    fs::rename(new, records.join(pid.to_string()))
}

/// Removes the record of a process that has been waited for.
pub fn forget(records: &Path, pid: u32) {
    // A record that is left over names no process.
    let _ = fs::remove_file(records.join(pid.to_string()));
}

/// The processes of a folder of records that still run.
#[must_use]
pub fn running(records: &Path) -> Vec<FormerProcess> {
    let entries = fs::read_dir(records).into_iter().flatten().flatten();
    let recorded = entries.filter_map(|entry| {
        let pid = entry.file_name().to_str()?.parse().ok()?;
        FormerProcess::find(pid, &fs::read_to_string(entry.path()).ok()?)
    });
    recorded.filter(FormerProcess::runs).collect()
}

impl FormerProcess {
    /// The process with this id, if it started at that time.
    fn find(pid: u32, started: &str) -> Option<Self> {
        let id = Pid::from_raw(i32::try_from(pid).ok()?)?;
        let process = match pidfd_open(id, PidfdFlags::empty()) {
            Ok(process) => process,
            Err(Errno::SRCH) => return None,
            Err(error) => {
                tracing::warn!(%error, pid, "A tenant's process of a former manager can't be looked at");
                return None;
            }
        };
        // Read after the descriptor was opened: the time is that of the process to which the descriptor refers, or of a
        // later one.
        let is_it = start_time_of(pid).is_ok_and(|now| now == started);
        is_it.then_some(Self { pid, process })
    }

    /// The id of the process.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.pid
    }

    /// Whether the process has not ended. One that nobody has waited for has ended.
    #[must_use]
    pub fn runs(&self) -> bool {
        let mut polled = [PollFd::new(self.process.as_fd(), PollFlags::POLLIN)];
        poll(&mut polled, PollTimeout::ZERO).is_ok_and(|ended| ended == 0)
    }

    /// Kills the process, which ends some time later.
    pub fn kill(&self) {
        if let Err(error) = pidfd_send_signal(&self.process, Signal::KILL)
            && self.runs()
        {
            tracing::warn!(%error, pid = self.pid, "A tenant's process of a former manager can't be ended");
        }
    }
}

/// When a process started, as the kernel counts: no two processes with the same id have the same time.
fn start_time_of(pid: u32) -> io::Result<String> {
    const START_TIME: usize = 19;
    stat_field(pid, START_TIME)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::process::ExitStatusExt as _;
    use std::process::{Child, Command};

    fn sleeper() -> Child {
        Command::new("sleep").arg("1000").spawn().unwrap()
    }

    #[test]
    fn a_recorded_process_is_known_until_it_has_ended_and_no_other_one_is_taken_for_it() {
        let records = tempfile::tempdir().unwrap();
        let mut child = sleeper();
        record(records.path(), child.id()).unwrap();
        // What has the id of the test and another time is a former process whose id was given again.
        fs::write(records.path().join(std::process::id().to_string()), "1").unwrap();
        fs::write(records.path().join("no-number"), "").unwrap();
        let found = running(records.path());
        assert_eq!(found.iter().map(FormerProcess::pid).collect::<Vec<_>>(), [child.id()]);
        found[0].kill();
        assert_eq!(child.wait().unwrap().signal(), Some(libc::SIGKILL));
        assert!(!found[0].runs() && running(records.path()).is_empty());
        forget(records.path(), child.id());
        assert!(!records.path().join(child.id().to_string()).exists());
    }

    #[test]
    fn a_process_that_nobody_has_waited_for_does_not_count() {
        let records = tempfile::tempdir().unwrap();
        let mut child = sleeper();
        record(records.path(), child.id()).unwrap();
        let found = running(records.path());
        found[0].kill();
        let mut polled = [PollFd::new(found[0].process.as_fd(), PollFlags::POLLIN)];
        assert_eq!(poll(&mut polled, PollTimeout::from(60_000_u16)), Ok(1), "the process ends");
        assert!(running(records.path()).is_empty());
        child.wait().unwrap();
    }
}
