//! What nobody should ask, and more than should be asked.

use super::calls::{Call, body, destination, headers, in_modes, refused, response_headers, with_headers};
use super::served::{Differs, Served};
use bytes::Bytes;
use fpga_endpoint_picker::ext_proc::{BodySendMode, HeaderValue, ProcessingRequest};
use tonic::Code;

#[tokio::test]
async fn ten_thousand_headers_are_431() {
    let served = Served::start().await;
    let list = (0..10_000).map(|i| HeaderValue { key: format!("x-{i}"), ..HeaderValue::default() }).collect();
    assert_eq!(refused(&served.call().await.ask(with_headers(list)).await).0, 431);
    assert_eq!(served.in_flight(), 0);
}

#[tokio::test]
async fn an_endless_body_is_passed_on_piece_by_piece_and_a_piece_that_is_too_long_ends_the_stream() {
    let served = Served::start().await;
    let mut call = served.call().await;
    let begin = in_modes(headers("/function/sobel"), BodySendMode::FullDuplexStreamed);
    destination(&call.ask(begin).await);
    let piece = Bytes::from(vec![1; 256 * 1024]);
    for _ in 0..100 {
        call.ask(body(true, piece.clone(), false)).await;
    }
    assert_eq!(served.in_flight(), 1);
    call.say(body(true, vec![1; 2 << 20], false)).await;
    let error = call.hear().await.unwrap_err();
    assert_eq!(error.code(), Code::OutOfRange, "{error}");
    served.until_in_flight(0).await;
}

#[tokio::test]
async fn messages_that_make_no_sense_end_their_stream_only() {
    let served = Served::start().await;
    for message in [body(true, "x", true), response_headers(false), ProcessingRequest::default()] {
        let mut call = served.call().await;
        call.say(message).await;
        assert_eq!(call.hear().await.unwrap_err().code(), Code::InvalidArgument);
    }
    let mut call = served.call().await;
    destination(&call.ask(headers("/function/sobel")).await);
    call.say(headers("/function/sobel")).await;
    assert_eq!(call.hear().await.unwrap_err().code(), Code::InvalidArgument);
    served.until_in_flight(0).await;
    let observed = ProcessingRequest { observability_mode: true, ..headers("/function/sobel") };
    let mut call = served.call().await;
    call.say(observed).await;
    destination(&call.ask(headers("/function/sobel")).await);
}

#[tokio::test]
async fn more_streams_than_allowed_are_refused_and_others_go_on() {
    let served = Served::with(Differs { streams: Some(2), ..Differs::default() }).await;
    let channel = served.channel().await;
    let mut held = Vec::new();
    for _ in 0..2 {
        let mut call = Call::open(channel.clone()).await.unwrap();
        destination(&call.ask(headers("/function/sobel")).await);
        held.push(call);
    }
    let refused = Call::open(channel.clone()).await.err().unwrap();
    assert_eq!(refused.code(), Code::ResourceExhausted);
    held.pop();
    served.until_in_flight(1).await;
    let mut again = Call::open(channel).await.unwrap();
    destination(&again.ask(headers("/function/sobel")).await);
}

#[tokio::test]
async fn a_thousand_requests_in_flight_on_one_connection_are_counted_exactly() {
    const REQUESTS: usize = 1_000;
    let served = Served::start().await;
    let channel = served.channel().await;
    let mut held = Vec::with_capacity(REQUESTS);
    for _ in 0..REQUESTS {
        let mut call = Call::open(channel.clone()).await.unwrap();
        destination(&call.ask(headers("/function/sobel")).await);
        held.push(call);
    }
    assert_eq!(served.in_flight(), REQUESTS);
    held.truncate(REQUESTS / 2);
    served.until_in_flight(REQUESTS / 2).await;
    // The gateway is killed.
    drop((held, channel));
    served.until_in_flight(0).await;
}
