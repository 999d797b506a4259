//! What keeps tenants apart, by flags.

use crate::confine::{self, ConfineBuilds};
use crate::humane;
use crate::isolation::Isolate;
use crate::isolation::folder::Folder;
use crate::isolation::packets::Common;
use crate::isolation::pool::Plan;
use crate::isolation::process::MemoryLimits;
use crate::isolation::seccomp;
use crate::log::LogArgs;
use crate::runtime::Runtime;
use crate::signals::AtEnd;
use anyhow::Context as _;
use clap::Args;
use fpga_net::memory::MemoryLimit;
use std::num::NonZeroU32;
use tracing::warn;

/// A runtime with its compiler and threads has that much.
const LEAST_MEMORY_BYTES: u64 = 1 << 30;

/// The flags.
#[derive(Debug, Args)]
pub(super) struct IsolationArgs {
    /// What keeps tenants apart: the protocol within one process, or a process for each tenant too, the only answer to
    /// kernels and sources that are hostile.
    #[arg(long, env = "FPGA_ISOLATE", default_value = "protocol")]
    pub(super) isolate: Isolate,

    /// Most tenants at a time with --isolate process: each has a process.
    #[arg(long, env = "FPGA_TENANT_PROCESSES", default_value = "32")]
    tenant_processes: NonZeroU32,

    /// Most memory of a tenant's process that it shares with nobody [default: half of the memory that the manager can
    /// have].
    #[arg(long, env = "FPGA_TENANT_MEMORY", value_name = "SIZE", value_parser = humane::size)]
    tenant_memory: Option<u64>,

    /// Most memory of the manager and all tenants' processes together: where it is used up the process that has most is
    /// ended [default: what the cgroup, or the machine, gives].
    #[arg(long, env = "FPGA_TENANT_MEMORY_OF_ALL", value_name = "SIZE", value_parser = humane::size)]
    tenant_memory_of_all: Option<u64>,

    /// Most address space of a tenant's process [default: what the system gives].
    #[arg(long, env = "FPGA_TENANT_ADDRESS_SPACE", value_name = "SIZE", value_parser = humane::size)]
    tenant_address_space: Option<u64>,
}

impl IsolationArgs {
    /// How tenant processes are to be, where there are any.
    pub(super) fn plan(
        &self,
        common: Common,
        runtime: &Runtime,
        log: LogArgs,
        at_end: &AtEnd,
    ) -> anyhow::Result<Option<Plan>> {
        if self.isolate == Isolate::Protocol {
            return Ok(None);
        }
        say_what_is_missing(common.confine)?;
        let folder = Folder::make().context("--isolate process: no temporary folder")?;
        let path = folder.path().to_owned();
        at_end.add(folder);
        Ok(Some(Plan {
            runtime: runtime.clone(),
            log,
            most: usize::try_from(self.tenant_processes.get())?,
            memory: MemoryLimits {
                private: self.tenant_memory.unwrap_or_else(half_of_memory),
                address_space: self.tenant_address_space,
            },
            memory_of_all: self.tenant_memory_of_all.unwrap_or_else(all_memory),
            folder: path,
            common,
        }))
    }
}

/// What the manager can have; as much as the system gives where that can't be found out.
fn all_memory() -> u64 {
    MemoryLimit::of_this_process().map_or(u64::MAX, |limit| limit.bytes)
}

/// Half of what the manager can have; as much as the system gives where that can't be found out.
fn half_of_memory() -> u64 {
    MemoryLimit::of_this_process().map_or(u64::MAX, |limit| (limit.bytes / 2).max(LEAST_MEMORY_BYTES))
}

/// What this kernel or a flag leaves open to tenants' kernels.
fn say_what_is_missing(confine: ConfineBuilds) -> anyhow::Result<()> {
    if confine == ConfineBuilds::Off {
        warn!("--confine-builds off: a tenant's kernels can do what the manager's user can");
        return Ok(());
    }
    let parts = [
        (confine::is_there(), "Landlock (Linux 5.13 or later)", "open what the manager can"),
        (seccomp::is_there(), "seccomp with user notification (Linux 5.5 or later)", "make any system call"),
    ];
    for (there, what, can) in parts {
        match there {
            Ok(()) => {}
            Err(error) if confine == ConfineBuilds::Required => {
                return Err(error).context(format!("--confine-builds required: this kernel has no {what}"));
            }
            Err(error) => warn!(%error, "This kernel has no {what}: a tenant's kernels can {can}"),
        }
    }
    Ok(())
}
