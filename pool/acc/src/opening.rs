//! A job that waits for its first slot.

use crate::engine::{Granted, Handle, Input, ended};
use crate::error::Error;
use crate::job::Job;
use crate::status::Status;
use fpga_pool_leases::ids::JobUuid;
use std::pin::Pin;
use std::task::{Context, Poll};
use tokio::sync::{oneshot, watch};

/// A job that waits for its first slot: a future of the [`Job`]. Dropping it gives the job up.
#[must_use = "a job that nobody waits for is given up"]
pub struct Opening {
    handle: Handle,
    /// `None` after the end.
    begun: Option<Result<Begun, Error>>,
    workload_bytes: u64,
    status: watch::Receiver<Status>,
}

type Begun = (JobUuid, oneshot::Receiver<Result<Granted, Error>>);

impl Opening {
    pub(crate) fn new(
        handle: Handle,
        begun: Result<Begun, Error>,
        workload_bytes: u64,
        status: watch::Receiver<Status>,
    ) -> Self {
        Self { handle, begun: Some(begun), workload_bytes, status }
    }

    /// How far the job is, and why it waits; the receiver tells of changes, also after the job was opened.
    #[must_use]
    pub fn status(&self) -> watch::Receiver<Status> {
        self.status.clone()
    }
}

impl Future for Opening {
    type Output = Result<Job, Error>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let this = &mut *self;
        let answer = match &mut this.begun {
            None => Err(Error::Cancelled),
            Some(Err(error)) => Err(error.clone()),
            Some(Ok((job, slot))) => match Pin::new(slot).poll(context) {
                Poll::Pending => return Poll::Pending,
                Poll::Ready(answer) => answer.unwrap_or_else(|_| Err(ended())).map(|granted| (*job, granted)),
            },
        };
        this.begun = None;
        Poll::Ready(answer.map(|(job, Granted { interface })| {
            Job::new(this.handle.clone(), job, interface, this.workload_bytes, this.status.clone())
        }))
    }
}

impl Drop for Opening {
    fn drop(&mut self) {
        if let Some(Ok((job, _))) = &self.begun {
            // In a forked child, and after the engine's end, there is nothing to give up.
            let _ = self.handle.send(Input::Cancel(*job));
        }
    }
}
