//! The pool of the process.

use crate::code::{ACC_E_BUSY, failure};
use acc::{Config, Pool};
use fpga_foreign_process::PerProcess;
use fpga_foreign_process::c_boundary::Failure;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// How a process is connected.
#[derive(Default)]
struct Connection {
    /// What the program has said; without it the environment says it.
    config: Option<Config>,
    pool: Option<Pool>,
}

/// A forked child connects by itself, with what its parent's program has said.
static CONNECTION: PerProcess<Mutex<Connection>> = PerProcess::new(|parents| {
    let of_parent = parents.and_then(|connection| connection.try_lock().ok()?.config.clone());
    Mutex::new(Connection { config: of_parent, pool: None })
});

/// Says where the pool is.
pub fn configure(config: Config) -> Result<(), Failure> {
    let mut connection = lock();
    if connection.pool.is_some() {
        return Err(Failure::new(
            ACC_E_BUSY,
            "the pool is connected already; configure it before the first job",
        ));
    }
    connection.config = Some(config);
    Ok(())
}

/// The pool, to which this process is connected from now on.
pub fn pool() -> Result<Pool, Failure> {
    let mut connection = lock();
    if let Some(pool) = &connection.pool {
        return Ok(pool.clone());
    }
    let config = match &connection.config {
        Some(config) => config.clone(),
        None => Config::from_environment().map_err(|error| failure(&error))?,
    };
    let pool = Pool::connect(config).map_err(|error| failure(&error))?;
    connection.pool = Some(pool.clone());
    Ok(pool)
}

fn lock() -> MutexGuard<'static, Connection> {
    CONNECTION.get().lock().unwrap_or_else(PoisonError::into_inner)
}
