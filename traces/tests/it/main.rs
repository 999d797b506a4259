//! Spans reach a collector over real HTTP, and nobody waits for a collector that does not take them.
#![allow(clippy::unwrap_used, clippy::panic, reason = "tests fail by panicking")]

use axum::Router;
use axum::http::StatusCode;
use axum::routing::post;
use fpga_test_kit::{patience, until_async};
use fpga_traces::context::TraceContext;
use fpga_traces::ids::SpanId;
use fpga_traces::otlp::Resource;
use fpga_traces::span::{Kind, Outcome, Span};
use fpga_traces::tracer::{Endpoint, Tracer};
use prometheus_client::encoding::text::encode;
use prometheus_client::registry::Registry;
use serde_json::{Value, json};
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use tokio::net::TcpListener;
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};

const PARENT: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

/// A collector that refuses the first `refusals` requests with a status.
async fn collector(refusals: usize, status: StatusCode) -> (SocketAddr, UnboundedReceiver<Value>) {
    let (sender, received) = unbounded_channel();
    let asked = Arc::new(AtomicUsize::new(0));
    let take = async move |body: String| {
        if asked.fetch_add(1, Ordering::SeqCst) < refusals {
            return status;
        }
        sender.send(serde_json::from_str(&body).unwrap()).unwrap();
        StatusCode::OK
    };
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let router = Router::new().route("/v1/traces", post(take));
    tokio::spawn(async move { axum::serve(listener, router).await.unwrap() });
    (address, received)
}

fn tracer(address: SocketAddr) -> Tracer {
    let resource = Resource(vec![("service.name", "test".to_owned())]);
    Tracer::start(format!("http://{address}/").parse().unwrap(), resource).unwrap()
}

fn span(name: &'static str) -> Span {
    let context = TraceContext::parse(PARENT.as_bytes(), b"vendor=1").unwrap();
    let span = Span::new(&context, SpanId::new(), name, Kind::Server).lasted(1_000, 3_000);
    span.with("text", "of it").with("number", 7).ended(Outcome::Failed)
}

fn counts(tracer: &Tracer) -> [u64; 2] {
    let mut registry = Registry::default();
    tracer.register(&mut registry);
    let mut text = String::new();
    encode(&mut text, &registry).unwrap();
    ["spans_sent_total ", "spans_dropped_total "].map(|name| {
        let line = text.lines().find_map(|line| line.strip_prefix(name));
        line.unwrap_or_else(|| panic!("no {name}: {text}")).parse().unwrap()
    })
}

/// Waits until so many spans were sent and dropped.
async fn until_counted(tracer: &Tracer, expected: [u64; 2]) {
    until_async(format!("{expected:?} spans"), async || {
        let counted = counts(tracer);
        if counted == expected { Ok(()) } else { Err(format!("{counted:?}")) }
    })
    .await;
}

async fn next(received: &mut UnboundedReceiver<Value>) -> Value {
    tokio::time::timeout(patience(), received.recv()).await.unwrap().unwrap()
}

#[tokio::test]
async fn a_collector_gets_spans_as_otlp_has_them() {
    let (address, mut received) = collector(0, StatusCode::OK).await;
    let tracer = tracer(address);
    let one = span("one");
    tracer.record([one.clone()]);
    let request = next(&mut received).await;
    let resource = &request["resourceSpans"][0];
    assert_eq!(
        resource["resource"]["attributes"],
        json!([{"key": "service.name", "value": {"stringValue": "test"}}])
    );
    let expected = json!({
        "traceId": "0af7651916cd43dd8448eb211c80319c", "spanId": one.id.to_string(),
        "parentSpanId": "b7ad6b7169203331", "traceState": "vendor=1", "name": "one", "kind": 2,
        "startTimeUnixNano": "1000", "endTimeUnixNano": "3000",
        "attributes": [
            {"key": "text", "value": {"stringValue": "of it"}}, {"key": "number", "value": {"intValue": "7"}},
        ],
        "status": {"code": 2},
    });
    assert_eq!(resource["scopeSpans"][0]["spans"], json!([expected]));
    until_counted(&tracer, [1, 0]).await;
}

#[tokio::test]
async fn what_a_collector_may_take_later_is_sent_again_and_what_it_will_not_take_is_dropped() {
    let (address, mut received) = collector(1, StatusCode::SERVICE_UNAVAILABLE).await;
    let patient = tracer(address);
    patient.record([span("one")]);
    next(&mut received).await;
    until_counted(&patient, [1, 0]).await;

    let (address, mut received) = collector(1, StatusCode::BAD_REQUEST).await;
    let refused = tracer(address);
    refused.record([span("one")]);
    until_counted(&refused, [0, 1]).await;
    refused.record([span("two")]);
    assert_eq!(next(&mut received).await["resourceSpans"][0]["scopeSpans"][0]["spans"][0]["name"], "two");
}

#[tokio::test]
async fn who_records_does_not_wait_for_a_collector_that_takes_nothing_and_memory_is_bounded() {
    // It takes connections and never answers.
    let silent = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let tracer = tracer(silent.local_addr().unwrap());
    tracer.record((0..20_000).map(|_| span("many")));
    let [sent, dropped] = counts(&tracer);
    assert_eq!(sent, 0);
    assert!((10_000..20_000).contains(&dropped), "{dropped}");
}

#[test]
fn addresses_of_collectors_are_those_of_otlp_over_http() {
    for good in ["http://127.0.0.1:4318", "http://collector", "http://[::1]:4318/base/"] {
        assert!(good.parse::<Endpoint>().is_ok(), "{good}");
    }
    for wrong in
        ["", "127.0.0.1:4318", "https://collector", "http://user:key@collector", "http://collector?a=b"]
    {
        let error = wrong.parse::<Endpoint>().unwrap_err().to_string();
        assert!(error.contains("http://127.0.0.1:4318"), "{wrong}: {error}");
    }
}
