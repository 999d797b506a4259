//! The asynchronous runtime of the services that run on every node.

use std::io;
use std::time::Duration;
use tokio::runtime::Builder;

/// Number of threads. Such a service has little to do, and a node has many processors.
const THREADS: usize = 2;
/// Time that blocking work has to end after the service has ended.
const SHUTDOWN: Duration = Duration::from_secs(1);

/// Runs the service to its end.
///
/// # Errors
/// No thread could be started.
pub fn run<T>(service: impl Future<Output = T>) -> io::Result<T> {
    let runtime = Builder::new_multi_thread().worker_threads(THREADS).enable_all().build()?;
    let result = runtime.block_on(service);
    runtime.shutdown_timeout(SHUTDOWN);
    Ok(result)
}
