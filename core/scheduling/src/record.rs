//! Recordings of decisions: the format of the lines, the encoder and the decoder. A recorded decision can be replayed.
//!
//! A recording has one JSON object per line: a header, the rules in force, the state of a node, or a decision. Rules
//! and node states are valid from their line on until the next of their kind, so a node's state is written once,
//! however many decisions read it. A recording is read from its start; the part after any header stands alone.
//!
//! **A recording has** the name, namespace, UID, controller's UID and requirement of pods, and the name, our labels
//! and the published state of nodes. It has no other label, no annotation and nothing of a pod's specification.
//!
//! The extender and the simulator open the files.

mod decoder;
mod encoder;
mod line;
#[cfg(test)]
mod tests;

pub use decoder::{Decided, ReadError, Recorded, RecordingDecoder};
pub use encoder::{DecisionInput, NodeSnapshot, RecordingEncoder};
pub use line::{Asked, FORMAT, Header, Line, RecordedAnswer, VERSION, Verb};
