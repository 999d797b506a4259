//! Names and texts that try to be markup or script stay text, in every view, and other pages and users can't read the page.

use crate::broker::StandInBroker;
use crate::pages::{Page, decision, explanation, function, node, pod};
use fpga_pool_api::v1;
use fpga_test_kit::patience;
use fpga_tests::testbed::http_client::HttpClient;
use fpga_tests::testbed::stand_in_site::Answers;
use fpga_tests::testbed::web::Parts;
use serde_json::json;

/// A name that would call `alert` if it were taken for HTML, and that ends scripts, texts and attributes.
const NAME: &str = "</script><img src=x onerror=alert(1)>\"'`${alert(2)}";

/// A pool whose kinds, boards, nodes, tenants, jobs, accelerators and reasons have hostile names.
fn hostile_pool() -> v1::Pool {
    let name = || NAME.to_owned();
    let run = || Some(v1::JobWork { kind: Some(v1::job_work::Kind::RunBytes(1_000)) });
    let board = v1::Board { name: name(), kind: name(), shell: name(), node: name() };
    let slot = |state: &str| v1::SlotView {
        state: state.to_owned(),
        tenant: name(),
        job: NAME.as_bytes().to_vec(),
        accelerator: name(),
        work: run(),
    };
    let deadline = v1::goal::Kind::Deadline(v1::Deadline { actions: 40, within_ms: 60_000 });
    v1::Pool {
        term: 1,
        classes: vec![v1::SlotClass { kind: name(), region: name(), slots: 2, jobs: 1, groups: 1 }],
        boards: vec![v1::LentBoard { board: Some(board), slots: vec![slot("busy"), slot(NAME)] }],
        tenants: vec![v1::TenantUse { tenant: name(), waiting: 1, held: 1 }],
        jobs: vec![v1::WaitingJob {
            job: NAME.as_bytes().to_vec(),
            tenant: name(),
            accelerator: name(),
            work: run(),
            home: name(),
            first_arrival_ms: 1,
            ahead: 0,
            reason: name(),
        }],
        waiting: 1,
        groups: vec![v1::GroupView {
            group: NAME.as_bytes().to_vec(),
            tenant: name(),
            kind: name(),
            goal: Some(v1::Goal { kind: Some(deadline) }),
            ..v1::GroupView::default()
        }],
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs Chromium: make test-web"]
async fn names_from_the_cluster_are_text_in_every_view() {
    let mut broken = node("broken", 1, &[]);
    broken["problem"] = json!(NAME);
    let mut odd = node("odd", 1, &[&[NAME], &["sobel"]]);
    for what in ["id", "vendor", "board", "shell"] {
        odd["known"]["state"]["devices"][0][what] = json!(NAME);
    }
    let mut waiting = pod(NAME, NAME, NAME, None);
    waiting["status"]["conditions"][0]["message"] = json!(NAME);
    let mut owned = pod("shop", "owned", "sobel", Some("odd"));
    owned["metadata"]["ownerReferences"] =
        json!([{"apiVersion": "v1", "kind": NAME, "name": NAME, "uid": "u", "controller": true}]);
    owned["metadata"]["annotations"]["fpga-scheduling.io/boards"] = json!(NAME);
    let replica = json!({"agoMs": 1, "candidates": 1, "basis": NAME, "endpoints": ["10.0.0.1:80"], "node": NAME,
        "board": NAME, "inFlight": 0, "waiting": 0});
    let of_function = function(NAME, NAME, NAME, NAME);
    let answers = Answers {
        nodes: vec![node(NAME, 1, &[&[NAME]]), broken, odd],
        decisions: vec![decision(NAME, NAME, 1, &[NAME])],
        explanation: explanation(NAME, NAME, &[NAME]),
        functions: vec![of_function.clone()],
        picks: json!({"function": of_function, "picks": [replica]}),
        pods: vec![waiting, pod("shop", "p", NAME, Some(NAME)), owned],
    };
    let broker = StandInBroker::start(hostile_pool()).await;
    let parts = Parts { broker: Some(broker.url()), ..Parts::default() };
    let mut page = Page::open_with(answers, parts).await;
    let encoded = page.browser.value(&format!("encodeURIComponent({})", json!(NAME))).await.unwrap();
    let encoded = encoded.as_str().unwrap().to_owned();
    let views = [
        String::new(),
        format!("node/{encoded}"),
        format!("node/{encoded}/a10-0"),
        "node/broken".to_owned(),
        "node/odd".to_owned(),
        format!("node/odd/{encoded}"),
        "functions".to_owned(),
        format!("function/{encoded}/{encoded}"),
        "decisions".to_owned(),
        "pod/shop/p".to_owned(),
        "pod/shop/owned".to_owned(),
        "pool".to_owned(),
        format!("pod/{encoded}/{encoded}"),
        format!("{encoded}/{encoded}"),
    ];
    for view in views {
        page.go(&view).await;
        page.browser.wait_for_text(NAME).await.unwrap_or_else(|error| panic!("{view}: {error}"));
        if view == "pool" {
            // Kind, namespaces, board, slot, job and group.
            let told = "document.querySelector('main').textContent.split('onerror=').length > 10";
            page.browser.wait(told).await.unwrap();
        }
        let injected =
            page.browser.value("document.querySelectorAll('main img, main script, [onerror]').length").await;
        assert_eq!(injected.unwrap(), 0, "{view}");
    }
    // A dialog of `alert` would be a complaint; so is what the policy stops.
    let unexpected: Vec<&String> =
        page.browser.complaints().iter().filter(|text| !text.contains("Failed to load resource")).collect();
    assert!(unexpected.is_empty(), "{unexpected:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs Chromium: make test-web"]
async fn a_page_of_another_origin_reads_nothing_even_with_the_address() {
    let mut page =
        Page::open(Answers { nodes: vec![node("n", 1, &[&["sobel"]])], ..Answers::default() }).await;
    page.browser.wait_for_text("sobel").await.unwrap();
    let url = page.web.url().to_owned();
    // The stand-in's address is another origin.
    page.browser.open(&format!("{}/nodes", page.site.url())).await.unwrap();
    page.browser.wait("location.pathname === '/nodes'").await.unwrap();
    for file in ["", "stream", "ask?view=reasons", "js/main.js"] {
        let read = format!(
            "fetch({}).then(answer => answer.text(), error => 'refused')",
            json!(format!("{url}{file}"))
        );
        assert_eq!(page.browser.value(&read).await.unwrap(), "refused", "{file}");
        let opaque = format!(
            "fetch({}, {{mode: 'no-cors'}}).then(() => 'sent', () => 'refused')",
            json!(format!("{url}{file}"))
        );
        assert_eq!(
            page.browser.value(&opaque).await.unwrap(),
            "refused",
            "{file}: the answer may be used by its page alone"
        );
    }
    let without = url.trim_end_matches('/').rsplit_once('/').unwrap().0;
    let http = HttpClient::new(patience());
    for path in ["/", "/stream", "/0123456789/", "/js/main.js"] {
        assert_eq!(http.get(&format!("{without}{path}")).await.unwrap().status, 403, "{path}");
    }
}
