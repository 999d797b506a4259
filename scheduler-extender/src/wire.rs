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
    /// A node has no name.
    #[error("node {0} of the request has no `metadata.name`")]
    NamelessNode(usize),
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
