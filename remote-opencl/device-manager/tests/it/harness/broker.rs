//! A broker of the pool that does what a test says, at the other end of the real stream.

use fpga_board::dispatch::Tenant;
use fpga_board::slots::SlotIndex;
use fpga_core::bitstream::Digest;
use fpga_core::units::WallTime;
use fpga_pool_api::hello::Hello;
use fpga_pool_api::manager::{FromManager, LentBoard};
use fpga_pool_api::v1;
use fpga_pool_api::v1::broker_server::{Broker, BrokerServer};
use fpga_pool_leases::ids::{Incarnation, JobUuid, LeaseId, Term};
use fpga_pool_leases::lease::{Endpoint, Lease, Work};
use fpga_pool_leases::messages::{BrokerToManager, ManagerToBroker, SlotCause, SlotReport, SlotStatus};
use fpga_test_kit::patience;
use futures::stream::Pending;
use std::net::{SocketAddr, TcpListener};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio_stream::wrappers::{ReceiverStream, TcpListenerStream};
use tonic::{Request, Response, Status, Streaming};

/// The broker. Dropping it ends its streams.
pub struct ScriptedBroker {
    address: SocketAddr,
    streams: mpsc::Receiver<LendStream>,
    server: JoinHandle<()>,
}

/// The stream of a manager that has registered.
pub struct LendStream {
    from: Streaming<v1::FromManager>,
    to: mpsc::Sender<Result<v1::ToManager, Status>>,
    pub hello: Hello,
    pub board: LentBoard,
    pub incarnation: Incarnation,
    pub endpoint: Endpoint,
    pub slots: Vec<SlotStatus>,
}

struct Service(mpsc::Sender<LendStream>);

impl ScriptedBroker {
    pub async fn start() -> Self {
        Self::start_at("127.0.0.1:0".parse().unwrap()).await
    }

    pub async fn start_at(address: SocketAddr) -> Self {
        let listener = TcpListener::bind(address).unwrap();
        listener.set_nonblocking(true).unwrap();
        let address = listener.local_addr().unwrap();
        let listener = tokio::net::TcpListener::from_std(listener).unwrap();
        let (sender, streams) = mpsc::channel(16);
        let service = BrokerServer::new(Service(sender));
        let server = tonic::transport::Server::builder().add_service(service);
        let served = server.serve_with_incoming(TcpListenerStream::new(listener));
        let server = tokio::spawn(async move { served.await.unwrap() });
        Self { address, streams, server }
    }

    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Waits for a manager to register.
    pub async fn registered(&mut self) -> LendStream {
        tokio::time::timeout(patience(), self.streams.recv()).await.unwrap().unwrap()
    }
}

impl Drop for ScriptedBroker {
    fn drop(&mut self) {
        self.server.abort();
    }
}

impl LendStream {
    async fn begin(
        mut from: Streaming<v1::FromManager>,
        to: mpsc::Sender<Result<v1::ToManager, Status>>,
    ) -> Option<Self> {
        let Ok(FromManager::Hello(hello)) = from.message().await.ok()??.try_into() else {
            panic!("no Hello")
        };
        let register = from.message().await.ok()??.try_into().unwrap();
        let FromManager::Register(board, ManagerToBroker::Register { incarnation, endpoint, slots, .. }) =
            register
        else {
            panic!("{register:?} is no Register")
        };
        Some(Self { from, to, hello, board, incarnation, endpoint, slots })
    }

    pub async fn say(&self, message: BrokerToManager) {
        self.to.send(Ok(message.into())).await.unwrap();
    }

    /// The manager's next message.
    pub async fn next(&mut self) -> ManagerToBroker {
        let message = tokio::time::timeout(patience(), self.from.message()).await.expect("a message in time");
        match message.unwrap().expect("the stream goes on").try_into().unwrap() {
            FromManager::Message(message) => message,
            other => panic!("{other:?} comes once"),
        }
    }

    /// The next report of a slot.
    pub async fn report(&mut self) -> SlotReport {
        match self.next().await {
            ManagerToBroker::Slot(report) => report,
            other => panic!("{other:?} is no report"),
        }
    }

    /// The next report with this reason. Others before it say whether the slot is busy.
    pub async fn report_of(&mut self, why: SlotCause) -> SlotReport {
        loop {
            let report = self.report().await;
            if report.why == why {
                return report;
            }
            assert!(
                matches!(report.why, SlotCause::Busy | SlotCause::Idle),
                "{report:?} comes before {why:?}"
            );
        }
    }

    /// The report that the slot of a client that has closed is free. A client may learn of the end of its last task before
    /// the lender does: then the slot drains before.
    pub async fn freed(&mut self) -> SlotReport {
        let mut report = self.report_of(SlotCause::Closed).await;
        if matches!(report.status, SlotStatus::Draining(_)) {
            report = self.report_of(SlotCause::Drained).await;
        }
        assert_eq!(report.status, SlotStatus::Free, "{report:?}");
        report
    }

    /// A lease of a job that processes bytes.
    pub fn lease(&self, id: u128, slot: u32, digest: Digest) -> Lease {
        Lease {
            id: LeaseId(id),
            incarnation: self.incarnation,
            slot: SlotIndex(slot),
            job: JobUuid(id),
            tenant: Tenant::new("jobs"),
            digest,
            work: Work::Run { bytes: 100 },
            first_arrival: WallTime(1),
        }
    }

    /// Asks for a lease, and waits until its bitstream is loaded.
    pub async fn prepare(&mut self, lease: &Lease) {
        self.say(BrokerToManager::Prepare { term: Term(1), lease: lease.clone(), usage_every: None }).await;
        assert_eq!(self.next().await, ManagerToBroker::Prepared { lease: lease.id });
    }

    pub async fn recall(&self, lease: LeaseId) {
        self.say(BrokerToManager::Recall { lease }).await;
    }
}

#[tonic::async_trait]
impl Broker for Service {
    type LendStream = ReceiverStream<Result<v1::ToManager, Status>>;
    type WorkStream = Pending<Result<v1::ToClient, Status>>;

    async fn lend(
        &self,
        request: Request<Streaming<v1::FromManager>>,
    ) -> Result<Response<Self::LendStream>, Status> {
        let (to, stream) = mpsc::channel(64);
        let streams = self.0.clone();
        tokio::spawn(async move {
            if let Some(begun) = LendStream::begin(request.into_inner(), to).await {
                // The test may have ended.
                let _ = streams.send(begun).await;
            }
        });
        Ok(Response::new(ReceiverStream::new(stream)))
    }

    async fn work(
        &self,
        _: Request<Streaming<v1::FromClient>>,
    ) -> Result<Response<Self::WorkStream>, Status> {
        Err(Status::unimplemented("no jobs"))
    }

    async fn look(&self, _: Request<v1::LookRequest>) -> Result<Response<v1::Pool>, Status> {
        Err(Status::unimplemented("no view"))
    }
}
