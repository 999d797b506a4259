//! Takes the spans of a program, and sends them from a thread of its own.

pub use crate::exporter::{Endpoint, InvalidEndpoint};

use crate::context::{Sampled, TraceContext};
use crate::exporter::{self, Counters};
use crate::otlp::Resource;
use crate::span::Span;
use prometheus_client::registry::Registry;
use std::io;
use tokio::sync::mpsc::{Receiver, Sender, channel};

/// Spans that wait to be sent. More are dropped.
const MAX_WAITING: usize = 4_096;

/// Takes spans. Clones send over the same queue.
#[derive(Debug, Clone, Default)]
pub struct Tracer {
    queue: Option<Sender<Span>>,
    counters: Counters,
}

impl Tracer {
    /// A tracer that takes nothing.
    #[must_use]
    pub fn off() -> Self {
        Self::default()
    }

    /// A tracer that sends to `endpoint`.
    ///
    /// # Errors
    /// There is no thread for it.
    pub fn start(endpoint: Endpoint, resource: Resource) -> io::Result<Self> {
        let (tracer, spans) = Self::channel();
        exporter::start(endpoint, resource, spans, tracer.counters.clone())?;
        Ok(tracer)
    }

    /// A tracer, and the queue from which its caller takes the spans.
    #[must_use]
    pub fn channel() -> (Self, Receiver<Span>) {
        let (queue, spans) = channel(MAX_WAITING);
        (Self { queue: Some(queue), counters: Counters::default() }, spans)
    }

    /// Whether spans are sent.
    #[must_use]
    pub fn is_on(&self) -> bool {
        self.queue.is_some()
    }

    /// The context of a request if spans are wanted: it is sampled, and spans are sent.
    #[must_use]
    pub fn wanted(&self, context: TraceContext) -> Option<TraceContext> {
        (self.is_on() && context.sampled == Sampled::Yes).then_some(context)
    }

    /// Records spans. Never waits: spans for which there is no room are dropped and counted.
    pub fn record(&self, spans: impl IntoIterator<Item = Span>) {
        let Some(queue) = &self.queue else { return };
        for span in spans {
            if queue.try_send(span).is_err() {
                self.counters.dropped.inc();
            }
        }
    }

    /// Number of spans that were dropped.
    #[must_use]
    pub fn dropped(&self) -> u64 {
        self.counters.dropped.get()
    }

    /// Counts spans that another process dropped, which would have been recorded here.
    pub fn dropped_before(&self, spans: u64) {
        self.counters.dropped.inc_by(spans);
    }

    /// Registers the counts of spans, as `spans_sent` and `spans_dropped`.
    pub fn register(&self, registry: &mut Registry) {
        self.counters.register(registry);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::context::TraceState;
    use crate::ids::{SpanId, TraceId};
    use crate::span::Kind;

    #[test]
    fn spans_without_room_are_dropped_and_counted_with_those_that_were_dropped_before() {
        let context = TraceContext {
            trace: TraceId::from_bytes(&[7; 16]).unwrap(),
            parent: SpanId::new(),
            sampled: Sampled::Yes,
            state: TraceState::read(b""),
        };
        let (tracer, _spans) = Tracer::channel();
        let span = Span::new(&context, SpanId::new(), "kernel", Kind::Internal);
        tracer.record(std::iter::repeat_n(span, MAX_WAITING + 3));
        assert_eq!(tracer.dropped(), 3);
        tracer.dropped_before(4);
        assert_eq!(tracer.dropped(), 7);
    }
}
