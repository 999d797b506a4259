//! The gRPC service: checks who speaks and what is said, and hands it over to the [`owner`](crate::owner).

use crate::answers::{AnswerStream, Answers, answers};
use crate::connections::{ConnectionOfRequest, ConnectionUse};
use crate::identity::Authenticator;
use crate::looks::Looks;
use crate::metrics::{Metrics, Peer as PeerKind};
use crate::owner::{Command, Desk, Messages, Peer};
use crate::registrations::Registrations;
use crate::state::{Client, Input};
use crate::turns::{Turn, Turns};
use fpga_pool_api::client::{FromClient, ToClient};
use fpga_pool_api::hello::Hello;
use fpga_pool_api::limits::{HANDSHAKE_TIMEOUT, MAX_TOKEN_BYTES, PROTOCOL_VERSION};
use fpga_pool_api::manager::FromManager;
use fpga_pool_api::v1::broker_server::Broker;
use fpga_pool_api::{Malformed, v1};
use fpga_pool_leases::ids::{ConnectionId, ManagerId};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::oneshot;
use tokio::time::timeout;
use tonic::{Extensions, Request, Response, Status, Streaming};
use tracing::debug;

/// Longest time that a token waits for its check.
const TURN_TIMEOUT: Duration = Duration::from_secs(4);

/// The gRPC service.
#[derive(Debug, Clone)]
pub struct Service(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    desk: Desk,
    authenticator: Authenticator,
    registrations: Arc<Registrations>,
    looks: Arc<Looks>,
    turns: Turns,
    metrics: Metrics,
}

/// The reading side of a stream.
struct Reader<M, A> {
    shared: Arc<Shared>,
    connection: ConnectionId,
    messages: Streaming<M>,
    answers: Answers<A>,
    /// Ends when the owner has ended the stream.
    ended: oneshot::Receiver<()>,
}

impl Service {
    /// The service of the owner behind `desk`.
    #[must_use]
    pub fn new(desk: Desk, authenticator: Authenticator, metrics: Metrics) -> Self {
        let (registrations, looks) = (Arc::default(), Arc::default());
        let turns = Turns::default();
        Self(Arc::new(Shared { desk, authenticator, registrations, looks, turns, metrics }))
    }
}

#[tonic::async_trait]
impl Broker for Service {
    type LendStream = AnswerStream<v1::ToManager, v1::ToManager>;
    type WorkStream = AnswerStream<ToClient, v1::ToClient>;

    async fn lend(
        &self,
        request: Request<Streaming<v1::FromManager>>,
    ) -> Result<Response<Self::LendStream>, Status> {
        let shared = Arc::clone(&self.0);
        shared.check_office()?;
        let (_, extensions, mut messages) = request.into_parts();
        let hello = match first(&mut messages).await?.try_into() {
            Ok(FromManager::Hello(hello)) => hello,
            other => return Err(shared.malformed(other.err().unwrap_or(Malformed::Hello))),
        };
        check_version(&hello)?;
        let turn = shared.turn(&extensions).await?;
        let node = shared.authenticator.manager(&hello).await.inspect_err(|_| shared.refused_token())?;
        drop(turn);
        let (reader, peer, answers) = Arc::clone(&shared).stream(messages, Messages::Manager);
        let in_use = begin_use(&extensions);
        tokio::spawn(async move {
            reader.lend(node, peer).await;
            drop(in_use);
        });
        Ok(Response::new(answers))
    }

