//! What all sessions of a process share.

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

/// What all sessions of a process share: a manager's, or that of a tenant.
#[derive(Debug)]
pub struct Shared {
    /// The process's parts and settings.
    pub config: Config,
    /// Its devices.
    pub inventory: Inventory,
    /// Its sessions.
    pub router: Router,
    /// What their tenants have.
    pub quotas: Quotas,
    /// Who may still connect for descriptors.
    pub sides: Sides,
    /// How many bytes clients make the process hold.
    pub governor: Governor,
    /// Sessions whose clients may come back.
    pub links: Links,
    /// The thread that the vendor's runtime may work in.
    pub lender: Arc<Lender>,
    /// Whether it is to end.
    pub shutdown: Shutdown,
    /// Where sessions have their vendor contexts, if not here.
    pub processes: Option<Arc<TenantProcesses>>,
}

impl Shared {
    /// For sessions with their vendor contexts in this process; there are none yet.
    ///
    /// # Errors
    /// There is no device.
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
