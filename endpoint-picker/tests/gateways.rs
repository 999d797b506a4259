//! The picker's port, asked as gateways ask: Envoy by itself, gateways with full duplex (Istio, kgateway, Envoy AI
//! Gateway), and NGINX Gateway Fabric's shim; what the Endpoint Picker Protocol of the Gateway API Inference Extension
//! demands; and what nobody should ask.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

use bytes::Bytes;
use fpga_core::bitstream::BitstreamId;
use fpga_core::fixtures::{mk_bitstream, mk_board, mk_state};
use fpga_core::node_state::{DeviceState, NodeState};
use fpga_endpoint_picker::exchange::{DESTINATION, LB_NAMESPACE, SERVED, SUBSET, SUBSET_NAMESPACE};
use fpga_endpoint_picker::ext_proc::body_mutation::Mutation;
use fpga_endpoint_picker::ext_proc::external_processor_client::ExternalProcessorClient;
use fpga_endpoint_picker::ext_proc::processing_request::Request as Said;
use fpga_endpoint_picker::ext_proc::processing_response::Response as Answer;
use fpga_endpoint_picker::ext_proc::{
    BodySendMode, HeaderMap, HeaderValue, HttpBody, HttpHeaders, HttpTrailers, Metadata, ProcessingRequest,
    ProcessingResponse, ProtocolConfiguration,
};
use fpga_endpoint_picker::function::{Function, FunctionName, Replica};
use fpga_endpoint_picker::metrics::Metrics;
use fpga_endpoint_picker::picker::{Limits, Picker};
use fpga_endpoint_picker::routing::Routing;
use fpga_endpoint_picker::server::Port;
use fpga_endpoint_picker::service::Service;
use fpga_endpoint_picker::state::Seen;
use fpga_net::testing::Authority;
use fpga_net::tls::{HTTP_2, Reload, ServerTls};
use fpga_node_stream::server::receiver::Taken;
use hyper_util::rt::TokioIo;
use prometheus_client::registry::Registry;
use prost::Message as _;
use prost_types::value::Kind;
use prost_types::{ListValue, Struct, Value};
use ring::digest::{Context, SHA256};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinHandle;
use tokio_stream::wrappers::ReceiverStream;
use tonic::transport::{Channel, Endpoint, Uri};
use tonic::{Code, Status, Streaming};
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_check_response::ServingStatus;
use tonic_health::pb::health_client::HealthClient;

const DEADLINE: Duration = Duration::from_secs(20);
const FIRST: &str = "10.0.0.1:8080";
const SECOND: &str = "10.0.0.2:8080";

/// A picker that serves: the function `default/sobel` with two replicas, whose bitstream is on the board of the first.
struct Served {
    picker: Arc<Picker>,
    address: SocketAddr,
    stop: Option<oneshot::Sender<()>>,
    server: JoinHandle<()>,
}

/// How the picker under test differs from the usual one.
#[derive(Default)]
struct Differs {
    fixed: bool,
    tls: Option<Arc<ServerTls>>,
    streams: Option<usize>,
    waiting: Option<usize>,
}

fn replica(address: &str, node: &str) -> Replica {
    Replica { address: address.parse().unwrap(), pod: None, node: Some(node.into()), board: None }
}

fn node_state(loaded: &str) -> NodeState {
    NodeState {
        devices: vec![DeviceState { slots: 1, ..mk_board("board-0", &[0]) }],
        bitstreams: vec![mk_bitstream(loaded, 1_000)],
        ..mk_state()
    }
}

fn sobel() -> FunctionName {
    FunctionName::new("default", "sobel")
}

impl Served {
    async fn start() -> Self {
        Self::with(Differs::default()).await
    }

    async fn with(differs: Differs) -> Self {
        let waiting = differs.waiting.unwrap_or(100_000);
        let picker =
            Picker::new(Limits { endpoints: 3, waiting }, Metrics::register(&mut Registry::default()));
        picker.with(|state, now| {
            let function = Function {
                bitstream: Some(BitstreamId::Name("sobel".to_owned())),
                max_waiting: None,
                replicas: vec![replica(FIRST, "a"), replica(SECOND, "b")],
            };
            state.set_function(&sobel(), &function, now);
            state.set_function(&FunctionName::new("default", "empty"), &Function::default(), now);
            for (node, loaded) in [("a", "sobel"), ("b", "other")] {
                state.set_node(node, "uid", now);
                let taken = state.learn(node, "uid", &node_state(loaded), Seen::Stream, now);
                assert_eq!(taken, Ok(Taken::Yes));
            }
        });
        picker.set_synced();
        Self::serve(picker, differs).await
    }

