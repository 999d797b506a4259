//! A broker in this process behind a real port, and scripted peers.

use fpga_board::dispatch::Tenant;
use fpga_board::slots::SlotIndex;
use fpga_cluster::pool::policy::PoolPolicy;
use fpga_cluster::pool::thresholds::Thresholds;
use fpga_cluster::qos::groups::GoalPolicy;
use fpga_cluster::qos::rules::GoalRules;
use fpga_core::bitstream::Digest;
use fpga_core::units::{Millis, WallTime};
use fpga_pool::catalog::Catalog;
use fpga_pool::connections::Connections;
use fpga_pool::identity::{Authenticator, TokensFile};
use fpga_pool::metrics::Metrics;
use fpga_pool::owner::{Desk, Owner};
use fpga_pool::policy::{PolicySettings, TenantSettings};
use fpga_pool::server;
use fpga_pool::service::Service;
use fpga_pool::state::{Input, Settings, State};
use fpga_pool::terms::Terms;
use fpga_pool::tickets::TicketKey;
use fpga_pool_api::client::{FromClient, SealedTicket, ToClient, Want};
use fpga_pool_api::hello::Hello;
use fpga_pool_api::limits::PROTOCOL_VERSION;
use fpga_pool_api::manager::{Board, FromManager, LentBoard, LentSlot};
use fpga_pool_api::v1;
use fpga_pool_api::v1::broker_client::BrokerClient;
use fpga_pool_leases::broker::Limits;
use fpga_pool_leases::ids::{Attempt, Incarnation, JobUuid, LeaseId, Term};
use fpga_pool_leases::lease::{Endpoint, Lease, Usage, Wanted, Work};
use fpga_pool_leases::messages::{
    Activity, BrokerToManager, ManagerToBroker, SlotCause, SlotReport, SlotStatus,
};
use fpga_test_kit::{patience, until_async};
use prometheus_client::registry::Registry;
use tokio::net::TcpListener;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;
use tokio::time::timeout;
use tokio_stream::wrappers::ReceiverStream;
use tonic::transport::{Channel, Endpoint as Port};
use tonic::{Status, Streaming};

/// Messages under way from a scripted peer.
const UNDER_WAY: usize = 4096;

/// The tokens of a bed with tokens.
pub const TOKENS: &str = r#"{
    "manager-token-of-n1": {"role": "manager", "node": "n1"},
    "client-token-of-a-00": {"role": "client", "tenant": "a", "node": "n1"},
    "client-token-of-b-00": {"role": "client", "tenant": "b", "node": "n9"},
    "operator-token-00000": {"role": "operator"}
}"#;

/// How a broker is started.
#[derive(Debug, Default)]
pub struct Options {
    /// What tenants may have.
    pub tenants: TenantSettings,
    /// The tokens; without them everybody is believed.
    pub tokens: Option<TokensFile>,
    /// The connections that it may have.
    pub connections: Connections,
}

/// A broker.
pub struct Bed {
    pub address: String,
    pub desk: Desk,
    stop: watch::Sender<bool>,
    owner: JoinHandle<()>,
}

pub fn digest() -> Digest {
    Digest::from_bytes([1; 32])
}

pub fn catalog() -> Catalog {
    let text = format!("[[accelerators.aes]]\nboard = \"a10\"\ndigest = \"{}\"\n", digest());
    Catalog::parse(&text).unwrap()
}

fn settings(tenants: TenantSettings) -> Settings {
    let policy = PolicySettings {
        jobs: PoolPolicy::shared(Thresholds::new(Vec::new()).unwrap()),
        most_waiting: 100_000,
        goals: GoalPolicy::Throughput,
        rules: GoalRules::default(),
        period: Millis::from_secs(1),
        tenants,
    };
    let limits = Limits { jobs: 200_000, managers: 10_000, slots_per_manager: 64 };
    Settings { limits, policy, tickets: TicketKey::of(&[7; 32]) }
}

impl Bed {
    /// A broker that believes everybody and grants.
    pub async fn active() -> Self {
        Self::start(Options::default()).await
    }

    /// A broker that grants.
    pub async fn start(options: Options) -> Self {
        let bed = Self::listening(options).await;
        bed.until_active().await;
        bed
    }

    /// A broker that listens only, as yet.
    pub async fn listening(options: Options) -> Self {
        let bed = Self::open(options, Terms::Memory).await;
        bed.desk.tell(Input::MayLead { term: Term(0) }).await.unwrap();
        bed
    }

