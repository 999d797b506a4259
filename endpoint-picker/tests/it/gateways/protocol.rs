//! What the Endpoint Picker Protocol of the Gateway API Inference Extension demands.

use super::calls::{
    Call, destination, headers, refused, response_headers, set_headers, subset, with_metadata,
};
use super::served::{Differs, FIRST, SECOND, Served};
use fpga_endpoint_picker::exchange::{BOARD, DESTINATION, LB_NAMESPACE, SERVED, SUBSET, SUBSET_NAMESPACE};
use fpga_endpoint_picker::metrics::Metrics;
use fpga_endpoint_picker::picker::{Limits, Picker};
use fpga_test_kit::{patience, until_async};
use prometheus_client::registry::Registry;
use prost_types::value::Kind;
use tonic::Code;
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_check_response::ServingStatus;
use tonic_health::pb::health_client::HealthClient;

#[tokio::test]
async fn the_endpoint_picker_protocol_subset_is_kept_and_an_empty_one_is_503() {
    let served = Served::start().await;
    let ask = async |path: &str, hint: Kind| {
        let message = with_metadata(headers(path), SUBSET_NAMESPACE, SUBSET, hint);
        served.call().await.ask(message).await
    };
    assert_eq!(destination(&ask("/function/sobel", subset(&[SECOND, "1.2.3.4:5"])).await), SECOND);
    assert_eq!(destination(&ask("/function/sobel", Kind::StringValue(format!("{SECOND}, x"))).await), SECOND);
    assert_eq!(
        destination(&ask("/any/path", subset(&[SECOND])).await),
        SECOND,
        "the candidates tell the function"
    );
    let nonsense = ["", ":::", "1.2.3.4", "999.0.0.1:1", "10.0.0.2:99999", "\u{0}"];
    let many = vec![nonsense[1]; 20_000];
    for hint in
        [subset(&[]), subset(&nonsense), subset(&many), Kind::BoolValue(true), Kind::NumberValue(1e300)]
    {
        assert_eq!(refused(&ask("/function/sobel", hint).await).0, 503);
    }
    served.until_in_flight(0).await;
}

#[tokio::test]
async fn a_replica_with_several_boards_is_told_which_one_to_use() {
    let served = Served::with(Differs { boards: &["board-9", "board-0"], ..Differs::default() }).await;
    let answer = served.call().await.ask(headers("/function/sobel")).await;
    let expected = [(DESTINATION, format!("{FIRST},{SECOND}")), (BOARD, "board-0".to_owned())];
    assert_eq!(set_headers(&answer), expected.map(|(key, value)| (key.to_owned(), value)));
}

#[tokio::test]
async fn the_endpoint_picker_protocol_endpoint_that_served_is_the_one_that_counts() {
    let served = Served::start().await;
    let mut call = served.call().await;
    destination(&call.ask(headers("/function/sobel")).await);
    let told = Kind::StringValue(SECOND.to_owned());
    call.ask(with_metadata(response_headers(false), LB_NAMESPACE, SERVED, told)).await;
    let at = |address: &str| {
        let address = address.parse().unwrap();
        served.picker.with(|state, _| state.in_flight_at(address))
    };
    assert_eq!((at(FIRST), at(SECOND)), (0, 1));
    drop(call);
    served.until_in_flight(0).await;
}

#[tokio::test]
async fn the_endpoint_picker_protocol_no_endpoint_is_503_and_too_many_waiting_are_429_with_retry_after() {
    let served = Served::with(Differs { waiting: Some(1), ..Differs::default() }).await;
    for (path, status) in [("/function/empty", 503), ("/function/nobody", 404), ("/", 404)] {
        assert_eq!(refused(&served.call().await.ask(headers(path)).await).0, status, "{path}");
    }
    let mut held = Vec::new();
    // Two slots, and one request may wait.
    for _ in 0..3 {
        let mut call = served.call().await;
        destination(&call.ask(headers("/function/sobel")).await);
        held.push(call);
    }
    let (status, headers_told) = refused(&served.call().await.ask(headers("/function/sobel")).await);
    assert_eq!(status, 429);
    assert!(headers_told.contains(&"retry-after".to_owned()), "{headers_told:?}");
    held.pop();
    served.until_in_flight(2).await;
    destination(&served.call().await.ask(headers("/function/sobel")).await);
}

#[tokio::test]
async fn the_endpoint_picker_protocol_health_is_alive_from_the_start_and_ready_with_knowledge_until_the_end()
{
    let picker = Picker::new(Limits::default(), Metrics::register(&mut Registry::default()));
    let mut served = Served::serve(picker, Differs::default()).await;
    let health = HealthClient::new(served.channel().await);
    let until = async |service: &str, expected: ServingStatus| {
        until_async(format!("{service} to be {expected:?}"), async || {
            let request = HealthCheckRequest { service: service.to_owned() };
            let answer = health.clone().check(request).await;
            answer.is_ok_and(|answer| answer.into_inner().status() == expected)
        })
        .await;
    };
    let ready = ["readiness", "envoy.service.ext_proc.v3.ExternalProcessor", ""];
    until("liveness", ServingStatus::Serving).await;
    for service in ready {
        until(service, ServingStatus::NotServing).await;
    }
    // An error of the call, and no answer: the gateway does what it does without a picker.
    let unknown = Call::open(served.channel().await).await.err().unwrap();
    assert_eq!(unknown.code(), Code::Unavailable);
    served.picker.set_synced();
    for service in ready {
        until(service, ServingStatus::Serving).await;
    }
    served.picker.begin_to_end();
    until("readiness", ServingStatus::NotServing).await;
    until("liveness", ServingStatus::Serving).await;
    let request = HealthCheckRequest { service: "nobody".to_owned() };
    assert_eq!(health.clone().check(request).await.unwrap_err().code(), Code::NotFound);
    served.stop.take().unwrap().send(()).unwrap();
    tokio::time::timeout(patience(), served.server).await.unwrap().unwrap();
}
