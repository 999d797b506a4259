//! Streams are fast and spare the API server: collectors report a task to the extender's replicas a moment after its
//! end, and write few annotations. Programs and API server are real; replicas and nodes die and return.

use fpga_test_kit::patience;
use fpga_tests::testbed::control_plane::ControlPlane;
use fpga_tests::testbed::http_client::HttpClient;
use fpga_tests::testbed::identity::Identity;
use fpga_tests::testbed::process::{Process, ProcessSpec};
use fpga_tests::testbed::{programs, wait};
use k8s_openapi::api::core::v1::Node;
use k8s_openapi::jiff::Timestamp;
use kube::Api;
use kube::api::{DeleteParams, PostParams};
use serde_json::{Value, json};
use std::path::PathBuf;
use std::time::{Duration, Instant};

const NODE: &str = "n1";
const TOKEN: &str = "a-token-for-this-test-only";
/// Length of the time in which writes of the annotation are counted.
const COUNTED: Duration = Duration::from_secs(4);

/// A control plane with one node, two replicas of the extender, and the node's collector.
struct Bed {
    plane: ControlPlane,
    http: HttpClient,
    replicas: [Option<Process>; 2],
    collector: Option<Process>,
    task: u64,
}

/// Port of a replica on the control plane's address.
fn port(replica: usize) -> u16 {
    9471 + u16::try_from(replica).unwrap()
}

fn stream_port(replica: usize) -> u16 {
    9481 + u16::try_from(replica).unwrap()
}

impl Bed {
    async fn start() -> Self {
        let plane = ControlPlane::start(&[]).await.unwrap();
        std::fs::write(plane.run_dir().path().join("token"), format!("{TOKEN}\n")).unwrap();
        let http = HttpClient::new(patience());
        let mut bed = Self { plane, http, replicas: [None, None], collector: None, task: 0 };
        bed.create_node().await;
        for replica in 0..2 {
            bed.start_replica(replica).await;
        }
        bed
    }

    fn nodes(&self) -> Api<Node> {
        Api::all(self.plane.client().clone())
    }

    async fn create_node(&self) {
        let node = json!({"metadata": {"name": NODE}});
        let node = serde_json::from_value(node).unwrap();
        self.nodes().create(&PostParams::default(), &node).await.unwrap();
    }

    async fn uid(&self) -> String {
        self.nodes().get(NODE).await.unwrap().metadata.uid.unwrap()
    }

    async fn annotation(&self) -> Option<String> {
        let annotations = self.nodes().get(NODE).await.unwrap().metadata.annotations;
        annotations.unwrap_or_default().remove("fpga-scheduling.io/node-state")
    }

    fn token_file(&self) -> PathBuf {
        self.plane.run_dir().path().join("token")
    }

    fn process(&self, program: &str, name: &str) -> ProcessSpec {
        let log = self.plane.run_dir().log(name);
        ProcessSpec::new(name, programs::built(program).unwrap(), log)
    }

    async fn start_replica(&mut self, replica: usize) {
        let host = self.plane.network().control_plane();
        let spec = self
            .process("fpga-scheduler-extender", &format!("extender-{replica}"))
            .args(["--listen".to_owned(), format!("{host}:{}", port(replica))])
            .args(["--stream-listen".to_owned(), format!("{host}:{}", stream_port(replica))])
            .args(["--shutdown-delay", "0s", "--stream-without-tls", "--stream-token-file"])
            .arg(self.token_file())
            .arg("--kubeconfig")
            .arg(self.plane.kubeconfig(&Identity::Admin).unwrap());
        let process = Process::start(&spec).unwrap();
        process.wait_ready(&self.http, &self.replica_url(replica, "/readyz"), patience()).await.unwrap();
        self.replicas[replica] = Some(process);
    }

    async fn kill_replica(&mut self, replica: usize) {
        self.replicas[replica].take().unwrap().kill().await;
    }

    /// Starts the collector with a board.
    async fn start_collector(&mut self, token_file: PathBuf, args: &[&str]) {
        let host = self.plane.network().control_plane();
        let replicas = [0, 1].map(|replica| format!("http://{host}:{}", stream_port(replica)));
        let spec = self
            .process("fpga-collector", "collector")
            .args(programs::collector_args(
                NODE,
                &self.collector_address(),
                &self.plane.run_dir().path().join("checkpoint"),
            ))
            .args(["--extenders".to_owned(), replicas.join(",")])
            .args(["--stream-without-tls", "--stream-token-file"])
            .arg(token_file)
            .args(args);
        self.collector = Some(Process::start(&spec).unwrap());
        let url = self.collector_url("/v1/devices/dm0");
        let board = json!({"id": "dm0", "vendor": "intel", "slots": 4096, "health": "healthy"}).to_string();
        wait::until("the collector to take the board", async || {
            Ok(self.http.put(&url, board.clone()).await?.status.is_success().then_some(()))
        })
        .await
        .unwrap();
    }

