//! The streams' port over a real connection, with well-behaved collectors and others.

use fpga_net::token_file::TokenFile;
use fpga_node_stream::access::Access;
use fpga_node_stream::client::{Credentials, NodeStream, StreamError};
use fpga_node_stream::limits::{ANSWER_EVERY, MIN_SPACING};
use fpga_node_stream::server::receiver::Taken;
use fpga_node_stream::server::{Streams, serve};
use fpga_node_stream::v1::{Answer, Introduction, Verdict};
use fpga_scheduler_extender::app::App;
use fpga_scheduler_extender::clock::Clock;
use fpga_scheduler_extender::index::{Shown, Source};
use fpga_scheduler_extender::stream::IndexReceiver;
use fpga_test_kit::{on_paused_clock, until_async};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use std::collections::HashSet;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Instant;
use tempfile::TempDir;
use tokio::net::TcpListener;
use tokio::task::JoinHandle;
use tonic::Code;
use tonic::transport::Uri;

const NODES: [&str; 2] = ["n1", "n2"];

struct Replica {
    app: Arc<App>,
    streams: Arc<Streams>,
    uri: Uri,
    dir: TempDir,
    server: JoinHandle<std::io::Result<()>>,
}

impl Replica {
    /// A replica that knows two nodes.
    async fn start() -> Self {
        let replica = Self::start_without_nodes().await;
        replica.show_nodes();
        replica
    }

    async fn start_without_nodes() -> Self {
        let dir = TempDir::new().unwrap();
        std::fs::write(dir.path().join("token"), "a-token-for-these-tests").unwrap();
        let app = Arc::new(App::new(Default::default(), Clock::system()));
        let access = Access::Token(TokenFile::new(dir.path().join("token")));
        let (index, metrics) = (Arc::clone(&app.index), Arc::clone(&app.metrics));
        let streams = IndexReceiver { index, metrics, clock: app.clock.clone() }.streams(access);
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let uri = format!("http://{}", listener.local_addr().unwrap()).parse().unwrap();
        let server = tokio::spawn(serve(listener, Arc::clone(&streams)));
        Self { app, streams, uri, dir, server }
    }

    fn show_nodes(&self) {
        self.show_nodes_of("uid-of");
    }

    fn show_nodes_of(&self, cluster: &str) {
        for name in NODES {
            let node = ObjectMeta {
                name: Some(name.to_owned()),
                uid: Some(format!("{cluster}-{name}")),
                ..ObjectMeta::default()
            };
            self.app.index.apply(node, Shown::Listed, self.app.clock.read());
        }
        self.app.index.listed(&NODES.map(str::to_owned).into());
    }

    fn token(&self) -> PathBuf {
        self.dir.path().join("token")
    }

    async fn open_as(&self, access: &Access, node: &str, uid: &str) -> Result<NodeStream, StreamError> {
        let introduction = Introduction { node: node.to_owned(), uid: uid.to_owned() };
        let credentials = Credentials::from(access.clone());
        NodeStream::open(&self.uri.clone().into(), &credentials, introduction).await
    }

    /// A stream of a collector that has the token.
    async fn open(&self, node: &str, uid: &str) -> Result<NodeStream, StreamError> {
        self.open_as(&Access::Token(TokenFile::new(self.token())), node, uid).await
    }

    async fn refusal(&self, node: &str, uid: &str) -> Option<Code> {
        self.open(node, uid).await.unwrap_err().code()
    }

    fn known(&self, node: &str) -> (Source, Option<u64>) {
        let nodes = self.app.index.read();
        let known = nodes.get(node).unwrap();
        let state =
            known.facts.knowledge.fresh(self.app.clock.read().now).map(|received| received.state().seq);
        (known.source, state)
    }

    fn metrics(&self) -> String {
        self.app.metrics.count_nodes(&self.app.index, self.app.clock.read().now);
        let mut text = String::new();
        prometheus_client::encoding::text::encode(&mut text, &self.app.registry).unwrap();
        text
    }

    fn assert_metric(&self, line: &str) {
        let text = self.metrics();
        assert!(text.lines().any(|shown| shown == line), "no {line:?} in\n{text}");
    }
}

fn state(boot: u64, seq: u64) -> String {
    format!(
        r#"{{"v":1,"boot":{boot},"seq":{seq},"heartbeatMs":60000,"measuredAtMs":5,"windowMs":300000,"usageMs":0,"reconfigurationMs":0,"window":{{"bucketMs":10000}}}}"#
    )
}

async fn verdict(stream: &mut NodeStream, state: String) -> Verdict {
    stream.send(state).await.unwrap().verdict()
}

