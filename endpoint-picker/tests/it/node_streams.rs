//! Collectors stream the states of their nodes to the picker: the next request follows the state, the annotation counts
//! where the stream is lost, and a hostile collector harms no node but its own.

use fpga_core::bitstream::BitstreamId;
use fpga_core::fixtures::{mk_bitstream, mk_board, mk_state};
use fpga_core::node_state::{DeviceState, NodeState, encode_whole};
use fpga_core::units::Millis;
use fpga_endpoint_picker::function::{Function, FunctionName, Replica};
use fpga_endpoint_picker::metrics::Metrics;
use fpga_endpoint_picker::node_streams::PickerReceiver;
use fpga_endpoint_picker::picker::{Limits, Picked, Picker};
use fpga_endpoint_picker::state::Seen;
use fpga_net::token_file::TokenFile;
use fpga_node_stream::access::Access;
use fpga_node_stream::client::{Credentials, NodeStream, StreamError};
use fpga_node_stream::server::receiver::Taken;
use fpga_node_stream::server::{Streams, serve};
use fpga_node_stream::v1::{Introduction, Verdict};
use prometheus_client::registry::Registry;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use tempfile::TempDir;
use tokio::net::TcpListener;
use tonic::Code;
use tonic::transport::Uri;

/// The nodes, each with one replica of the function `default/sobel`.
const NODES: [&str; 2] = ["n1", "n2"];

/// A picker that takes streams of nodes.
struct Served {
    picker: Arc<Picker>,
    registry: Registry,
    uri: Uri,
    dir: TempDir,
}

fn address(node: &str) -> SocketAddr {
    SocketAddr::from(([10, 0, 0, node.as_bytes()[1]], 8080))
}

/// A state with one board with one slot, and the bitstream in it.
fn state(seq: u64, loaded: &str) -> NodeState {
    NodeState {
        seq,
        devices: vec![DeviceState { slots: 1, ..mk_board("board-0", &[0]) }],
        bitstreams: vec![mk_bitstream(loaded, 1_000)],
        ..mk_state()
    }
}

fn text(state: &NodeState) -> String {
    encode_whole(state).unwrap().text
}

fn sobel() -> FunctionName {
    FunctionName::new("default", "sobel")
}

impl Served {
    async fn start() -> Self {
        let dir = TempDir::new().unwrap();
        std::fs::write(dir.path().join("token"), "a-token-for-these-tests").unwrap();
        let mut registry = Registry::default();
        let picker = Picker::new(Limits::default(), Metrics::register(&mut registry));
        let replica = |node: &str| Replica {
            address: address(node),
            hosts: Vec::new(),
            pod: None,
            node: Some(node.into()),
            boards: Vec::new(),
            asks_for_board: true,
        };
        let function = Function {
            bitstream: Some(BitstreamId::Name("sobel".to_owned())),
            max_waiting: None,
            replicas: NODES.map(replica).into(),
        };
        picker.with(|known, now| known.set_function(&sobel(), &function, now));
        let access = Access::Token(TokenFile::new(dir.path().join("token")));
        let streams = Arc::new(Streams::new(Arc::new(PickerReceiver(Arc::clone(&picker))), access));
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let uri = format!("http://{}", listener.local_addr().unwrap()).parse().unwrap();
        tokio::spawn(serve(listener, streams));
        let served = Self { picker, registry, uri, dir };
        served.show_nodes();
        served.picker.set_synced();
        served
    }

    fn show_nodes(&self) {
        for node in NODES {
            self.picker.with(|known, now| known.set_node(node, &format!("uid-of-{node}"), now));
        }
    }

    fn token(&self) -> PathBuf {
        self.dir.path().join("token")
    }

    async fn open_as(&self, access: Access, node: &str, uid: &str) -> Result<NodeStream, StreamError> {
        let introduction = Introduction { node: node.to_owned(), uid: uid.to_owned() };
        NodeStream::open(&self.uri.clone().into(), &Credentials::from(access), introduction).await
    }

    async fn open(&self, node: &str, uid: &str) -> Result<NodeStream, StreamError> {
        self.open_as(Access::Token(TokenFile::new(self.token())), node, uid).await
    }

    /// The endpoint of the next request, which ends at once.
    fn pick(&self) -> SocketAddr {
        let Picked { endpoints, .. } = self.picker.pick(Some(&sobel()), None).unwrap();
        endpoints[0]
    }

    fn annotate(&self, node: &str, state: &NodeState) -> Taken {
        let seen = Seen::Annotation { age: Millis::ZERO };
        let uid = format!("uid-of-{node}");
        self.picker.with(|known, now| known.learn(node, &uid, state, seen, now)).unwrap()
    }

    fn assert_metric(&self, line: &str) {
        self.picker.metrics.take_census(self.picker.census());
        let mut text = String::new();
        prometheus_client::encoding::text::encode(&mut text, &self.registry).unwrap();
        assert!(text.lines().any(|shown| shown == line), "no {line:?} in\n{text}");
    }
}

async fn verdict(stream: &mut NodeStream, state: String) -> Verdict {
    stream.send(state).await.unwrap().verdict()
}

