//! The pool, as a process uses it.

use crate::config::Config;
use crate::engine::{Handle, Input, NewJob};
use crate::error::Error;
use crate::goal::GroupRequest;
use crate::group::Group;
use crate::many::OpeningMany;
use crate::opening::Opening;
use crate::random::random_id;
use crate::request::Request;
use crate::status::Status;
use fpga_pool_api::limits::MAX_BUNDLE_JOBS;
use fpga_pool_leases::ids::{BundleUuid, JobUuid};
use fpga_pool_leases::lease::Bundle;
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
        self.begin(request, None)
    }

    /// Opens so many jobs that get their first slots at the same time or not at all (P-1). Each job is over the bytes of the
    /// request, on a slot of its own. Nothing is held for them while they wait; when they have waited as long as a job
    /// waits at most before small ones (30 s and a time for their bytes), slots that become free are kept for them. From
    /// their first slots on they are jobs as all others: each may lose its slot and wait for another one.
    ///
    /// When one of the jobs is refused or given up before, all are. They have no fallback to the processor. The future ends with [`Error::Many`] for no job, and
    /// for more than 256.
    pub fn open_many(&self, request: &Request, count: u32) -> OpeningMany {
        OpeningMany::new(self.open_each(request, count))
    }

    /// The jobs of [`Self::open_many`], each as a future of its own.
    ///
    /// # Errors
    /// [`Error::Many`].
    pub fn open_each(&self, request: &Request, count: u32) -> Result<Vec<Opening>, Error> {
        let bundle = match count {
            1 => None,
            2..=MAX_BUNDLE_JOBS => Some(Bundle { id: BundleUuid(random_id()?), size: count }),
            _ => return Err(Error::Many { count, most: MAX_BUNDLE_JOBS }),
        };
        let request = Request { or_else: None, ..request.clone() };
        Ok((0..count).map(|_| self.begin(request.clone(), bundle)).collect())
    }

    fn begin(&self, request: Request, bundle: Option<Bundle>) -> Opening {
        let (status, shown) = watch::channel(Status::new());
        let workload_bytes = request.workload_bytes;
        let begun = request.check().and_then(|()| random_id()).map(JobUuid).and_then(|job| {
            let (granted, slot) = oneshot::channel();
            self.handle.send(Input::Open(Box::new(NewJob { job, request, bundle, status, granted })))?;
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