#[tokio::test]
async fn a_state_is_known_when_it_is_answered_and_the_answer_says_how_often_to_speak() {
    let replica = Replica::start().await;
    let mut stream = replica.open("n1", "uid-of-n1").await.unwrap();
    let answer = stream.send(state(1, 1)).await.unwrap();
    assert_eq!(answer.verdict(), Verdict::Taken);
    assert_eq!((answer.write_interval_ms, answer.update_interval_ms), (60_000, 450));
    assert_eq!(replica.known("n1"), (Source::Stream, Some(1)));
    assert_eq!(replica.known("n2"), (Source::None, None));
    // A repeated state, an older one, text that can't be decoded, and a state of a restarted collector.
    assert_eq!(verdict(&mut stream, state(1, 1)).await, Verdict::Outdated);
    assert_eq!(verdict(&mut stream, state(1, 0)).await, Verdict::Outdated);
    assert_eq!(verdict(&mut stream, "{]".to_owned()).await, Verdict::Unreadable);
    assert_eq!(verdict(&mut stream, String::new()).await, Verdict::Unreadable);
    assert_eq!(verdict(&mut stream, state(2, 1)).await, Verdict::Taken);
    replica.assert_metric("fpga_extender_states_total{source=\"stream\"} 2");
    replica.assert_metric("fpga_extender_outdated_states_total 2");
    replica.assert_metric("fpga_extender_unreadable_states_total 2");
    replica.assert_metric("fpga_extender_nodes_by_source{source=\"stream\"} 1");
    replica.assert_metric("fpga_extender_streams 1");
    let ages = replica.metrics();
    assert!(ages.contains("fpga_extender_state_age_seconds{source=\"stream\",rank=\"median\"}"), "{ages}");
    assert!(!ages.contains("fpga_extender_state_age_seconds{source=\"annotation\""), "there is none: {ages}");
}

#[tokio::test]
async fn an_update_that_wants_no_answer_is_taken_without_one() {
    let replica = Replica::start().await;
    let mut stream = replica.open("n1", "uid-of-n1").await.unwrap();
    stream.tell(state(1, 1)).await.unwrap();
    stream.tell("{]".to_owned()).await.unwrap();
    // The answer is for this update: the earlier ones, which asked for none, got none.
    assert_eq!(verdict(&mut stream, state(1, 1)).await, Verdict::Outdated);
    replica.assert_metric("fpga_extender_states_total{source=\"stream\"} 1");
    replica.assert_metric("fpga_extender_unreadable_states_total 1");
    // When the call ends while no update asks for an answer, a later update fails. Updates in flight may hide the
    // reason; a new call tells it.
    replica.show_nodes_of("another-cluster");
    let ended = until_async("the end of the call", async || stream.tell(state(1, 4)).await.err()).await;
    assert!(!matches!(ended, StreamError::Timeout), "{ended:?}");
    assert_eq!(replica.refusal("n1", "uid-of-n1").await, Some(Code::FailedPrecondition));
}

#[tokio::test]
async fn a_collector_asks_for_an_answer_when_the_last_one_is_old() {
    on_paused_clock(async {
        let replica = Replica::start().await;
        let mut stream = replica.open("n2", "uid-of-n2").await.unwrap();
        let mut answered =
            async |seq| stream.update(state(1, seq)).await.unwrap().map(|answer: Answer| answer.verdict());
        assert_eq!(answered(1).await, Some(Verdict::Taken));
        assert_eq!(answered(2).await, None);
        tokio::time::advance(ANSWER_EVERY).await;
        assert_eq!(answered(3).await, Some(Verdict::Taken));
        assert_eq!(replica.known("n2"), (Source::Stream, Some(3)));
    })
    .await;
}

#[tokio::test]
async fn who_has_not_the_token_is_not_listened_to() {
    let replica = Replica::start().await;
    let wrong = replica.dir.path().join("wrong");
    std::fs::write(&wrong, "another-token-altogether").unwrap();
    for access in [Access::Open, Access::Token(TokenFile::new(wrong))] {
        let refused = replica.open_as(&access, "n1", "uid-of-n1").await.unwrap_err();
        assert_eq!(refused.code(), Some(Code::Unauthenticated));
    }
    replica.assert_metric("fpga_extender_streams_refused_total{reason=\"token\"} 2");
    // A changed Secret is read again. Without a Secret every stream is refused.
    let stale = replica.dir.path().join("stale");
    std::fs::copy(replica.token(), &stale).unwrap();
    std::fs::write(replica.token(), "the-next-token-of-these-tests").unwrap();
    let refused = replica.open_as(&Access::Token(TokenFile::new(stale)), "n1", "uid-of-n1").await;
    assert_eq!(refused.unwrap_err().code(), Some(Code::Unauthenticated));
    replica.open("n1", "uid-of-n1").await.unwrap();
    let shown = replica.dir.path().join("shown");
    std::fs::rename(replica.token(), &shown).unwrap();
    let refused = replica.open_as(&Access::Token(TokenFile::new(shown)), "n1", "uid-of-n1").await;
    assert_eq!(refused.unwrap_err().code(), Some(Code::Unavailable));
}

