//! A step of a job, and who waits for its output.

use crate::error::Error;
use bytes::Bytes;
use fpga_accelerators::Chunk;
use fpga_pool_leases::ids::StepNumber;
use std::sync::{Arc, Mutex, PoisonError};
use tokio::sync::oneshot;

/// A step of a job, which may be sent to several slots, one after the other.
#[derive(Clone)]
pub(crate) struct Step {
    pub(crate) number: StepNumber,
    pub(crate) chunk: Chunk,
    /// The bytes of the chunk, and the zeros after them.
    pub(crate) input: Bytes,
    /// Bytes without the zeros.
    pub(crate) input_bytes: u64,
    pub(crate) output: Arc<Reply>,
}

/// Takes the output of a step, once.
pub(crate) struct Reply(Mutex<Option<oneshot::Sender<Result<Bytes, Error>>>>);

impl Reply {
    /// A reply, and where it arrives.
    pub(crate) fn new() -> (Arc<Self>, oneshot::Receiver<Result<Bytes, Error>>) {
        let (sender, receiver) = oneshot::channel();
        (Arc::new(Self(Mutex::new(Some(sender)))), receiver)
    }

    /// Whether nobody waits for the output any more.
    pub(crate) fn is_given_up(&self) -> bool {
        let sender = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        sender.as_ref().is_none_or(oneshot::Sender::is_closed)
    }

    /// Sends the output, or the reason why there is none.
    pub(crate) fn send(&self, output: Result<Bytes, Error>) {
        let sender = self.0.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(sender) = sender {
            // The program may have given the step up.
            let _ = sender.send(output);
        }
    }
}