    fn collector_address(&self) -> String {
        format!("{}:9460", self.plane.network().node(0).host())
    }

    fn collector_url(&self, path: &str) -> String {
        format!("http://{}{path}", self.collector_address())
    }

    fn replica_url(&self, replica: usize, path: &str) -> String {
        format!("http://{}:{}{path}", self.plane.network().control_plane(), port(replica))
    }

    /// A replica's knowledge of the node.
    async fn known(&self, replica: usize) -> Value {
        let url = self.replica_url(replica, "/nodes");
        let nodes = self.http.get(&url).await.unwrap().json().unwrap();
        nodes.as_array().into_iter().flatten().find(|node| node["name"] == NODE).cloned().unwrap_or_default()
    }

    async fn wait_until_streamed(&self, replica: usize) {
        let look = async || Ok((self.known(replica).await["source"] == "stream").then_some(()));
        wait::until(&format!("replica {replica} to know the node by its stream"), look).await.unwrap();
    }

    async fn metric(&self, name: &str) -> f64 {
        self.http.get(&self.collector_url("/metrics")).await.unwrap().metric(name)
    }

    /// Number of annotations written so far.
    async fn writes(&self) -> f64 {
        self.metric("fpga_collector_publications_total").await
    }

    /// Ends a task of this length now, and returns the name of its bitstream, which no other task has.
    async fn end_task(&mut self, millis: u64) -> String {
        self.task += 1;
        let name = format!("task-{}", self.task);
        let now = Timestamp::now().as_millisecond();
        let event = json!({
            "timestamp_ms": now, "duration_ms": millis, "reconfiguration_ms": 0, "bitstream_identifier": name,
            "reporter": 1, "seq": self.task, "device": "dm0",
        });
        let answer = self.http.post(&self.collector_url("/v1/events"), event.to_string()).await.unwrap();
        assert_eq!(answer.json().unwrap()["accepted"], 1, "{}", answer.text());
        name
    }

    /// Ends a task and returns the time until decisions of all `replicas` reflect it.
    async fn task_to_decision(&mut self, replicas: &[usize]) -> Duration {
        let ended = Instant::now();
        let name = self.end_task(7).await;
        for replica in replicas {
            while !self.known(*replica).await["known"]["state"]["bitstreams"]
                .as_array()
                .is_some_and(|bitstreams| bitstreams.iter().any(|bitstream| bitstream["name"] == *name))
            {
                assert!(ended.elapsed() < patience(), "replica {replica} never heard of {name}");
                tokio::time::sleep(Duration::from_millis(2)).await;
            }
        }
        ended.elapsed()
    }