    /// A broker that waits until it may lead.
    pub async fn standing_by(options: Options, terms: Terms) -> Self {
        Self::open(options, terms).await
    }

    async fn open(options: Options, terms: Terms) -> Self {
        let metrics = Metrics::register(&mut Registry::default());
        let mut lease = 0_u128;
        let new_lease_id = move || {
            lease += 1;
            LeaseId(lease)
        };
        let state = State::new(settings(options.tenants), metrics.clone(), new_lease_id);
        let (owner, desk) = Owner::new(state, metrics.clone(), terms);
        let authenticator = options.tokens.map_or(Authenticator::Open, Authenticator::Tokens);
        let service = Service::new(desk.clone(), authenticator, metrics);
        let (stop, stopped) = watch::channel(false);
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let owner = tokio::spawn(owner.run(stopped.clone()));
        tokio::spawn(server::serve(listener, None, options.connections, service, stopped));
        desk.tell(Input::Catalog(catalog())).await.unwrap();
        Self { address, desk, stop, owner }
    }

    pub async fn until_active(&self) {
        until_async("an active broker", async || self.desk.is_active()).await;
    }

    /// Ends the broker as SIGTERM does.
    pub async fn stop(self) {
        self.stop.send_replace(true);
        self.owner.await.unwrap();
    }

    pub async fn connect(&self) -> BrokerClient<Channel> {
        self.connect_by(|port| port).await
    }

    /// A connection on which the broker may send so many bytes of a stream that nobody reads.
    pub async fn connect_with_window(&self, bytes: u32) -> BrokerClient<Channel> {
        self.connect_by(|port| port.initial_stream_window_size(bytes)).await
    }

    async fn connect_by(&self, configure: impl FnOnce(Port) -> Port) -> BrokerClient<Channel> {
        let port = Port::from_shared(format!("http://{}", self.address)).unwrap().tcp_nodelay(true);
        BrokerClient::new(timeout(patience(), configure(port).connect()).await.unwrap().unwrap())
    }

    /// A manager with free slots of kind a10 on a node.
    pub async fn manager(&self, node: &str, slots: u32) -> Manager {
        self.manager_with("", node, vec![SlotStatus::Free; slots as usize]).await
    }

    pub async fn manager_with(&self, token: &str, node: &str, slots: Vec<SlotStatus>) -> Manager {
        let mut manager = Manager::hello(self.connect().await, token, node).await.unwrap();
        manager.register(slots).await;
        manager
    }

    /// The names of the boards that the pool has.
    pub async fn boards(&self) -> Vec<String> {
        let pool = self.connect().await.look(v1::LookRequest { token: String::new() }).await.unwrap();
        pool.into_inner().boards.into_iter().map(|board| board.board.unwrap().name).collect()
    }

    /// A client without a token on a node.
    pub async fn client(&self, node: &str) -> Client {
        Client::hello(self.connect().await, "", node).await.unwrap()
    }
}

fn hello(token: &str, node: &str) -> Hello {
    Hello { version: PROTOCOL_VERSION, token: token.to_owned(), node: Some(node.into()) }
}

/// A scripted manager.
pub struct Manager {
    node: String,
    /// Name of its board.
    pub board: String,
    pub to: mpsc::Sender<v1::FromManager>,
    pub from: Streaming<v1::ToManager>,
    seq: u64,
}

impl Manager {
    pub async fn hello(mut port: BrokerClient<Channel>, token: &str, node: &str) -> Result<Self, Status> {
        let (to, messages) = mpsc::channel(UNDER_WAY);
        to.send(v1::FromManager::from(hello(token, node))).await.unwrap();
        let from = timeout(patience(), port.lend(ReceiverStream::new(messages))).await.unwrap()?.into_inner();
        Ok(Self { node: node.to_owned(), board: "board".to_owned(), to, from, seq: 0 })
    }

    fn lent(&self, slots: usize) -> LentBoard {
        let (name, node) = (self.board.as_str().into(), self.node.as_str().into());
        let board = Board { name, kind: "a10".into(), shell: None, node };
        LentBoard { board, slots: vec![LentSlot::default(); slots] }
    }

    pub async fn register(&mut self, slots: Vec<SlotStatus>) {
        let endpoint = Endpoint { address: format!("{}:1", self.node).into(), key: None, socket: None };
        let board = self.lent(slots.len());
        let (incarnation, max_term) = (Incarnation(7), Term(0));
        let register = ManagerToBroker::Register { incarnation, max_term, endpoint, slots };
        self.to.send(FromManager::encode(register, &board)).await.unwrap();
    }

