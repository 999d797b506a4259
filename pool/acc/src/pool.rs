//! The pool, as a process uses it.

use crate::config::Config;
use crate::engine::{Handle, Input, NewJob};
use crate::error::Error;
use crate::goal::GroupRequest;
use crate::group::Group;
use crate::opening::Opening;
use crate::random::random_id;
use crate::request::Request;
use crate::status::Status;
use fpga_pool_leases::ids::JobUuid;
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
        let begun = request.check().and_then(|()| random_id()).map(JobUuid).and_then(|job| {
            let (granted, slot) = oneshot::channel();
            self.handle.send(Input::Open(Box::new(NewJob { job, request, status, granted })))?;
            Ok((job, slot))
        });
        Opening::new(self.handle.clone(), begun, workload_bytes, shown)
    }

    /// Opens a group: it asks for slots from this call on, and takes actions at once. A group that the broker refuses says so
    /// by its actions, and when it is closed.
    ///
    /// # Errors
    /// [`Error::Slots`] and [`Error::Goal`] for a request that no pool can fulfil.
    pub fn open_group(&self, request: GroupRequest) -> Result<Group, Error> {
        Group::open(self.handle.clone(), request)
    }

    /// Ends the connection after its last message. Blocks for at most half a second, and not at all while jobs of the pool
    /// are open: the connection ends with the last of them then.
    pub fn close(self) {
        self.handle.close();
    }
}
