//! The task that owns the [`State`]. Streams send it commands, and it sends them messages.
//!
//! Commands wait in one bounded queue, into which every stream puts one at a time: a peer that floods waits as long as
//! all others. A client that does not read is not read either, and a peer that lets too many messages wait loses its
//! stream.

use crate::answers::Answers;
use crate::metrics::Metrics;
use crate::state::{Input, Output, State, Viewer};
use crate::terms::Terms;
use fpga_core::units::{Moment, MonotonicTime, WallTime};
use fpga_pool_api::client::ToClient;
use fpga_pool_api::v1;
use fpga_pool_leases::ids::{ConnectionId, Term};
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime};
use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::Instant;
use tonic::Status;

/// Commands that wait for the owner.
const COMMANDS: usize = 1024;
/// Commands that the owner handles before it looks at the clock again.
const BATCH: usize = 64;

/// What the owner is asked.
#[derive(Debug)]
pub enum Command {
    /// A stream begins.
    Open(ConnectionId, Peer),
    /// Something happens.
    Input(Box<Input>),
    /// The Lease is lost. The answer says that the broker stands by.
    StandBy(oneshot::Sender<()>),
    /// Somebody looks.
    Look(Viewer, oneshot::Sender<v1::Pool>),
}

/// The way to a peer. Dropping it ends the stream.
#[derive(Debug)]
pub struct Peer {
    /// Messages to the peer.
    pub messages: Messages,
    /// Tells the reader of the stream, when it is dropped, that the stream has ended.
    pub open: oneshot::Sender<()>,
}

/// Messages to a peer.
#[derive(Debug)]
pub enum Messages {
    /// To a manager.
    Manager(Answers<v1::ToManager>),
    /// To a client.
    Client(Answers<ToClient>),
}

/// How streams reach the owner.
#[derive(Debug, Clone)]
pub struct Desk {
    commands: mpsc::Sender<Command>,
    in_office: watch::Receiver<bool>,
    active: watch::Receiver<bool>,
    connections: Arc<AtomicU64>,
}

/// The owner.
pub struct Owner {
    state: State,
    metrics: Metrics,
    commands: mpsc::Receiver<Command>,
    peers: HashMap<ConnectionId, Peer>,
    started: Instant,
    in_office: watch::Sender<bool>,
    active: watch::Sender<bool>,
    terms: Terms,
}

impl Desk {
    /// Sends the owner a command. An error means that the broker ends.
    ///
    /// # Errors
    /// UNAVAILABLE.
    pub async fn send(&self, command: Command) -> Result<(), Status> {
        self.commands.send(command).await.map_err(|_| ends())
    }

    /// Tells the owner what happens.
    ///
    /// # Errors
    /// UNAVAILABLE.
    pub async fn tell(&self, input: Input) -> Result<(), Status> {
        self.send(Command::Input(Box::new(input))).await
    }

    /// Tells the owner that the Lease is lost, and waits until it stands by: it replaces no term from then on until it may
    /// lead again.
    ///
    /// # Errors
    /// UNAVAILABLE.
    pub async fn stand_by(&self) -> Result<(), Status> {
        let (answer, stands_by) = oneshot::channel();
        self.send(Command::StandBy(answer)).await?;
        stands_by.await.map_err(|_| ends())
    }

    /// A new connection's id.
    #[must_use]
    pub fn new_connection(&self) -> ConnectionId {
        ConnectionId(self.connections.fetch_add(1, Ordering::Relaxed))
    }

    /// Whether the broker takes streams.
    #[must_use]
    pub fn is_in_office(&self) -> bool {
        *self.in_office.borrow()
    }

    /// Whether the broker grants.
    #[must_use]
    pub fn is_active(&self) -> bool {
        *self.active.borrow()
    }
}

impl Owner {
    /// The owner of `state`, and the way to it.
    #[must_use]
    pub fn new(state: State, metrics: Metrics, terms: Terms) -> (Self, Desk) {
        let (send, commands) = mpsc::channel(COMMANDS);
        let ((in_office, sees_office), (active, sees_active)) =
            (watch::channel(false), watch::channel(false));
        let desk =
            Desk { commands: send, in_office: sees_office, active: sees_active, connections: Arc::default() };
        let (peers, started) = (HashMap::new(), Instant::now());
        (Self { state, metrics, commands, peers, started, in_office, active, terms }, desk)
    }

