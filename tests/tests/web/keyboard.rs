//! The keys, and light and dark.

use crate::pages::{Page, decision, node};
use fpga_tests::testbed::browser::Browser;
use fpga_tests::testbed::stand_in_site::Answers;

const GROUND: &str = "getComputedStyle(document.body).backgroundColor";
const SELECTED: &str = "document.querySelector('.row.selected')?.textContent ?? ''";

async fn text(browser: &mut Browser, expression: &str) -> String {
    browser.value(expression).await.unwrap().as_str().unwrap_or_default().to_owned()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs Chromium: make test-web"]
async fn all_views_are_reached_and_lists_gone_through_by_keys() {
    let answers = Answers {
        nodes: ["n1", "n2"].map(|name| node(name, 1, &[&["sobel"]])).into(),
        decisions: vec![decision("shop", "sobel-1", 1_700_000_000_000, &["n1", "n2"])],
        ..Answers::default()
    };
    let mut page = Page::open(answers).await;
    let browser = &mut page.browser;
    browser.wait("document.querySelectorAll('.list .row').length === 2").await.unwrap();
    for (key, selected) in [("j", "n1"), ("j", "n2"), ("j", "n2"), ("k", "n1"), ("k", "n1")] {
        browser.press(key).await.unwrap();
        browser.wait(&format!("({SELECTED}).startsWith('{selected}')")).await.unwrap();
    }
    let tab = "document.querySelector('#tabs a[aria-current]').firstChild.textContent";
    for (key, view) in [("2", "Functions"), ("3", "Decisions"), ("4", "Pool"), ("1", "Cluster")] {
        browser.press(key).await.unwrap();
        browser.wait(&format!("{tab} === '{view}'")).await.unwrap();
    }
    browser.wait("location.hash === '#/'").await.unwrap();

    browser.press("?").await.unwrap();
    browser.wait("document.getElementById('keys').open").await.unwrap();
    let keys = "[...document.querySelectorAll('#keys kbd')].map(key => key.textContent).join(' ')";
    assert_eq!(text(browser, keys).await, "1 2 3 4 j k Enter Esc / t ?");
    browser.press("3").await.unwrap();
    assert_eq!(text(browser, "location.hash").await, "#/", "the dialog has the keys");
    browser.press("Escape").await.unwrap();
    browser.wait("!document.getElementById('keys').open").await.unwrap();
    browser.press("3").await.unwrap();
    browser.wait("location.hash === '#/decisions'").await.unwrap();
    // The cluster has no broker, as the pool's view has been told.
    let unexpected: Vec<&String> =
        browser.complaints().iter().filter(|text| !text.contains("Failed to load resource")).collect();
    assert!(unexpected.is_empty(), "{unexpected:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs Chromium: make test-web"]
async fn light_or_dark_is_the_systems_until_somebody_chooses_and_the_choice_stays() {
    let mut page =
        Page::open(Answers { nodes: vec![node("n1", 1, &[&["sobel"]])], ..Answers::default() }).await;
    let browser = &mut page.browser;
    browser.wait_for_text("sobel").await.unwrap();
    let mut grounds = Vec::new();
    for scheme in ["dark", "light"] {
        browser.prefer(scheme).await.unwrap();
        grounds.push(text(browser, GROUND).await);
    }
    let [dark, light] = [grounds[0].clone(), grounds[1].clone()];
    assert_ne!(dark, light, "the page is as the system");
    browser.press("t").await.unwrap();
    assert_eq!(text(browser, GROUND).await, dark);
    browser.value("location.reload()").await.unwrap();
    browser.wait("performance.getEntriesByType('navigation')[0].type === 'reload'").await.unwrap();
    browser.wait_for_text("sobel").await.unwrap();
    assert_eq!(text(browser, GROUND).await, dark, "the choice outlives the page");
    browser.press("t").await.unwrap();
    assert_eq!(text(browser, GROUND).await, light);
}
