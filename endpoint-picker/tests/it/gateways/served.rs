//! A picker that serves on a port of its own.

use super::calls::Call;
use fpga_core::bitstream::BitstreamId;
use fpga_core::fixtures::{mk_bitstream, mk_board, mk_state};
use fpga_core::node_state::{DeviceState, NodeState};
use fpga_endpoint_picker::function::{Function, FunctionName, Replica};
use fpga_endpoint_picker::metrics::Metrics;
use fpga_endpoint_picker::picker::{Limits, Picker};
use fpga_endpoint_picker::routing::Routing;
use fpga_endpoint_picker::server::Port;
use fpga_endpoint_picker::service::Service;
use fpga_endpoint_picker::state::Seen;
use fpga_net::tls::ServerTls;
use fpga_node_stream::server::receiver::Taken;
use fpga_test_kit::until_async;
use prometheus_client::registry::Registry;
use std::net::SocketAddr;
use std::sync::Arc;
use tokio::net::TcpListener;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tonic::transport::{Channel, Endpoint};

pub const FIRST: &str = "10.0.0.1:8080";
pub const SECOND: &str = "10.0.0.2:8080";

/// A picker that serves: the function `default/sobel` with two replicas, whose bitstream is on the board of the first.
pub struct Served {
    pub picker: Arc<Picker>,
    pub address: SocketAddr,
    pub stop: Option<oneshot::Sender<()>>,
    pub server: JoinHandle<()>,
}

/// How the picker under test differs from the usual one.
#[derive(Default)]
pub struct Differs {
    pub fixed: bool,
    pub tls: Option<Arc<ServerTls>>,
    pub streams: Option<usize>,
    pub waiting: Option<usize>,
    /// Boards of the first replica; the node's only one without any.
    pub boards: &'static [&'static str],
}

pub fn replica(address: &str, node: &str) -> Replica {
    Replica {
        address: address.parse().unwrap(),
        hosts: Vec::new(),
        pod: None,
        node: Some(node.into()),
        boards: Vec::new(),
        asks_for_board: true,
    }
}

pub fn node_state(loaded: &str) -> NodeState {
    NodeState {
        devices: vec![DeviceState { slots: 1, ..mk_board("board-0", &[0]) }],
        bitstreams: vec![mk_bitstream(loaded, 1_000)],
        ..mk_state()
    }
}

pub fn sobel() -> FunctionName {
    FunctionName::new("default", "sobel")
}

impl Served {
    pub async fn start() -> Self {
        Self::with(Differs::default()).await
    }

    pub async fn with(differs: Differs) -> Self {
        let waiting = differs.waiting.unwrap_or(100_000);
        let picker =
            Picker::new(Limits { endpoints: 3, waiting }, Metrics::register(&mut Registry::default()));
        picker.with(|state, now| {
            let function = Function {
                bitstream: Some(BitstreamId::Name("sobel".to_owned())),
                max_waiting: None,
                replicas: vec![
                    Replica {
                        boards: differs.boards.iter().map(|board| (*board).into()).collect(),
                        asks_for_board: true,
                        ..replica(FIRST, "a")
                    },
                    replica(SECOND, "b"),
                ],
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

    pub async fn serve(picker: Arc<Picker>, differs: Differs) -> Self {
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

    pub async fn channel(&self) -> Channel {
        Endpoint::from_shared(format!("http://{}", self.address)).unwrap().connect().await.unwrap()
    }

    pub async fn call(&self) -> Call {
        Call::open(self.channel().await).await.unwrap()
    }

    pub fn in_flight(&self) -> usize {
        self.picker.census().in_flight
    }

    pub async fn until_in_flight(&self, expected: usize) {
        until_async(format!("{expected} requests in flight"), async || {
            let found = self.in_flight();
            if found == expected { Ok(()) } else { Err(found.to_string()) }
        })
        .await;
    }
}
