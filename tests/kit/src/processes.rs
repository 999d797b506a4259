//! What the kernel says about processes.

use nix::unistd::{Pid, getsid};
use std::time::Duration;

/// The fields of `/proc/PID/stat` after the process's name, the state first; `None` if there is no such process.
fn stat(pid: u32) -> Option<Vec<String>> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    Some(stat.rsplit_once(") ")?.1.split(' ').map(str::to_owned).collect())
}

fn all() -> impl Iterator<Item = u32> {
    std::fs::read_dir("/proc").unwrap().filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
}

/// When a process started, in the kernel's ticks; `None` if there is no such process.
#[must_use]
pub fn start_of(pid: u32) -> Option<String> {
    Some(stat(pid)?[19].clone())
}

/// Whether a process runs. A zombie has ended.
#[must_use]
pub fn runs(pid: u32) -> bool {
    stat(pid).is_some_and(|fields| fields[0] != "Z" && fields[0] != "X")
}

/// The child processes of a process.
#[must_use]
pub fn children(pid: u32) -> Vec<u32> {
    all().filter(|child| stat(*child).is_some_and(|fields| fields[1] == pid.to_string())).collect()
}

/// The processes of a session, by the id of its leader.
#[must_use]
pub fn session_members(leader: u32) -> Vec<u32> {
    let session_of = |pid: &u32| getsid(Some(Pid::from_raw(i32::try_from(*pid).unwrap())));
    all()
        .filter(|pid| session_of(pid).is_ok_and(|session| session.as_raw().unsigned_abs() == leader))
        .collect()
}

/// Processor time of a process so far; `None` if there is no such process.
#[must_use]
pub fn processor_time(pid: u32) -> Option<Duration> {
    let fields = stat(pid)?;
    let ticks: u64 = fields[11].parse::<u64>().ok()? + fields[12].parse::<u64>().ok()?;
    // The kernel has 100 ticks per second on all common systems.
    Some(Duration::from_millis(ticks * 10))
}
