//! The stream, as extender replicas see it: stand-ins on the loopback, one of which takes a state and does not
//! answer. The end-to-end test has the same with real replicas.

use crate::common::{PROGRAM, event, start_collector_with};
use fpga_core::node_state::{NodeState, decode};
use fpga_node_stream::limits::REFRESH_INTERVAL;
use fpga_node_stream::v1::node_stream_server::{NodeStream, NodeStreamServer};
use fpga_node_stream::v1::{Answer, Update, Verdict};
use fpga_test_kit::{Collector, patience, until};
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use tokio::sync::mpsc;
use tokio_stream::Stream;
use tokio_stream::wrappers::{ReceiverStream, TcpListenerStream};
use tonic::{Request, Response, Status, Streaming};

/// Whether a stand-in answers.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Manner {
    Prompt,
    Mute,
}

/// A stand-in for a replica, with the states and the nodes that it received.
#[derive(Clone)]
struct Replica {
    manner: Manner,
    received: Arc<Mutex<Vec<NodeState>>>,
    calls: Arc<Mutex<Vec<String>>>,
    tokens: Arc<Mutex<Vec<String>>>,
}

#[tonic::async_trait]
impl NodeStream for Replica {
    type ReportStream = Pin<Box<dyn Stream<Item = Result<Answer, Status>> + Send>>;

    async fn report(
        &self,
        request: Request<Streaming<Update>>,
    ) -> Result<Response<Self::ReportStream>, Status> {
        let shown = request.metadata().get("authorization").map(|shown| shown.to_str().unwrap().to_owned());
        self.tokens.lock().unwrap().extend(shown);
        let mut updates = request.into_inner();
        let introduction = updates.message().await?.and_then(|update| update.introduction).unwrap();
        self.calls.lock().unwrap().push(format!("{} {}", introduction.node, introduction.uid));
        let (answers, receiver) = mpsc::channel(1);
        let this = self.clone();
        tokio::spawn(async move {
            while let Ok(Some(update)) = updates.message().await {
                this.received
                    .lock()
                    .unwrap()
                    .push(decode(std::str::from_utf8(&update.state).unwrap()).unwrap());
                if this.manner == Manner::Prompt && !update.unanswered {
                    let answer = Answer {
                        verdict: Verdict::Taken.into(),
                        write_interval_ms: 60_000,
                        update_interval_ms: 450,
                    };
                    answers.send(Ok(answer)).await.unwrap();
                }
            }
        });
        Ok(Response::new(Box::pin(ReceiverStream::new(receiver))))
    }
}

impl Replica {
    /// Starts a stand-in, which runs until the test ends.
    fn start(manner: Manner) -> (Self, String) {
        let replica =
            Self { manner, received: Arc::default(), calls: Arc::default(), tokens: Arc::default() };
        let service = NodeStreamServer::new(replica.clone());
        let (bound, is_bound) = std::sync::mpsc::channel();
        std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(async move {
                let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
                bound.send(format!("http://{}", listener.local_addr().unwrap())).unwrap();
                let server = tonic::transport::Server::builder().add_service(service);
                server.serve_with_incoming(TcpListenerStream::new(listener)).await.unwrap();
            });
        });
        (replica, is_bound.recv_timeout(patience()).unwrap())
    }

    fn states(&self) -> Vec<NodeState> {
        self.received.lock().unwrap().clone()
    }
}

fn start(dir: &std::path::Path, replicas: &[&str]) -> Collector {
    let replicas = replicas.join(",");
    let args = [
        "--no-publish",
        "--node-uid",
        "uid-1",
        "--stream-without-token",
        "--stream-without-tls",
        "--extenders",
        &replicas,
    ];
    start_collector_with(dir, &args)
}

#[test]
fn extender_and_picker_are_shown_tokens_of_their_own() {
    let dir = tempfile::tempdir().unwrap();
    let (extender, extender_uri) = Replica::start(Manner::Prompt);
    let (picker, picker_uri) = Replica::start(Manner::Prompt);
    let [token, picker_token] = ["token-of-extenders", "token-of-the-pickers"].map(|token| {
        let path = dir.path().join(token);
        std::fs::write(&path, token).unwrap();
        path.to_str().unwrap().to_owned()
    });
    let to = ["--extenders", &extender_uri, "--pickers", &picker_uri, "--stream-without-tls"];
    let tokens = ["--stream-token-file", &token, "--picker-token-file", &picker_token];
    let collector =
        start_collector_with(dir.path(), &[&["--no-publish", "--node-uid", "u"], &to[..], &tokens].concat());
    for (replica, token) in [(&extender, "token-of-extenders"), (&picker, "token-of-the-pickers")] {
        until(token, || !replica.tokens.lock().unwrap().is_empty());
        assert_eq!(replica.tokens.lock().unwrap().clone(), [format!("Bearer {token}")]);
    }
    drop(collector);
}

