//! A broker without a policy: first come, first served, and leases are recalled when a test says so. It speaks the real
//! protocol on a real port, with real device managers and clients.

use fpga_board::dispatch::Tenant;
use fpga_board::slots::SlotIndex;
use fpga_core::bitstream::Digest;
use fpga_core::units::WallTime;
use fpga_pool_api::client::{Cancelled, FromClient, Offer, SealedTicket, ToClient, Waits, Want};
use fpga_pool_api::manager::{FromManager, LentBoard};
use fpga_pool_api::v1::broker_server::{Broker, BrokerServer};
use fpga_pool_api::{Malformed, v1};
use fpga_pool_leases::ids::{Incarnation, JobUuid, LeaseId, Term};
use fpga_pool_leases::lease::{Endpoint, Lease, Ticket};
use fpga_pool_leases::messages::{BrokerToManager, CancelCause, ManagerToBroker, SlotStatus};
use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio_stream::StreamExt as _;
use tokio_stream::wrappers::{TcpListenerStream, UnboundedReceiverStream};
use tonic::{Request, Response, Status, Streaming};

type To<T> = UnboundedSender<Result<T, Status>>;

/// What happens to the broker.
enum Event {
    Manager(u64, To<v1::ToManager>),
    FromManager(u64, FromManager),
    ManagerGone(u64),
    Client(u64, To<v1::ToClient>),
    FromClient(u64, FromClient),
    ClientGone(u64),
    Recall,
    Forget,
    Stop,
}

/// What a test can see.
#[derive(Debug, Default, Clone)]
pub struct Seen {
    /// All Wants, in order.
    pub wants: Vec<Want>,
    /// Jobs that were cancelled.
    pub cancelled: Vec<JobUuid>,
    /// Number of times that a manager has registered.
    pub registered: usize,
    /// Number of slots that a job has.
    pub leased: usize,
    pub slots: usize,
    /// The token of the latest client.
    pub token: String,
}

/// The broker, on a thread of its own.
pub struct TestBroker {
    pub address: String,
    events: UnboundedSender<Event>,
    seen: Arc<Mutex<Seen>>,
    thread: Option<JoinHandle<()>>,
}

struct State {
    bitstreams: HashMap<String, Digest>,
    managers: HashMap<u64, Manager>,
    clients: HashMap<u64, To<v1::ToClient>>,
    waiting: VecDeque<(u64, Want)>,
    last_lease: u128,
    seen: Arc<Mutex<Seen>>,
}

struct Manager {
    to: To<v1::ToManager>,
    incarnation: Incarnation,
    endpoint: Endpoint,
    node: Arc<str>,
    slots: Vec<Slot>,
}

#[derive(Clone)]
enum Slot {
    Free,
    Preparing(u64, Box<Want>, Lease),
    Leased(LeaseId),
}

impl TestBroker {
    /// Starts a broker whose accelerators have these bitstreams.
    pub fn start(bitstreams: HashMap<String, Digest>) -> Self {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        listener.set_nonblocking(true).unwrap();
        let (events, inbox) = unbounded_channel();
        let seen = Arc::new(Mutex::new(Seen::default()));
        let service = Service { events: events.clone(), last: Arc::default() };
        let state = State {
            bitstreams,
            managers: HashMap::new(),
            clients: HashMap::new(),
            waiting: VecDeque::new(),
            last_lease: 0,
            seen: Arc::clone(&seen),
        };
        let thread = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(async {
                let incoming = TcpListenerStream::new(tokio::net::TcpListener::from_std(listener).unwrap());
                let server = tonic::transport::Server::builder().add_service(BrokerServer::new(service));
                tokio::select! {
                    served = server.serve_with_incoming(incoming) => served.unwrap(),
                    () = state.run(inbox) => {}
                }
            });
            runtime.shutdown_background();
        });
        Self { address, events, seen, thread: Some(thread) }
    }

    pub fn seen(&self) -> Seen {
        self.seen.lock().unwrap().clone()
    }

    /// Refuses all jobs from now on.
    pub fn forget_bitstreams(&self) {
        self.events.send(Event::Forget).unwrap();
    }

    /// Recalls all leases.
    pub fn recall(&self) {
        self.events.send(Event::Recall).unwrap();
    }
}

impl Drop for TestBroker {
    /// Ends as a killed process does: all connections are cut.
    fn drop(&mut self) {
        let _ = self.events.send(Event::Stop);
        if let Some(thread) = self.thread.take() {
            thread.join().unwrap();
        }
    }
}

