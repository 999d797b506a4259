//! Each view with what the demo does: real programs, boards and decisions. Its pictures are looked at before they are
//! committed.

use crate::pages::pictures;
use fpga_net::kube_config;
use fpga_tests::testbed::browser::Browser;
use fpga_tests::testbed::process::{Process, ProcessSpec};
use fpga_tests::testbed::wait;
use fpga_tests::testbed::workload::Workload;
use k8s_openapi::api::core::v1::Pod;
use kube::api::PostParams;
use kube::{Api, Client};
use nix::sys::signal::Signal;
use std::path::{Path, PathBuf};
use std::time::Duration;

const LONG: Duration = Duration::from_secs(180);
/// The pod that no node of the demo fits.
const WAITING: &str = "render";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs Chromium: make test-web"]
async fn each_view_shows_the_demo_as_it_runs() {
    let dir = tempfile::tempdir().unwrap();
    let spec = ProcessSpec::new("fpga-demo", env!("CARGO_BIN_EXE_fpga-demo"), dir.path().join("log"))
        // Longer than the views take to be seen on a busy machine; the test interrupts the demo.
        .args(["--seconds", "300", "--picture"])
        .arg(dir.path().join("sobel.png"))
        .env("TMPDIR", dir.path().display().to_string());
    let demo = Process::start(&spec).unwrap();
    let says = async |what: &str| {
        wait::until_within(&format!("the demo to say {what}"), LONG, async || {
            demo.check_running()?;
            let log = std::fs::read_to_string(demo.log())?;
            let line = log.lines().find_map(|line| Some(line.split_once(what)?.1.trim().to_owned()));
            Ok(line)
        })
        .await
        .unwrap()
    };
    let url = says("Watch it live:").await;
    let mut browser = Browser::start(1400, 800).await.unwrap();
    browser.open(&url).await.unwrap();
    says("following the trace").await;

    for node in ["node-a", "node-b", "node-c"] {
        browser.wait_for_text(node).await.unwrap();
    }
    browser.wait("document.querySelectorAll('.slot:not(.empty)').length >= 4").await.unwrap();
    browser.wait("document.querySelectorAll('.moments li').length >= 3").await.unwrap();
    browser.wait("document.querySelector('.whom') !== null").await.unwrap();
    let demo_runs = run_folder(dir.path());
    create_pod_that_waits(&demo_runs.join("admin.kubeconfig")).await;
    browser.wait_for_text("Waiting · 1 pod").await.unwrap();
    browser.wait("document.querySelector('.aside .slowest:not([hidden]) a') !== null").await.unwrap();
    // Each function was loaded at least once. How often boards change then depends on where its replicas are.
    let loads = "Number(document.querySelectorAll('.figures .value span')[5].textContent) >= 4";
    browser.wait(loads).await.unwrap();
    let folder = pictures();
    for scheme in ["light", "dark"] {
        browser.prefer(scheme).await.unwrap();
        browser.picture(&folder.join(format!("demo-cluster-{scheme}.png"))).await.unwrap();
    }
    browser.prefer("light").await.unwrap();
    // Figures are drawn anew as they change.
    let changed = "new Promise(done => new MutationObserver((_, seen) => { seen.disconnect(); done(true); })\
        .observe(document.querySelector('.figures'), { childList: true, characterData: true, subtree: true }))";
    assert_eq!(browser.value(changed).await.unwrap(), true);

    browser.value("location.hash = '#/node/node-a'").await.unwrap();
    browser.wait("document.querySelector('.board-card .slot') !== null").await.unwrap();
    browser.wait("document.querySelector('tbody tr') !== null").await.unwrap();
    browser.picture(&folder.join("demo-node.png")).await.unwrap();
    browser.value("location.hash = '#/node/node-a/dm0'").await.unwrap();
    browser.wait("document.querySelector('h1').textContent === 'node-a / dm0'").await.unwrap();
    browser.wait("document.querySelectorAll('.board-card').length === 1").await.unwrap();
    browser.wait("document.querySelectorAll('.board-card .slot').length === 2").await.unwrap();
    browser.wait_for_text("slot by slot").await.unwrap();
    browser.picture(&folder.join("demo-board.png")).await.unwrap();

    browser.press("1").await.unwrap();
    browser.wait("document.querySelector('.aside .slowest:not([hidden]) a') !== null").await.unwrap();
    browser.value("document.querySelector('.aside .slowest a').click()").await.unwrap();
    browser.wait("document.querySelector('.waterfall li') !== null").await.unwrap();
    browser.wait("document.querySelector('.title .muted').textContent.startsWith('took ')").await.unwrap();

    browser.press("2").await.unwrap();
    browser.wait("document.querySelectorAll('.function-row').length === 4").await.unwrap();
    browser.picture(&folder.join("demo-functions.png")).await.unwrap();
    browser.value("location.hash = '#/function/default/sobel'").await.unwrap();
    browser.wait_for_text("the bitstream was loaded and a slot idle").await.unwrap();
    browser.wait("document.querySelectorAll('a[href^=\"#/trace/\"]').length >= 3").await.unwrap();
    browser.picture(&folder.join("demo-function.png")).await.unwrap();
    browser.value("document.querySelector('a[href^=\"#/trace/\"]').click()").await.unwrap();
    browser.wait("document.querySelector('.waterfall .kernel') !== null").await.unwrap();
    for scheme in ["dark", "light"] {
        browser.prefer(scheme).await.unwrap();
        browser.picture(&folder.join(format!("demo-trace-{scheme}.png"))).await.unwrap();
    }

    browser.press("3").await.unwrap();
    browser.wait("document.querySelectorAll('.decision-row').length >= 8").await.unwrap();
    browser.picture(&folder.join("demo-decisions.png")).await.unwrap();
    // The latest decisions may be for the pod that waits.
    for _ in 0..8 {
        browser.press("j").await.unwrap();
        if browser.value("document.querySelector('.row.selected').textContent.includes('→')").await.unwrap()
            == true
        {
            break;
        }
    }
    browser.press("Enter").await.unwrap();
    browser.wait_for_text("The scores of the nodes that fit").await.unwrap();
    browser.wait_for_text("← here").await.unwrap();
    browser.picture(&folder.join("demo-pod.png")).await.unwrap();
    browser.value(&format!("location.hash = '#/pod/default/{WAITING}'")).await.unwrap();
    browser.wait_for_text("So the pod waits until one of them does.").await.unwrap();
    let passed_over = "[...document.querySelectorAll('.reasons li')].map(li => li.innerText).join(' | ')";
    browser.wait_for_text("Passed over").await.unwrap();
    let passed_over = browser.value(passed_over).await.unwrap().as_str().unwrap_or_default().to_owned();
    for part in ["3", "FPGA vendor does not match", "node-a", "node-b", "node-c"] {
        assert!(passed_over.contains(part), "{part} is not in {passed_over}");
    }
    browser.picture(&folder.join("demo-pod-waits.png")).await.unwrap();
    assert_eq!(browser.complaints(), [""; 0]);

    demo.signal(Signal::SIGINT);
    let status = tokio::time::timeout(LONG, demo.wait()).await.unwrap();
    assert_eq!(status.code(), Some(130), "{}", std::fs::read_to_string(demo.log()).unwrap());
    browser.wait_for_text("connection lost").await.unwrap();
}

/// The folder of the demo's test bed.
fn run_folder(temporary: &Path) -> PathBuf {
    let folders = std::fs::read_dir(temporary).unwrap().map(|entry| entry.unwrap().path());
    let mut of_bed = folders.filter(|path| path.join("admin.kubeconfig").is_file());
    of_bed.next().unwrap()
}

/// Creates a pod that wants a board of another vendor.
async fn create_pod_that_waits(kubeconfig: &Path) {
    let config = kube_config::load(Some(kubeconfig), None).await.unwrap();
    let pods: Api<Pod> = Api::namespaced(Client::try_from(config).unwrap(), "default");
    let pod = Workload::accelerated(WAITING, ["true"]).bitstreams("sobel").requires("fpga-vendor", "intel");
    let pod = serde_json::from_value(pod.pod()).unwrap();
    pods.create(&PostParams::default(), &pod).await.unwrap();
}
