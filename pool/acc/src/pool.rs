//! The pool, as a process uses it.

use crate::config::Config;
use crate::engine::{Handle, Input, NewJob};
use crate::error::Error;
use crate::opening::Opening;
use crate::request::Request;
use crate::status::Status;
use fpga_pool_leases::ids::JobUuid;
use ring::rand::{SecureRandom as _, SystemRandom};
use std::io;
use std::sync::Arc;
use tokio::sync::{oneshot, watch};

/// The pool of accelerators, for one process: one stream to the broker carries all its jobs.
#[derive(Clone)]
pub struct Pool {
    handle: Handle,
}

impl Pool {
    /// Starts to connect to the broker, in the background: a broker that is not there yet is no error, but a reason to
    /// wait, which [`Opening::status`] tells.
    ///
    /// # Errors
    /// [`Error::Thread`] if the library's thread can't be started.
    pub fn connect(config: Config) -> Result<Self, Error> {
        Ok(Self { handle: Handle::start(config)? })
    }

    /// Opens a job: the future is ready when the job has a slot. The job waits from this call on, whether the future is
    /// polled or not, and until the future is dropped.
    pub fn open(&self, request: Request) -> Opening {
        let (status, shown) = watch::channel(Status::new());
        let workload_bytes = request.workload_bytes;
        let begun = new_job().and_then(|job| {
            let (granted, slot) = oneshot::channel();
            self.handle.send(Input::Open(Box::new(NewJob { job, request, status, granted })))?;
            Ok((job, slot))
        });
        Opening::new(self.handle.clone(), begun, workload_bytes, shown)
    }

    /// Ends the connection after its last message. Blocks for at most half a second, and not at all while jobs of the pool
    /// are open: the connection ends with the last of them then.
    pub fn close(self) {
        self.handle.close();
    }
}

/// An id that nobody else has and nobody can guess.
fn new_job() -> Result<JobUuid, Error> {
    let mut bytes = [0; 16];
    let error = |_| Error::Thread(Arc::new(io::Error::other("the system has no random numbers")));
    SystemRandom::new().fill(&mut bytes).map_err(error)?;
    Ok(JobUuid(u128::from_be_bytes(bytes)))
}
