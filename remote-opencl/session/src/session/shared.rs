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
    pub inventory: Inventory,
    /// The sessions.
    pub router: Router,
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
            inventory: Inventory::read(config.devices)?,
            router: Router::default(),
            quotas: Quotas::new(config.settings.clone(), config.metrics.clone(), governor.clone()),
            sides: SideSocket::default(),
            governor,
            helper_thread: Arc::default(),
            shutdown,
            config,
        })
    }
}
