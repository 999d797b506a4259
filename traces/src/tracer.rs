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

    /// Registers the counts of spans, as `spans_sent` and `spans_dropped`.
    pub fn register(&self, registry: &mut Registry) {
        self.counters.register(registry);
    }
}
