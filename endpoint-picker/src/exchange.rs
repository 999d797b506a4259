//! The protocol of one request: what the gateway says, and what it is answered. No I/O.
//!
//! The decision needs the headers only. What comes later is answered so that the gateway goes on: with
//! `FULL_DUPLEX_STREAMED` each piece of a body goes back to the gateway, which has no other copy; else a body stays as
//! it is. A request is in flight until the response has ended or the exchange is dropped.

mod answers;
mod request_span;

use crate::ext_proc::processing_request::Request as Said;
use crate::ext_proc::{BodySendMode, HttpBody, HttpHeaders, Metadata, ProcessingRequest, ProcessingResponse};
use crate::function::FunctionName;
use crate::headers::{Headers, InvalidHeaders};
use crate::metrics::RefusalReason;
use crate::picker::{Picked, Picker, Ticket};
use crate::routing::Routing;
use crate::state::Refusal;
use answers::Direction;
use fpga_traces::context::TraceContext;
use prost_types::Value;
use prost_types::value::Kind;
use request_span::RequestSpan;
use std::collections::HashSet;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

/// Header and metadata key of the endpoints in an answer.
pub const DESTINATION: &str = "x-gateway-destination-endpoint";
/// Header of the request: id of the board that the replica should use, if it has several.
pub const BOARD: &str = "x-fpga-board";
/// Metadata namespace of [`DESTINATION`] and [`SERVED`].
pub const LB_NAMESPACE: &str = "envoy.lb";
/// Metadata key of the endpoint that served the request.
pub const SERVED: &str = "x-gateway-destination-endpoint-served";
/// Metadata key of the candidates.
pub const SUBSET: &str = "x-gateway-destination-endpoint-subset";
/// Metadata namespace of [`SUBSET`].
pub const SUBSET_NAMESPACE: &str = "envoy.lb.subset_hint";

/// Time for the first message.
const HEADERS_TIMEOUT: Duration = Duration::from_secs(10);
/// Time for the body from a gateway that wants the stream to end after it, and may have none.
const ONE_SHOT_TIMEOUT: Duration = Duration::from_secs(2);

/// The exchange with the gateway about one request.
#[derive(Debug)]
pub struct Exchange {
    picker: Arc<Picker>,
    routing: Arc<Routing>,
    ticket: Option<Ticket>,
    /// What is told of the request in its trace, if it has one.
    span: Option<RequestSpan>,
    bodies: Bodies,
    phase: Phase,
}

/// The modes of the bodies.
#[derive(Debug, Clone, Copy, Default)]
struct Bodies {
    request: Mode,
    response: Mode,
}

/// What becomes of a body's pieces.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
enum Mode {
    /// The gateway keeps the body.
    #[default]
    Kept,
    /// The gateway has given the piece away and waits for it.
    Echoed,
}

/// How far the exchange is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    /// The headers of the request have not come.
    Begins,
    /// The endpoints have been told.
    Decided,
    /// As `Decided`, by a gateway that asks for the endpoints only: it waits for the end of the stream, and may never
    /// say that the request has ended (NGINX Gateway Fabric).
    DecidedOneShot,
}

/// The answer to a message.
#[derive(Debug)]
pub enum Reply {
    /// This answer.
    Answer(Box<ProcessingResponse>),
    /// This answer, and the end of the stream.
    Last(Box<ProcessingResponse>),
    /// No answer.
    Nothing,
}

/// The gateway's messages make no sense.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Malformed {
    /// Something came before the headers of the request.
    #[error("the request's headers must come first")]
    HeadersFirst,
    /// Headers of a second request.
    #[error("a stream is for one request")]
    SecondRequest,
    /// The headers can't be decoded.
    #[error("the request's headers can't be decoded")]
    Headers,
    /// A message without content.
    #[error("a message is empty, or of a kind that is not known here")]
    Empty,
}

impl Exchange {
    /// An exchange about a request whose headers are still to come.
    #[must_use]
    pub fn new(picker: Arc<Picker>, routing: Arc<Routing>) -> Self {
        Self { picker, routing, ticket: None, span: None, bodies: Bodies::default(), phase: Phase::Begins }
    }

    /// Longest time until the next message; `None` if a request takes as long as it takes.
    #[must_use]
    pub fn timeout(&self) -> Option<Duration> {
        match self.phase {
            Phase::Begins => Some(HEADERS_TIMEOUT),
            Phase::Decided => None,
            Phase::DecidedOneShot => Some(ONE_SHOT_TIMEOUT),
        }
    }

    /// Whether the gateway has been told the endpoints.
    #[must_use]
    pub fn is_decided(&self) -> bool {
        self.phase != Phase::Begins
    }

    /// Takes a message of the gateway.
    ///
    /// # Errors
    /// [`Malformed`]; the stream ends.
    pub fn take(&mut self, message: ProcessingRequest) -> Result<Reply, Malformed> {
        let ProcessingRequest { request, metadata_context, observability_mode, protocol_config, .. } =
            message;
        if observability_mode {
            // Nobody waits for an answer, so nothing can be decided.
            return Ok(Reply::Nothing);
        }
        if let Some(config) = protocol_config {
            self.bodies =
                Bodies { request: mode(config.request_body_mode), response: mode(config.response_body_mode) };
        }
        let said = request.ok_or(Malformed::Empty)?;
        match (&said, self.phase) {
            (Said::RequestHeaders(_), Phase::Begins) => {}
            (Said::RequestHeaders(_), _) => return Err(Malformed::SecondRequest),
            (_, Phase::Begins) => return Err(Malformed::HeadersFirst),
            _ => {}
        }
        Ok(match said {
            Said::RequestHeaders(headers) => {
                self.decide(&headers, metadata_context.as_ref(), protocol_config.is_some())?
            }
            Said::RequestBody(body) => {
                let answer = Box::new(self.body(Direction::Request, body));
                match self.phase {
                    Phase::DecidedOneShot => Reply::Last(answer),
                    Phase::Begins | Phase::Decided => Reply::Answer(answer),
                }
            }
            Said::RequestTrailers(_) => Reply::Answer(Box::new(answers::trailers(Direction::Request))),
            Said::ResponseHeaders(headers) => {
                self.served(metadata_context.as_ref());
                if headers.end_of_stream {
                    self.end();
                }
                Reply::Answer(Box::new(answers::response_headers()))
            }
            Said::ResponseBody(body) => {
                if body.end_of_stream {
                    self.end();
                }
                Reply::Answer(Box::new(self.body(Direction::Response, body)))
            }
            Said::ResponseTrailers(_) => {
                self.end();
                Reply::Answer(Box::new(answers::trailers(Direction::Response)))
            }
        })
    }