    /// Number of annotations written in [`COUNTED`] while tasks with a considerable usage end.
    async fn writes_while_busy(&mut self) -> f64 {
        let (before, begin) = (self.writes().await, Instant::now());
        while begin.elapsed() < COUNTED {
            self.end_task(60_000).await;
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        self.writes().await - before
    }

    /// Waits until so many annotations are written, while tasks end.
    async fn wait_until_written(&mut self, writes: f64) {
        let what = format!("{writes} annotations to be written for want of streams");
        let this = &mut *self;
        wait::until(&what, async || {
            this.end_task(60_000).await;
            Ok((this.writes().await >= writes).then_some(()))
        })
        .await
        .unwrap();
    }

    async fn stop(self) {
        for process in self.collector.iter().chain(self.replicas.iter().flatten()) {
            assert!(process.stop(patience()).await.success(), "{}: {}", process.name(), process.log_tail());
        }
        self.plane.stop().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_task_is_seen_by_every_replica_also_while_others_are_dead() {
    let mut bed = Bed::start().await;
    let kubeconfig = bed.plane.kubeconfig(&Identity::Admin).unwrap().to_str().unwrap().to_owned();
    let args = ["--kubeconfig", &kubeconfig, "--min-write-interval", "300ms"];
    bed.start_collector(bed.token_file(), &args).await;
    for replica in 0..2 {
        bed.wait_until_streamed(replica).await;
    }

    let mut times = Vec::new();
    for _ in 0..20 {
        times.push(bed.task_to_decision(&[0, 1]).await);
    }
    times.sort_unstable();
    eprintln!("task end → both replicas: median {:?}, slowest of {} {:?}", times[10], times.len(), times[19]);

    let age = "fpga_extender_state_age_seconds";
    let shown = bed.http.get(&bed.replica_url(0, "/metrics")).await.unwrap().text();
    assert!(shown.contains(&format!("{age}{{source=\"stream\",rank=\"p99\"}}")), "{shown}");

    // When one replica dies, the other still gets the stream.
    bed.kill_replica(0).await;
    let alone = bed.task_to_decision(&[1]).await;
    eprintln!("task end → the other replica, while one is dead: {alone:?}");
    bed.start_replica(0).await;
    bed.wait_until_streamed(0).await;
    bed.task_to_decision(&[0, 1]).await;

    // When both replicas are dead, the state is in the annotation again.
    bed.kill_replica(0).await;
    bed.kill_replica(1).await;
    let before = bed.writes().await;
    bed.wait_until_written(before + 1.0).await;

    // Replicas that return know the node from its annotation at once, and by its stream soon after.
    for replica in 0..2 {
        bed.start_replica(replica).await;
        assert_eq!(bed.known(replica).await["freshness"], "fresh");
        bed.wait_until_streamed(replica).await;
    }
    let times = [bed.task_to_decision(&[0, 1]).await, bed.task_to_decision(&[0, 1]).await];
    eprintln!("task end → both replicas, after they came back: {times:?}");
    bed.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_that_is_made_anew_is_streamed_under_its_new_uid_and_annotated_at_once() {
    let mut bed = Bed::start().await;
    let kubeconfig = bed.plane.kubeconfig(&Identity::Admin).unwrap().to_str().unwrap().to_owned();
    bed.start_collector(bed.token_file(), &["--kubeconfig", &kubeconfig]).await;
    bed.wait_until_streamed(0).await;
    let before = bed.uid().await;
    bed.nodes().delete(NODE, &DeleteParams::default()).await.unwrap();
    wait::until("the node to be gone", async || Ok(bed.nodes().get_opt(NODE).await?.is_none().then_some(())))
        .await
        .unwrap();
    bed.create_node().await;
    assert_ne!(bed.uid().await, before);
    for replica in 0..2 {
        bed.wait_until_streamed(replica).await;
    }
    bed.task_to_decision(&[0, 1]).await;
    wait::until("the new node's annotation", async || Ok(bed.annotation().await.map(drop))).await.unwrap();
    bed.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_the_token_or_for_another_node_object_nobody_is_believed() {
    let mut bed = Bed::start().await;
    let uid = bed.uid().await;
    let wrong = bed.plane.run_dir().path().join("wrong-token");
    std::fs::write(&wrong, "not-the-token-of-this-test").unwrap();
    let failures = "fpga_collector_stream_failures_total";
    let failed = async |bed: &Bed, reason: &str| {
        let text = bed.http.get(&bed.collector_url("/metrics")).await?.text();
        let line = format!("{failures}{{reason=\"{reason}\"}}");
        anyhow::Ok(text.lines().any(|shown| shown.starts_with(&line)).then_some(()))
    };

    bed.start_collector(wrong, &["--no-publish", "--node-uid", &uid]).await;
    wait::until("the wrong token to be refused", async || failed(&bed, "token").await).await.unwrap();
    assert_eq!(bed.known(0).await["source"], "none");
    bed.collector.take().unwrap().kill().await;

    bed.start_collector(bed.token_file(), &["--no-publish", "--node-uid", "another"]).await;
    wait::until("the wrong UID to be refused", async || failed(&bed, "node").await).await.unwrap();
    assert_eq!(bed.known(0).await["source"], "none");
    bed.collector.take().unwrap().kill().await;

    // With the right token and UID the node is known without any annotation.
    bed.start_collector(bed.token_file(), &["--no-publish", "--node-uid", &uid]).await;
    for replica in 0..2 {
        bed.wait_until_streamed(replica).await;
    }
    bed.task_to_decision(&[0, 1]).await;
    assert_eq!(bed.annotation().await, None);
    // After a kill the collector continues from its checkpoint with a later boot number, so that it is believed at
    // once.
    bed.collector.take().unwrap().kill().await;
    bed.start_collector(bed.token_file(), &["--no-publish", "--node-uid", &uid]).await;
    let again = bed.task_to_decision(&[0, 1]).await;
    eprintln!("task end → both replicas, after a kill of the collector: {again:?}");
    bed.stop().await;
}

mod timing {
    use super::*;

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    #[ignore = "measures the machine: make test-timing"]
    async fn annotations_rest_beside_a_stream_and_are_as_many_as_before_without_one() {
        let mut bed = Bed::start().await;
        let kubeconfig = bed.plane.kubeconfig(&Identity::Admin).unwrap().to_str().unwrap().to_owned();
        let args = ["--kubeconfig", &kubeconfig, "--min-write-interval", "300ms"];
        bed.start_collector(bed.token_file(), &args).await;
        for replica in 0..2 {
            bed.wait_until_streamed(replica).await;
        }
        // The annotation for the new board may be written within this time.
        let streaming = bed.writes_while_busy().await;
        assert!(streaming <= 2.0, "{streaming} annotations in {COUNTED:?} beside two streams");
        bed.kill_replica(0).await;
        let streaming = bed.writes_while_busy().await;
        assert!(streaming <= 2.0, "{streaming} annotations in {COUNTED:?} beside one stream");
        bed.kill_replica(1).await;
        let before = bed.writes().await;
        bed.wait_until_written(before + 2.0).await;
        let without = bed.writes_while_busy().await;
        assert!(without >= 4.0, "{without} annotations in {COUNTED:?} without streams");
        bed.stop().await;
    }
}
