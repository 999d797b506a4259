//! The first message of a session, and the identity of its sender. A session begins when its tenant is proved
//! and has a place.
//!
//! A connection proves a user of this node (by the kernel), a certificate, or only an address. If the manager
//! has tokens, each session has to show one and belongs to that token's tenant.

use crate::peer::Peer;
use crate::tokens::{Tokens, Validity};
use fpga_board::dispatch::Tenant;
use fpga_protocol::limits::PROTOCOL_VERSION;
use fpga_protocol::v1;
use fpga_protocol::v1::client_message::Kind;
use fpga_session::governor::Budget;
use fpga_session::incoming::Incoming;
use fpga_session::quotas::Account;
use fpga_session::session::Shared;
use fpga_session::shutdown::Counted;
use prost::Message as _;
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
    /// How long the proof of the tenant counts.
    pub validity: Validity,
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
pub async fn shake_hands(
    client: &mut impl Incoming,
    shared: &Shared,
    access: &Access,
    peer: &Peer,
) -> Result<Handshake, Status> {
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
    if !lease.is_empty() {
        return Err(Status::not_found("this device manager lends no slots"));
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
    let Some(counted) = shared.shutdown.begin_session() else {
        return Err(Status::unavailable(
            "the device manager is draining: it ends with the sessions that it has; try again later, or take another \
             board",
        ));
    };
    let Some(account) = shared.quotas.enter(&tenant) else {
        return Err(Status::resource_exhausted("the tenant has all the sessions that it may have; end some"));
    };
    let Some(budget) = account.bytes().session() else {
        return Err(Status::resource_exhausted(
            "the device manager has no memory left for another session of this tenant; end some",
        ));
    };
    let client: String = client_name.chars().filter(|c| !c.is_control()).take(MAX_NAME).collect();
    Ok(Handshake::New(Admitted { resumable, tenant, validity, account, budget, client, pid, counted }))
}
