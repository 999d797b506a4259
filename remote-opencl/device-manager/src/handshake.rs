//! The first message of a session, and the identity of its sender. A session begins when its tenant is proved
//! and has a place.
//!
//! A connection proves a user of this node (by the kernel), a certificate, or only an address. If the manager
//! has tokens, each session has to show one and belongs to that token's tenant.

use crate::grpc::read_ahead::ReadAhead;
use crate::peer::Peer;
use crate::pool::lender::{Attachment, Lender};
use crate::tokens::{Tokens, Validity};
use fpga_board::dispatch::Tenant;
use fpga_board::slots::SessionId;
use fpga_core::bitstream::Digest;
use fpga_pool_leases::ids::LeaseId;
use fpga_protocol::limits::PROTOCOL_VERSION;
use fpga_protocol::v1;
use fpga_protocol::v1::client_message::Kind;
use fpga_session::governor::Budget;
use fpga_session::incoming::Incoming;
use fpga_session::quotas::Account;
use fpga_session::session::{REVOKED, Shared};
use fpga_session::shutdown::Counted;
use prost::Message as _;
use std::sync::Arc;
use std::time::Duration;
use tonic::Status;

/// Time that a client has to send its Hello.
const HELLO_TIMEOUT: Duration = Duration::from_secs(10);

/// Longest part of a client's name that is kept, in characters.
const MAX_NAME: usize = 64;

/// The proof that a client must give of its tenant.
#[derive(Debug, Clone)]
pub enum Access {
    /// The connection; `--tokens` is not set.
    Connection,
    /// A token.
    Token(Tokens),
    /// A token if the client sends one, otherwise the connection (`--tokens-optional`).
    TokenOrConnection(Tokens),
}

/// The request of a client's first message.
#[derive(Debug)]
pub enum Handshake {
    /// A new session.
    New(Admitted),
    /// Resume a session.
    Resume {
        /// Tenant of the client.
        tenant: Tenant,
        /// Key of the session, and the number of messages that the client has received.
        resume: v1::Resume,
    },
}

/// A session that may begin.
#[derive(Debug)]
pub struct Admitted {
    /// Whether the session may be resumed.
    pub resumable: bool,
    /// Tenant of the session.
    pub tenant: Tenant,
    /// Id of the session.
    pub session: SessionId,
    /// What the session runs with.
    pub shared: Arc<Shared>,
    /// How long the session has its right.
    pub tenure: Tenure,
    /// The session's access to its tenant's account.
    pub account: Account,
    /// Budget of bytes that the client may make the manager hold.
    pub budget: Budget,
    /// Name of the client, as the client reports it.
    pub client: String,
    /// Process id of the client, as the client reports it.
    pub pid: u32,
    /// The session's entry in the count that a drain waits for.
    #[expect(dead_code, reason = "the entry ends with the session")]
    pub counted: Counted,
}

/// What a session's right rests on.
#[derive(Debug)]
pub enum Tenure {
    /// The proof of the tenant, which may be revoked.
    Proof(Validity),
    /// The hold on a lent slot, by a client whose bytes come over this connection.
    Lease(Attachment, ReadAhead),
}

/// What a handshake goes by.
#[derive(Debug)]
pub struct Entrance<'m> {
    /// What sessions without a lease run with.
    pub shared: &'m Arc<Shared>,
    /// The proof that a client must give.
    pub access: &'m Access,
    /// The identity of the connection.
    pub peer: &'m Peer,
    /// The lender, if slots are lent.
    pub lender: Option<&'m Lender>,
    /// The bytes of the connection.
    pub connection: &'m ReadAhead,
    /// Whether the board has slots for sessions without a lease.
    pub unleased: Unleased,
}

/// Whether sessions without a lease have slots.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unleased {
    /// They share the slots that are not lent.
    HaveSlots,
    /// All slots are lent.
    HaveNone,
    /// The connection is for sessions with a lease.
    ComeElsewhere,
}

impl Tenure {
    /// The digest of the token that the session has shown.
    #[must_use]
    pub fn token(&self) -> Option<Digest> {
        match self {
            Self::Proof(validity) => validity.token(),
            Self::Lease(..) => None,
        }
    }

    /// The workload whose token the session has shown.
    #[must_use]
    pub fn workload(&self) -> Option<&str> {
        match self {
            Self::Proof(validity) => validity.workload(),
            Self::Lease(..) => None,
        }
    }

    /// Waits until the session must end, and returns the status for its client. Calls `yields` if the client is to give
    /// its lent slot up before.
    pub async fn ended(&mut self, yields: impl FnMut()) -> Status {
        match self {
            Self::Proof(validity) => {
                validity.ended().await;
                Status::unauthenticated(REVOKED)
            }
            Self::Lease(attachment, connection) => attachment.ended(|| connection.last_read(), yields).await,
        }
    }
}

impl Access {
    /// The tenant that a connection and a token prove, and how long the proof counts; `None` if they prove none.
    #[must_use]
    pub fn prove(&self, peer: &Peer, token: &str) -> Option<(Tenant, Validity)> {
        match self {
            Self::Connection => Some((peer.tenant(), Validity::always())),
            Self::TokenOrConnection(_) if token.is_empty() => Some((peer.tenant(), Validity::always())),
            Self::Token(tokens) | Self::TokenOrConnection(tokens) => tokens.prove(token),
        }
    }