#[tokio::test]
async fn a_stream_is_for_a_node_that_the_api_server_knows_under_that_uid() {
    let replica = Replica::start_without_nodes().await;
    assert_eq!(replica.refusal("n1", "uid-of-n1").await, Some(Code::Unavailable), "not synced");
    replica.show_nodes();
    assert_eq!(replica.refusal("n3", "uid-of-n3").await, Some(Code::NotFound));
    assert_eq!(replica.refusal("n1", "uid-of-n2").await, Some(Code::FailedPrecondition));
    for (node, uid) in [("", "u"), ("n1", ""), (&*"n".repeat(300), "u"), ("n1", &*"u".repeat(300))] {
        assert_eq!(replica.refusal(node, uid).await, Some(Code::InvalidArgument));
    }
    // The node is deleted while its stream is open.
    let mut stream = replica.open("n1", "uid-of-n1").await.unwrap();
    assert_eq!(verdict(&mut stream, state(1, 1)).await, Verdict::Taken);
    replica.app.index.listed(&HashSet::from(["n2".to_owned()]));
    assert_eq!(stream.send(state(1, 2)).await.unwrap_err().code(), Some(Code::NotFound));
    assert!(!replica.app.index.read().contains_key("n1"), "a stream makes no node");
}

#[tokio::test]
async fn a_newer_stream_of_a_node_takes_the_place_of_the_older() {
    let replica = Replica::start().await;
    let mut older = replica.open("n1", "uid-of-n1").await.unwrap();
    let mut other = replica.open("n2", "uid-of-n2").await.unwrap();
    assert_eq!(verdict(&mut older, state(1, 1)).await, Verdict::Taken);
    let mut newer = replica.open("n1", "uid-of-n1").await.unwrap();
    assert_eq!(older.send(state(1, 2)).await.unwrap_err().code(), Some(Code::Aborted));
    assert_eq!(verdict(&mut newer, state(1, 3)).await, Verdict::Taken);
    assert_eq!(verdict(&mut other, state(1, 1)).await, Verdict::Taken);
    replica.assert_metric("fpga_extender_streams 2");
    replica.assert_metric("fpga_extender_streams_refused_total{reason=\"replaced\"} 1");
}

#[tokio::test]
async fn a_collector_that_rushes_is_made_to_wait_and_one_that_floods_is_cut_off() {
    let replica = Replica::start().await;
    let mut stream = replica.open("n1", "uid-of-n1").await.unwrap();
    let begin = Instant::now();
    for seq in 1..=6 {
        assert_eq!(verdict(&mut stream, state(1, seq)).await, Verdict::Taken);
    }
    assert!(begin.elapsed() >= MIN_SPACING * 5, "{:?}", begin.elapsed());
    // An update longer than any message is not read.
    let flood = stream.send("x".repeat(1 << 20)).await.unwrap_err();
    assert!(flood.code().is_some(), "{flood}");
    // A long update that is not a state is answered, and the stream goes on.
    let mut stream = replica.open("n1", "uid-of-n1").await.unwrap();
    assert_eq!(verdict(&mut stream, "x".repeat(65_000)).await, Verdict::Unreadable);
    assert_eq!(verdict(&mut stream, state(1, 7)).await, Verdict::Taken);
}

#[tokio::test]
async fn intervals_follow_the_number_of_nodes_that_speak() {
    let replica = Replica::start().await;
    let at = replica.app.clock.read();
    for node in 0..5_000 {
        let meta =
            ObjectMeta { name: Some(format!("m{node}")), uid: Some("u".to_owned()), ..ObjectMeta::default() };
        replica.app.index.apply(meta, Shown::Listed, at);
    }
    replica.streams.refresh_intervals();
    assert_eq!(replica.streams.intervals().write.0, 60_000, "nodes without boards write nothing");
    for node in 0..5_000 {
        let text = fpga_core::node_state::decode(&state(1, 1)).unwrap();
        let taken = replica.app.index.stream(&format!("m{node}"), "u", text, at);
        assert_eq!(taken, Ok(Taken::Yes));
    }
    replica.streams.refresh_intervals();
    assert_eq!(replica.streams.intervals().write.0, 250_000);
}

#[tokio::test]
async fn a_replica_that_ends_says_so_to_nobody_but_is_found_out() {
    let replica = Replica::start().await;
    let mut stream = replica.open("n1", "uid-of-n1").await.unwrap();
    assert_eq!(verdict(&mut stream, state(1, 1)).await, Verdict::Taken);
    replica.server.abort();
    // The streams' thread may still answer one update before it ends.
    let mut seq = 1;
    let ended = until_async("the end of the stream", async || {
        seq += 1;
        stream.send(state(1, seq)).await.err()
    })
    .await;
    assert!(!matches!(ended, StreamError::Timeout), "{ended}");
}
