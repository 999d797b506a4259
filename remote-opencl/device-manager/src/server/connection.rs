//! One connection: TLS, HTTP/2 and its sessions, all on the connection's own thread.

use super::manager::Manager;
use crate::config::SharedMemory;
use crate::connections::{OnConnection, Open};
use crate::grpc::frames::{GrpcFrames, SaidEncoder};
use crate::grpc::read_ahead::{ReadAhead, TrackedBody};
use crate::handshake::{Admitted, Entrance, Handshake, Tenure, Unleased, shake_hands};
use crate::isolation::relay;
use crate::keepalive::Keepalive;
use crate::link::{Client, Line, Lines};
use crate::peer::{Accepted, Peer};
use fpga_board::dispatch::Tenant;
use fpga_net::socket::Socket;
use fpga_protocol::limits::MAX_MESSAGE_BYTES;
use fpga_protocol::v1;
use fpga_session::governor::{Budget, SEND_BUFFER_BYTES};
use fpga_session::incoming::Incoming;
use fpga_session::locality::Credentials;
use fpga_session::locality::Locality;
use fpga_session::metrics::Metrics;
use fpga_session::outgoing::Outgoing;
use fpga_session::router::Input;
use fpga_session::session::{Session, Who};
use hyper::header::CONTENT_TYPE;
use hyper::server::conn::http2;
use hyper::service::service_fn;
use hyper::{Method, Response};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use std::io;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::{oneshot, watch};
use tonic::Status;
use tonic::codec::{EncodeBody, SingleMessageCompressionOverride};

/// Maximum number of sessions of one connection.
const MAX_SESSIONS_PER_CONNECTION: u32 = 8;
/// Time after which a connection without a session is closed.
const IDLE_TIMEOUT: Duration = Duration::from_secs(10);
/// Time for a client to take the message that the manager ends, once its sessions have ended.
const FAREWELL_TIMEOUT: Duration = Duration::from_secs(1);
/// Maximum size of a frame in bytes. A part of a frame that waits keeps the whole frame in memory.
const MAX_FRAME_BYTES: u32 = 256 << 10;
/// Path of the only method.
const SESSION_PATH: &str = "/fpga.remote.v1.DeviceManager/Session";
/// Maximum length of a request's headers in bytes.
const MAX_HEADER_BYTES: u32 = 16 << 10;

/// Serves a connection until it ends, on its own thread.
pub(super) fn connection(
    accepted: Accepted,
    peer: Peer,
    manager: &Arc<Manager>,
    open: Open,
) -> io::Result<()> {
    let open = Arc::new(open);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let tls = match (&accepted, &manager.config.tls) {
        (Accepted::Tcp(_), Some(tls)) => Some(tls.clone()),
        (Accepted::Pool(_), _) => manager.config.pool_tls.clone(),
        _ => None,
    };
    let is_pools = matches!(accepted, Accepted::Pool(_));
    let mut service = Service {
        manager: manager.clone(),
        peer,
        process: accepted.credentials()?,
        open: open.clone(),
        sessions: watch::Sender::new(0),
        is_pools,
        ahead: ReadAhead::default(),
    };
    runtime.block_on(async {
        let socket = Socket::<()>::new(accepted.into())?;
        match tls {
            None => http(socket, &service).await,
            Some(tls) => match handshake(tls.accept(socket), &open).await {
                // The lease is the proof.
                Some(Ok((stream, _))) if is_pools => http(stream, &service).await,
                Some(Ok((stream, names))) => {
                    let Some(name) = names.into_iter().next() else {
                        manager.shared.config.metrics.access_refusals.inc();
                        tracing::info!(peer = ?service.peer, "A certificate without a DNS name proves nobody");
                        return Ok(());
                    };
                    service.peer = Peer::Certificate(name.into());
                    http(stream, &service).await;
                }
                Some(Err(error)) => {
                    manager.shared.config.metrics.access_refusals.inc();
                    tracing::info!(peer = ?service.peer, %error, "A TLS handshake failed");
                }
                None => tracing::debug!(peer = ?service.peer, "A TLS handshake took too long"),
            },
        }
        // The client may have gone. The tasks of its sessions end before the thread does.
        service.no_session().await;
        Ok(())
    })
}

/// The result of a handshake; `None` if it took too long or another connection needs the place.
async fn handshake<T>(shakes: impl Future<Output = T>, open: &Open) -> Option<T> {
    tokio::select! {
        shaken = tokio::time::timeout(IDLE_TIMEOUT, shakes) => shaken.ok(),
        () = open.makes_room() => None,
    }
}