    async fn work(
        &self,
        request: Request<Streaming<v1::FromClient>>,
    ) -> Result<Response<Self::WorkStream>, Status> {
        let shared = Arc::clone(&self.0);
        shared.check_office()?;
        let (_, extensions, mut messages) = request.into_parts();
        let hello = match first(&mut messages).await?.try_into() {
            Ok(FromClient::Hello(hello)) => hello,
            other => return Err(shared.malformed(other.err().unwrap_or(Malformed::Hello))),
        };
        check_version(&hello)?;
        let turn = shared.turn(&extensions).await?;
        let client = shared.authenticator.client(&hello).await.inspect_err(|_| shared.refused_token())?;
        drop(turn);
        let place = shared.registrations.client(&client.tenant).ok_or_else(|| {
            shared.metrics.refused_message("streams");
            Status::resource_exhausted(
                "the namespace has too many streams: use one for all jobs of a process",
            )
        })?;
        let (reader, peer, answers) = Arc::clone(&shared).stream(messages, Messages::Client);
        shared.desk.send(Command::Open(reader.connection, peer)).await?;
        let in_use = begin_use(&extensions);
        tokio::spawn(async move {
            reader.work(client).await;
            drop((place, in_use));
        });
        Ok(Response::new(answers))
    }

    async fn look(&self, request: Request<v1::LookRequest>) -> Result<Response<v1::Pool>, Status> {
        let shared = &self.0;
        shared.check_office()?;
        let (_, extensions, v1::LookRequest { token }) = request.into_parts();
        if token.len() > MAX_TOKEN_BYTES {
            return Err(Status::invalid_argument("the token is too long"));
        }
        let turn = shared.turn(&extensions).await?;
        let check = shared.looks.check().await.inspect_err(|_| shared.refused_look())?;
        let viewer = shared.authenticator.viewer(&token).await.inspect_err(|_| shared.refused_token())?;
        drop((check, turn));
        let _in_use = begin_use(&extensions);
        let look = shared.looks.begin(viewer).inspect_err(|_| shared.refused_look())?;
        let view = async {
            let (answer, answered) = oneshot::channel();
            shared.desk.send(Command::Look(look.viewer().clone(), answer)).await?;
            answered.await.map_err(|_| Status::unavailable("the broker ends"))
        };
        let mut response = Response::new(look.take(view).await?);
        // The look lasts until the answer is read: unread answers of a viewer are as few as its looks.
        response.extensions_mut().insert(Arc::new(look));
        Ok(response)
    }
}

impl Shared {
    /// Waits until a token of the peer may be checked.
    async fn turn(&self, request: &Extensions) -> Result<Option<Turn>, Status> {
        let Some(connection) = request.get::<ConnectionOfRequest>() else { return Ok(None) };
        let turn = timeout(TURN_TIMEOUT, self.turns.wait(connection.address())).await;
        turn.map(Some)
            .map_err(|_| Status::unavailable("too many tokens of this address wait for a check; try again"))
    }

    fn check_office(&self) -> Result<(), Status> {
        if self.desk.is_in_office() {
            return Ok(());
        }
        Err(Status::unavailable("this broker stands by: ask another one"))
    }

    fn malformed(&self, error: Malformed) -> Status {
        self.metrics.refused_message("malformed");
        Status::invalid_argument(error.to_string())
    }

    fn refused_look(&self) {
        self.metrics.refused_message("looks");
    }

    fn refused_token(&self) {
        self.metrics.refused_message("token");
    }

    /// Both sides of a stream: the reader, the owner's way to the peer, and the stream of answers.
    fn stream<M, A, W>(
        self: Arc<Self>,
        messages: Streaming<M>,
        kind: impl FnOnce(Answers<A>) -> Messages,
    ) -> (Reader<M, A>, Peer, AnswerStream<A, W>) {
        let (answers, to_peer) = answers();
        let (open, ended) = oneshot::channel();
        let peer = Peer { messages: kind(answers.clone()), open };
        let connection = self.desk.new_connection();
        let reader = Reader { shared: self, connection, messages, answers, ended };
        (reader, peer, to_peer)
    }
}

impl<M, A> Reader<M, A> {
    /// The next message; `None` if the stream has ended, or ends because it broke the protocol.
    async fn next<T: TryFrom<M, Error = Malformed>>(&mut self) -> Option<T> {
        let message = tokio::select! {
            message = self.messages.message() => message,
            _ = &mut self.ended => return None,
        };
        match T::try_from(message.ok()??) {
            Ok(message) => Some(message),
            Err(error) => {
                self.refuse(error);
                None
            }
        }
    }