#[test]
fn a_replica_that_says_nothing_holds_up_neither_the_others_nor_the_collector() {
    let dir = tempfile::tempdir().unwrap();
    let (mute, mute_uri) = Replica::start(Manner::Mute);
    let (prompt, prompt_uri) = Replica::start(Manner::Prompt);
    let collector = start(dir.path(), &[&mute_uri, &prompt_uri]);
    collector.put_board();
    let mut events = 0;
    until("ten states under load", || {
        events += 1;
        assert_eq!(collector.post(&event(1, events, 0)).status, 200);
        prompt.received.lock().unwrap().len() >= 10
    });
    // The newest state arrives although nothing changes after it.
    until("the last event", || prompt.states().last().is_some_and(|state| state.usage.0 == events));
    let states = prompt.states();
    assert!(states.windows(2).all(|pair| pair[0].version() < pair[1].version()), "each once, in order");
    let (first, last) = (states[0].measured_at, states[states.len() - 1].measured_at);
    let dictated = 450 * (states.len() as u64 - 2);
    assert!((last - first).0 >= dictated, "{} states in {}", states.len(), last - first);
    assert_eq!(prompt.calls.lock().unwrap().clone(), ["node-1 uid-1"], "one stream, and it lasts");
    // Not every update requests an answer.
    for outcome in ["unanswered", "taken"] {
        let name = format!("fpga_collector_stream_updates_total{{outcome=\"{outcome}\"}}");
        until(&name, || {
            events += 1;
            collector.post(&event(1, events, 0));
            collector.metric(&name) >= 3.0
        });
    }
    // A replica that does not answer has one state on its way, not a queue.
    let unanswered = mute.states().len();
    let calls = mute.calls.lock().unwrap().len();
    assert!(unanswered <= calls, "{unanswered} states on {calls} streams");
    until("the mute one to be tried anew", || mute.calls.lock().unwrap().len() >= 2);
    assert!(collector.metric("fpga_collector_stream_failures_total{reason=\"timeout\"}") >= 1.0);
    assert_eq!(collector.terminate().code(), Some(0));
}

#[test]
fn an_idle_node_is_heard_of_now_and_then_and_a_change_at_once() {
    let dir = tempfile::tempdir().unwrap();
    let (replica, uri) = Replica::start(Manner::Prompt);
    let collector = start(dir.path(), &[&uri]);
    until("the first state", || !replica.states().is_empty());
    until("a refresh without a change", || replica.states().len() >= 2);
    collector.post(&event(1, 1, 0));
    until("the event", || replica.states().last().is_some_and(|state| state.usage.0 == 1));
    let states = replica.states();
    let with_event = states.iter().position(|state| state.usage.0 == 1).unwrap();
    let apart = states[with_event].measured_at - states[with_event - 1].measured_at;
    // By the collector's clock, the state did not wait for the next refresh.
    assert!(apart < REFRESH_INTERVAL.into(), "{apart} after the state before");
}

#[test]
fn without_a_word_on_token_tls_and_uid_it_does_not_start() {
    let refused = |args: &[&str], hint: &str| {
        let output = std::process::Command::new(PROGRAM)
            .args(["--node-name", "n", "--checkpoint-dir", "/nowhere", "--no-publish"])
            .args(args)
            .output()
            .unwrap();
        let text = String::from_utf8(output.stderr).unwrap();
        assert!(!output.status.success() && text.contains(hint), "{args:?}: {text}");
    };
    let known = ["--node-uid", "u", "--stream-without-token"];
    let with = |args: &[&'static str]| [known.as_slice(), args].concat();
    refused(&["--extenders", "http://a:1", "--node-uid", "u", "--stream-without-tls"], "--stream-token-file");
    refused(&["--extenders", "http://a:1", "--stream-without-token"], "--node-uid");
    refused(&["--extenders", "a:1"], "https://HOST:PORT");
    refused(&with(&["--extenders", "https://a:1"]), "--stream-ca");
    refused(&with(&["--extenders", "dns:a:1"]), "--stream-without-tls");
    refused(&with(&["--extenders", "http://a:1", "--stream-ca", "ca"]), "https://");
    refused(&with(&["--extenders", "https://a:1", "--stream-without-tls"]), "contradict");
    refused(&with(&["--extenders", "https://a:1", "--stream-cert", "c"]), "--stream-key");
}
