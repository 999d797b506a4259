//! kube-scheduler's extender protocol as it is on the wire: what is read borrows from the request's bytes.
//!
//! The protocol's own keys are PascalCase (its Go types carry no JSON tags), those of pods and nodes inside are
//! camelCase. Go writes what is not set as `null` and reads any case: so do we accept the usual ones.

pub mod nodes;
pub mod pod;
pub mod preemption;
pub mod text;

pub use nodes::{ExtenderArgs, FilterResult, HostPriorities, Mode, Nodes};
pub use pod::Pod;
pub use preemption::{PreemptionArgs, PreemptionResult};
pub use text::Text;

use serde::Serialize;

/// Why a request can't be understood.
#[derive(Debug, thiserror::Error)]
pub enum Malformed {
    /// Not the JSON of such a request.
    #[error("the request can't be read: {0}")]
    Json(#[from] serde_json::Error),
    /// There is no pod in it.
    #[error("the request has no `Pod`")]
    NoPod,
    /// A node has no name.
    #[error("node {0} of the request has no `metadata.name`")]
    NamelessNode(usize),
}

/// `answer` as bytes of JSON.
///
/// # Errors
/// None with the types of this module: their keys are strings and none of their parts fails.
pub fn encode(answer: &impl Serialize, capacity: usize) -> Result<Vec<u8>, serde_json::Error> {
    let mut bytes = Vec::with_capacity(capacity);
    serde_json::to_writer(&mut bytes, answer)?;
    Ok(bytes)
}
