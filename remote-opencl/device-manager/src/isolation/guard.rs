//! The manager's decision whether a tenant process may start another thread or process: the kernel asks
//! before it makes one.
//!
//! The count covers the process's own threads and the processes of its session, which none of them can leave
//! ([`super::seccomp`] refuses `setsid` and `setpgid`). Requests that are being answered are not counted yet,
//! so the limit may be exceeded by as many as there are threads that ask at that moment.

use crate::process::stat_field;
use libc::{seccomp_notif, seccomp_notif_resp};
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use std::fs;
use std::io;
use std::os::fd::{AsFd as _, AsRawFd as _, OwnedFd};
use std::thread;

/// Most threads of a tenant process: far more than its sessions, their builds, and a runtime's workers need.
const MAX_THREADS: u64 = 2048;
/// Most threads of a program that the tenant process has started (a linker).
const MAX_LINKER_THREADS: u64 = 64;
/// Most processes of a tenant: the tenant process and linkers.
const MAX_PROCESSES: usize = 17;

/// Starts a thread that answers for the process `leader`, over the descriptor that
/// [`super::seccomp::restrict`] returned, until all processes of its session have ended.
///
/// # Errors
/// The thread can't be started.
pub(super) fn start(leader: u32, listener: OwnedFd) -> io::Result<()> {
    let answers = move || {
        if let Err(error) = answer(leader, &listener) {
            tracing::warn!(%error, leader, "A tenant's process gets no more threads");
        }
    };
    thread::Builder::new().name("guard".to_owned()).spawn(answers).map(drop)
}

fn answer(leader: u32, listener: &OwnedFd) -> io::Result<()> {
    loop {
        let mut polled = [PollFd::new(listener.as_fd(), PollFlags::POLLIN)];
        match poll(&mut polled, PollTimeout::NONE) {
            Ok(_) | Err(Errno::EINTR) => {}
            Err(error) => return Err(error.into()),
        }
        let events = polled[0].revents().unwrap_or(PollFlags::empty());
        if !events.contains(PollFlags::POLLIN) {
            if events.intersects(PollFlags::POLLHUP | PollFlags::POLLERR | PollFlags::POLLNVAL) {
                return Ok(());
            }
            continue;
        }
        // SAFETY: the structure is plain numbers, and the kernel wants it zeroed.
        let mut request: seccomp_notif = unsafe { std::mem::zeroed() };
        // SAFETY: the kernel fills the structure, whose layout is its own, during the call.
        let received =
            unsafe { libc::ioctl(listener.as_raw_fd(), libc::SECCOMP_IOCTL_NOTIF_RECV, &raw mut request) };
        if received != 0 {
            match Errno::last() {
                // The thread that asked has ended, or a signal came: the next request.
                Errno::ENOENT | Errno::EINTR => continue,
                error => return Err(error.into()),
            }
        }
        let error = if may(leader, request.pid, request.data.args[0]) { 0 } else { -libc::EAGAIN };
        let flags = if error == 0 { libc::SECCOMP_USER_NOTIF_FLAG_CONTINUE } else { 0 };
        let mut answer =
            seccomp_notif_resp { id: request.id, val: 0, error, flags: u32::try_from(flags).unwrap_or(0) };
        // SAFETY: the kernel reads the structure, whose layout is its own, during the call. An error means
        // that the asking thread has gone meanwhile; it concerns nothing in this process.
        unsafe { libc::ioctl(listener.as_raw_fd(), libc::SECCOMP_IOCTL_NOTIF_SEND, &raw mut answer) };
    }
}

/// Whether the thread `asks` may call `clone` with these flags. A request is refused if the threads or
/// processes can't be counted.
fn may(leader: u32, asks: u32, flags: u64) -> bool {
    if flags & flag(libc::CLONE_THREAD) == 0 {
        return processes_of(leader).is_some_and(|count| count < MAX_PROCESSES);
    }
    let Some((process, threads)) = threads_beside(asks) else { return false };
    threads < if process == leader { MAX_THREADS } else { MAX_LINKER_THREADS }
}

fn flag(value: libc::c_int) -> u64 {
    u64::from(value.unsigned_abs())
}

/// The process that a thread belongs to, and the number of its threads.
fn threads_beside(thread: u32) -> Option<(u32, u64)> {
    let status = fs::read_to_string(format!("/proc/{thread}/status")).ok()?;
    let field = |name: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(name))?;
        line.trim().parse::<u64>().ok()
    };
    Some((u32::try_from(field("Tgid:")?).ok()?, field("Threads:")?))
}

/// Number of processes in the session of `leader`.
fn processes_of(leader: u32) -> Option<usize> {
    let processes = fs::read_dir("/proc").ok()?.flatten();
    let numbers = processes.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    Some(numbers.filter(|process| session_of(*process) == Some(leader)).count())
}

/// The session that a process belongs to: the id of its leader.
pub(super) fn session_of(process: u32) -> Option<u32> {
    let session = nix::unistd::getsid(Some(nix::unistd::Pid::from_raw(i32::try_from(process).ok()?))).ok()?;
    u32::try_from(session.as_raw()).ok()
}

pub(super) fn parent_of(process: u32) -> Option<u32> {
    const PARENT: usize = 1;
    stat_field(process, PARENT).ok()?.parse().ok()
}
