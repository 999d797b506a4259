//! kube-scheduler's extender protocol on the wire. Decoded requests borrow from the bytes of the request.
//!
//! The keys of the protocol's own types are PascalCase, since their Go types carry no JSON tags; the keys of pods and
//! nodes are camelCase. Go writes `null` for unset values and matches keys in any case; this module accepts `null`
//! and the usual cases.

mod args;
mod compact;
mod encode;
pub mod limits;
mod malformed;
pub mod names;
pub mod nodes;
pub mod pod;
pub mod preemption;
pub mod reply;
pub mod text;

pub use args::read_args;
pub use encode::Encode;
pub use limits::{MAX_NAME_BYTES, MAX_NODES, MAX_UID_BYTES, MAX_WORKING_BYTES, working_bytes};
pub use malformed::Malformed;
pub use names::NodeNames;
pub use nodes::{Eviction, FilterResult, HostPriorities, Mode, Nodes, Rejected};
pub use pod::Pod;
pub use preemption::{Candidate, PreemptionArgs, PreemptionResult};
pub use reply::{Reply, Writer};
pub use text::Text;
