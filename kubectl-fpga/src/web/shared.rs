//! The model that watches write and pages read.

use super::model::Model;
use super::model::tables::{Batch, Position};
use std::sync::{Mutex, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};
use tokio::sync::watch;

/// The model, and a signal that it has changed.
#[derive(Debug)]
pub struct Shared {
    model: Mutex<Model>,
    version: watch::Sender<u64>,
}

impl Default for Shared {
    fn default() -> Self {
        Self { model: Mutex::default(), version: watch::Sender::new(0) }
    }
}

impl Shared {
    /// Changes the model at the present time, in milliseconds since the epoch.
    pub fn change<R>(&self, change: impl FnOnce(&mut Model, u64) -> R) -> R {
        let mut model = self.model.lock().unwrap_or_else(PoisonError::into_inner);
        let result = change(&mut model, now_ms());
        let version = model.tables().version();
        drop(model);
        self.version.send_if_modified(|told| std::mem::replace(told, version) != version);
        result
    }

    /// The next changes for a page; `None` if there are none.
    #[must_use]
    pub fn after(&self, position: Position, bytes: usize) -> Option<Batch> {
        self.model.lock().unwrap_or_else(PoisonError::into_inner).tables().after(position, bytes)
    }

    /// The version of the tables, whenever it changes.
    #[must_use]
    pub fn versions(&self) -> watch::Receiver<u64> {
        self.version.subscribe()
    }
}

/// The present time, milliseconds since the epoch.
#[must_use]
pub fn now_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}
