//! State that all sessions of a process share.

use crate::config::Config;
use crate::governor::Governor;
use crate::inventory::{Inventory, InventoryError};
use crate::isolation::pool::TenantProcesses;
use crate::lender::Lender;
use crate::link::Links;
use crate::quotas::Quotas;
use crate::router::Router;
use crate::segments::Sides;
use crate::shutdown::Shutdown;
use std::sync::Arc;

/// State that all sessions of a process share. The process is a manager or a tenant process.
#[derive(Debug)]
pub struct Shared {
    /// The parts and settings of the process.
    pub config: Config,
    /// The devices.
    pub inventory: Inventory,
    /// The sessions.
    pub router: Router,
    /// The accounts of the tenants.
    pub quotas: Quotas,
    /// The sessions whose clients may still connect to the side socket.
    pub sides: Sides,
    /// The accounts of the bytes that clients make the process hold.
    pub governor: Governor,
    /// The resumable sessions.
    pub links: Links,
    /// The helper thread that waits in the vendor's runtime.
    pub lender: Arc<Lender>,
    /// The phase of the process's end.
    pub shutdown: Shutdown,
    /// The tenant processes that have the vendor's contexts; `None` if this process has them.
    pub processes: Option<Arc<TenantProcesses>>,
}

impl Shared {
    /// State without sessions, for a process that has the vendor's contexts.
    ///
    /// # Errors
    /// [`InventoryError`], if the runtime can't be loaded or has no device.
    pub fn new(config: Config, governor: Governor, shutdown: Shutdown) -> Result<Self, InventoryError> {
        Ok(Self {
            inventory: Inventory::read()?,
            router: Router::default(),
            quotas: Quotas::new(config.settings.clone(), config.metrics.clone(), governor.clone()),
            sides: Sides::default(),
            governor,
            links: Links::new(config.reconnect_grace, config.metrics.clone()),
            lender: Arc::default(),
            shutdown,
            processes: None,
            config,
        })
    }
}
