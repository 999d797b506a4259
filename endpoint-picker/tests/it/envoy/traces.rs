//! The trace of a request, from its client to the replica, through a real Envoy with the shipped configuration.

use super::bed::{Envoy, Served, Server, header, until_idle};
use axum::Router;
use axum::http::Method;
use axum::routing::post;
use bytes::Bytes;
use fpga_test_kit::patience;
use fpga_traces::context::TraceContext;
use fpga_traces::otlp::Resource;
use fpga_traces::tracer::Tracer;
use serde_json::Value;
use tokio::net::TcpListener;
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};

const SAMPLED: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

/// A collector, and a tracer that sends to it.
async fn collector() -> (Tracer, UnboundedReceiver<Value>) {
    let (sender, received) = unbounded_channel();
    let take = async move |body: String| {
        let request: Value = serde_json::from_str(&body).unwrap();
        for span in request["resourceSpans"][0]["scopeSpans"][0]["spans"].as_array().unwrap() {
            sender.send(span.clone()).unwrap();
        }
    };
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let endpoint = format!("http://{}", listener.local_addr().unwrap()).parse().unwrap();
    let router = Router::new().route("/v1/traces", post(take));
    tokio::spawn(async move { axum::serve(listener, router).await.unwrap() });
    (Tracer::start(endpoint, Resource(Vec::new())).unwrap(), received)
}

async fn next(spans: &mut UnboundedReceiver<Value>) -> Value {
    tokio::time::timeout(patience(), spans.recv()).await.unwrap().unwrap()
}

fn attribute<'s>(span: &'s Value, key: &str) -> &'s str {
    let mut attributes = span["attributes"].as_array().unwrap().iter();
    let found = attributes.find(|attribute| attribute["key"] == key);
    found.and_then(|found| found["value"]["stringValue"].as_str()).unwrap_or_default()
}

#[tokio::test]
async fn a_replica_goes_on_with_the_clients_trace_below_the_span_of_the_request() {
    let replica = Server::start("first");
    let (tracer, mut spans) = collector().await;
    let served = Served::start_traced(&[&replica], tracer);
    let envoy = Envoy::start(&served, "NONE").await;

    let answer = envoy.send(Method::POST, "/function/echo", &[("traceparent", SAMPLED)], Bytes::new()).await;
    let seen = TraceContext::parse(header(&answer, "x-trace").as_bytes(), b"").unwrap();
    drop(answer);
    let (request, choice) = (next(&mut spans).await, next(&mut spans).await);
    assert_eq!(
        (request["name"].as_str(), choice["name"].as_str()),
        (Some("request"), Some("choose a replica"))
    );
    assert_eq!(request["traceId"], "0af7651916cd43dd8448eb211c80319c");
    assert_eq!(request["parentSpanId"], "b7ad6b7169203331");
    assert_eq!(choice["parentSpanId"], request["spanId"]);
    assert_eq!(seen.trace.to_string(), request["traceId"]);
    assert_eq!(seen.parent.to_string(), request["spanId"]);
    assert_eq!(attribute(&request, "fpga.function"), "default/echo");
    assert_eq!(attribute(&request, "fpga.endpoint"), replica.address.to_string());
    assert_eq!(attribute(&choice, "fpga.choice.basis"), "resident");

    // What is not sampled, malformed, or there twice is the client's own affair, and the request goes on.
    let unsampled = SAMPLED.replace("-01", "-00");
    for (sent, expected) in [
        (vec![("traceparent", unsampled.as_str())], unsampled.as_str()),
        (vec![("traceparent", "00-nonsense")], "00-nonsense"),
        (vec![("traceparent", SAMPLED), ("traceparent", SAMPLED)], SAMPLED),
        (vec![], ""),
    ] {
        let answer = envoy.send(Method::POST, "/function/echo", &sent, Bytes::new()).await;
        assert_eq!((answer.status().as_u16(), header(&answer, "x-trace")), (200, expected));
    }
    // A request that is refused has a trace, too.
    let sent = [("traceparent", SAMPLED), ("tracestate", "vendor=1")];
    let answer = envoy.send(Method::POST, "/function/nobody", &sent, Bytes::new()).await;
    assert_eq!(answer.status().as_u16(), 404);
    let (request, choice) = (next(&mut spans).await, next(&mut spans).await);
    assert_eq!((&request["status"]["code"], &choice["status"]["code"]), (&2.into(), &2.into()));
    assert_eq!(attribute(&choice, "error.type"), "unknown_function");
    assert_eq!(request["traceState"], "vendor=1");
    until_idle(&served.picker).await;
}
