//! The messages of a client's stream.

use crate::hello::Hello;
use crate::lease::digest;
use crate::limits::{
    MAX_ACCELERATOR_BYTES, MAX_BUNDLE_JOBS, MAX_INTERFACE_BYTES, MAX_NAME_BYTES, MAX_TEXT_BYTES,
};
use crate::wire::{array, for_people, id, id_bytes, name, present, text, within};
use crate::{Malformed, v1};
use fpga_core::bitstream::Digest;
use fpga_core::units::WallTime;
use fpga_pool_leases::ids::{Attempt, BundleUuid, JobUuid, LeaseId};
use fpga_pool_leases::lease::{Bundle, Endpoint, Ticket, Wanted, Work};
use fpga_pool_leases::messages::{BrokerToClient, CancelCause, ClientToBroker};
use std::sync::Arc;

/// What a client says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FromClient {
    /// The first message.
    Hello(Hello),
    /// A job has no lease and wants one.
    Want(Want),
    /// A job wants no lease any more.
    Cancel(JobUuid),
}

/// A job's [`ClientToBroker::Want`] with its ticket as it was sealed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Want {
    /// The job.
    pub job: JobUuid,
    /// What it asks for.
    pub wanted: Wanted,
    /// The ticket, if the client has it.
    pub ticket: Option<SealedTicket>,
    /// Which of the client's connections to brokers this is.
    pub attempt: Attempt,
}

/// A ticket with its message authentication code.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SealedTicket {
    /// The ticket.
    pub ticket: Ticket,
    /// HMAC-SHA256 by the pool's key.
    pub code: [u8; 32],
}

/// What the broker says to a client.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ToClient {
    /// The answer to a Want. The client shows the ticket with each later Want of the job. The text is the interface of the
    /// accelerator as JSON (`fpga_accelerators::Interface`), if the library says it.
    Ticket(SealedTicket, Option<Arc<str>>),
    /// A slot is ready.
    Offer(Offer),
    /// The job won't get a slot.
    Cancelled(Cancelled),
    /// Why a job waits.
    Waits(Waits),
}

/// A slot that is ready for a job.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Offer {
    /// The job.
    pub job: JobUuid,
    /// The lease.
    pub lease: LeaseId,
    /// The manager of the slot.
    pub endpoint: Endpoint,
    /// Node of the slot.
    pub node: Arc<str>,
    /// The bitstream that is loaded.
    pub digest: Digest,
}

/// The end of a job's wait without a slot.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cancelled {
    /// The job.
    pub job: JobUuid,
    /// The reason.
    pub why: CancelCause,
    /// What happened and what to do, for people.
    pub message: String,
}

/// Why a job waits.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Waits {
    /// The job.
    pub job: JobUuid,
    /// Number of waiting jobs that come before it, if the order stays as it is.
    pub ahead: u64,
    /// The reason, for people.
    pub reason: String,
}

impl FromClient {
    /// A message of the client's state machine as it is sent, with the code of its ticket. A ticket without its code is
    /// left out.
    #[must_use]
    pub fn encode(message: ClientToBroker, code: Option<[u8; 32]>) -> v1::FromClient {
        match message {
            ClientToBroker::Want { job, wanted, ticket, attempt } => {
                let ticket = ticket.zip(code).map(|(ticket, code)| SealedTicket { ticket, code });
                Self::Want(Want { job, wanted, ticket, attempt }).into()
            }
            ClientToBroker::Cancel { job } => Self::Cancel(job).into(),
        }
    }
}

impl From<FromClient> for v1::FromClient {
    fn from(message: FromClient) -> Self {
        use v1::from_client::Kind;
        let kind = match message {
            FromClient::Hello(hello) => Kind::Hello(hello.into()),
            FromClient::Want(Want { job, wanted, ticket, attempt }) => Kind::Want(v1::Want {
                job: id_bytes(job.0),
                accelerator: wanted.accelerator.as_ref().to_owned(),
                work: Some(wanted.work.into()),
                ticket: ticket.map(v1::Ticket::from),
                attempt: attempt.0,
                bundle: wanted.bundle.map(v1::Bundle::from),
            }),
            FromClient::Cancel(job) => Kind::Cancel(v1::JobRef { job: id_bytes(job.0) }),
        };
        Self { kind: Some(kind) }
    }
}

impl TryFrom<v1::FromClient> for FromClient {
    type Error = Malformed;

    fn try_from(message: v1::FromClient) -> Result<Self, Malformed> {
        use v1::from_client::Kind;
        match present(message.kind, "FromClient.kind")? {
            Kind::Hello(hello) => hello.try_into().map(Self::Hello),
            Kind::Want(want) => want.try_into().map(Self::Want),
            Kind::Cancel(v1::JobRef { job }) => Ok(Self::Cancel(JobUuid(id(&job, "JobRef.job")?))),
        }
    }
}

impl TryFrom<v1::Want> for Want {
    type Error = Malformed;

    fn try_from(want: v1::Want) -> Result<Self, Malformed> {
        let v1::Want { job, accelerator, work, ticket, attempt, bundle } = want;
        let wanted = Wanted {
            accelerator: name(&accelerator, MAX_ACCELERATOR_BYTES, "Want.accelerator")?,
            work: present(work, "Want.work")?.try_into()?,
            bundle: bundle.map(Bundle::try_from).transpose()?,
        };
        if wanted.bundle.is_some() && matches!(wanted.work, Work::Group(_)) {
            return Err(Malformed::Range("Want.bundle"));
        }
        let ticket = ticket.map(SealedTicket::try_from).transpose()?;
        Ok(Self { job: JobUuid(id(&job, "Want.job")?), wanted, ticket, attempt: Attempt(attempt) })
    }
}

