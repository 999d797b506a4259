//! Decisions as they were made, to be made again: what a recording's lines say, how they are written and read.
//!
//! One JSON object per line: a header, the rules in force, what was known of a node, a decision. Rules and nodes hold from
//! their line on, until the next of their kind: a node's state is written once, however many decisions see it. So a
//! recording is read from its start, and the part after any header stands alone.
//!
//! **What is in it**: of pods their name, namespace, UID, controller's UID and what they ask of a board; of nodes their name,
//! our labels and the published state. No other label, no annotation, nothing of a pod's specification.
//!
//! No file is opened here: that is its user's, the extender or the simulator.

pub mod book;
pub mod line;
pub mod scribe;
#[cfg(test)]
mod tests;

pub use book::{Book, Decided, ReadError, Recorded};
pub use line::{Answer, Asked, FORMAT, Header, Line, VERSION, Verb};
pub use scribe::{Scribe, Seen, Witness};
