//! Spans that come by OTLP are shown as the slowest requests of a function, and each request as a waterfall.

use crate::pages::{Page, function};
use fpga_test_kit::patience;
use fpga_tests::testbed::http_client::HttpClient;
use fpga_tests::testbed::stand_in_site::Answers;
use serde_json::{Value, json};

/// A name that would call `alert` if it were taken for HTML.
const HOSTILE: &str = "<img src=x onerror=alert(1)>";

fn span(id: &str, parent: &str, name: &str, from_us: u64, took_us: u64) -> Value {
    let at = |us: u64| ((1_700_000_000_000_000 + us) * 1_000).to_string();
    json!({"traceId": "0af7651916cd43dd8448eb211c80319c", "spanId": id, "parentSpanId": parent, "name": name,
           "startTimeUnixNano": at(from_us), "endTimeUnixNano": at(from_us + took_us), "attributes": []})
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs Chromium: make test-web"]
async fn a_slow_request_is_a_waterfall_and_its_names_are_text() {
    let known = function("default", "sobel", "sobel", "node-a");
    let answers = Answers {
        picks: json!({"function": known.clone(), "picks": []}),
        functions: vec![known],
        ..Answers::default()
    };
    let mut page = Page::open(answers).await;
    let mut request = span("a", "client", "request", 0, 32_000);
    request["attributes"] = json!([{"key": "fpga.function", "value": {"stringValue": "default/sobel"}}]);
    // The last two cause each other.
    let spans = json!([
        span("e", "b", "kernel", 20_000, 9_000),
        span("b", "a", "task", 400, 31_000),
        request,
        span("c", "b", "load", 600, 19_000),
        span("d", "b", HOSTILE, 29_500, 100),
        span("f", "g", "circle", 1, 1),
        span("g", "f", "circle", 1, 1),
    ]);
    let name = json!([{"key": "service.name", "value": {"stringValue": HOSTILE}}]);
    let body =
        json!({"resourceSpans": [{"resource": {"attributes": name}, "scopeSpans": [{"spans": spans}]}]});
    let http = HttpClient::new(patience());
    let url = format!("http://{}/v1/traces", page.otlp);
    assert_eq!(http.post(&url, "no JSON").await.unwrap().status.as_u16(), 400);
    assert!(http.post(&url, body.to_string()).await.unwrap().status.is_success());

    page.go("function/default/sobel").await;
    let browser = &mut page.browser;
    browser.wait_for_text("32.0 ms").await.unwrap();
    browser.value("document.querySelector('a[href^=\"#/trace/\"]').click()").await.unwrap();
    browser.wait("document.querySelectorAll('.waterfall li').length === 5").await.unwrap();
    let names = "[...document.querySelectorAll('.waterfall li')].map(li => li.firstChild.textContent)";
    assert_eq!(
        browser.value(names).await.unwrap(),
        json!(["request", "task", "load", "kernel", HOSTILE]),
        "each after what caused it, and in the order of time"
    );
    let bar = "(() => { const bar = document.querySelector('.waterfall .load'); return [bar.style.left, bar.style.width]; })()";
    assert_eq!(browser.value(bar).await.unwrap(), json!(["1.875%", "59.375%"]));
    assert_eq!(browser.complaints(), [""; 0]);
}
