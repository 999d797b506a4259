//! The demo, shortened: it succeeds, and leaves no process behind however it ends.

use fpga_tests::testbed::process::{Process, ProcessSpec};
use fpga_tests::testbed::real_node::leftovers;
use fpga_tests::testbed::wait;
use nix::sys::signal::Signal;
use std::path::{Path, PathBuf};
use std::time::Duration;

const LONG: Duration = Duration::from_secs(240);
/// Longest time that the demo may take to end when it is interrupted, and its processes with it.
const END: Duration = Duration::from_secs(60);
/// Longest time that the demo may take on real nodes.
const REAL: Duration = Duration::from_secs(300);

struct Demo {
    process: Process,
    dir: tempfile::TempDir,
}

impl Demo {
    fn start() -> Self {
        Self::start_with(&[])
    }

    fn start_with(arguments: &[&str]) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let spec = ProcessSpec::new("fpga-demo", env!("CARGO_BIN_EXE_fpga-demo"), dir.path().join("log"))
            .args(["--seconds", "5", "--picture"])
            .arg(dir.path().join("sobel.png"))
            .args(arguments.iter().copied().map(String::from))
            // Put the run's folder below this one, so that its processes are recognized by their paths.
            .env("TMPDIR", dir.path().display().to_string());
        Self { process: Process::start(&spec).unwrap(), dir }
    }

    async fn wait_until_it_says(&self, what: &str) {
        let look = async || {
            self.process.check_running()?;
            Ok(std::fs::read_to_string(self.process.log())?.contains(what).then_some(()))
        };
        wait::until_within(&format!("the demo to say {what:?}"), LONG, look).await.unwrap();
    }

    async fn assert_nothing_is_left(&self) {
        let look = async || Ok(processes_of(self.dir.path()).is_empty().then_some(()));
        let result = wait::until_within("the demo's processes to end", END, look).await;
        result.unwrap_or_else(|error| panic!("{error}: {:?}", processes_of(self.dir.path())));
    }
}

/// The processes with a path in `dir` in their arguments or environment.
fn processes_of(dir: &Path) -> Vec<String> {
    let dir = dir.display().to_string();
    let mentions = |process: &PathBuf, file: &str| {
        let text = std::fs::read(process.join(file)).unwrap_or_default();
        String::from_utf8_lossy(&text).contains(&dir)
    };
    let processes = std::fs::read_dir("/proc").unwrap().flatten().map(|entry| entry.path());
    processes
        .filter(|process| mentions(process, "cmdline") || mentions(process, "environ"))
        .map(|process| std::fs::read_to_string(process.join("comm")).unwrap_or_default().trim().to_owned())
        .collect()
}

/// The documents and commands that the demo names at its end as what to try next.
fn next(log: &str) -> Vec<&str> {
    let (_, lines) = log.split_once("\nWhat to try next\n").unwrap_or_default();
    lines.lines().filter_map(|line| line.trim().split("  ").next()).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn it_succeeds_and_leaves_a_picture_and_no_process() {
    let demo = Demo::start();
    let status = tokio::time::timeout(LONG, demo.process.wait()).await.unwrap();
    let log = std::fs::read_to_string(demo.process.log()).unwrap();
    assert!(status.success(), "{status}: {log}");
    for word in
        ["Watch it live:  http://127.0.0.1:", "verified results", "reconfigurations", "score per node"]
    {
        assert!(log.contains(word), "no {word} in {log}");
    }
    assert_eq!(next(&log), ["book/use/c.md", "book/quick-start.md", "make demo POOL=1"], "{log}");
    let picture = std::fs::read(demo.dir.path().join("sobel.png")).unwrap();
    assert!(picture.starts_with(b"\x89PNG"));
    demo.assert_nothing_is_left().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn interrupted_or_killed_it_leaves_no_process() {
    for (signal, code) in [(Signal::SIGINT, Some(130)), (Signal::SIGTERM, Some(143)), (Signal::SIGKILL, None)]
    {
        let demo = Demo::start();
        demo.wait_until_it_says("following the trace").await;
        assert!(processes_of(demo.dir.path()).len() >= 15, "{:?}", processes_of(demo.dir.path()));
        // Signal only the demo, as Ctrl-C does: its children are in their own process groups.
        nix::sys::signal::kill(nix::unistd::Pid::from_raw(demo.process.pid()), signal).unwrap();
        let status = tokio::time::timeout(END, demo.process.wait()).await.unwrap();
        assert_eq!(status.code(), code, "{signal}");
        demo.assert_nothing_is_left().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_pools_demo_succeeds_and_leaves_no_process_also_when_interrupted() {
    let demo = Demo::start_with(&["--pool"]);
    let status = tokio::time::timeout(LONG, demo.process.wait()).await.unwrap();
    let log = std::fs::read_to_string(demo.process.log()).unwrap();
    assert!(status.success(), "{status}: {log}");
    for word in
        ["6 of 6 jobs verified", "waits: all fitting slots are taken", "aes-256-ctr of mill", "no board"]
    {
        assert!(log.contains(word), "no {word} in {log}");
    }
    assert_eq!(next(&log), ["book/use/jobs.md", "book/quick-start.md", "make demo"], "{log}");
    demo.assert_nothing_is_left().await;

    let demo = Demo::start_with(&["--pool"]);
    demo.wait_until_it_says("busy").await;
    assert!(processes_of(demo.dir.path()).len() >= 4, "{:?}", processes_of(demo.dir.path()));
    nix::sys::signal::kill(nix::unistd::Pid::from_raw(demo.process.pid()), Signal::SIGINT).unwrap();
    let status = tokio::time::timeout(END, demo.process.wait()).await.unwrap();
    assert_eq!(status.code(), Some(130));
    demo.assert_nothing_is_left().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs root, runc and the CNI plugins: make test-node"]
async fn on_real_nodes_it_succeeds_in_pods_and_leaves_nothing_and_neither_does_its_interruption() {
    let demo = Demo::start_with(&["--nodes", "real"]);
    let status = tokio::time::timeout(REAL, demo.process.wait()).await.unwrap();
    let log = std::fs::read_to_string(demo.process.log()).unwrap();
    assert!(status.success(), "{status}: {log}");
    for word in
        ["2 real nodes", "go by the router", "verified results", "where the bitstream was", "score per node"]
    {
        assert!(log.contains(word), "no {word} in {log}");
    }
    demo.assert_nothing_is_left().await;
    assert_eq!(leftovers(demo.process.pid().unsigned_abs()), [""; 0]);

    let demo = Demo::start_with(&["--nodes", "real"]);
    let program = demo.process.pid();
    wait::until_within("a node to start", REAL, async || {
        demo.process.check_running()?;
        Ok((!leftovers(program.unsigned_abs()).is_empty()).then_some(()))
    })
    .await
    .unwrap();
    nix::sys::signal::kill(nix::unistd::Pid::from_raw(program), Signal::SIGINT).unwrap();
    let status = tokio::time::timeout(LONG, demo.process.wait()).await.unwrap();
    assert_eq!(status.code(), Some(130));
    demo.assert_nothing_is_left().await;
    assert_eq!(leftovers(program.unsigned_abs()), [""; 0]);
}
