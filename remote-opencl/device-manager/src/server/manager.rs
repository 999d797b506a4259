//! What all connections of a device manager share.

use crate::config::Config;
use crate::isolation::folder;
use crate::isolation::pool::{Plan, TenantProcesses};
use crate::link::Links;
use crate::pool::LeaseProcesses;
use crate::pool::lender::Lender;
use crate::server::ServeError;
use fpga_session::governor::Governor;
use fpga_session::session::Shared;
use fpga_session::shutdown::Shutdown;
use std::sync::Arc;

/// What all connections of a device manager share.
#[derive(Debug)]
pub(super) struct Manager {
    /// What its sessions share.
    pub shared: Arc<Shared>,
    pub config: Config,
    /// The resumable sessions.
    pub links: Links,
    /// Lends slots to the pool; `None` if no slot is lent.
    pub lender: Option<Lender>,
    /// The tenant processes that have the vendor's contexts; `None` if this process has them.
    pub processes: Option<Arc<TenantProcesses>>,
}

impl Manager {
    /// A manager without sessions.
    ///
    /// # Errors
    /// [`ServeError`], if the runtime has no device or a thread can't be had.
    pub fn new(
        config: Config,
        governor: Governor,
        isolation: Option<Plan>,
        shutdown: &Shutdown,
        runtime: &tokio::runtime::Handle,
    ) -> Result<Self, ServeError> {
        let shared = Arc::new(Shared::new(config.sessions.clone(), governor, shutdown.clone())?);
        let links = Links::new(config.reconnect_grace, shared.config.metrics.clone());
        let processes = isolation.map(TenantProcesses::watched).transpose()?;
        let lending = config.lending.as_ref();
        let lender = lending
            .map(|lending| {
                let processes = processes.clone().map(|all| all as Arc<dyn LeaseProcesses>);
                let (shared, former) = (Arc::clone(&shared), folder::former_processes);
                Lender::new(lending, shared, processes, former, runtime.clone())
            })
            .transpose()?;
        Ok(Self { shared, config, links, lender, processes })
    }
}
