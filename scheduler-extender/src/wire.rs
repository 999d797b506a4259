//! kube-scheduler's extender protocol as it is on the wire: what is read borrows from the request's bytes.
//!
//! The protocol's own keys are PascalCase (its Go types carry no JSON tags), those of pods and nodes inside are
//! camelCase. Go writes what is not set as `null` and reads any case: so do we accept the usual ones.

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

/// Most nodes that one request may name: several times as many as the largest clusters have.
pub const MAX_NODES: usize = 65_536;
/// Longest name of a namespace, pod or node (RFC 1123 subdomains).
pub const MAX_NAME_BYTES: usize = 253;
/// Longest UID; the API server's have 36 bytes.
pub const MAX_UID_BYTES: usize = 128;
/// What a decision takes per byte of its request at most, and per node: names, verdicts with every term, and the answer.
const BYTES_PER_BYTE: usize = 130;
const BYTES_PER_NODE: usize = 400;

/// How much memory the decoded request, the decision and the answer take at most, beside the body of this length. For a
/// body with the shortest possible names that is much more than its own length.
#[must_use]
pub fn working_bytes(body: usize) -> usize {
    body.saturating_mul(BYTES_PER_BYTE).min(MAX_WORKING_BYTES)
}

/// The most that [`working_bytes`] says.
pub const MAX_WORKING_BYTES: usize = MAX_NODES * BYTES_PER_NODE;

/// Why a request can't be understood.
#[derive(Debug, thiserror::Error)]
pub enum Malformed {
    /// Not the JSON of such a request.
    #[error("the request can't be read: {0}")]
    Json(#[from] serde_json::Error),
    /// Not even text.
    #[error("the request is not UTF-8: {0}")]
    Utf8(#[from] std::str::Utf8Error),
    /// There is no pod in it.
    #[error("the request has no `Pod`")]
    NoPod,
    /// More victims than [`preemption::MAX_VICTIMS`].
    #[error("the request has more than {} victims", preemption::MAX_VICTIMS)]
    TooManyVictims,
    /// A name that Kubernetes would not take.
    #[error("the request's {0} is longer than Kubernetes allows")]
    LongName(&'static str),
    /// A node has no name.
    #[error("node {0} of the request has no `metadata.name`")]
    NamelessNode(usize),
}

/// A name or UID as Kubernetes takes it: what is kept of a request, by its name, is no longer than that.
fn check_length(what: &'static str, name: &str, most: usize) -> Result<(), Malformed> {
    if name.len() <= most { Ok(()) } else { Err(Malformed::LongName(what)) }
}

/// An answer that writes itself as JSON. By hand where it has thousands of names: those that needed no unescaping to
/// be read need no escaping to be written.
pub trait Encode {
    /// Writes it at the end of `out`.
    ///
    /// # Errors
    /// None so far: serde_json's signature.
    fn encode(&self, out: &mut Writer<'_>) -> Result<(), serde_json::Error>;
}