    async fn serve(picker: Arc<Picker>, differs: Differs) -> Self {
        let fixed = differs.fixed.then(sobel);
        let routing = Routing { fixed, namespace: "default".into(), domain: None };
        let service = Service::new(Arc::clone(&picker), routing, differs.streams.unwrap_or(100_000));
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let port = Port { listener, tls: differs.tls, max_message_bytes: 1 << 20 };
        let (stop, stopped) = oneshot::channel();
        let serving = Arc::clone(&picker);
        let server = tokio::spawn(async move {
            let stopped = async { drop(stopped.await) };
            port.serve(serving, service, stopped).await.unwrap();
        });
        Self { picker, address, stop: Some(stop), server }
    }

    async fn channel(&self) -> Channel {
        Endpoint::from_shared(format!("http://{}", self.address)).unwrap().connect().await.unwrap()
    }

    async fn call(&self) -> Call {
        Call::open(self.channel().await).await.unwrap()
    }

    fn in_flight(&self) -> usize {
        self.picker.census().in_flight
    }

    async fn until_in_flight(&self, expected: usize) {
        let begun = Instant::now();
        while self.in_flight() != expected {
            assert!(begun.elapsed() < DEADLINE, "{} in flight and not {expected}", self.in_flight());
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }
}

/// One stream of a gateway.
struct Call {
    messages: mpsc::Sender<ProcessingRequest>,
    answers: Streaming<ProcessingResponse>,
}

impl Call {
    async fn open(channel: Channel) -> Result<Self, Status> {
        let (messages, receiver) = mpsc::channel(16);
        let mut client = ExternalProcessorClient::new(channel).max_decoding_message_size(16 << 20);
        let answers = client.process(ReceiverStream::new(receiver)).await?.into_inner();
        Ok(Self { messages, answers })
    }

    async fn say(&self, message: ProcessingRequest) {
        self.messages.send(message).await.unwrap();
    }

    async fn hear(&mut self) -> Result<Option<Answer>, Status> {
        Ok(self.whole().await?.and_then(|answer| answer.response))
    }

    async fn whole(&mut self) -> Result<Option<ProcessingResponse>, Status> {
        tokio::time::timeout(DEADLINE, self.answers.message()).await.unwrap()
    }