impl State {
    async fn run(mut self, mut inbox: UnboundedReceiver<Event>) {
        while let Some(event) = inbox.recv().await {
            match event {
                Event::Manager(id, to) => {
                    let (incarnation, node) = (Incarnation(0), "".into());
                    let endpoint = Endpoint { address: "".into(), key: None, socket: None };
                    let manager = Manager { to, incarnation, endpoint, node, slots: Vec::new() };
                    self.managers.insert(id, manager);
                }
                Event::FromManager(_, FromManager::Hello(_)) => {}
                Event::FromManager(id, FromManager::Register(board, register)) => {
                    self.register(id, board, register);
                }
                Event::FromManager(id, FromManager::Message(message)) => self.manager(id, message),
                Event::ManagerGone(id) => drop(self.managers.remove(&id)),
                Event::Client(id, to) => drop(self.clients.insert(id, to)),
                Event::FromClient(id, message) => self.client(id, message),
                Event::ClientGone(id) => {
                    self.clients.remove(&id);
                    self.waiting.retain(|(client, _)| *client != id);
                }
                Event::Recall => self.recall(),
                Event::Forget => self.bitstreams.clear(),
                Event::Stop => return,
            }
            self.grant();
            self.show();
        }
    }

    fn show(&self) {
        let slots = || self.managers.values().flat_map(|manager| &manager.slots);
        let mut seen = self.seen.lock().unwrap();
        seen.slots = slots().count();
        seen.leased = slots().filter(|slot| !matches!(slot, Slot::Free)).count();
    }

    fn register(&mut self, id: u64, board: LentBoard, register: ManagerToBroker) {
        let ManagerToBroker::Register { incarnation, endpoint, slots, .. } = register else { return };
        let Some(manager) = self.managers.get_mut(&id) else { return };
        (manager.incarnation, manager.endpoint, manager.node) = (incarnation, endpoint, board.board.node);
        manager.slots = slots.into_iter().map(of_status).collect();
        self.seen.lock().unwrap().registered += 1;
    }

    fn manager(&mut self, id: u64, message: ManagerToBroker) {
        let Some(manager) = self.managers.get_mut(&id) else { return };
        match message {
            ManagerToBroker::Slot(report) => {
                let slot = &mut manager.slots[report.slot.0 as usize];
                if !matches!((&slot, &report.status), (Slot::Preparing(..), SlotStatus::Reserved(_))) {
                    *slot = of_status(report.status);
                }
            }
            ManagerToBroker::Prepared { lease } => {
                for slot in &mut manager.slots {
                    if let Slot::Preparing(client, want, its) = slot.clone()
                        && its.id == lease
                    {
                        let (endpoint, node) = (manager.endpoint.clone(), Arc::clone(&manager.node));
                        let offer = Offer { job: want.job, lease, endpoint, node, digest: its.digest };
                        say(&self.clients, client, ToClient::Offer(offer));
                        *slot = Slot::Leased(lease);
                    }
                }
            }
            ManagerToBroker::Refused { lease, why } => {
                eprintln!("refused: {why}");
                for slot in &mut manager.slots {
                    if let Slot::Preparing(client, want, its) = slot.clone()
                        && its.id == lease
                    {
                        self.waiting.push_front((client, *want));
                        *slot = Slot::Leased(lease);
                    }
                }
            }
            ManagerToBroker::Register { .. } => {}
        }
    }

    fn client(&mut self, id: u64, message: FromClient) {
        match message {
            FromClient::Hello(hello) => self.seen.lock().unwrap().token = hello.token,
            FromClient::Cancel(job) => {
                self.waiting.retain(|(_, want)| want.job != job);
                self.seen.lock().unwrap().cancelled.push(job);
            }
            FromClient::Want(want) => {
                self.seen.lock().unwrap().wants.push(want.clone());
                let ticket = Ticket { job: want.job, first_arrival: WallTime(1) };
                let sealed = want.ticket.unwrap_or(SealedTicket { ticket, code: [9; 32] });
                say(&self.clients, id, ToClient::Ticket(sealed, None));
                if !self.bitstreams.contains_key(&*want.wanted.accelerator) {
                    let message = "no board of the pool has this accelerator".to_owned();
                    let why = CancelCause::NoFittingSlot;
                    return say(
                        &self.clients,
                        id,
                        ToClient::Cancelled(Cancelled { job: want.job, why, message }),
                    );
                }
                let (job, ahead) = (want.job, self.waiting.len() as u64);
                self.waiting.push_back((id, want));
                let reason = "all slots are taken".to_owned();
                say(&self.clients, id, ToClient::Waits(Waits { job, ahead, reason }));
            }
        }
    }

