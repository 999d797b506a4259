//! The gRPC service: checks who speaks and what is said, and hands it over to the [`owner`](crate::owner).

use crate::answers::{AnswerStream, Answers, answers};
use crate::connections::{ConnectionOfRequest, ConnectionUse};
use crate::identity::Authenticator;
use crate::looks::Looks;
use crate::metrics::{Metrics, Peer as PeerKind};
use crate::owner::{Command, Desk, Messages, Peer};
use crate::registrations::{MAX_BOARDS_OF_NODE, ManagerStream, Registrations};
use crate::state::{Client, Input};
use fpga_net::proof;
use fpga_net::turns::{Turn, Turns};
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
use tokio::time::{Instant, timeout, timeout_at};
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
    proved_until: Instant,
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
        let proved_until = Instant::now() + proof::duration(connection.0);
        let reader = Reader { shared: self, connection, messages, answers, ended, proved_until };
        (reader, peer, to_peer)
    }
}

impl<M, A> Reader<M, A> {
    /// Serves the stream for as long as its peer's token proves the peer. Then the peer opens another one.
    async fn while_proved(&mut self, serve: impl AsyncFnOnce(&mut Self)) {
        let proved_until = self.proved_until;
        if timeout_at(proved_until, serve(self)).await.is_err() {
            let status =
                Status::unavailable("after an hour at most, a peer shows its token again on a new stream");
            // A peer that does not read learns of the end by the end.
            let _ = self.answers.send(Err(status));
        }
    }

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
        let Some(board) = self.register(node, peer).await else { return };
        self.shared.metrics.stream_begins(PeerKind::Manager);
        self.while_proved(async |reader| reader.hand_over(board.id()).await).await;
        // The owner is gone if this fails. It learns of the end before the board may have another stream.
        let _ = self.shared.desk.tell(Input::ManagerClosed(self.connection)).await;
        self.shared.metrics.stream_ends(PeerKind::Manager);
    }

    /// Hands a manager's messages over to the owner, until the stream ends.
    async fn hand_over(&mut self, manager: ManagerId) {
        while let Some(message) = self.next().await {
            let message = match message {
                FromManager::Message(message) => message,
                FromManager::Hello(_) | FromManager::Register(..) => {
                    return self.refuse(Malformed::Hello);
                }
            };
            if self.shared.desk.tell(Input::Manager(self.connection, manager, message)).await.is_err() {
                return;
            }
        }
    }

    /// Takes the Register. The node that a token proves counts for more than the manager's word.
    async fn register(&mut self, node: Option<Arc<str>>, peer: Peer) -> Option<ManagerStream> {
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
        let node = Arc::clone(&lent.board.node);
        let Some(board) = self.shared.registrations.manager(&node, &lent.board.name) else {
            let message =
                format!("node {node} has {MAX_BOARDS_OF_NODE} boards with a manager, and may have no more");
            let _ = self.answers.send(Err(Status::resource_exhausted(message)));
            return None;
        };
        let desk = &self.shared.desk;
        desk.send(Command::Open(self.connection, peer)).await.ok()?;
        desk.tell(Input::Register(self.connection, board.id(), lent, message)).await.ok()?;
        Some(board)
    }
}

impl Reader<v1::FromClient, ToClient> {
    async fn work(mut self, client: Client) {
        self.shared.metrics.stream_begins(PeerKind::Client);
        self.while_proved(async |reader| reader.hand_over(client).await).await;
        // The owner is gone if this fails.
        let _ = self.shared.desk.tell(Input::ClientClosed(self.connection)).await;
        self.shared.metrics.stream_ends(PeerKind::Client);
    }

    /// Hands a client's messages over to the owner, until the stream ends.
    async fn hand_over(&mut self, client: Client) {
        while self.until_read().await
            && let Some(message) = self.next().await
        {
            let (connection, client) = (self.connection, client.clone());
            let input = match message {
                FromClient::Want(want) => Input::Want(connection, client, want),
                FromClient::Cancel(job) => Input::Cancel(connection, client, job),
                FromClient::Hello(_) => return self.refuse(Malformed::Hello),
            };
            if self.shared.desk.tell(input).await.is_err() {
                return;
            }
        }
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
