//! Spans as OTLP has them, in JSON (<https://opentelemetry.io/docs/specs/otlp/>, `ExportTraceServiceRequest`).

use crate::span::{Kind, Outcome, Span, Value};
use serde_json::{Value as Json, json};

/// Attributes of the program: they are the same for all its spans.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Resource(pub Vec<(&'static str, String)>);

/// A request with these spans.
#[must_use]
pub fn request(resource: &Resource, spans: &[Span]) -> Json {
    let attributes =
        resource.0.iter().map(|(key, value)| json!({"key": key, "value": {"stringValue": value}}));
    let scope = json!({"name": env!("CARGO_PKG_NAME"), "version": env!("CARGO_PKG_VERSION")});
    let spans: Vec<Json> = spans.iter().map(span).collect();
    json!({"resourceSpans": [{
        "resource": {"attributes": attributes.collect::<Vec<_>>()},
        "scopeSpans": [{"scope": scope, "spans": spans}],
    }]})
}

fn span(span: &Span) -> Json {
    let kind = match span.kind {
        Kind::Internal => 1,
        Kind::Server => 2,
    };
    let code = match span.outcome {
        Outcome::Done => 0,
        Outcome::Failed => 2,
    };
    let attributes = span.attributes.iter().map(|(key, value)| json!({"key": key, "value": value_of(value)}));
    json!({
        "traceId": span.trace.to_string(), "spanId": span.id.to_string(), "parentSpanId": span.parent.to_string(),
        "traceState": span.state, "name": span.name, "kind": kind,
        // The standard has 64-bit numbers as texts.
        "startTimeUnixNano": span.start_ns.to_string(), "endTimeUnixNano": span.end_ns.to_string(),
        "attributes": attributes.collect::<Vec<_>>(), "status": {"code": code},
    })
}

fn value_of(value: &Value) -> Json {
    match value {
        Value::Text(text) => json!({"stringValue": text}),
        Value::Number(number) => json!({"intValue": number.to_string()}),
    }
}
