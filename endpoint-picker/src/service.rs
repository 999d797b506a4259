//! The gRPC service: one stream per request.

use crate::exchange::{Exchange, Reply};
use crate::ext_proc::external_processor_server::ExternalProcessor;
use crate::ext_proc::{ProcessingRequest, ProcessingResponse};
use crate::metrics::RefusalReason;
use crate::picker::Picker;
use crate::routing::Routing;
use crate::state::Refusal;
use futures::Stream;
use std::pin::Pin;
use std::sync::Arc;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tonic::{Request, Response, Status, Streaming};

/// Most streams at once: one for each request in flight.
pub const MAX_STREAMS: usize = 1 << 20;

/// The gRPC service over a picker.
#[derive(Debug, Clone)]
pub struct Service {
    picker: Arc<Picker>,
    routing: Arc<Routing>,
    permits: Arc<Semaphore>,
}

/// A stream, from its first message to its end.
struct Call {
    messages: Streaming<ProcessingRequest>,
    exchange: Exchange,
    picker: Arc<Picker>,
    _permit: OwnedSemaphorePermit,
}

impl Service {
    /// A service with at most `streams` streams at once.
    #[must_use]
    pub fn new(picker: Arc<Picker>, routing: Routing, streams: usize) -> Self {
        let permits = Arc::new(Semaphore::new(streams.min(Semaphore::MAX_PERMITS)));
        Self { picker, routing: Arc::new(routing), permits }
    }
}

#[tonic::async_trait]
impl ExternalProcessor for Service {
    type ProcessStream = Pin<Box<dyn Stream<Item = Result<ProcessingResponse, Status>> + Send>>;

    async fn process(
        &self,
        request: Request<Streaming<ProcessingRequest>>,
    ) -> Result<Response<Self::ProcessStream>, Status> {
        if !self.picker.is_synced() {
            // The gateway's own setting says what becomes of the request: by default it goes on without a picker.
            self.picker.metrics.refused(RefusalReason::Decision(Refusal::NotReady));
            return Err(Status::unavailable("the functions of the cluster are not known yet"));
        }
        let permit = Arc::clone(&self.permits).try_acquire_owned().map_err(|_| {
            self.picker.metrics.refused(RefusalReason::TooManyStreams);
            Status::resource_exhausted("too many requests are in flight")
        })?;
        self.picker.metrics.streams.inc();
        let call = Call {
            messages: request.into_inner(),
            exchange: Exchange::new(Arc::clone(&self.picker), Arc::clone(&self.routing)),
            picker: Arc::clone(&self.picker),
            _permit: permit,
        };
        let answers = futures::stream::unfold(Some(call), |call| async move {
            let mut call = call?;
            match call.next().await? {
                Ok(Next::More(answer)) => Some((Ok(answer), Some(call))),
                Ok(Next::Last(answer)) => Some((Ok(answer), None)),
                Err(status) => Some((Err(status), None)),
            }
        });
        Ok(Response::new(Box::pin(answers)))
    }
}

enum Next {
    More(ProcessingResponse),
    Last(ProcessingResponse),
}

impl Call {
    /// The next answer; `None` when the stream ends.
    async fn next(&mut self) -> Option<Result<Next, Status>> {
        loop {
            let message = match self.exchange.timeout() {
                None => self.messages.message().await,
                Some(limit) => match tokio::time::timeout(limit, self.messages.message()).await {
                    Ok(message) => message,
                    Err(_) if self.exchange.is_decided() => return None,
                    Err(_) => {
                        return Some(Err(Status::deadline_exceeded("the request's headers did not come")));
                    }
                },
            };
            let message = match message {
                Ok(message) => message?,
                // The stream was reset, its connection broke, or a message is too long. Only the last is of interest.
                Err(status) => return Some(Err(status)),
            };
            match self.exchange.take(message) {
                Ok(Reply::Answer(answer)) => return Some(Ok(Next::More(*answer))),
                Ok(Reply::Last(answer)) => return Some(Ok(Next::Last(*answer))),
                Ok(Reply::Nothing) => {}
                Err(malformed) => {
                    self.picker.metrics.refused(RefusalReason::Malformed);
                    return Some(Err(Status::invalid_argument(malformed.to_string())));
                }
            }
        }
    }
}

impl Drop for Call {
    fn drop(&mut self) {
        self.picker.metrics.streams.dec();
    }
}