    fn refuse(&self, error: Malformed) {
        debug!(%error, "A stream ends");
        // A peer that does not read learns of the end by the end.
        let _ = self.answers.send(Err(self.shared.malformed(error)));
    }
}

impl Reader<v1::FromManager, v1::ToManager> {
    async fn lend(mut self, node: Option<Arc<str>>, peer: Peer) {
        let Some(manager) = self.register(node, peer).await else { return };
        self.shared.metrics.stream_begins(PeerKind::Manager);
        while let Some(message) = self.next().await {
            let message = match message {
                FromManager::Message(message) => message,
                FromManager::Hello(_) | FromManager::Register(..) => {
                    self.refuse(Malformed::Hello);
                    break;
                }
            };
            if self.shared.desk.tell(Input::Manager(self.connection, manager, message)).await.is_err() {
                break;
            }
        }
        // The owner is gone if this fails.
        let _ = self.shared.desk.tell(Input::ManagerClosed(self.connection)).await;
        self.shared.metrics.stream_ends(PeerKind::Manager);
    }

    /// Takes the Register. The node that a token proves counts for more than the manager's word.
    async fn register(&mut self, node: Option<Arc<str>>, peer: Peer) -> Option<ManagerId> {
        let (mut lent, message) = match timeout(HANDSHAKE_TIMEOUT, self.next()).await.ok()?? {
            FromManager::Register(lent, message) => (lent, message),
            FromManager::Hello(_) | FromManager::Message(_) => {
                self.refuse(Malformed::Hello);
                return None;
            }
        };
        if let Some(node) = node {
            lent.board.node = node;
        }
        let Some(manager) = self.shared.registrations.manager(&lent.board.node, &lent.board.name) else {
            let status = Status::resource_exhausted("too many boards");
            let _ = self.answers.send(Err(status));
            return None;
        };
        let desk = &self.shared.desk;
        desk.send(Command::Open(self.connection, peer)).await.ok()?;
        desk.tell(Input::Register(self.connection, manager, lent, message)).await.ok()?;
        Some(manager)
    }
}

impl Reader<v1::FromClient, ToClient> {
    async fn work(mut self, client: Client) {
        self.shared.metrics.stream_begins(PeerKind::Client);
        while self.until_read().await
            && let Some(message) = self.next().await
        {
            let (connection, client) = (self.connection, client.clone());
            let input = match message {
                FromClient::Want(want) => Input::Want(connection, client, want),
                FromClient::Cancel(job) => Input::Cancel(connection, client, job),
                FromClient::Hello(_) => {
                    self.refuse(Malformed::Hello);
                    break;
                }
            };
            if self.shared.desk.tell(input).await.is_err() {
                break;
            }
        }
        // The owner is gone if this fails.
        let _ = self.shared.desk.tell(Input::ClientClosed(self.connection)).await;
        self.shared.metrics.stream_ends(PeerKind::Client);
    }

    /// Waits until the client reads its answers: so many of its wishes make no heap of answers. False if the stream has
    /// ended.
    async fn until_read(&mut self) -> bool {
        tokio::select! {
            is_open = self.answers.until_read() => is_open,
            _ = &mut self.ended => false,
        }
    }
}

/// Keeps the connection of a request open: its peer has proved who it is.
fn begin_use(request: &Extensions) -> Option<ConnectionUse> {
    request.get().map(ConnectionOfRequest::begin_use)
}

/// The first message of a stream.
async fn first<M>(messages: &mut Streaming<M>) -> Result<M, Status> {
    let first = timeout(HANDSHAKE_TIMEOUT, messages.message()).await;
    let first = first.map_err(|_| Status::deadline_exceeded("no Hello has come"))??;
    first.ok_or_else(|| Status::invalid_argument("the stream has no Hello"))
}

fn check_version(hello: &Hello) -> Result<(), Status> {
    if hello.version == PROTOCOL_VERSION {
        return Ok(());
    }
    let version = hello.version;
    Err(Status::failed_precondition(format!(
        "this broker speaks version {PROTOCOL_VERSION} of the protocol, not {version}"
    )))
}
