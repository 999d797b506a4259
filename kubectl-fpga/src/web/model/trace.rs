//! Requests with a trace, from the spans that programs send: of those that are known the slowest are shown.

use serde::Serialize;
use serde_json::Value;
use std::collections::{HashMap, VecDeque};

/// Traces that are known.
const MAX_TRACES: usize = 512;
/// Spans of a trace that are kept.
const MAX_SPANS: usize = 128;
/// Spans of all traces that are kept: at most 40 MB.
const MAX_ALL_SPANS: usize = 16_384;
/// Traces of a function that are shown.
const SHOWN_OF_FUNCTION: usize = 12;
/// Traces that are shown, beside the slowest of the last minute.
const SHOWN: usize = 48;
/// The last minute.
const RECENT_MS: u64 = 60_000;
/// Longest text that is kept, in bytes.
const MAX_TEXT: usize = 128;
/// Attributes of a span that are kept.
const MAX_ATTRIBUTES: usize = 8;
/// Name of the attribute with the function, on the span of a request.
const FUNCTION: &str = "fpga.function";

/// The traces that are known, by their ids.
#[derive(Debug, Default)]
pub struct Traces {
    traces: HashMap<String, Vec<SpanRow>>,
    /// The ids, in the order in which they came.
    order: VecDeque<String>,
    /// Number of spans of all traces.
    spans: usize,
}

/// A request, as the page shows it.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct TraceRow {
    /// The function, `NAMESPACE/NAME`.
    pub function: String,
    /// Begin, milliseconds since the epoch.
    pub at_ms: u64,
    /// Duration of the request in microseconds.
    pub took_us: u64,
    /// What was done for it, in the order of the begins.
    pub spans: Vec<SpanRow>,
}

/// A span of a trace.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct SpanRow {
    /// Id.
    pub id: String,
    /// Id of the span that caused it.
    pub parent: String,
    /// Name.
    pub name: String,
    /// The program.
    pub service: String,
    /// Begin, microseconds since the epoch.
    pub start_us: u64,
    /// Duration in microseconds.
    pub took_us: u64,
    /// Whether what the span stands for ended with an error.
    pub is_failed: bool,
    /// Names and values of what else is known, such as the bitstream; at most 8.
    pub attributes: Vec<(String, String)>,
}

impl Traces {
    /// Takes the spans of a request of OTLP, in JSON. What is malformed is left out.
    pub fn take(&mut self, request: &Value) {
        for resource in list(&request["resourceSpans"]) {
            let named =
                attributes(&resource["resource"]).into_iter().find(|(name, _)| name == "service.name");
            let service = named.map(|(_, value)| value).unwrap_or_default();
            for span in list(&resource["scopeSpans"]).iter().flat_map(|scope| list(&scope["spans"])) {
                self.take_span(&service, span);
            }
        }
    }

    fn take_span(&mut self, service: &str, span: &Value) {
        let (trace, id) = (text(&span["traceId"]), text(&span["spanId"]));
        let [Some(start_ns), Some(end_ns)] =
            ["startTimeUnixNano", "endTimeUnixNano"].map(|key| number(&span[key]))
        else {
            return;
        };
        if trace.is_empty() || id.is_empty() {
            return;
        }
        if !self.traces.contains_key(&trace) {
            self.order.push_back(trace.clone());
        }
        let spans = self.traces.entry(trace).or_default();
        if spans.len() < MAX_SPANS {
            spans.push(SpanRow {
                id,
                parent: text(&span["parentSpanId"]),
                name: text(&span["name"]),
                service: service.to_owned(),
                start_us: start_ns / 1_000,
                took_us: end_ns.saturating_sub(start_ns) / 1_000,
                is_failed: span["status"]["code"] == 2,
                attributes: attributes(span),
            });
            self.spans += 1;
        }
        while self.order.len() > MAX_TRACES || self.spans > MAX_ALL_SPANS {
            let Some(oldest) = self.order.pop_front() else { break };
            self.spans -= self.traces.remove(&oldest).map_or(0, |spans| spans.len());
        }
    }

