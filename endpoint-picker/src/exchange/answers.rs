//! The messages that go to the gateway.

use super::{BOARD, DESTINATION, LB_NAMESPACE};
use crate::ext_proc::body_mutation::Mutation;
use crate::ext_proc::processing_response::Response;
use crate::ext_proc::{
    BodyMutation, BodyResponse, CommonResponse, HeaderMutation, HeaderValue, HeaderValueOption,
    HeadersResponse, HttpBody, HttpStatus, ImmediateResponse, ProcessingResponse, StreamedBodyResponse,
    TrailersResponse,
};
use fpga_traces::context::TRACEPARENT;
use prost_types::value::Kind;
use prost_types::{Struct, Value};
use std::net::SocketAddr;

/// `OVERWRITE_IF_EXISTS_OR_ADD` of Envoy's `HeaderAppendAction`: a client's own header counts for nothing.
const OVERWRITE: i32 = 2;
/// After how many seconds a client that was told to may try again.
const RETRY_AFTER_SECONDS: &str = "1";

/// The direction of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Direction {
    /// From the client to the replica.
    Request,
    /// From the replica to the client.
    Response,
}

fn response(response: Response) -> ProcessingResponse {
    ProcessingResponse { response: Some(response), ..ProcessingResponse::default() }
}

fn set(name: &str, value: &str) -> HeaderValueOption {
    // A header with both fields is an error for Envoy, and NGINX's shim reads this one.
    let raw_value = value.as_bytes().to_vec().into();
    let header = HeaderValue { key: name.to_owned(), value: String::new(), raw_value };
    HeaderValueOption { header: Some(header), append_action: OVERWRITE }
}

/// The endpoints to try, in order, as header and as metadata, the board that the first one should use, if it has
/// several, and the trace that the replica is to go on with, if it is not the client's.
pub fn destination(
    endpoints: &[SocketAddr],
    board: Option<&str>,
    traceparent: Option<&str>,
) -> ProcessingResponse {
    let list = endpoints.iter().map(ToString::to_string).collect::<Vec<_>>().join(",");
    let board = board.map(|board| set(BOARD, board));
    let traceparent = traceparent.map(|traceparent| set(TRACEPARENT, traceparent));
    let set_headers = std::iter::once(set(DESTINATION, &list)).chain(board).chain(traceparent).collect();
    let mutation = HeaderMutation { set_headers, ..HeaderMutation::default() };
    let common = CommonResponse { header_mutation: Some(mutation), ..CommonResponse::default() };
    let value = |kind| Value { kind: Some(kind) };
    let inner = Struct { fields: [(DESTINATION.to_owned(), value(Kind::StringValue(list)))].into() };
    let metadata = Struct { fields: [(LB_NAMESPACE.to_owned(), value(Kind::StructValue(inner)))].into() };
    ProcessingResponse {
        dynamic_metadata: Some(metadata),
        ..response(Response::RequestHeaders(HeadersResponse { response: Some(common) }))
    }
}

/// The response's headers stay as they are.
pub fn response_headers() -> ProcessingResponse {
    response(Response::ResponseHeaders(HeadersResponse::default()))
}

/// A piece of a body goes on: `echoed` if the gateway has no other copy, else as it is.
pub fn body(direction: Direction, echoed: Option<HttpBody>) -> ProcessingResponse {
    let body = echoed.map_or_else(BodyResponse::default, |HttpBody { body, end_of_stream }| {
        let streamed = Mutation::StreamedResponse(StreamedBodyResponse { body, end_of_stream });
        let mutation = BodyMutation { mutation: Some(streamed) };
        let common = CommonResponse { body_mutation: Some(mutation), ..CommonResponse::default() };
        BodyResponse { response: Some(common) }
    });
    response(match direction {
        Direction::Request => Response::RequestBody(body),
        Direction::Response => Response::ResponseBody(body),
    })
}

/// Trailers stay as they are.
pub fn trailers(direction: Direction) -> ProcessingResponse {
    response(match direction {
        Direction::Request => Response::RequestTrailers(TrailersResponse::default()),
        Direction::Response => Response::ResponseTrailers(TrailersResponse::default()),
    })
}

/// The client gets this status, and `text` as the body.
pub fn refusal(status: i32, text: &str) -> ProcessingResponse {
    immediate(status, text, Vec::new())
}

/// The client gets 429 and when to try again.
pub fn retry_later(text: &str) -> ProcessingResponse {
    immediate(429, text, vec![set("retry-after", RETRY_AFTER_SECONDS)])
}

fn immediate(status: i32, text: &str, mut headers: Vec<HeaderValueOption>) -> ProcessingResponse {
    headers.push(set("content-type", "text/plain; charset=utf-8"));
    let mutation = HeaderMutation { set_headers: headers, ..HeaderMutation::default() };
    response(Response::ImmediateResponse(ImmediateResponse {
        status: Some(HttpStatus { code: status }),
        headers: Some(mutation),
        body: format!("{text}\n").into(),
        details: "fpga_endpoint_picker".to_owned(),
    }))
}