async fn http<S>(stream: S, service: &Service)
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let window = service.manager.shared.governor.window_bytes();
    let ahead = service.ahead.clone();
    let stream = ahead.stream(stream);
    let server = service.clone();
    let handler = service_fn(move |request: hyper::Request<hyper::body::Incoming>| {
        let answer = server.answer(request.map(|body| ahead.body(body)));
        async move { Ok::<_, std::convert::Infallible>(answer) }
    });
    let mut builder = http2::Builder::new(TokioExecutor::new());
    builder
        .timer(TokioTimer::new())
        .initial_stream_window_size(window)
        .initial_connection_window_size(window)
        .max_frame_size(MAX_FRAME_BYTES)
        .max_concurrent_streams(MAX_SESSIONS_PER_CONNECTION)
        .max_send_buf_size(SEND_BUFFER_BYTES)
        .max_header_list_size(MAX_HEADER_BYTES);
    let keepalive = service.manager.config.keepalive;
    match (&service.manager.lender, service.process) {
        (Some(_), None) => keepalive.ask_leaseholder(&mut builder),
        (Some(_), Some(_)) => Keepalive::off().ask_leaseholder(&mut builder),
        (None, None) => keepalive.ask_client(&mut builder),
        (None, Some(_)) => {}
    }
    let connection = builder.serve_connection(TokioIo::new(stream), handler);
    tokio::pin!(connection);
    tokio::select! {
        ended = &mut connection => {
            if let Err(error) = ended {
                tracing::debug!(%error, "A connection broke");
            }
        }
        () = service.open.is_idle_for(IDLE_TIMEOUT) => {
            tracing::debug!("An idle connection is closed");
        }
        () = service.open.makes_room() => {
            tracing::debug!("A connection without a session makes room");
        }
        () = service.manager.shared.shutdown.ending() => {
            connection.as_mut().graceful_shutdown();
            let farewell = async {
                service.no_session().await;
                tokio::time::sleep(FAREWELL_TIMEOUT).await;
            };
            tokio::select! {
                _ = connection => {}
                // The client does not answer.
                () = farewell => {}
            }
        }
    }
}

/// The sessions of one connection.
#[derive(Debug, Clone)]
struct Service {
    manager: Arc<Manager>,
    peer: Peer,
    /// The client's process; `None` over TCP.
    process: Option<Credentials>,
    /// The connection's place among all connections.
    open: Arc<Open>,
    /// Number of sessions that run on this thread or are resumed over this connection.
    sessions: watch::Sender<usize>,
    /// Whether the connection is for sessions with a lease.
    is_pools: bool,
    /// The bytes that are read from the connection.
    ahead: ReadAhead,
}

impl Service {
    /// Whether memory can be shared with this client.
    fn locality(&self) -> Locality {
        match (self.process, self.manager.config.shared_memory) {
            (Some(process), SharedMemory::On) => Locality::SharesMemory(process),
            _ => Locality::Remote,
        }
    }

    /// What the handshakes of the connection go by.
    fn entrance(&self) -> Entrance<'_> {
        let Manager { shared, config, lender, .. } = &*self.manager;
        let all_are_lent = config.lending.as_ref().is_some_and(|lending| lending.slots == lending.of_board);
        Entrance {
            shared,
            access: &config.access,
            peer: &self.peer,
            lender: lender.as_ref(),
            connection: &self.ahead,
            unleased: match (self.is_pools, all_are_lent) {
                (true, _) => Unleased::ComeElsewhere,
                (false, true) => Unleased::HaveNone,
                (false, false) => Unleased::HaveSlots,
            },
        }
    }

    /// Runs a session until it ends.
    async fn run(&self, admitted: Admitted, mut outgoing: Outgoing, client: impl Incoming) {
        let budget = admitted.budget.clone();
        outgoing.paid_by(budget.clone());
        let metrics = &self.manager.shared.config.metrics;
        metrics.sessions_opened.inc();
        let workload = admitted.tenure.workload();
        let _counted =
            workload.map(|workload| metrics.session_of(admitted.session, &admitted.tenant, workload));
        let locality = self.locality();
        if let Some(processes) = &self.manager.processes {
            return relay::run(processes, admitted, locality, outgoing, client).await;
        }
        let Admitted { tenant, account, client: name, pid, session: id, shared, mut tenure, .. } = admitted;
        let who = Who { id, tenant: tenant.clone(), token: tenure.token(), account, locality };
        let (session, input) = Session::new(shared, who, budget, outgoing);
        tracing::debug!(session = session.id().0, tenant = tenant.as_str(), name, pid, "Session opened");
        let router = &self.manager.shared.router;
        let revoked = async {
            let status = tenure.ended(|| router.send(id, Input::Yield)).await;
            router.send(id, Input::Revoked(Box::new(status)));
            std::future::pending::<()>().await;
        };
        tokio::select! {
            // First, so that the router knows the session.
            biased;
            () = session.run(input, client) => {}
            () = revoked => {}
        }
    }

    /// Waits until no session is open.
    async fn no_session(&self) {
        // The channel can't be closed, since `self` holds a sender.
        let _ = self.sessions.subscribe().wait_for(|count| *count == 0).await;
    }
}

