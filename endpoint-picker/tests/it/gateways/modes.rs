//! The modes in which gateways ask: Envoy by itself, gateways with full duplex (Istio, kgateway, Envoy AI Gateway), and
//! NGINX Gateway Fabric's shim.

use super::calls::{body, destination, headers, in_modes, refused, response_headers, said, with_headers};
use super::served::{Differs, FIRST, SECOND, Served, sobel};
use bytes::Bytes;
use fpga_endpoint_picker::exchange::{DESTINATION, LB_NAMESPACE};
use fpga_endpoint_picker::ext_proc::body_mutation::Mutation;
use fpga_endpoint_picker::ext_proc::processing_request::Request as Said;
use fpga_endpoint_picker::ext_proc::processing_response::Response as Answer;
use fpga_endpoint_picker::ext_proc::{BodySendMode, HeaderValue, HttpTrailers};
use prost_types::value::Kind;
use ring::digest::{Context, SHA256};

#[tokio::test]
async fn envoy_gets_endpoints_by_header_and_metadata_and_the_request_counts_until_its_stream_ends() {
    let served = Served::start().await;
    let mut call = served.call().await;
    call.say(in_modes(headers("/function/sobel"), BodySendMode::None)).await;
    let answer = call.whole().await.unwrap().unwrap();
    let list = destination(answer.response.as_ref().unwrap());
    assert_eq!(list, format!("{FIRST},{SECOND}"));
    let metadata = answer.dynamic_metadata.unwrap();
    let Some(Kind::StructValue(lb)) = &metadata.fields[LB_NAMESPACE].kind else { panic!("{metadata:?}") };
    assert_eq!(lb.fields[DESTINATION].kind, Some(Kind::StringValue(list)), "both say the same");
    assert_eq!(served.in_flight(), 1);
    assert!(matches!(call.ask(response_headers(false)).await, Answer::ResponseHeaders(_)));
    assert_eq!(served.in_flight(), 1, "the response is still coming");
    drop(call);
    served.until_in_flight(0).await;
}

#[tokio::test]
async fn a_request_ends_with_its_response_however_the_gateway_tells() {
    let served = Served::start().await;
    let trailers = || said(Said::ResponseTrailers(HttpTrailers::default()));
    for last in [response_headers(true), body(false, "x", true), trailers()] {
        let mut call = served.call().await;
        destination(&call.ask(headers("/function/sobel")).await);
        assert_eq!(served.in_flight(), 1);
        call.ask(last).await;
        assert_eq!(served.in_flight(), 0);
    }
    // The gateway says that it has nothing more to say, or breaks off.
    let mut call = served.call().await;
    destination(&call.ask(headers("/function/sobel")).await);
    drop(call.messages);
    assert_eq!(call.answers.message().await.unwrap(), None);
    served.until_in_flight(0).await;
}

#[tokio::test]
async fn full_duplex_gets_every_piece_of_both_bodies_back() {
    let served = Served::start().await;
    let mut call = served.call().await;
    let begin = in_modes(headers("/function/sobel"), BodySendMode::FullDuplexStreamed);
    assert_eq!(destination(&call.ask(begin).await), format!("{FIRST},{SECOND}"));
    for is_request in [true, false] {
        if !is_request {
            call.ask(response_headers(false)).await;
        }
        let (mut sent, mut back) = (Context::new(&SHA256), Context::new(&SHA256));
        let (pieces, bytes) = (160_u32, 64 * 1024);
        for piece in 0..pieces {
            let data: Vec<u8> =
                (0..bytes).map(|i: u32| (i.wrapping_mul(piece + 7) >> 3).to_le_bytes()[0]).collect();
            sent.update(&data);
            let last = piece + 1 == pieces;
            let answer = call.ask(body(is_request, data, last)).await;
            let (Answer::RequestBody(answer) | Answer::ResponseBody(answer)) = answer else { panic!() };
            let mutation = answer.response.unwrap().body_mutation.unwrap().mutation;
            let Some(Mutation::StreamedResponse(echo)) = mutation else { panic!("{mutation:?}") };
            assert_eq!(echo.end_of_stream, last);
            back.update(&echo.body);
        }
        assert_eq!(sent.finish().as_ref(), back.finish().as_ref());
    }
    assert_eq!(served.in_flight(), 0);
    call.ask(said(Said::RequestTrailers(HttpTrailers::default()))).await;
}

#[tokio::test]
async fn streamed_and_buffered_bodies_and_none_stay_with_the_gateway() {
    let served = Served::start().await;
    for mode in [BodySendMode::Streamed, BodySendMode::Buffered, BodySendMode::BufferedPartial] {
        let mut call = served.call().await;
        destination(&call.ask(in_modes(headers("/function/sobel"), mode)).await);
        let answer = call.ask(body(true, vec![7; 512 * 1024], true)).await;
        let Answer::RequestBody(answer) = answer else { panic!("{mode:?}: {answer:?}") };
        assert!(answer.response.is_none(), "{mode:?}: the body is as it was");
    }
}

#[tokio::test]
async fn nginx_gets_an_endpoint_and_the_end_of_the_stream_though_it_never_says_that_it_is_done() {
    let served = Served::with(Differs { fixed: true, ..Differs::default() }).await;
    let shim = || {
        let header =
            HeaderValue { key: "Content-Type".into(), value: "text/plain".into(), raw_value: Bytes::new() };
        with_headers(vec![header])
    };
    // A connection for each request, headers and body at once, and then until the stream ends.
    let mut call = served.call().await;
    call.say(shim()).await;
    call.say(body(true, "the whole body", false)).await;
    assert_eq!(destination(&call.hear().await.unwrap().unwrap()), format!("{FIRST},{SECOND}"));
    assert!(matches!(call.hear().await.unwrap(), Some(Answer::RequestBody(_))));
    assert!(call.hear().await.unwrap().is_none(), "the end");
    served.until_in_flight(0).await;
    // Without a body the stream ends by itself.
    let mut call = served.call().await;
    destination(&call.ask(shim()).await);
    assert!(call.hear().await.unwrap().is_none(), "the end");
    // A refusal is an answer, too.
    served.picker.with(|state, now| state.remove_function(&sobel(), now));
    let mut call = served.call().await;
    assert_eq!(refused(&call.ask(shim()).await).0, 404);
    assert!(call.hear().await.unwrap().is_none(), "the end");
}
