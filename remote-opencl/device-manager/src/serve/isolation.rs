//! Flags of the isolation between tenants.

use crate::isolation::folder::Folder;
use crate::isolation::packets::Common;
use crate::isolation::pool::Plan;
use crate::isolation::process::MemoryLimits;
use crate::isolation::shared_board::SharedBoard;
use crate::log::LogArgs;
use crate::signals::AtEnd;
use anyhow::Context as _;
use clap::Args;
use fpga_core::device::ReconfiguredPart;
use fpga_net::memory::MemoryLimit;
use fpga_net::size;
use fpga_session::isolate::Isolate;
use fpga_vendor::runtime::Runtime;
use std::num::NonZeroU32;
use std::sync::Arc;

/// Minimum default memory of a tenant's process: a runtime with its compiler and threads needs as much.
const LEAST_MEMORY_BYTES: u64 = 1 << 30;

/// Flags of the isolation between tenants.
#[derive(Debug, Args)]
pub(super) struct IsolationArgs {
    /// Isolation between tenants: the protocol within one process, or also a process for each tenant, the only
    /// protection from hostile kernels and sources.
    #[arg(long, env = "FPGA_ISOLATE", default_value = "protocol")]
    pub(super) isolate: Isolate,

    /// Maximum number of tenants at a time with --isolate process: each has a process.
    #[arg(long, env = "FPGA_TENANT_PROCESSES", default_value = "32")]
    tenant_processes: NonZeroU32,

    /// Maximum private memory of a tenant's process [default: half of the memory that the manager can have].
    #[arg(long, env = "FPGA_TENANT_MEMORY", value_name = "SIZE", value_parser = size::parse)]
    tenant_memory: Option<u64>,

    /// Maximum memory of the manager and all tenants' processes together. When it is used up, the process that has
    /// most is ended [default: what the cgroup, or the machine, gives].
    #[arg(long, env = "FPGA_TENANT_MEMORY_OF_ALL", value_name = "SIZE", value_parser = size::parse)]
    tenant_memory_of_all: Option<u64>,

    /// Maximum address space of a tenant's process [default: what the system gives].
    #[arg(long, env = "FPGA_TENANT_ADDRESS_SPACE", value_name = "SIZE", value_parser = size::parse)]
    tenant_address_space: Option<u64>,
}

impl IsolationArgs {
    /// The plan for tenant processes; `None` without --isolate process.
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
            board: (common.reconfigured_part == ReconfiguredPart::Board).then(Arc::<SharedBoard>::default),
            common,
        }))
    }
}

/// The memory that the manager may use, in bytes; no limit if it is unknown.
fn all_memory() -> u64 {
    MemoryLimit::of_this_process().map_or(u64::MAX, |limit| limit.bytes)
}

/// Half of the memory that the manager may use, in bytes; no limit if it is unknown.
fn half_of_memory() -> u64 {
    MemoryLimit::of_this_process().map_or(u64::MAX, |limit| (limit.bytes / 2).max(LEAST_MEMORY_BYTES))
}