impl Service {
    /// Answers a request, and starts a session if it asks for one.
    fn answer(
        &self,
        request: hyper::Request<TrackedBody<hyper::body::Incoming>>,
    ) -> Response<tonic::body::Body> {
        let (head, body) = request.into_parts();
        if head.uri.path() != SESSION_PATH || head.method != Method::POST {
            return Status::unimplemented("a device manager has the method Session only").into_http();
        }
        let lines = self.session(GrpcFrames::new(body));
        let compression = SingleMessageCompressionOverride::default();
        let body = EncodeBody::new_server(SaidEncoder, lines, None, compression, Some(MAX_MESSAGE_BYTES));
        let mut response = Response::new(tonic::body::Body::new(body));
        response.headers_mut().insert(CONTENT_TYPE, tonic::metadata::GRPC_CONTENT_TYPE);
        response
    }

    fn session(&self, mut client: Client) -> Lines {
        // A client that has proved no identity gets no message but the reason of the refusal, so no budget is
        // needed.
        let (outgoing, messages) =
            Outgoing::new(Budget::default(), self.manager.shared.config.metrics.clone());
        let (lines, link) = Lines::new(messages);
        let service = self.clone();
        tokio::spawn(async move {
            let begun = match shake_hands(&mut client, &service.entrance()).await {
                Ok(Handshake::New(admitted)) => match service.open.begin(&admitted.tenant) {
                    Ok(on) => return service.begin(admitted, client, (outgoing, link), on).await,
                    Err(reason) => Err(reason.into()),
                },
                Ok(Handshake::Resume { tenant, resume }) => service.resume(&tenant, &resume, client, link),
                Err(status) => Err(status),
            };
            if let Err(status) = begun {
                tracing::info!(peer = ?service.peer, reason = status.message(), "Session refused");
                outgoing.end(status);
            }
        });
        lines
    }

    /// Runs a new session to its end.
    async fn begin(
        &self,
        admitted: Admitted,
        mut client: Client,
        (outgoing, link): (Outgoing, oneshot::Sender<Line>),
        on_connection: OnConnection,
    ) {
        client.handshake_passed();
        let _counted = Counted::session(self);
        let links = &self.manager.links;
        if !admitted.resumable || !links.are_on() {
            let _on_connection = on_connection;
            return match &admitted.tenure {
                Tenure::Lease(attachment, _) => {
                    let client = attachment.of_client(client);
                    self.run(admitted, outgoing, client).await;
                }
                Tenure::Proof(_) => self.run(admitted, outgoing, client).await,
            };
        }
        let budget = admitted.budget.clone();
        let (source, messages) = Outgoing::new(budget.clone(), self.manager.shared.config.metrics.clone());
        match links.start(admitted.tenant.clone(), client, (messages, budget)) {
            Ok((client, line)) => {
                // If the connection has already gone, the client comes back over another one.
                let _ = link.send(line.carrying(on_connection));
                self.run(admitted, source, client).await;
            }
            Err(error) => outgoing.end(Status::internal(error.to_string())),
        }
    }

    /// Continues a session of another connection over this one.
    ///
    /// # Errors
    /// The status with which the client is refused.
    fn resume(
        &self,
        tenant: &Tenant,
        resume: &v1::Resume,
        mut client: Client,
        link: oneshot::Sender<Line>,
    ) -> Result<(), Status> {
        client.handshake_passed();
        let line = self.manager.links.resume(tenant, &resume.key, resume.received, client)?;
        // From here on the former connection carries no session.
        let on_connection = self.open.begin(tenant)?;
        drop(link.send(line.carrying((on_connection, Counted::further_connection(self)))));
        Ok(())
    }
}

/// A session or a connection of one, counted until it is dropped.
#[derive(Debug)]
struct Counted {
    service: Service,
    /// The metrics that count the session; `None` for a further connection of a session.
    metrics: Option<Metrics>,
}

impl Counted {
    fn session(service: &Service) -> Self {
        let metrics = service.manager.shared.config.metrics.clone();
        metrics.sessions.inc();
        Self::new(service, Some(metrics))
    }

    /// A further connection of a session, which the metrics already count.
    fn further_connection(service: &Service) -> Self {
        Self::new(service, None)
    }

    fn new(service: &Service, metrics: Option<Metrics>) -> Self {
        service.sessions.send_modify(|count| *count += 1);
        Self { service: service.clone(), metrics }
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        if let Some(metrics) = self.metrics.take() {
            metrics.sessions.dec();
        }
        self.service.sessions.send_modify(|count| *count -= 1);
    }
}
