//! The page with 5,000 nodes and 10,000 pods: all of them can be found, and only what is in sight is drawn. How long it takes
//! is told, and not checked: it depends on what else the machine does.

use crate::pages::{BITSTREAMS, Page, decision, explanation, node, pictures, pod};
use fpga_tests::testbed::stand_in_site::Answers;
use serde_json::Value;
use std::time::Instant;

const NODES: usize = 5_000;
/// Nodes that change in each of the rounds that are measured.
const CHANGING: usize = 500;
const ROUNDS: u64 = 3;

/// From now on the page counts in `work` what it draws: updates in the same frame, rows of the list that it writes to, and
/// pictures of all boards.
const COUNT_WORK: &str = "(() => {
    const work = (window.work = { updatesOfOneFrame: 0, rows: 0, overviews: 0 });
    const measure = performance.measure.bind(performance);
    let [frame, updates] = [0, 0];
    performance.measure = (...args) => {
        updates = document.timeline.currentTime === frame ? updates + 1 : 1;
        frame = document.timeline.currentTime;
        work.updatesOfOneFrame = Math.max(work.updatesOfOneFrame, updates);
        return measure(...args);
    };
    const clearRect = CanvasRenderingContext2D.prototype.clearRect;
    CanvasRenderingContext2D.prototype.clearRect = function (...args) {
        work.overviews += 1;
        return clearRect.apply(this, args);
    };
    const rows = new Set();
    const note = (records) => {
        for (const { target } of records) rows.add((target.closest ? target : target.parentElement)?.closest('.row'));
        work.rows = rows.size;
    };
    const all = { subtree: true, childList: true, characterData: true, attributes: true };
    new MutationObserver(note).observe(document.querySelector('.rows'), all);
})()";

fn name(index: usize) -> String {
    format!("node-{index:04}")
}

/// The bitstreams of a node, the last of them on its second board.
fn bitstreams(index: usize, seq: u64) -> [&'static str; 4] {
    let first = index * 7 + usize::try_from(seq).unwrap();
    [0, 1, 2, 3].map(|offset| BITSTREAMS[(first + offset) % BITSTREAMS.len()])
}

fn state(index: usize, seq: u64) -> Value {
    let [a, b, c, d] = bitstreams(index, seq);
    node(&name(index), seq, &[&[a, b, c], &[d]])
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs Chromium: make test-web"]
async fn five_thousand_nodes_are_drawn_found_and_followed_by_keyboard() {
    let pods = (0..2 * NODES).map(|index| {
        let bitstream = BITSTREAMS[index % BITSTREAMS.len()];
        pod("shop", &format!("{bitstream}-{index:05}"), bitstream, Some(&name(index % NODES)))
    });
    let names: Vec<String> = (0..NODES).map(name).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let answers = Answers {
        nodes: (0..NODES).map(|index| state(index, 1)).collect(),
        pods: pods.collect(),
        decisions: vec![decision("shop", "sobel-00000", 1_700_000_000_000, &names)],
        explanation: explanation("shop", "sobel-00000", &names),
        ..Answers::default()
    };
    let mut page = Page::open(answers).await;
    let browser = &mut page.browser;
    browser.wait("document.querySelector('.figures .value span').textContent === '10,000'").await.unwrap();
    browser
        .wait("document.querySelectorAll('.figures .value span')[4].textContent === '10,000'")
        .await
        .unwrap();
    let rows =
        browser.value("document.querySelectorAll('.list .row').length").await.unwrap().as_u64().unwrap();
    assert!((5..80).contains(&rows), "{rows} rows are elements");
    browser.picture(&pictures().join("5000-nodes.png")).await.unwrap();

    // The server has the state by now, so that a page's own part is what is measured.
    browser.open("about:blank").await.unwrap();
    browser.open(page.web.url()).await.unwrap();
    browser
        .wait("document.querySelectorAll('.figures .value span')[4].textContent === '10,000'")
        .await
        .unwrap();
    let paint = "performance.getEntriesByName('first-contentful-paint')[0].startTime";
    let board = "performance.getEntriesByName('first-board')[0].startTime";
    let (paint, board) = (browser.value(paint).await.unwrap(), browser.value(board).await.unwrap());
    let loading = browser
        .value("JSON.stringify(performance.getEntriesByName('update').map(e => Math.round(e.duration)))")
        .await
        .unwrap();
    browser.value("performance.clearMeasures()").await.unwrap();
    browser.value(COUNT_WORK).await.unwrap();
    let began = Instant::now();
    for seq in 2..2 + ROUNDS {
        page.site.change(|answers| {
            for (index, node) in answers.nodes.iter_mut().enumerate().take(CHANGING) {
                *node = state(index, seq);
            }
        });
        let [.., last] = bitstreams(0, seq);
        let shown =
            format!("document.querySelectorAll('.list .row .slots')[1].textContent.includes('{last}')");
        browser.wait(&shown).await.unwrap();
    }
    let updates = browser
        .value("JSON.stringify(performance.getEntriesByName('update').map(e => Math.round(e.duration)))")
        .await
        .unwrap();
    println!("first paint {paint} ms, first board {board} ms");
    println!(
        "scripts of updates while loading {loading} ms, while {CHANGING} nodes changed at a time {updates} ms"
    );
    browser.wait("window.work.overviews > 0").await.unwrap();
    let work = browser.value("window.work").await.unwrap();
    let count = |what: &str| work[what].as_u64().unwrap();
    assert_eq!(count("updatesOfOneFrame"), 1, "changes that come together are drawn together: {work}");
    assert!(count("rows") < 80, "only boards in sight are drawn: {work}");
    let seconds = began.elapsed().as_secs() + 1;
    assert!(count("overviews") <= seconds, "all boards are looked at once a second, for {seconds} s: {work}");

    browser.press("/").await.unwrap();
    for letter in "node-4321".chars() {
        browser.press(&letter.to_string()).await.unwrap();
    }
    browser.wait("document.querySelectorAll('.list .row').length === 2").await.unwrap();
    browser.press("Enter").await.unwrap();
    browser.press("j").await.unwrap();
    browser.press("j").await.unwrap();
    browser
        .wait("document.querySelector('.row.selected')?.textContent.includes('a10-1') === true")
        .await
        .unwrap();
    browser.press("Enter").await.unwrap();
    browser.wait("location.hash === '#/node/node-4321/a10-1'").await.unwrap();
    browser.wait("document.querySelectorAll('.board-card').length === 1").await.unwrap();
    browser.press("Escape").await.unwrap();
    browser.wait("location.hash.length < 3").await.unwrap();
    page.go("pod/shop/sobel-00000").await;
    page.browser.wait_for_text("node-0000 is best with 9 of 10").await.unwrap();
    assert_eq!(page.browser.complaints(), [""; 0]);
}