    /// Works until `stop` is true, and tells all peers then that they must ask another broker.
    pub async fn run(mut self, mut stop: watch::Receiver<bool>) {
        loop {
            let due = self.state.next_deadline().map(|at| self.started + Duration::from_millis(at.0));
            let wait = async {
                match due {
                    Some(due) => tokio::time::sleep_until(due).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                () = stopped(&mut stop) => break,
                Some(command) = self.commands.recv() => self.batch(command),
                () = wait => {
                    let now = self.now();
                    let outputs = self.state.tick(now);
                    self.carry_out(outputs);
                }
            }
            self.show_role();
        }
        self.input(Input::LeaseLost);
        self.show_role();
    }

    /// Handles a command and those that wait behind it.
    fn batch(&mut self, first: Command) {
        self.command(first);
        for _ in 1..BATCH {
            match self.commands.try_recv() {
                Ok(command) => self.command(command),
                Err(_) => break,
            }
        }
    }

    fn command(&mut self, command: Command) {
        match command {
            Command::Open(connection, peer) => {
                self.peers.insert(connection, peer);
            }
            Command::Input(input) => self.input(*input),
            Command::StandBy(answer) => {
                self.input(Input::LeaseLost);
                // Whoever waited may have gone.
                let _ = answer.send(());
            }
            Command::Look(viewer, answer) => {
                // Whoever looked may have gone.
                let _ = answer.send(self.state.view(&viewer, self.now()));
            }
        }
    }

    fn input(&mut self, input: Input) {
        let began = Instant::now();
        if let Input::ManagerClosed(connection) | Input::ClientClosed(connection) = &input {
            self.peers.remove(connection);
        }
        let now = self.now();
        let outputs = self.state.handle(input, now);
        self.metrics.decided(began.elapsed());
        self.carry_out(outputs);
    }

    fn carry_out(&mut self, outputs: Vec<Output>) {
        for output in outputs {
            match output {
                Output::ToManager(connection, message) => {
                    self.send(connection, |messages| match messages {
                        Messages::Manager(to) => to.send(Ok(message.into())),
                        Messages::Client(_) => false,
                    });
                }
                Output::ToClient(connection, message) => {
                    // Waits are for people alone: a client that reads slowly misses some.
                    let may_be_lost = matches!(message, ToClient::Waits(_));
                    self.send(connection, |messages| match messages {
                        Messages::Client(to) if may_be_lost && !to.is_read() => true,
                        Messages::Client(to) => to.send(Ok(message)),
                        Messages::Manager(_) => false,
                    });
                }
                Output::Close(connection) => {
                    if let Some(peer) = self.peers.remove(&connection) {
                        peer.end();
                    }
                }
                Output::SwapTerm { expected, next } => self.swap(expected, next),
            }
        }
    }

    fn swap(&mut self, expected: Term, next: Term) {
        if let Some(outcome) = self.terms.swap(expected, next) {
            self.input(Input::Swapped(outcome));
        }
    }

    /// Sends a message; the stream ends if the peer does not read. Its reader tells of the end then.
    fn send(&mut self, connection: ConnectionId, send: impl FnOnce(&Messages) -> bool) {
        if let Some(peer) = self.peers.get(&connection)
            && !send(&peer.messages)
        {
            self.metrics.refused_message("unread");
            self.peers.remove(&connection);
        }
    }

    fn show_role(&mut self) {
        if *self.in_office.borrow() && !self.state.is_in_office() {
            // The protocol closes the streams that it knows: a client without a job is not among them.
            self.peers.drain().for_each(|(_, peer)| peer.end());
        }
        let set = |to: &watch::Sender<bool>, is: bool| {
            to.send_if_modified(|was| std::mem::replace(was, is) != is);
        };
        set(&self.in_office, self.state.is_in_office());
        set(&self.active, self.state.is_active());
        self.metrics.active.set(self.state.is_active().into());
    }

    fn now(&self) -> Moment {
        let now = MonotonicTime::after(self.started.elapsed());
        Moment { now, wall: WallTime::of(SystemTime::now()) }
    }
}

impl Peer {
    /// Ends the stream with the reason.
    fn end(self) {
        let status = || {
            Status::unavailable(
                "this broker is not active any more, or the stream was replaced or broke the protocol",
            )
        };
        // A peer that does not read learns of the end by the end.
        let _ = match &self.messages {
            Messages::Manager(to) => to.send(Err(status())),
            Messages::Client(to) => to.send(Err(status())),
        };
    }
}

fn ends() -> Status {
    Status::unavailable("the broker ends")
}

async fn stopped(stop: &mut watch::Receiver<bool>) {
    // An error means that the sender is gone, which is an end as well.
    let _ = stop.wait_for(|stop| *stop).await;
}
