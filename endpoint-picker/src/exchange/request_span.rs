//! The spans of a request whose client asks for a trace: the request, from its headers to its end, and below it the choice.

use crate::function::FunctionName;
use crate::picker::Picked;
use crate::state::Refusal;
use fpga_traces::context::TraceContext;
use fpga_traces::ids::SpanId;
use fpga_traces::span::{Kind, Outcome, Span, now_ns};
use fpga_traces::tracer::Tracer;
use std::net::SocketAddr;

/// A request in its trace. Its spans are recorded when it is dropped.
#[derive(Debug)]
pub struct RequestSpan {
    tracer: Tracer,
    context: TraceContext,
    id: SpanId,
    begun_ns: u64,
    choice: Option<Span>,
    function: Option<String>,
    served: Option<SocketAddr>,
    outcome: Outcome,
}

impl RequestSpan {
    /// Begins the spans of a request with this context; `None` if nobody wants them.
    pub fn begin(tracer: &Tracer, context: TraceContext) -> Option<Self> {
        let context = tracer.wanted(context)?;
        Some(Self {
            tracer: tracer.clone(),
            context,
            id: SpanId::new(),
            begun_ns: now_ns(),
            choice: None,
            function: None,
            served: None,
            outcome: Outcome::Done,
        })
    }

    /// The endpoints have been chosen, or the request was refused.
    pub fn decided(mut self, function: Option<&FunctionName>, picked: &Result<Picked, Refusal>) -> Self {
        let below = self.context.below(self.id);
        let choice = Span::new(&below, SpanId::new(), "choose a replica", Kind::Internal);
        let choice = choice.lasted(self.begun_ns, now_ns());
        self.choice = Some(match picked {
            Ok(Picked { endpoints, basis, .. }) => {
                let first = endpoints.first().map(ToString::to_string).unwrap_or_default();
                choice.with("fpga.choice.basis", basis.name()).with("fpga.choice.endpoint", first)
            }
            Err(refusal) => {
                self.outcome = Outcome::Failed;
                choice.with("error.type", refusal.name()).ended(Outcome::Failed)
            }
        });
        self.function = function.map(ToString::to_string);
        self
    }

    /// The context for the replica, which this request's span causes to work.
    pub fn traceparent(&self) -> String {
        self.context.below(self.id).traceparent()
    }

    /// The gateway says which endpoint served the request.
    pub fn served_by(&mut self, endpoint: SocketAddr) {
        self.served = Some(endpoint);
    }
}

impl Drop for RequestSpan {
    fn drop(&mut self) {
        let request = Span::new(&self.context, self.id, "request", Kind::Server);
        let mut request = request.lasted(self.begun_ns, now_ns()).ended(self.outcome);
        if let Some(function) = self.function.take() {
            request = request.with("fpga.function", function);
        }
        if let Some(served) = self.served {
            request = request.with("fpga.endpoint", served.to_string());
        }
        self.tracer.record([request].into_iter().chain(self.choice.take()));
    }
}
