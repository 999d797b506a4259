//! Real-time priority of the threads that keep the times of models.
//!
//! A thread that computes keeps its core for milliseconds. The end of a modelled time must not wait for it, so the threads
//! that wait for such ends come before all others. What they do takes microseconds.

use anyhow::{Context as _, Result};
use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

/// Names of the threads: a manager's modelled board, and this process's modelled network.
const NAMES: [&str; 2] = ["model", "fabric"];
/// Above that of a run which itself is started at a real-time priority (`chrt -r 10`).
const PRIORITY: &str = "20";

/// Raises the priority of the threads of these processes that keep the times of models. Without the right to do so the
/// priorities stay as they are, and a busy machine makes more runs void.
pub(super) fn raise(processes: impl IntoIterator<Item = u32>) -> Result<()> {
    for process in processes {
        let tasks = Path::new("/proc").join(process.to_string()).join("task");
        for task in fs::read_dir(&tasks).with_context(|| format!("can't read {}", tasks.display()))? {
            let task = task?;
            // A thread may have ended.
            let name = fs::read_to_string(task.path().join("comm")).unwrap_or_default();
            if NAMES.contains(&name.trim()) {
                let mut chrt = Command::new("chrt");
                chrt.args(["--fifo", "--pid", PRIORITY]).arg(task.file_name()).stderr(Stdio::null());
                // Not allowed, or no such program.
                let _ = chrt.status();
            }
        }
    }
    Ok(())
}