    /// The slowest requests of each function, and the slowest of the last minute, the slowest first, with their ids.
    #[must_use]
    pub fn slowest(&self, now_ms: u64) -> Vec<(&str, TraceRow)> {
        let mut requests: Vec<(&str, &SpanRow, &str)> = self
            .traces
            .iter()
            .filter_map(|(id, spans)| {
                let (span, function) = spans.iter().find_map(|span| Some((span, function(span)?)))?;
                Some((id.as_str(), span, function))
            })
            .collect();
        requests.sort_by(|(a_id, a, _), (b_id, b, _)| b.took_us.cmp(&a.took_us).then(a_id.cmp(b_id)));
        let is_recent = |span: &SpanRow| span.start_us / 1_000 >= now_ms.saturating_sub(RECENT_MS);
        let recent = requests.iter().find(|(_, span, _)| is_recent(span)).map(|(id, ..)| *id);
        let (mut shown, mut shown_of) = (0, HashMap::<&str, usize>::new());
        requests.retain(|(id, _, function)| {
            let of_function = shown_of.entry(function).or_default();
            let is_among_slowest = *of_function < SHOWN_OF_FUNCTION && shown < SHOWN;
            *of_function += usize::from(is_among_slowest);
            shown += usize::from(is_among_slowest);
            is_among_slowest || recent == Some(*id)
        });
        let rows = requests.into_iter().map(|(id, span, function)| {
            let mut spans = self.traces.get(id).cloned().unwrap_or_default();
            spans.sort_by_key(|span| span.start_us);
            let (at_ms, took_us) = (span.start_us / 1_000, span.took_us);
            (id, TraceRow { function: function.to_owned(), at_ms, took_us, spans })
        });
        rows.collect()
    }
}

/// The function of a request's span.
fn function(span: &SpanRow) -> Option<&str> {
    span.attributes.iter().find(|(name, _)| name == FUNCTION).map(|(_, value)| value.as_str())
}

fn list(value: &Value) -> &[Value] {
    value.as_array().map(Vec::as_slice).unwrap_or_default()
}

fn text(value: &Value) -> String {
    let text = value.as_str().unwrap_or_default();
    let end = (0..=MAX_TEXT.min(text.len())).rev().find(|end| text.is_char_boundary(*end));
    text[..end.unwrap_or_default()].to_owned()
}

/// A number of 64 bits, which OTLP has as a text.
fn number(value: &Value) -> Option<u64> {
    value.as_str().map_or_else(|| value.as_u64(), |text| text.parse().ok())
}

