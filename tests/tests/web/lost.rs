//! What the page says while its server or the cluster does not answer, and that it comes back by itself.

use crate::pages::{Page, node, pictures, pod};
use fpga_tests::testbed::stand_in_site::{Answering, Answers};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

fn answers() -> Answers {
    Answers {
        nodes: vec![node("n1", 1, &[&["sobel"]])],
        pods: vec![pod("shop", "sobel-1", "sobel", Some("n1"))],
        ..Answers::default()
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs Chromium: make test-web"]
async fn a_lost_connection_is_told_and_comes_back() {
    let mut page = Page::open(answers()).await;
    page.browser.wait_for_text("sobel").await.unwrap();
    page.browser.wait("document.getElementById('status').className === 'live'").await.unwrap();
    // A server that is stopped neither answers nor closes, as one behind a broken network.
    let server = Pid::from_raw(page.web.process().pid());
    kill(server, Signal::SIGSTOP).unwrap();
    page.browser.wait_for_text("connection lost, trying again").await.unwrap();
    page.browser.wait("document.body.classList.contains('lost')").await.unwrap();
    page.site.change(|answers| answers.nodes[0] = node("n1", 2, &[&["sobel", "sha256"]]));
    kill(server, Signal::SIGCONT).unwrap();
    page.browser.wait("document.getElementById('status').className === 'live'").await.unwrap();
    page.browser.wait_for_text("sha256").await.unwrap();
    page.browser.wait("!document.body.classList.contains('lost')").await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs Chromium: make test-web"]
async fn the_page_of_a_server_that_has_ended_says_what_to_do_and_knows_another_server_at_its_port() {
    let mut page = Page::open(answers()).await;
    page.browser.wait_for_text("sobel").await.unwrap();
    page.kill_server().await;
    page.browser.wait_for_text("start it again and open the address that it prints").await.unwrap();
    page.start_another_server().await;
    page.browser.wait_for_text("open the address that it has printed").await.unwrap();
    page.browser.wait("document.getElementById('status').className === 'replaced'").await.unwrap();
    page.browser.wait_for_text("sobel").await.unwrap();
    page.browser.picture(&pictures().join("replaced.png")).await.unwrap();
    page.browser.open(page.web.url()).await.unwrap();
    page.browser.wait("document.getElementById('status').className === 'live'").await.unwrap();
    page.browser.wait("document.getElementById('advice').textContent === ''").await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs Chromium: make test-web"]
async fn what_the_user_may_not_read_and_what_does_not_answer_is_told() {
    let mut page = Page::open(answers()).await;
    page.browser.wait_for_text("sobel").await.unwrap();
    page.site.answering(Answering::Forbidden);
    page.browser.wait_for_text("extender: not allowed").await.unwrap();
    page.browser.wait_for_text("kubectl create role").await.unwrap();
    page.site.answering(Answering::Fails);
    page.browser.wait_for_text("extender: no answer").await.unwrap();
    page.browser.wait("document.querySelectorAll('.list .row').length === 0").await.unwrap();
    page.site.answering(Answering::Yes);
    page.browser.wait("document.querySelectorAll('.list .row').length === 1").await.unwrap();
    page.browser.wait("document.getElementById('notices').childElementCount === 0").await.unwrap();
}