    fn grant(&mut self) {
        for manager in self.managers.values_mut() {
            for (index, slot) in manager.slots.iter_mut().enumerate() {
                if !matches!(slot, Slot::Free) {
                    continue;
                }
                let Some((client, want)) = self.waiting.pop_front() else { return };
                self.last_lease += 1;
                let lease = Lease {
                    id: LeaseId(u128::from(std::process::id()) << 64 | self.last_lease),
                    incarnation: manager.incarnation,
                    slot: SlotIndex(u32::try_from(index).unwrap()),
                    job: want.job,
                    tenant: Tenant::new("jobs"),
                    digest: self.bitstreams[&*want.wanted.accelerator],
                    work: want.wanted.work,
                    first_arrival: WallTime(1),
                };
                let prepare =
                    BrokerToManager::Prepare { term: Term(1), lease: lease.clone(), usage_every: None };
                let _ = manager.to.send(Ok(prepare.into()));
                *slot = Slot::Preparing(client, Box::new(want), lease);
            }
        }
    }

    fn recall(&self) {
        for manager in self.managers.values() {
            for slot in &manager.slots {
                if let Slot::Leased(lease) = slot {
                    let _ = manager.to.send(Ok(BrokerToManager::Recall { lease: *lease }.into()));
                }
            }
        }
    }
}

fn of_status(status: SlotStatus) -> Slot {
    match status {
        SlotStatus::Free => Slot::Free,
        SlotStatus::Reserved(lease) | SlotStatus::Held(lease, _) | SlotStatus::Draining(lease) => {
            Slot::Leased(lease.id)
        }
        SlotStatus::Bad => Slot::Leased(LeaseId(0)),
    }
}

fn say(clients: &HashMap<u64, To<v1::ToClient>>, client: u64, message: ToClient) {
    if let Some(to) = clients.get(&client) {
        let _ = to.send(Ok(message.into()));
    }
}

struct Service {
    events: UnboundedSender<Event>,
    last: Arc<Mutex<u64>>,
}

impl Service {
    fn pass<W, M>(
        &self,
        mut from: Streaming<W>,
        took: impl Fn(u64, M) -> Event + Send + 'static,
        gone: impl Fn(u64) -> Event + Send + 'static,
    ) -> u64
    where
        W: Send + 'static,
        M: TryFrom<W, Error = Malformed> + Send,
    {
        let id = {
            let mut last = self.last.lock().unwrap();
            *last += 1;
            *last
        };
        let events = self.events.clone();
        tokio::spawn(async move {
            while let Some(Ok(message)) = from.next().await {
                let _ = events.send(took(id, message.try_into().unwrap()));
            }
            let _ = events.send(gone(id));
        });
        id
    }
}

#[tonic::async_trait]
impl Broker for Service {
    type LendStream = UnboundedReceiverStream<Result<v1::ToManager, Status>>;
    type WorkStream = UnboundedReceiverStream<Result<v1::ToClient, Status>>;

    async fn lend(
        &self,
        request: Request<Streaming<v1::FromManager>>,
    ) -> Result<Response<Self::LendStream>, Status> {
        let (to, stream) = unbounded_channel();
        let id = self.pass(request.into_inner(), Event::FromManager, Event::ManagerGone);
        let _ = self.events.send(Event::Manager(id, to));
        Ok(Response::new(UnboundedReceiverStream::new(stream)))
    }

    async fn work(
        &self,
        request: Request<Streaming<v1::FromClient>>,
    ) -> Result<Response<Self::WorkStream>, Status> {
        let (to, stream) = unbounded_channel();
        let id = self.pass(request.into_inner(), Event::FromClient, Event::ClientGone);
        let _ = self.events.send(Event::Client(id, to));
        Ok(Response::new(UnboundedReceiverStream::new(stream)))
    }

    async fn look(&self, _: Request<v1::LookRequest>) -> Result<Response<v1::Pool>, Status> {
        Err(Status::unimplemented("no view"))
    }
}
