//! The real extender under hostile callers: how much memory it uses, and whether it still answers.

use fpga_test_kit::patience;
use fpga_tests::testbed::fake_api::FakeApi;
use fpga_tests::testbed::http_client::HttpClient;
use fpga_tests::testbed::memory::memory_mib;
use fpga_tests::testbed::process::{Process, ProcessSpec};
use fpga_tests::testbed::programs::built;
use fpga_tests::testbed::run_dir::RunDir;
use fpga_tests::testbed::wait;
use serde_json::{Value, json};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

const NODES: usize = 500;
/// Most memory that the extender may ever use, in MiB: 64 for decisions, 32 for people's requests, 38 for a longest body
/// that was just freed (the allocator gives memory back to the kernel up to a tenth of a second later), 26 for the rest.
/// Without its budgets the extender would hold 8 longest bodies, 304 MiB.
const MOST_MIB: f64 = 160.0;
/// Number of concurrent slow uploads, and of connections with forged requests.
const UPLOADS: usize = 8;
const FORGERS: usize = 4;
/// Number of connections that request all nodes and don't read the answer.
const READERS: usize = 16;
/// Number of the real scheduler's calls during the attack.
const REAL_CALLS: usize = 200;
/// Number of uploads that must have been cut off before the test ends.
const CUT_OFF: usize = 2 * UPLOADS;

/// The attackers' counters.
#[derive(Default)]
struct Attack {
    uploaded: AtomicUsize,
    cut_off: AtomicUsize,
    forged: AtomicUsize,
}

fn request(uid: &str) -> Value {
    let names: Vec<String> = (0..NODES).map(|index| format!("node-{index:05}")).collect();
    json!({
        "Pod": {"metadata": {
            "name": format!("pod-{uid}"), "namespace": "default", "uid": uid,
            "labels": {"fpga-scheduling.io/fpga-vendor": "intel"},
            "annotations": {"fpga-scheduling.io/bitstreams": "accelerator-7"},
        }},
        "NodeNames": names,
    })
}

/// Sends the largest accepted body except for its end, and then waits, in a loop.
async fn upload_slowly(address: String, bytes: usize, attack: Arc<Attack>) {
    loop {
        let mut stream = TcpStream::connect(&address).await.unwrap();
        let head = format!("POST /filter HTTP/1.1\r\nHost: x\r\nContent-Length: {bytes}\r\n\r\n");
        let piece = vec![b' '; 1 << 16];
        let upload = async {
            stream.write_all(head.as_bytes()).await?;
            for _ in 0..bytes / piece.len() - 1 {
                stream.write_all(&piece).await?;
                attack.uploaded.fetch_add(piece.len(), Ordering::Relaxed);
            }
            std::io::Result::Ok(())
        };
        // A refused upload fails here, or gets an answer below.
        let _ = upload.await;
        let mut answer = [0; 1024];
        // No answer comes until the extender ends the connection.
        let _ = stream.read(&mut answer).await;
        attack.cut_off.fetch_add(1, Ordering::Relaxed);
    }
}

/// Requests all nodes and reads only the beginning of the answer, in a loop.
async fn read_slowly(address: String) {
    loop {
        let mut stream = TcpStream::connect(&address).await.unwrap();
        let mut begin = [0; 16];
        // The request may be refused or answered; the test checks that others are served.
        let _ = stream.write_all(b"GET /nodes HTTP/1.1\r\nHost: x\r\n\r\n").await;
        let _ = stream.read(&mut begin).await;
        tokio::time::sleep(Duration::from_millis(500)).await;
    }
}

/// Requests scores for pods that don't exist, in a loop.
async fn forge(url: String, number: usize, attack: Arc<Attack>) {
    let http = HttpClient::new(patience());
    loop {
        let forged = attack.forged.fetch_add(1, Ordering::Relaxed);
        let body = request(&format!("forged-{number}-{forged}")).to_string();
        // The answer doesn't matter.
        let _ = http.post(&format!("{url}/prioritize"), body).await;
    }
}