    /// The response has ended.
    fn end(&mut self) {
        self.ticket = None;
        self.span = None;
    }

    fn body(&self, direction: Direction, body: HttpBody) -> ProcessingResponse {
        let mode = match direction {
            Direction::Request => self.bodies.request,
            Direction::Response => self.bodies.response,
        };
        answers::body(direction, (mode == Mode::Echoed).then_some(body))
    }

    fn decide(
        &mut self,
        headers: &HttpHeaders,
        metadata: Option<&Metadata>,
        is_configured: bool,
    ) -> Result<Reply, Malformed> {
        let Headers { path, authority, traceparent, tracestate } = match Headers::read(&headers.headers) {
            Ok(headers) => headers,
            Err(InvalidHeaders::Malformed) => return Err(Malformed::Headers),
            Err(error @ InvalidHeaders::TooMany) => {
                self.picker.metrics.refused(RefusalReason::TooManyHeaders);
                return Ok(Reply::Last(Box::new(answers::refusal(431, &error.to_string()))));
            }
        };
        // Who tells neither path nor modes is no proxy, but asks on behalf of one.
        self.phase = match path.is_none() && !is_configured {
            true => Phase::DecidedOneShot,
            false => Phase::Decided,
        };
        let function = self.routing.function(path.unwrap_or_default(), authority.unwrap_or_default());
        let subset = subset(metadata);
        // A malformed context counts as none.
        let context =
            traceparent.and_then(|parent| TraceContext::parse(parent, tracestate.unwrap_or_default()).ok());
        let begun = context.and_then(|context| RequestSpan::begin(&self.picker.tracer, context));
        let picked = self.picker.pick(function.as_ref(), subset.as_ref());
        self.span = begun.map(|span| span.decided(function.as_ref(), &picked));
        Ok(match picked {
            Ok(Picked { endpoints, board, ticket, .. }) => {
                self.ticket = Some(ticket);
                let traceparent = self.span.as_ref().map(RequestSpan::traceparent);
                Reply::Answer(Box::new(answers::destination(
                    &endpoints,
                    board.as_deref(),
                    traceparent.as_deref(),
                )))
            }
            Err(error) => Reply::Last(Box::new(refusal(error, function.as_ref()))),
        })
    }

    fn served(&mut self, metadata: Option<&Metadata>) {
        let served = field(metadata, LB_NAMESPACE, SERVED).and_then(text).and_then(|text| text.parse().ok());
        if let (Some(ticket), Some(served)) = (&mut self.ticket, served) {
            ticket.served_by(served);
        }
        if let (Some(span), Some(served)) = (&mut self.span, served) {
            span.served_by(served);
        }
    }
}

fn mode(number: i32) -> Mode {
    match BodySendMode::try_from(number) {
        Ok(BodySendMode::FullDuplexStreamed | BodySendMode::Grpc) => Mode::Echoed,
        _ => Mode::Kept,
    }
}

/// The candidates that the gateway names. What is no address is no candidate; `None` if it names none.
fn subset(metadata: Option<&Metadata>) -> Option<HashSet<SocketAddr>> {
    let addresses = |text: &str| text.split(',').filter_map(|text| text.trim().parse().ok()).collect();
    let value = field(metadata, SUBSET_NAMESPACE, SUBSET)?;
    Some(match &value.kind {
        Some(Kind::ListValue(list)) => {
            list.values.iter().filter_map(text).filter_map(|text| text.parse().ok()).collect()
        }
        Some(Kind::StringValue(text)) => addresses(text),
        _ => HashSet::new(),
    })
}

fn field<'m>(metadata: Option<&'m Metadata>, namespace: &str, key: &str) -> Option<&'m Value> {
    metadata?.filter_metadata.get(namespace)?.fields.get(key)
}

fn text(value: &Value) -> Option<&str> {
    match &value.kind {
        Some(Kind::StringValue(text)) => Some(text),
        _ => None,
    }
}

fn refusal(error: Refusal, function: Option<&FunctionName>) -> ProcessingResponse {
    let name =
        function.map_or_else(|| "the request's function".to_owned(), |name| format!("the function {name}"));
    match error {
        Refusal::NotReady => answers::refusal(503, "the functions of the cluster are not known yet"),
        Refusal::UnknownFunction => match function {
            Some(_) => answers::refusal(404, &format!("nobody knows {name}")),
            None => answers::refusal(
                404,
                "the request names no function: ask for /function/NAME or /function/NAME.NAMESPACE",
            ),
        },
        Refusal::NoEndpoint => answers::refusal(503, &format!("no replica of {name} is ready")),
        Refusal::TooManyWaiting => {
            answers::retry_later(&format!("too many requests wait for a replica of {name}"))
        }
    }
}