    pub async fn send(&mut self, message: ManagerToBroker) {
        let board = self.lent(0);
        self.to.send(FromManager::encode(message, &board)).await.unwrap();
    }

    pub async fn next(&mut self) -> Result<BrokerToManager, Status> {
        let message = timeout(patience(), self.from.message()).await.unwrap()?;
        Ok(message.ok_or_else(|| Status::unavailable("ended"))?.try_into().unwrap())
    }

    pub async fn prepare(&mut self) -> Lease {
        match self.next().await.unwrap() {
            BrokerToManager::Prepare { lease, .. } => lease,
            other => panic!("no Prepare: {other:?}"),
        }
    }

    /// Answers the next Prepare.
    pub async fn prepared(&mut self) -> Lease {
        let lease = self.prepare().await;
        self.send(ManagerToBroker::Prepared { lease: lease.id }).await;
        lease
    }

    pub async fn report(&mut self, slot: SlotIndex, status: SlotStatus, why: SlotCause) {
        let usage = Usage { bytes: 10, actions: 1, busy: Millis(1) };
        let report = SlotReport { seq: self.seq, slot, status, why, usage };
        self.seq += 1;
        self.send(ManagerToBroker::Slot(report)).await;
    }

    pub async fn held(&mut self, lease: &Lease, activity: Activity) {
        let why = if activity == Activity::Idle { SlotCause::Idle } else { SlotCause::Attached };
        self.report(lease.slot, SlotStatus::Held(lease.clone(), activity), why).await;
    }

    pub async fn free(&mut self, slot: SlotIndex) {
        self.report(slot, SlotStatus::Free, SlotCause::Drained).await;
    }
}

/// A scripted client.
pub struct Client {
    pub to: mpsc::Sender<v1::FromClient>,
    pub from: Streaming<v1::ToClient>,
}

pub fn want(job: u128, bytes: u64) -> Want {
    let wanted = Wanted { accelerator: "aes".into(), work: Work::Run { bytes }, bundle: None };
    Want { job: JobUuid(job), wanted, ticket: None, attempt: Attempt(1) }
}

impl Client {
    pub async fn hello(mut port: BrokerClient<Channel>, token: &str, node: &str) -> Result<Self, Status> {
        let (to, messages) = mpsc::channel(UNDER_WAY);
        to.send(FromClient::Hello(hello(token, node)).into()).await.unwrap();
        let from = timeout(patience(), port.work(ReceiverStream::new(messages))).await.unwrap()?.into_inner();
        Ok(Self { to, from })
    }

    pub async fn send(&self, message: FromClient) {
        self.to.send(message.into()).await.unwrap();
    }

    /// Asks for a slot; returns the ticket.
    pub async fn want(&mut self, want: Want) -> SealedTicket {
        let job = want.job;
        self.send(FromClient::Want(want)).await;
        match self.next().await {
            ToClient::Ticket(sealed, _) if sealed.ticket.job == job => sealed,
            other => panic!("no ticket: {other:?}"),
        }
    }

    /// The next message that is not for people.
    pub async fn next(&mut self) -> ToClient {
        loop {
            match self.try_next().await.unwrap() {
                ToClient::Waits(_) => {}
                message => return message,
            }
        }
    }

    pub async fn try_next(&mut self) -> Result<ToClient, Status> {
        let message = timeout(patience(), self.from.message()).await.unwrap()?;
        Ok(message.ok_or_else(|| Status::unavailable("ended"))?.try_into().unwrap())
    }

    /// The code with which the stream ends.
    pub async fn try_next_error(&mut self) -> tonic::Code {
        loop {
            if let Err(status) = self.try_next().await {
                return status.code();
            }
        }
    }

    pub async fn offered(&mut self) -> fpga_pool_api::client::Offer {
        match self.next().await {
            ToClient::Offer(offer) => offer,
            other => panic!("no offer: {other:?}"),
        }
    }
}

/// A lease that a manager tells of a job.
pub fn lease(id: u128, slot: u32, job: u128, tenant: &str) -> Lease {
    Lease {
        id: LeaseId(id),
        incarnation: Incarnation(7),
        slot: SlotIndex(slot),
        job: JobUuid(job),
        tenant: Tenant::new(tenant),
        digest: digest(),
        work: Work::Run { bytes: 10 },
        first_arrival: WallTime(1),
    }
}