fn attributes(of: &Value) -> Vec<(String, String)> {
    let pair = |attribute: &Value| {
        let value = &attribute["value"];
        let known = ["stringValue", "intValue"].into_iter().find(|kind| !value[kind].is_null())?;
        let value = value[known].as_i64().map_or_else(|| text(&value[known]), |number| number.to_string());
        Some((text(&attribute["key"]), value))
    };
    list(&of["attributes"]).iter().take(MAX_ATTRIBUTES).filter_map(pair).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    /// More than a minute after all requests.
    const LATER: u64 = 1_000_000;

    fn request(trace: u64, took_us: u64) -> Value {
        request_of("default/sobel", trace, took_us)
    }

    fn request_of(function: &str, trace: u64, took_us: u64) -> Value {
        request_at(5_000, function, trace, took_us)
    }

    fn request_at(at_ms: u64, function: &str, trace: u64, took_us: u64) -> Value {
        let span = |id: &str, parent: &str, name: &str, start_us: u64, took_us: u64| {
            json!({"traceId": format!("{trace:032x}"), "spanId": id, "parentSpanId": parent, "name": name,
                "startTimeUnixNano": (start_us * 1_000).to_string(),
                "endTimeUnixNano": ((start_us + took_us) * 1_000).to_string(),
                "attributes": [{"key": "fpga.bitstream", "value": {"stringValue": "sobel"}},
                               {"key": "fpga.opencl.status", "value": {"intValue": "-5"}}]})
        };
        let mut whole = span("a", "client", "request", at_ms * 1_000, took_us);
        whole["attributes"] = json!([{"key": FUNCTION, "value": {"stringValue": function}}]);
        let spans = json!([span("b", "a", "task", at_ms * 1_000 + 100, 50), whole]);
        let name = json!([{"key": "service.name", "value": {"stringValue": "picker"}}]);
        json!({"resourceSpans": [{"resource": {"attributes": name}, "scopeSpans": [{"spans": spans}]}]})
    }

    #[test]
    fn the_slowest_requests_are_shown_with_their_spans_in_order() {
        let mut traces = Traces::default();
        for (trace, took) in [(1, 100), (2, 900), (3, 400)] {
            traces.take(&request(trace, took));
        }
        let slowest = traces.slowest(LATER);
        assert_eq!(slowest.iter().map(|(_, row)| row.took_us).collect::<Vec<_>>(), [900, 400, 100]);
        let (id, row) = &slowest[0];
        assert_eq!(
            (*id, row.function.as_str(), row.at_ms),
            (format!("{:032x}", 2).as_str(), "default/sobel", 5_000)
        );
        assert_eq!(row.spans.iter().map(|span| span.name.as_str()).collect::<Vec<_>>(), ["request", "task"]);
        assert_eq!(row.spans[1].service, "picker");
        let status = ("fpga.opencl.status".to_owned(), "-5".to_owned());
        assert!(row.spans[1].attributes.contains(&status), "{row:?}");
    }

    #[test]
    fn a_function_whose_requests_are_fast_is_shown_beside_slow_ones() {
        let mut traces = Traces::default();
        for trace in 1..=100 {
            traces.take(&request(trace, 1_000 * trace));
        }
        traces.take(&request_of("default/fast", 200, 1));
        let slowest = traces.slowest(LATER);
        assert_eq!(slowest.len(), SHOWN_OF_FUNCTION + 1);
        assert_eq!(slowest[SHOWN_OF_FUNCTION].1.function, "default/fast");
    }

    #[test]
    fn the_slowest_of_the_last_minute_is_shown_beside_slower_ones_of_before() {
        let mut traces = Traces::default();
        for trace in 1..=100 {
            traces.take(&request(trace, 1_000 * trace));
        }
        for (trace, took) in [(200, 3), (201, 5), (202, 4)] {
            traces.take(&request_at(100_000, "default/sobel", trace, took));
        }
        let ids = |now_ms| traces.slowest(now_ms).iter().map(|(id, _)| (*id).to_owned()).collect::<Vec<_>>();
        let before = ids(LATER);
        assert_eq!(before.len(), SHOWN_OF_FUNCTION);
        assert_eq!(ids(159_000), [before.as_slice(), &[format!("{:032x}", 201)]].concat());
        assert_eq!(ids(161_000), before, "its minute is over");
    }

    #[test]
    fn what_is_kept_is_bounded_whatever_comes() {
        let mut traces = Traces::default();
        for trace in 0..2_000 {
            traces.take(&request_of(&format!("default/{trace}"), trace, trace));
        }
        assert_eq!((traces.traces.len(), traces.slowest(LATER).len()), (MAX_TRACES, SHOWN));
        for trace in 1_800..2_000 {
            for _ in 0..MAX_SPANS {
                traces.take(&request(trace, 1));
            }
        }
        let kept: Vec<usize> = traces.traces.values().map(Vec::len).collect();
        assert_eq!(kept.iter().sum::<usize>(), traces.spans);
        assert!(traces.spans <= MAX_ALL_SPANS && kept.iter().all(|spans| *spans <= MAX_SPANS), "{kept:?}");
        let known = traces.traces.len();
        assert_eq!(known, traces.order.len());
        for malformed in [
            json!(null),
            json!({"resourceSpans": 1}),
            json!({"resourceSpans": [{"scopeSpans": [{"spans": [{}, 1, {"traceId": "a", "spanId": 1}]}]}]}),
        ] {
            traces.take(&malformed);
        }
        assert_eq!(traces.traces.len(), known);
        let long = json!("ü".repeat(MAX_TEXT));
        assert_eq!(text(&long).len(), MAX_TEXT);
    }
}