    /// As [`Self::prove`], for a session that begins: a token that is unknown may be a new one.
    async fn prove_hello(&self, peer: &Peer, token: &str) -> Option<(Tenant, Validity)> {
        match (self.prove(peer, token), self) {
            (None, Self::Token(tokens) | Self::TokenOrConnection(tokens)) if !token.is_empty() => {
                tokens.read_again().await;
                self.prove(peer, token)
            }
            (proved, _) => proved,
        }
    }
}

/// Reads the Hello of a session and finds its tenant. No other message of an unproved client is decoded.
///
/// # Errors
/// The status with which the session ends.
pub async fn shake_hands(client: &mut impl Incoming, entrance: &Entrance<'_>) -> Result<Handshake, Status> {
    let Entrance { shared, access, peer, .. } = entrance;
    let first = tokio::time::timeout(HELLO_TIMEOUT, client.next());
    let first = first.await.map_err(|_| Status::deadline_exceeded("no Hello came"))??;
    let first = first.map(v1::ClientMessage::decode).transpose();
    let first = first.map_err(|error| Status::invalid_argument(error.to_string()))?;
    let Some(Kind::Hello(hello)) = first.and_then(|message| message.kind) else {
        return Err(Status::invalid_argument("Hello is the first message, and only that"));
    };
    let v1::Hello { protocol_version: theirs, token, client_name, pid, resumable, resume, lease } = hello;
    if theirs != PROTOCOL_VERSION {
        return Err(Status::failed_precondition(format!(
            "the client speaks version {theirs} of the protocol and this device manager {PROTOCOL_VERSION}: install \
             matching versions"
        )));
    }
    let client: String = client_name.chars().filter(|c| !c.is_control()).take(MAX_NAME).collect();
    if !lease.is_empty() {
        if resumable || resume.is_some() {
            return Err(Status::invalid_argument("a session with a lease can't be resumed"));
        }
        let counted = begin(shared)?;
        let attachment = attach(entrance, &lease)?;
        let (tenant, session) = (attachment.tenant().clone(), attachment.session());
        let shared = Arc::clone(attachment.shared());
        let tenure = Tenure::Lease(attachment, entrance.connection.clone());
        let (account, budget) = account_of(&shared, &tenant)?;
        let admitted =
            Admitted { resumable, tenant, session, shared, tenure, account, budget, client, pid, counted };
        return Ok(Handshake::New(admitted));
    }
    match entrance.unleased {
        Unleased::HaveSlots => {}
        Unleased::HaveNone => {
            return Err(Status::failed_precondition(
                "all slots of this board are lent to the pool (--pool-slots): open a job, or take another board",
            ));
        }
        Unleased::ComeElsewhere => {
            return Err(Status::failed_precondition("this port is for sessions with a lease of the pool"));
        }
    }
    let Some((tenant, validity)) = access.prove_hello(peer, &token).await else {
        shared.config.metrics.access_refusals.inc();
        return Err(Status::unauthenticated(if token.is_empty() {
            "this device manager wants a token; name a file with it in FPGA_TOKEN_FILE, or ask for the resource \
             fpga-scheduling.io/accelerated"
        } else {
            "this device manager doesn't know the token"
        }));
    };
    if let Some(resume) = resume {
        return Ok(Handshake::Resume { tenant, resume });
    }
    let counted = begin(shared)?;
    let (account, budget) = account_of(shared, &tenant)?;
    let (session, shared) = (shared.config.dispatcher.new_session(), Arc::clone(shared));
    let tenure = Tenure::Proof(validity);
    let admitted =
        Admitted { resumable, tenant, session, shared, tenure, account, budget, client, pid, counted };
    Ok(Handshake::New(admitted))
}

/// Counts a session that begins.
fn begin(shared: &Shared) -> Result<Counted, Status> {
    shared.shutdown.begin_session().ok_or_else(|| {
        Status::unavailable(
            "the device manager is draining: it ends with the sessions that it has; try again later, or take another \
             board",
        )
    })
}

/// A session's place in its tenant's account, and its budget of bytes.
fn account_of(shared: &Shared, tenant: &Tenant) -> Result<(Account, Budget), Status> {
    let account = shared.quotas.enter(tenant).ok_or_else(|| {
        Status::resource_exhausted("the tenant has all the sessions that it may have; end some")
    })?;
    let budget = account.bytes().session().ok_or_else(|| {
        Status::resource_exhausted(
            "the device manager has no memory left for another session of this tenant; end some",
        )
    })?;
    Ok((account, budget))
}

/// Takes the lent slot of a lease.
fn attach(entrance: &Entrance<'_>, lease: &[u8]) -> Result<Attachment, Status> {
    let lease: [u8; 16] =
        lease.try_into().map_err(|_| Status::invalid_argument("the id of a lease has 16 bytes"))?;
    let attached = entrance.lender.and_then(|lender| lender.attach(LeaseId(u128::from_be_bytes(lease))));
    attached.ok_or_else(|| {
        Status::not_found("there is no such lease, or it has ended; the job needs another one")
    })
}
