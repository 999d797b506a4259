//! State that all sessions of a process share.

use crate::config::Config;
use crate::governor::Governor;
use crate::helper_thread::HelperThread;
use crate::inventory::{Inventory, InventoryError};
use crate::quotas::Quotas;
use crate::router::Router;
use crate::shutdown::Shutdown;
use crate::side_socket::SideSocket;
use std::sync::Arc;

/// State that all sessions of a process share. The process is a manager or a tenant process.
#[derive(Debug)]
pub struct Shared {
    /// The parts and settings of the process.
    pub config: Config,
    /// The devices.
    pub inventory: Arc<Inventory>,
    /// The sessions.
    pub router: Arc<Router>,
    /// The accounts of the tenants.
    pub quotas: Quotas,
    /// The sessions whose clients may still connect to the side socket.
    pub sides: SideSocket,
    /// The accounts of the bytes that clients make the process hold.
    pub governor: Governor,
    /// The helper thread that waits in the vendor's runtime.
    pub helper_thread: Arc<HelperThread>,
    /// The phase of the process's end.
    pub shutdown: Shutdown,
}

impl Shared {
    /// State without sessions.
    ///
    /// # Errors
    /// [`InventoryError`], if the runtime can't be loaded or has no such device.
    pub fn new(config: Config, governor: Governor, shutdown: Shutdown) -> Result<Self, InventoryError> {
        Ok(Self {
            inventory: Arc::new(Inventory::read(config.devices)?),
            router: Arc::default(),
            quotas: Quotas::new(config.settings.clone(), config.metrics.clone(), governor.clone()),
            sides: SideSocket::default(),
            governor,
            helper_thread: Arc::default(),
            shutdown,
            config,
        })
    }

    /// The same state with another configuration, for sessions on a lent slot.
    #[must_use]
    pub fn with_config(&self, config: Config) -> Self {
        Self {
            config,
            inventory: Arc::clone(&self.inventory),
            router: Arc::clone(&self.router),
            quotas: self.quotas.clone(),
            sides: self.sides.clone(),
            governor: self.governor.clone(),
            helper_thread: Arc::clone(&self.helper_thread),
            shutdown: self.shutdown.clone(),
        }
    }
}
