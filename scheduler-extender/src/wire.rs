//! kube-scheduler's extender protocol on the wire. Decoded requests borrow from the bytes of the request.
//!
//! The keys of the protocol's own types are PascalCase, since their Go types carry no JSON tags; the keys of pods and
//! nodes are camelCase. Go writes `null` for unset values and matches keys in any case; this module accepts `null`
//! and the usual cases.

pub mod nodes;
pub mod pod;
pub mod preemption;
pub mod reply;
pub mod text;

pub use nodes::{ExtenderArgs, FilterResult, HostPriorities, Mode, Nodes};
pub use pod::Pod;
pub use preemption::{PreemptionArgs, PreemptionResult};
pub use reply::{Reply, Writer};
pub use text::Text;

/// Most nodes in one request: several times the size of the largest clusters.
pub const MAX_NODES: usize = 65_536;
/// Longest name of a namespace, pod or node (RFC 1123 subdomains).
pub const MAX_NAME_BYTES: usize = 253;
/// Longest UID in bytes; the API server's UIDs have 36.
pub const MAX_UID_BYTES: usize = 128;
/// Upper bounds of the memory that a decision takes, per byte of its request and per node: names, verdicts with all
/// terms, and the answer.
const BYTES_PER_BYTE: usize = 130;
const BYTES_PER_NODE: usize = 400;

/// Upper bound of the memory for the decoded request, the decision and the answer, in bytes, beside the body of
/// length `body`. A body with the shortest possible names needs many times its own length.
#[must_use]
pub fn working_bytes(body: usize) -> usize {
    body.saturating_mul(BYTES_PER_BYTE).min(MAX_WORKING_BYTES)
}

/// Upper bound of [`working_bytes`].
pub const MAX_WORKING_BYTES: usize = MAX_NODES * BYTES_PER_NODE;

/// Why a request can't be decoded.
#[derive(Debug, thiserror::Error)]
pub enum Malformed {
    /// The body is not the JSON of such a request.
    #[error("the request can't be read: {0}")]
    Json(#[from] serde_json::Error),
    /// The body is not UTF-8.
    #[error("the request is not UTF-8: {0}")]
    Utf8(#[from] std::str::Utf8Error),
    /// The request contains no pod.
    #[error("the request has no `Pod`")]
    NoPod,
    /// The request has more victims than [`preemption::MAX_VICTIMS`].
    #[error("the request has more than {} victims", preemption::MAX_VICTIMS)]
    TooManyVictims,
    /// A name or UID is longer than Kubernetes allows.
    #[error("the request's {0} is longer than Kubernetes allows")]
    LongName(&'static str),
    /// A node has no name.
    #[error("node {0} of the request has no `metadata.name`")]
    NamelessNode(usize),
}

/// Checks the length of a name or UID. Explanations and expectations keep names, so their length must be bounded.
fn check_length(what: &'static str, name: &str, most: usize) -> Result<(), Malformed> {
    if name.len() <= most { Ok(()) } else { Err(Malformed::LongName(what)) }
}

/// An answer that writes itself as JSON. Answers with thousands of names are written by hand: a name that needed no
/// unescaping when it was read needs no escaping.
pub trait Encode {
    /// Appends the answer to `out`.
    ///
    /// # Errors
    /// None so far; the signature is serde_json's.
    fn encode(&self, out: &mut Writer<'_>) -> Result<(), serde_json::Error>;
}