#[tokio::test]
async fn the_request_after_a_streamed_state_goes_where_the_bitstream_is() {
    let served = Served::start().await;
    let mut n1 = served.open("n1", "uid-of-n1").await.unwrap();
    let mut n2 = served.open("n2", "uid-of-n2").await.unwrap();
    for (seq, first, second) in [(1, "sobel", "other"), (2, "other", "sobel")] {
        let answer = n1.send(text(&state(seq, first))).await.unwrap();
        assert_eq!(answer.verdict(), Verdict::Taken);
        assert_eq!(answer.write_interval_ms, 0, "the extender needs the annotations as before");
        assert_eq!(verdict(&mut n2, text(&state(seq, second))).await, Verdict::Taken);
    }
    // The answer means that the next request follows the state.
    assert_eq!(served.pick(), address("n2"));
    served.assert_metric("fpga_picker_nodes{source=\"stream\"} 2");
    served.assert_metric("fpga_picker_states_total{source=\"stream\"} 4");
    served.assert_metric("fpga_picker_node_streams 2");
    served.assert_metric("fpga_picker_choices_total{basis=\"resident\"} 1");
}

#[tokio::test]
async fn a_lost_stream_leaves_the_annotation_and_the_older_of_both_does_not_count() {
    let served = Served::start().await;
    assert_eq!(served.annotate("n1", &state(1, "other")), Taken::Yes);
    assert_eq!(served.annotate("n2", &state(1, "other")), Taken::Yes);
    let mut stream = served.open("n2", "uid-of-n2").await.unwrap();
    assert_eq!(verdict(&mut stream, text(&state(3, "sobel"))).await, Verdict::Taken);
    assert_eq!(served.annotate("n2", &state(2, "other")), Taken::Outdated);
    assert_eq!(served.pick(), address("n2"));
    drop(stream);
    assert_eq!(served.annotate("n1", &state(4, "sobel")), Taken::Yes);
    assert_eq!(served.annotate("n2", &state(4, "other")), Taken::Yes);
    served.assert_metric("fpga_picker_nodes{source=\"annotation\"} 2");
    served.assert_metric("fpga_picker_nodes{source=\"stream\"} 0");
    assert_eq!(served.pick(), address("n1"));
    let mut stream = served.open("n2", "uid-of-n2").await.unwrap();
    assert_eq!(verdict(&mut stream, text(&state(4, "sobel"))).await, Verdict::Outdated);
    assert_eq!(verdict(&mut stream, text(&state(5, "sobel"))).await, Verdict::Taken);
}

#[tokio::test]
async fn a_hostile_collector_is_refused_and_its_states_touch_its_own_node_only() {
    let served = Served::start().await;
    let code = async |node: &str, uid: &str| served.open(node, uid).await.unwrap_err().code();
    let open = served.open_as(Access::Open, "n1", "uid-of-n1").await.unwrap_err();
    assert_eq!(open.code(), Some(Code::Unauthenticated));
    assert_eq!(code("n3", "uid-of-n3").await, Some(Code::NotFound));
    assert_eq!(code("n1", "uid-of-n2").await, Some(Code::FailedPrecondition));
    assert_eq!(code(&"n".repeat(300), "u").await, Some(Code::InvalidArgument));
    served.assert_metric("fpga_picker_node_streams_refused_total{reason=\"token\"} 1");
    assert_eq!(served.annotate("n1", &state(1, "other")), Taken::Yes);
    assert_eq!(served.annotate("n2", &state(1, "sobel")), Taken::Yes);
    let mut hostile = served.open("n1", "uid-of-n1").await.unwrap();
    for nonsense in ["{]".to_owned(), String::new(), "x".repeat(65_000)] {
        assert_eq!(verdict(&mut hostile, nonsense).await, Verdict::Unreadable);
    }
    served.assert_metric("fpga_picker_unreadable_states_total 3");
    // No state of its own says anything of the other node's board, whatever its boards are called.
    let lies = NodeState { seq: u64::MAX, ..state(2, "other") };
    assert_eq!(verdict(&mut hostile, text(&lies)).await, Verdict::Taken);
    assert_eq!(served.pick(), address("n2"));
    let flood = hostile.send("x".repeat(1 << 20)).await.unwrap_err();
    assert!(flood.code().is_some(), "{flood}");
    // A new stream takes the place of the older one, and one for a node that is gone ends.
    let mut older = served.open("n2", "uid-of-n2").await.unwrap();
    let mut newer = served.open("n2", "uid-of-n2").await.unwrap();
    assert_eq!(older.send(text(&state(2, "sobel"))).await.unwrap_err().code(), Some(Code::Aborted));
    assert_eq!(verdict(&mut newer, text(&state(2, "sobel"))).await, Verdict::Taken);
    served.picker.with(|known, now| known.forget_node("n2", now));
    assert_eq!(newer.send(text(&state(3, "sobel"))).await.unwrap_err().code(), Some(Code::NotFound));
    served.show_nodes();
    assert_eq!(served.picker.census().nodes_by_stream, 1, "a stream makes no node");
}
