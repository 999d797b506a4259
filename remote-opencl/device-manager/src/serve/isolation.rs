//! What keeps tenants apart, by flags.

use crate::humane;
use crate::isolation::Isolate;
use crate::isolation::folder::Folder;
use crate::isolation::packets::Common;
use crate::isolation::pool::Plan;
use crate::log::LogArgs;
use crate::runtime::Runtime;
use crate::signals::AtEnd;
use anyhow::Context as _;
use clap::Args;
use std::num::NonZeroU32;

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
        let folder = Folder::make().context("--isolate process: no temporary folder")?;
        let path = folder.path().to_owned();
        at_end.add(folder);
        Ok(Some(Plan {
            runtime: runtime.clone(),
            log,
            most: usize::try_from(self.tenant_processes.get())?,
            memory_limit: self.tenant_address_space,
            folder: path,
            common,
        }))
    }
}