    async fn ask(&mut self, message: ProcessingRequest) -> Answer {
        self.say(message).await;
        self.hear().await.unwrap().unwrap()
    }
}

fn said(request: Said) -> ProcessingRequest {
    ProcessingRequest { request: Some(request), ..ProcessingRequest::default() }
}

/// The headers of a request as Envoy tells them.
fn headers(path: &str) -> ProcessingRequest {
    let header = |key: &str, value: &str| HeaderValue {
        key: key.to_owned(),
        value: String::new(),
        raw_value: Bytes::copy_from_slice(value.as_bytes()),
    };
    with_headers(vec![
        header(":method", "POST"),
        header(":path", path),
        header(":authority", "functions.example"),
        header(DESTINATION, "6.6.6.6:666"),
    ])
}

fn with_headers(headers: Vec<HeaderValue>) -> ProcessingRequest {
    let headers = HeaderMap { headers }.encode_to_vec().into();
    said(Said::RequestHeaders(HttpHeaders { headers, end_of_stream: false }))
}

fn in_modes(mut message: ProcessingRequest, mode: BodySendMode) -> ProcessingRequest {
    message.protocol_config = Some(ProtocolConfiguration {
        request_body_mode: mode.into(),
        response_body_mode: mode.into(),
        ..ProtocolConfiguration::default()
    });
    message
}

fn with_metadata(
    mut message: ProcessingRequest,
    namespace: &str,
    key: &str,
    kind: Kind,
) -> ProcessingRequest {
    let fields = [(key.to_owned(), Value { kind: Some(kind) })].into();
    let metadata = [(namespace.to_owned(), Struct { fields })].into();
    message.metadata_context = Some(Metadata { filter_metadata: metadata });
    message
}

fn subset(addresses: &[&str]) -> Kind {
    let value = |address: &&str| Value { kind: Some(Kind::StringValue((*address).to_owned())) };
    Kind::ListValue(ListValue { values: addresses.iter().map(value).collect() })
}

fn body(request: bool, bytes: impl Into<Bytes>, end_of_stream: bool) -> ProcessingRequest {
    let body = HttpBody { body: bytes.into(), end_of_stream };
    said(if request { Said::RequestBody(body) } else { Said::ResponseBody(body) })
}

fn response_headers(end_of_stream: bool) -> ProcessingRequest {
    said(Said::ResponseHeaders(HttpHeaders { headers: Bytes::new(), end_of_stream }))
}

/// The endpoints in the answer's header.
fn destination(answer: &Answer) -> String {
    let Answer::RequestHeaders(answer) = answer else { panic!("no endpoint: {answer:?}") };
    let mutation = answer.response.as_ref().unwrap().header_mutation.as_ref().unwrap();
    let [option] = mutation.set_headers.as_slice() else { panic!("{mutation:?}") };
    let header = option.header.as_ref().unwrap();
    assert_eq!((header.key.as_str(), header.value.as_str()), (DESTINATION, ""));
    assert_eq!(option.append_action, 2, "a client's own header is overwritten");
    String::from_utf8(header.raw_value.to_vec()).unwrap()
}

/// Status and headers of an immediate answer.
fn refused(answer: &Answer) -> (i32, Vec<String>) {
    let Answer::ImmediateResponse(answer) = answer else { panic!("no refusal: {answer:?}") };
    let headers = &answer.headers.as_ref().unwrap().set_headers;
    (
        answer.status.as_ref().unwrap().code,
        headers.iter().map(|h| h.header.as_ref().unwrap().key.clone()).collect(),
    )
}

#[tokio::test]
async fn envoy_gets_endpoints_by_header_and_metadata_and_the_request_counts_until_its_stream_ends() {
    let served = Served::start().await;
    let mut call = served.call().await;
    call.say(in_modes(headers("/function/sobel"), BodySendMode::None)).await;
    let answer = call.whole().await.unwrap().unwrap();
    let list = destination(answer.response.as_ref().unwrap());
    assert_eq!(list, format!("{FIRST},{SECOND}"));
    let metadata = answer.dynamic_metadata.unwrap();
    let Some(Kind::StructValue(lb)) = &metadata.fields[LB_NAMESPACE].kind else { panic!("{metadata:?}") };
    assert_eq!(lb.fields[DESTINATION].kind, Some(Kind::StringValue(list)), "both say the same");
    assert_eq!(served.in_flight(), 1);
    assert!(matches!(call.ask(response_headers(false)).await, Answer::ResponseHeaders(_)));
    assert_eq!(served.in_flight(), 1, "the response is still coming");
    drop(call);
    served.until_in_flight(0).await;
}

#[tokio::test]
async fn a_request_ends_with_its_response_however_the_gateway_tells() {
    let served = Served::start().await;
    let trailers = || said(Said::ResponseTrailers(HttpTrailers::default()));
    for last in [response_headers(true), body(false, "x", true), trailers()] {
        let mut call = served.call().await;
        destination(&call.ask(headers("/function/sobel")).await);
        assert_eq!(served.in_flight(), 1);
        call.ask(last).await;
        assert_eq!(served.in_flight(), 0);
    }
    // The gateway says that it has nothing more to say, or breaks off.
    let mut call = served.call().await;
    destination(&call.ask(headers("/function/sobel")).await);
    drop(call.messages);
    assert_eq!(call.answers.message().await.unwrap(), None);
    served.until_in_flight(0).await;
}

#[tokio::test]
async fn full_duplex_gets_every_piece_of_both_bodies_back() {
    let served = Served::start().await;
    let mut call = served.call().await;
    let begin = in_modes(headers("/function/sobel"), BodySendMode::FullDuplexStreamed);
    assert_eq!(destination(&call.ask(begin).await), format!("{FIRST},{SECOND}"));
    for is_request in [true, false] {
        if !is_request {
            call.ask(response_headers(false)).await;
        }
        let (mut sent, mut back) = (Context::new(&SHA256), Context::new(&SHA256));
        let (pieces, bytes) = (160_u32, 64 * 1024);
        for piece in 0..pieces {
            let data: Vec<u8> =
                (0..bytes).map(|i: u32| (i.wrapping_mul(piece + 7) >> 3).to_le_bytes()[0]).collect();
            sent.update(&data);
            let last = piece + 1 == pieces;
            let answer = call.ask(body(is_request, data, last)).await;
            let (Answer::RequestBody(answer) | Answer::ResponseBody(answer)) = answer else { panic!() };
            let mutation = answer.response.unwrap().body_mutation.unwrap().mutation;
            let Some(Mutation::StreamedResponse(echo)) = mutation else { panic!("{mutation:?}") };
            assert_eq!(echo.end_of_stream, last);
            back.update(&echo.body);
        }
        assert_eq!(sent.finish().as_ref(), back.finish().as_ref());
    }
    assert_eq!(served.in_flight(), 0);
    call.ask(said(Said::RequestTrailers(HttpTrailers::default()))).await;
}

#[tokio::test]
async fn streamed_and_buffered_bodies_and_none_stay_with_the_gateway() {
    let served = Served::start().await;
    for mode in [BodySendMode::Streamed, BodySendMode::Buffered, BodySendMode::BufferedPartial] {
        let mut call = served.call().await;
        destination(&call.ask(in_modes(headers("/function/sobel"), mode)).await);
        let answer = call.ask(body(true, vec![7; 512 * 1024], true)).await;
        let Answer::RequestBody(answer) = answer else { panic!("{mode:?}: {answer:?}") };
        assert!(answer.response.is_none(), "{mode:?}: the body is as it was");
    }
}

#[tokio::test]
async fn nginx_gets_an_endpoint_and_the_end_of_the_stream_though_it_never_says_that_it_is_done() {
    let served = Served::with(Differs { fixed: true, ..Differs::default() }).await;
    let shim = || {
        let header =
            HeaderValue { key: "Content-Type".into(), value: "text/plain".into(), raw_value: Bytes::new() };
        with_headers(vec![header])
    };
    // A connection for each request, headers and body at once, and then until the stream ends.
    let mut call = served.call().await;
    call.say(shim()).await;
    call.say(body(true, "the whole body", false)).await;
    assert_eq!(destination(&call.hear().await.unwrap().unwrap()), format!("{FIRST},{SECOND}"));
    assert!(matches!(call.hear().await.unwrap(), Some(Answer::RequestBody(_))));
    assert!(call.hear().await.unwrap().is_none(), "the end");
    served.until_in_flight(0).await;
    // Without a body the stream ends by itself.
    let mut call = served.call().await;
    destination(&call.ask(shim()).await);
    assert!(call.hear().await.unwrap().is_none(), "the end");
    // A refusal is an answer, too.
    served.picker.with(|state, now| state.remove_function(&sobel(), now));
    let mut call = served.call().await;
    assert_eq!(refused(&call.ask(shim()).await).0, 404);
    assert!(call.hear().await.unwrap().is_none(), "the end");
}

#[tokio::test]
async fn the_endpoint_picker_protocol_subset_is_kept_and_an_empty_one_is_503() {
    let served = Served::start().await;
    let ask = async |path: &str, hint: Kind| {
        let message = with_metadata(headers(path), SUBSET_NAMESPACE, SUBSET, hint);
        served.call().await.ask(message).await
    };
    assert_eq!(destination(&ask("/function/sobel", subset(&[SECOND, "1.2.3.4:5"])).await), SECOND);
    assert_eq!(destination(&ask("/function/sobel", Kind::StringValue(format!("{SECOND}, x"))).await), SECOND);
    assert_eq!(
        destination(&ask("/any/path", subset(&[SECOND])).await),
        SECOND,
        "the candidates tell the function"
    );
    let nonsense = ["", ":::", "1.2.3.4", "999.0.0.1:1", "10.0.0.2:99999", "\u{0}"];
    let many = vec![nonsense[1]; 20_000];
    for hint in
        [subset(&[]), subset(&nonsense), subset(&many), Kind::BoolValue(true), Kind::NumberValue(1e300)]
    {
        assert_eq!(refused(&ask("/function/sobel", hint).await).0, 503);
    }
    served.until_in_flight(0).await;
}

#[tokio::test]
async fn the_endpoint_picker_protocol_endpoint_that_served_is_the_one_that_counts() {
    let served = Served::start().await;
    let mut call = served.call().await;
    destination(&call.ask(headers("/function/sobel")).await);
    let told = Kind::StringValue(SECOND.to_owned());
    call.ask(with_metadata(response_headers(false), LB_NAMESPACE, SERVED, told)).await;
    let at = |address: &str| {
        let address = address.parse().unwrap();
        served.picker.with(|state, _| state.in_flight_at(address))
    };
    assert_eq!((at(FIRST), at(SECOND)), (0, 1));
    drop(call);
    served.until_in_flight(0).await;
}

#[tokio::test]
async fn the_endpoint_picker_protocol_no_endpoint_is_503_and_too_many_waiting_are_429_with_retry_after() {
    let served = Served::with(Differs { waiting: Some(1), ..Differs::default() }).await;
    for (path, status) in [("/function/empty", 503), ("/function/nobody", 404), ("/", 404)] {
        assert_eq!(refused(&served.call().await.ask(headers(path)).await).0, status, "{path}");
    }
    let mut held = Vec::new();
    // Two slots, and one request may wait.
    for _ in 0..3 {
        let mut call = served.call().await;
        destination(&call.ask(headers("/function/sobel")).await);
        held.push(call);
    }
    let (status, headers_told) = refused(&served.call().await.ask(headers("/function/sobel")).await);
    assert_eq!(status, 429);
    assert!(headers_told.contains(&"retry-after".to_owned()), "{headers_told:?}");
    held.pop();
    served.until_in_flight(2).await;
    destination(&served.call().await.ask(headers("/function/sobel")).await);
}

#[tokio::test]
async fn the_endpoint_picker_protocol_health_is_alive_from_the_start_and_ready_with_knowledge_until_the_end()
{
    let picker = Picker::new(Limits::default(), Metrics::register(&mut Registry::default()));
    let mut served = Served::serve(picker, Differs::default()).await;
    let health = HealthClient::new(served.channel().await);
    let until = async |service: &str, expected: ServingStatus| {
        let begun = Instant::now();
        loop {
            let request = HealthCheckRequest { service: service.to_owned() };
            let answer = health.clone().check(request).await;
            if answer.is_ok_and(|answer| answer.into_inner().status() == expected) {
                break;
            }
            assert!(begun.elapsed() < DEADLINE, "{service} is not {expected:?}");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    let ready = ["readiness", "envoy.service.ext_proc.v3.ExternalProcessor", ""];
    until("liveness", ServingStatus::Serving).await;
    for service in ready {
        until(service, ServingStatus::NotServing).await;
    }
    assert_eq!(refused(&served.call().await.ask(headers("/function/sobel")).await).0, 503);
    served.picker.set_synced();
    for service in ready {
        until(service, ServingStatus::Serving).await;
    }
    served.picker.begin_to_end();
    until("readiness", ServingStatus::NotServing).await;
    until("liveness", ServingStatus::Serving).await;
    let request = HealthCheckRequest { service: "nobody".to_owned() };
    assert_eq!(health.clone().check(request).await.unwrap_err().code(), Code::NotFound);
    served.stop.take().unwrap().send(()).unwrap();
    tokio::time::timeout(DEADLINE, served.server).await.unwrap().unwrap();
}

#[tokio::test]
async fn requests_in_flight_end_before_the_server_does() {
    let mut served = Served::start().await;
    let mut call = served.call().await;
    destination(&call.ask(headers("/function/sobel")).await);
    served.stop.take().unwrap().send(()).unwrap();
    call.ask(response_headers(false)).await;
    assert!(!served.server.is_finished());
    call.ask(body(false, "x", true)).await;
    drop(call);
    tokio::time::timeout(DEADLINE, served.server).await.unwrap().unwrap();
}

#[tokio::test]
async fn gateways_may_ask_by_tls() {
    let dir = tempfile::tempdir().unwrap();
    let authority = Authority::new(dir.path(), "ours");
    let identity = authority.issue("server", &["picker.svc"]);
    let tls = ServerTls::new(identity.server(None), HTTP_2);
    assert!(matches!(tls.reload(), Reload::Loaded));
    let served = Served::with(Differs { tls: Some(Arc::new(tls)), ..Differs::default() }).await;
    let socket = TcpStream::connect(served.address).await.unwrap();
    let stream = authority.client(None).connect(socket, "picker.svc", HTTP_2).await.unwrap();
    let mut stream = Some(TokioIo::new(stream));
    let connector = tower::service_fn(move |_: Uri| {
        let stream = stream.take().ok_or_else(|| std::io::Error::other("one connection only"));
        async move { stream }
    });
    let endpoint = Endpoint::from_static("http://picker.svc");
    let mut call = Call::open(endpoint.connect_with_connector(connector).await.unwrap()).await.unwrap();
    assert_eq!(destination(&call.ask(headers("/function/sobel")).await), format!("{FIRST},{SECOND}"));
    assert!(Call::open(served_plain(served.address).await.unwrap()).await.is_err(), "not in plain text");
}

async fn served_plain(address: SocketAddr) -> Result<Channel, tonic::transport::Error> {
    Ok(Endpoint::from_shared(format!("http://{address}"))?.connect_lazy())
}

#[tokio::test]
async fn ten_thousand_headers_are_431() {
    let served = Served::start().await;
    let list = (0..10_000).map(|i| HeaderValue { key: format!("x-{i}"), ..HeaderValue::default() }).collect();
    assert_eq!(refused(&served.call().await.ask(with_headers(list)).await).0, 431);
    assert_eq!(served.in_flight(), 0);
}

#[tokio::test]
async fn an_endless_body_is_passed_on_piece_by_piece_and_a_piece_that_is_too_long_ends_the_stream() {
    let served = Served::start().await;
    let mut call = served.call().await;
    let begin = in_modes(headers("/function/sobel"), BodySendMode::FullDuplexStreamed);
    destination(&call.ask(begin).await);
    let piece = Bytes::from(vec![1; 256 * 1024]);
    for _ in 0..100 {
        call.ask(body(true, piece.clone(), false)).await;
    }
    assert_eq!(served.in_flight(), 1);
    call.say(body(true, vec![1; 2 << 20], false)).await;
    let error = call.hear().await.unwrap_err();
    assert_eq!(error.code(), Code::OutOfRange, "{error}");
    served.until_in_flight(0).await;
}

#[tokio::test]
async fn messages_that_make_no_sense_end_their_stream_only() {
    let served = Served::start().await;
    for message in [body(true, "x", true), response_headers(false), ProcessingRequest::default()] {
        let mut call = served.call().await;
        call.say(message).await;
        assert_eq!(call.hear().await.unwrap_err().code(), Code::InvalidArgument);
    }
    let mut call = served.call().await;
    destination(&call.ask(headers("/function/sobel")).await);
    call.say(headers("/function/sobel")).await;
    assert_eq!(call.hear().await.unwrap_err().code(), Code::InvalidArgument);
    served.until_in_flight(0).await;
    let observed = ProcessingRequest { observability_mode: true, ..headers("/function/sobel") };
    let mut call = served.call().await;
    call.say(observed).await;
    destination(&call.ask(headers("/function/sobel")).await);
}

#[tokio::test]
async fn more_streams_than_allowed_are_refused_and_others_go_on() {
    let served = Served::with(Differs { streams: Some(2), ..Differs::default() }).await;
    let channel = served.channel().await;
    let mut held = Vec::new();
    for _ in 0..2 {
        let mut call = Call::open(channel.clone()).await.unwrap();
        destination(&call.ask(headers("/function/sobel")).await);
        held.push(call);
    }
    let refused = Call::open(channel.clone()).await.err().unwrap();
    assert_eq!(refused.code(), Code::ResourceExhausted);
    held.pop();
    served.until_in_flight(1).await;
    let mut again = Call::open(channel).await.unwrap();
    destination(&again.ask(headers("/function/sobel")).await);
}

#[tokio::test]
async fn five_thousand_requests_in_flight_on_one_connection_are_counted_exactly() {
    const REQUESTS: usize = 5_000;
    let served = Served::start().await;
    let channel = served.channel().await;
    let mut held = Vec::with_capacity(REQUESTS);
    for _ in 0..REQUESTS {
        let mut call = Call::open(channel.clone()).await.unwrap();
        destination(&call.ask(headers("/function/sobel")).await);
        held.push(call);
    }
    assert_eq!(served.in_flight(), REQUESTS);
    held.truncate(REQUESTS / 2);
    served.until_in_flight(REQUESTS / 2).await;
    // The gateway is killed.
    drop((held, channel));
    served.until_in_flight(0).await;
}
