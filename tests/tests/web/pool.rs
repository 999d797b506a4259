//! The view of the pool, with a real broker, a real device manager that lends its slot, and real jobs and groups.

use crate::pages::pictures;
use fpga_acc::{Config, Goal, GroupRequest, Pool};
use fpga_tests::testbed::browser::Browser;
use fpga_tests::testbed::pool::{PoolBed, Sharing};
use fpga_tests::testbed::web::Web;
use std::process::Stdio;
use std::time::Duration;
use tokio::io::AsyncWriteExt as _;

const DEADLINE: Duration = Duration::from_secs(60);
const AES: [&str; 5] = ["aes-256-ctr", "--hex", KEY, "--hex", COUNTER];
const KEY: &str = "key=000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f";
const COUNTER: &str = "counter=f0f1f2f3f4f5f6f7f8f9fafbfcfdfeff";
/// A slow board, so that an endless job leaves the processors to the browser.
const MODEL: &str = "board = \"slow\"\nreconfiguration = \"50ms\"\n\
    [[kernel]]\nbitstream = \"aes-256-ctr\"\nitems_per_second = 62500\n\
    [[kernel]]\nbitstream = \"sha-256\"\nlaunch = \"10ms\"\n";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs Chromium: make test-web"]
async fn the_pool_shows_whose_job_has_the_slot_who_waits_and_why_a_broker_does_not_answer() {
    // Jobs that came first keep their slots.
    let mut bed = PoolBed::start_for(0, ["--job-policy", "fifo"].map(str::to_owned).to_vec()).await.unwrap();
    let sharing = Sharing { slots: 1, lent: 1, model: Some(MODEL.to_owned()) };
    bed.start_manager_with(&sharing).await.unwrap();
    let web = Web::start_for_pool(&bed).await.unwrap();
    let mut browser = Browser::start(1400, 860).await.unwrap();
    browser.open(&format!("{}#/pool", web.url())).await.unwrap();
    browser.wait_for_text("0 of 1 lent slot in use, 0 jobs wait").await.unwrap();

    let mut endless = bed.job("mill", "office", &AES).unwrap().stdout(Stdio::null()).spawn().unwrap();
    let mut input = endless.stdin.take().unwrap();
    let feeding = tokio::spawn(async move { while input.write_all(&[1; 64 << 10]).await.is_ok() {} });
    browser.wait_for_text("1 of 1 lent slot in use, 0 jobs wait").await.unwrap();
    let slot = "document.querySelector('.slots .slot').textContent";
    browser.wait(&format!("{slot} === 'aes-256-ctr · mill'")).await.unwrap();

    let mut second = bed.job("shop", "office", &["sha-256"]).unwrap().spawn().unwrap();
    browser.wait_for_text("1 of 1 lent slot in use, 1 job waits").await.unwrap();
    let waiting = browser.value("document.querySelector('.job-row').innerText").await.unwrap();
    let waiting = waiting.as_str().unwrap_or_default().to_owned();
    assert!(waiting.contains("shop") && waiting.contains("sha-256"), "{waiting}");
    // A page without a cluster says so at its foot, and complains of nothing.
    browser.wait_for_text("extender: no cluster").await.unwrap();
    assert_eq!(browser.value("document.getElementById('notices').innerText").await.unwrap(), "");
    browser.picture(&pictures().join("pool.png")).await.unwrap();

    endless.kill().await.unwrap();
    feeding.await.unwrap();
    browser.wait(&format!("{slot} === 'sha-256 · shop'")).await.unwrap();
    browser.wait_for_text("1 of 1 lent slot in use, 0 jobs wait").await.unwrap();
    drop(second.stdin.take());
    assert!(tokio::time::timeout(DEADLINE, second.wait()).await.unwrap().unwrap().success());
    browser.wait_for_text("0 of 1 lent slot in use, 0 jobs wait").await.unwrap();
    assert_eq!(browser.complaints(), [""; 0]);

    bed.kill_broker().await;
    let note = "document.querySelector('.problem').textContent";
    browser.wait(&format!("{note}.includes('{}')", bed.broker_address())).await.unwrap();
    bed.start_broker().await.unwrap();
    browser.wait(&format!("{note} === ''")).await.unwrap();
    browser.wait_for_text("0 of 1 lent slot in use, 0 jobs wait").await.unwrap();
}

/// Actions of the group; each takes 400 ms on the slow board.
const ACTIONS: u64 = 60;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs Chromium: make test-web"]
async fn a_group_with_a_deadline_shows_its_goal_against_what_is_forecast() {
    let mut bed = PoolBed::start().await.unwrap();
    let model = "board = \"slow\"\nreconfiguration = \"50ms\"\n\
        [[kernel]]\nbitstream = \"sha-256\"\nlaunch = \"400ms\"\n";
    bed.start_manager_with(&Sharing { slots: 1, lent: 1, model: Some(model.to_owned()) }).await.unwrap();
    let web = Web::start_for_pool(&bed).await.unwrap();
    let mut browser = Browser::start(1400, 860).await.unwrap();
    browser.open(&format!("{}#/pool", web.url())).await.unwrap();
    browser.wait_for_text("0 of 1 lent slot in use").await.unwrap();

    let config = Config {
        token_file: Some(bed.token_file("mill")),
        node: Some("office".to_owned()),
        ..Config::of(&bed.broker_address()).unwrap()
    };
    let pool = Pool::connect(config).unwrap();
    let goal = Goal::Deadline { actions: ACTIONS, within: Duration::from_secs(600) };
    let group = pool.open_group(GroupRequest::new("sha-256", goal, 0..=1)).unwrap();
    let mut actions = Vec::new();
    for _ in 0..ACTIONS {
        actions.push(group.submit(vec![7; 64]).await.unwrap());
    }
    let row = "document.querySelectorAll('section.wide tbody tr')[0]";
    let cell = |index: usize| format!("({row}?.children[{index}]?.textContent ?? '')");
    browser.wait(&format!("{} === 'mill'", cell(0))).await.unwrap();
    let goal = format!("/^60 actions in 10 min, \\d+ (s|min) left$/.test({})", cell(1));
    browser.wait(&goal).await.unwrap();
    browser.wait(&format!("/^done in \\d+ s$/.test({})", cell(3))).await.unwrap();
    browser.wait(&format!("{} === 'will be kept'", cell(4))).await.unwrap();
    browser.wait(&format!("{row}.children[4].className === 'good'")).await.unwrap();
    browser.wait(&format!("{} === '1 of 1 given'", cell(5))).await.unwrap();
    browser.wait(&format!("/^[1-9]\\d* of 60$/.test({})", cell(2))).await.unwrap();
    browser.picture(&pictures().join("pool-group.png")).await.unwrap();
    for action in actions {
        action.await.unwrap();
    }
    group.close().await.unwrap();
    browser.wait(&format!("{row} === undefined")).await.unwrap();
    assert_eq!(browser.complaints(), [""; 0]);
}
