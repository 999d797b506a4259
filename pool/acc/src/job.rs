//! A job that was granted a slot.

use crate::engine::{Handle, Input, ended};
use crate::error::Error;
use crate::piece::{Cut, most_bytes, with_zeros};
use crate::status::Status;
use crate::step::{Reply, Step};
use bytes::Bytes;
use fpga_accelerators::{Interface, Position};
use fpga_pool_leases::ids::{JobUuid, StepNumber};
use std::sync::Arc;
use tokio::sync::{oneshot, watch};

/// A job with a slot. It works on one stream of bytes: either in pieces that the program cuts ([`Self::run`]), or from a
/// reader to a writer ([`Self::stream`](crate::Job::stream)).
///
/// Dropping the job, or a future of one of its calls, cancels the job: nothing blocks, and a step that has started ends
/// unseen. Slots that are lost or recalled meanwhile are replaced; the status says so.
pub struct Job {
    handle: Handle,
    id: JobUuid,
    interface: Arc<Interface>,
    workload_bytes: u64,
    status: watch::Receiver<Status>,
    cut: Cut,
    next_step: u64,
    use_of: Use,
}

/// Whether a job can be used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Use {
    /// The job takes input.
    Open,
    /// A call was given up in the middle: nobody knows what of the output is lost.
    GivenUp,
    /// The job is closed.
    Closed,
}

/// The output of a step that is under way.
pub(crate) type Output = oneshot::Receiver<Result<Bytes, Error>>;

impl Job {
    pub(crate) fn new(
        handle: Handle,
        id: JobUuid,
        interface: Arc<Interface>,
        workload_bytes: u64,
        status: watch::Receiver<Status>,
    ) -> Self {
        let (cut, next_step, use_of) = (Cut::default(), 0, Use::Open);
        Self { handle, id, interface, workload_bytes, status, cut, next_step, use_of }
    }

    /// What the accelerator takes and gives.
    #[must_use]
    pub fn interface(&self) -> &Interface {
        &self.interface
    }

    /// Maximum number of bytes of a piece: what the buffer of the job takes (P-1), or what is left of the workload.
    #[must_use]
    pub fn buffer_bytes(&self) -> u64 {
        most_bytes(&self.interface).min(self.workload_bytes.saturating_sub(self.cut.input_bytes()))
    }

    /// Progress in bytes, and where the job is; the receiver tells of changes.
    #[must_use]
    pub fn status(&self) -> watch::Receiver<Status> {
        self.status.clone()
    }

    /// Runs the next piece of the job's input, and gives its output. The piece with which the input reaches the bytes of
    /// the workload is the last one: it may end within a block, and the output at the end comes with it.
    ///
    /// # Errors
    /// [`Error::Size`] for more than [`Self::buffer_bytes`], [`Error::Block`] for a piece in the middle that ends within a
    /// block, [`Error::Done`] after the last piece. These change nothing; after others the job is over.
    pub async fn run(&mut self, input: impl Into<Bytes>) -> Result<Bytes, Error> {
        self.check()?;
        let input = input.into();
        let given = input.len() as u64;
        if self.cut.is_over() {
            return Err(Error::Done);
        }
        let most = self.buffer_bytes();
        if given > most {
            return Err(Error::Size { given, most });
        }
        let is_last = self.cut.input_bytes() + given == self.workload_bytes;
        let position = if is_last { Position::Last } else { Position::BeforeOthers };
        let output = self.submit(input, position)?;
        let used = self.begin_use();
        let bytes = match output {
            None => Bytes::new(),
            Some(output) => output.await.unwrap_or_else(|_| Err(ended()))?,
        };
        used.end();
        Ok(bytes)
    }

    /// Ends the job and gives its slot up. After the last piece this happens by itself, too, so that an error says only
    /// that the job was cancelled before.
    ///
    /// # Errors
    /// [`Error::Cancelled`] if a call of the job was given up.
    pub async fn close(mut self) -> Result<(), Error> {
        self.check()?;
        self.use_of = Use::Closed;
        let finished = self.handle.send(Input::Finish(self.id));
        // Without an engine there is no slot.
        if finished.is_ok() {
            let is_over = |status: &Status| status.at == crate::status::Where::Ended;
            let _ = self.status.wait_for(is_over).await;
        }
        Ok(())
    }

    /// Cuts a piece and hands it to the engine; `None` if nothing comes out of it.
    pub(crate) fn submit(&mut self, input: Bytes, position: Position) -> Result<Option<Output>, Error> {
        let input_bytes = input.len() as u64;
        let chunk = self.cut.next(&self.interface, input_bytes, position)?;
        let Some(chunk) = chunk else { return Ok(None) };
        let number = StepNumber(self.next_step);
        self.next_step += 1;
        let (output, receiver) = Reply::new();
        let input = with_zeros(input, &chunk);
        self.handle.send(Input::Submit(self.id, Step { number, chunk, input, input_bytes, output }))?;
        if position == Position::Last {
            // The slot is free for others as soon as the last output is here.
            self.handle.send(Input::Finish(self.id))?;
        }
        Ok(Some(receiver))
    }

    /// Whether the job can be used.
    pub(crate) fn check(&self) -> Result<(), Error> {
        match self.use_of {
            Use::Open => Ok(()),
            Use::GivenUp | Use::Closed => Err(Error::Cancelled),
        }
    }

    /// Notes that a call has begun: one that is dropped before its end, or fails, leaves a job that is given up.
    pub(crate) fn begin_use(&mut self) -> UseGuard<'_> {
        self.use_of = Use::GivenUp;
        UseGuard { job: self }
    }
}

/// A call that is under way.
pub(crate) struct UseGuard<'a> {
    pub(crate) job: &'a mut Job,
}

impl UseGuard<'_> {
    /// The call has come to its end.
    pub(crate) fn end(self) {
        self.job.use_of = Use::Open;
    }
}

impl Drop for UseGuard<'_> {
    fn drop(&mut self) {
        if self.job.use_of == Use::GivenUp {
            let _ = self.job.handle.send(Input::Cancel(self.job.id));
        }
    }
}

impl Drop for Job {
    fn drop(&mut self) {
        if self.use_of == Use::Open {
            // In a forked child, and after the engine's end, there is nothing to give up.
            let _ = self.handle.send(Input::Cancel(self.id));
        }
    }
}