/// The longest body that the extender accepts, found by bisection: the extender refuses a longer one after its head.
async fn longest(address: &str) -> usize {
    let is_taken = async |bytes: usize| {
        let mut stream = TcpStream::connect(address).await.unwrap();
        let head = format!(
            "POST /filter HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nContent-Length: {bytes}\r\n\r\n"
        );
        stream.write_all(head.as_bytes()).await.unwrap();
        let mut answer = [0; 12];
        stream.read_exact(&mut answer).await.unwrap();
        &answer == b"HTTP/1.1 100"
    };
    let (mut taken, mut refused) = (1 << 20, 1 << 30);
    assert!(is_taken(taken).await && !is_taken(refused).await);
    while refused - taken > 1 << 16 {
        let middle = usize::midpoint(taken, refused);
        if is_taken(middle).await { taken = middle } else { refused = middle }
    }
    taken
}

mod timing {
    use super::*;

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    #[ignore = "measures the machine: make test-timing"]
    async fn slow_uploads_and_forged_decisions_take_little_memory_and_keep_no_real_call_waiting() {
        let run_dir = RunDir::new().unwrap();
        let api = FakeApi::start(NODES, 100);
        let (kubeconfig, ready) = (run_dir.path().join("kubeconfig"), run_dir.path().join("ready"));
        api.write_kubeconfig(&kubeconfig);
        let name = "fpga-scheduler-extender";
        let spec = ProcessSpec::new(name, built(name).unwrap(), run_dir.log(name))
            .args([
                "--listen",
                "127.0.0.1:0",
                "--read-listen",
                "127.0.0.1:0",
                "--read-access",
                "anyone",
                "--shutdown-delay",
                "0s",
                "--log",
                "error",
                "--ready-file",
            ])
            .arg(&ready)
            .arg("--kubeconfig")
            .arg(&kubeconfig);
        let extender = Process::start(&spec).unwrap();
        let http = HttpClient::new(patience());
        let (address, reading) = wait::until("the extender to be ready", async || {
            extender.check_running()?;
            let Ok(text) = std::fs::read_to_string(&ready) else { return Ok(None) };
            let address = text.lines().next().unwrap_or_default().to_owned();
            let reading =
                text.lines().find_map(|line| line.strip_prefix("read:")).unwrap_or_default().to_owned();
            let status = http.get(&format!("http://{address}/readyz")).await?.status;
            Ok(status.is_success().then_some((address, reading)))
        })
        .await
        .unwrap();
        let url = format!("http://{address}");

        // Find the limit of bodies by requests.
        let longest_body = longest(&address).await;
        let attack = Arc::<Attack>::default();
        let mut attackers = tokio::task::JoinSet::new();
        for _ in 0..UPLOADS {
            attackers.spawn(upload_slowly(address.clone(), longest_body, Arc::clone(&attack)));
        }
        for _ in 0..READERS {
            attackers.spawn(read_slowly(reading.clone()));
        }
        for number in 0..FORGERS {
            attackers.spawn(forge(url.clone(), number, Arc::clone(&attack)));
        }
        let mut calls = 0;
        let real = async {
            while calls < REAL_CALLS || attack.cut_off.load(Ordering::Relaxed) < CUT_OFF {
                for verb in ["filter", "prioritize"] {
                    let body = request(&format!("real-{calls}")).to_string();
                    let answer = http.post(&format!("{url}/{verb}"), body).await.unwrap();
                    assert_eq!(answer.status.as_u16(), 200, "real call {calls}: {}", answer.text());
                    calls += 1;
                }
            }
        };
        tokio::time::timeout(2 * patience(), real)
            .await
            .expect("real calls are answered and uploads cut off");
        let (forged, uploaded) =
            (attack.forged.load(Ordering::Relaxed), attack.uploaded.load(Ordering::Relaxed) >> 20);
        assert!(forged > FORGERS && uploaded > 64, "{forged} requests forged, {uploaded} MiB uploaded");
        attackers.shutdown().await;

        let most = memory_mib(extender.pid(), "VmHWM").unwrap();
        println!(
            "{calls} real calls among {forged} forged ones and {uploaded} MiB of uploads: at most {most:.0} MiB"
        );
        assert!(most < MOST_MIB, "it had {most:.0} MiB");
        let metrics = http.get(&format!("{url}/metrics")).await.unwrap();
        let waiting = metrics.metric("fpga_extender_awaited_bindings");
        assert!(waiting.abs() < 0.5, "{waiting} decisions about pods that nobody created count");
        extender.stop(patience()).await;
    }
}
