//! The page with 1,000 nodes and 2,000 pods, whose states the extender itself tells: all of them can be found, and only
//! boards in sight are drawn. How long the page takes with 5,000 nodes is measured by `timing`.

use crate::extender::Extender;
use crate::pages::{BITSTREAMS, Page, pictures, pod, state};
use fpga_tests::testbed::stand_in_site::Answers;
use fpga_tests::testbed::web::Parts;
use serde_json::Value;

/// Nodes that change at a time.
pub const CHANGING: usize = 500;
/// Pods that the extender has decided.
const DECIDED: usize = 20;
/// From now on the page counts in `work` what it draws: updates in the same frame, rows of the list that it writes to, and
/// pictures of all boards.
pub const COUNT_WORK: &str = "(() => {
    const work = (window.work = { updatesOfOneFrame: 0, rows: 0, overviews: 0 });
    const measure = performance.measure.bind(performance);
    let updates = 0;
    performance.measure = (...args) => {
        updates += 1;
        // The next frame calls this before the page's updates, which are asked for later.
        if (updates === 1) requestAnimationFrame(() => (updates = 0));
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

/// Whether the page has the number of boards, and with it all nodes, and that of pods; for whole thousands of nodes.
pub fn all_are_there(nodes: usize) -> String {
    let figure = |index| format!("document.querySelectorAll('.figures .value span')[{index}]?.textContent");
    let count = format!("'{},000'", 2 * nodes / 1_000);
    format!("{} === {count} && {} === {count}", figure(0), figure(4))
}

/// Many nodes on a page.
pub struct Scale {
    extender: Extender,
    pub page: Page,
    /// Number of the last state of each node.
    seq: u64,
}

impl Scale {
    pub async fn open(nodes: usize) -> Self {
        let extender = Extender::start((0..nodes).map(name)).await;
        let tell = |index: usize| {
            let [a, b, c, d] = bitstreams(index, 1);
            extender.hears(&name(index), state(1, &[&[a, b, c], &[d]]));
        };
        (0..nodes).for_each(tell);
        let names: Vec<String> = (0..nodes).map(name).collect();
        let pods: Vec<Value> = (0..2 * nodes)
            .map(|index| {
                let bitstream = BITSTREAMS[index % BITSTREAMS.len()];
                pod("shop", &format!("{bitstream}-{index:05}"), bitstream, Some(&name(index % nodes)))
            })
            .collect();
        for pod in &pods[..DECIDED] {
            extender.decide(pod, &names).await;
        }
        let answers = Answers { pods, ..Answers::default() };
        let parts = Parts { extender: Some(extender.url()), ..Parts::default() };
        let mut page = Page::open_with(answers, parts).await;
        page.browser.wait(&all_are_there(nodes)).await.unwrap();
        Self { extender, page, seq: 1 }
    }

    /// So many nodes change, the first of them first. Returns the bitstream that is then on the second board of the first.
    pub fn change(&mut self, nodes: usize) -> &'static str {
        self.seq += 1;
        for index in 0..nodes {
            let [a, b, c, d] = bitstreams(index, self.seq);
            self.extender.hears(&name(index), state(self.seq, &[&[a, b, c], &[d]]));
        }
        bitstreams(0, self.seq)[3]
    }

    /// The page has the last state of the nodes that change.
    pub async fn settle(&mut self) {
        let [.., last] = bitstreams(CHANGING - 1, self.seq);
        let slots = format!(
            "import(new URL('js/store.js', document.baseURI)).then(store => \
                store.rows('nodes').get('{}').boards[1].slots[0] === '{last}' && \
                new Promise(done => requestAnimationFrame(() => setTimeout(() => done(true)))))",
            name(CHANGING - 1)
        );
        self.page.browser.wait(&slots).await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs Chromium: make test-web"]
async fn each_of_a_thousand_nodes_is_found_by_keyboard_and_only_boards_in_sight_are_drawn() {
    let mut scale = Scale::open(1_000).await;
    let browser = &mut scale.page.browser;
    let rows =
        browser.value("document.querySelectorAll('.list .row').length").await.unwrap().as_u64().unwrap();
    assert!((5..80).contains(&rows), "{rows} rows are elements");
    browser.picture(&pictures().join("1000-nodes.png")).await.unwrap();
    browser.value(COUNT_WORK).await.unwrap();
    scale.change(CHANGING);
    scale.settle().await;
    let work = scale.page.browser.value("window.work").await.unwrap();
    let count = |what: &str| work[what].as_u64().unwrap();
    assert_eq!(count("updatesOfOneFrame"), 1, "changes that come together are drawn together: {work}");
    assert!(count("rows") < 80, "only boards in sight are drawn: {work}");

    let Scale { page, .. } = &mut scale;
    let browser = &mut page.browser;
    browser.press("/").await.unwrap();
    for letter in "node-0321".chars() {
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
    browser.wait("location.hash === '#/node/node-0321/a10-1'").await.unwrap();
    browser.wait("document.querySelectorAll('.board-card').length === 1").await.unwrap();
    browser.press("Escape").await.unwrap();
    browser.wait("location.hash.length < 3").await.unwrap();
    page.go("decisions").await;
    page.browser.wait_for_text(&format!("the last {DECIDED} pods")).await.unwrap();
    page.go("pod/shop/sobel-00000").await;
    page.browser.wait_for_text("1000 of 1,000 nodes fit").await.unwrap();
    assert_eq!(page.browser.complaints(), [""; 0]);
}