impl TryFrom<v1::Bundle> for Bundle {
    type Error = Malformed;

    fn try_from(bundle: v1::Bundle) -> Result<Self, Malformed> {
        let v1::Bundle { id: bundle_id, size } = bundle;
        let size = within(size, 2, MAX_BUNDLE_JOBS, "Bundle.size")?;
        Ok(Self { id: BundleUuid(id(&bundle_id, "Bundle.id")?), size })
    }
}

impl From<Bundle> for v1::Bundle {
    fn from(bundle: Bundle) -> Self {
        Self { id: id_bytes(bundle.id.0), size: bundle.size }
    }
}

impl ToClient {
    /// The message as the client's state machine takes it; `None` for what is for people alone.
    #[must_use]
    pub fn message(&self) -> Option<BrokerToClient> {
        match self {
            Self::Ticket(sealed, _) => Some(BrokerToClient::Ticket(sealed.ticket)),
            Self::Offer(Offer { job, lease, endpoint, .. }) => {
                Some(BrokerToClient::Offer { job: *job, lease: *lease, endpoint: endpoint.clone() })
            }
            Self::Cancelled(Cancelled { job, why, .. }) => {
                Some(BrokerToClient::Cancel { job: *job, why: *why })
            }
            Self::Waits(_) => None,
        }
    }
}

impl From<ToClient> for v1::ToClient {
    fn from(message: ToClient) -> Self {
        use v1::to_client::Kind;
        let kind = match message {
            ToClient::Ticket(ticket, interface) => {
                let interface = interface.as_deref().unwrap_or_default().to_owned();
                Kind::Ticket(v1::Ticket { interface, ..ticket.into() })
            }
            ToClient::Offer(Offer { job, lease, endpoint, node, digest }) => Kind::Offer(v1::Offer {
                job: id_bytes(job.0),
                lease: id_bytes(lease.0),
                endpoint: Some(endpoint.into()),
                node: node.as_ref().to_owned(),
                digest: digest.as_bytes().to_vec(),
            }),
            ToClient::Cancelled(Cancelled { job, why, message }) => Kind::Cancelled(v1::Cancelled {
                job: id_bytes(job.0),
                why: v1::CancelCause::from(why).into(),
                message: for_people(&message),
            }),
            ToClient::Waits(Waits { job, ahead, reason }) => {
                Kind::Waits(v1::Waits { job: id_bytes(job.0), ahead, reason: for_people(&reason) })
            }
        };
        Self { kind: Some(kind) }
    }
}

impl TryFrom<v1::ToClient> for ToClient {
    type Error = Malformed;

    fn try_from(message: v1::ToClient) -> Result<Self, Malformed> {
        use v1::to_client::Kind;
        Ok(match present(message.kind, "ToClient.kind")? {
            Kind::Ticket(ticket) => {
                text(&ticket.interface, MAX_INTERFACE_BYTES, "Ticket.interface")?;
                let interface = (!ticket.interface.is_empty()).then(|| ticket.interface.as_str().into());
                Self::Ticket(ticket.try_into()?, interface)
            }
            Kind::Offer(v1::Offer { job, lease, endpoint, node, digest: bytes }) => Self::Offer(Offer {
                job: JobUuid(id(&job, "Offer.job")?),
                lease: LeaseId(id(&lease, "Offer.lease")?),
                endpoint: present(endpoint, "Offer.endpoint")?.try_into()?,
                node: name(&node, MAX_NAME_BYTES, "Offer.node")?,
                digest: digest(&bytes)?,
            }),
            Kind::Cancelled(cancelled) => Self::Cancelled(Cancelled {
                job: JobUuid(id(&cancelled.job, "Cancelled.job")?),
                why: cancelled.why().try_into()?,
                message: read_text(cancelled.message, "Cancelled.message")?,
            }),
            Kind::Waits(v1::Waits { job, ahead, reason }) => Self::Waits(Waits {
                job: JobUuid(id(&job, "Waits.job")?),
                ahead,
                reason: read_text(reason, "Waits.reason")?,
            }),
        })
    }
}

impl From<SealedTicket> for v1::Ticket {
    fn from(sealed: SealedTicket) -> Self {
        let SealedTicket { ticket, code } = sealed;
        Self {
            job: id_bytes(ticket.job.0),
            first_arrival_ms: ticket.first_arrival.0,
            code: code.to_vec(),
            interface: String::new(),
        }
    }
}

impl TryFrom<v1::Ticket> for SealedTicket {
    type Error = Malformed;

    fn try_from(ticket: v1::Ticket) -> Result<Self, Malformed> {
        let v1::Ticket { job, first_arrival_ms, code, .. } = ticket;
        let job = JobUuid(id(&job, "Ticket.job")?);
        let ticket = Ticket { job, first_arrival: WallTime(first_arrival_ms) };
        Ok(Self { ticket, code: array(&code, "Ticket.code")? })
    }
}

fn read_text(value: String, field: &'static str) -> Result<String, Malformed> {
    text(&value, MAX_TEXT_BYTES, field)?;
    Ok(value)
}

#[cfg(test)]
mod tests;
