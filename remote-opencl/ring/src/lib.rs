//! The command ring: two streams of frames, one in each direction, in memory that a client and a device manager
//! share.
//!
//! This crate is the algorithm only, over any kind of atomic words, so that a model checker can run it
//! (`tests/model.rs`). Mapping, passing of descriptors and waking are left to the caller, who provides the words
//! and a bell with which each side wakes the other.
//!
//! The other side may write anything at any time. So each side keeps its own position in private memory and only
//! publishes it; it checks the other side's position at every read; and it copies words out of the shared memory
//! before it interprets them.
#![forbid(unsafe_code)]

mod dozers;
mod frames;
mod ring;
mod words;

pub use dozers::{Dozers, Look};
pub use frames::{Frames, TooLong, frame};
pub use ring::{Bell, Broken, Consumer, Doze, Producer, Readiness};
pub use words::{Direction, Layout, LayoutError, Memory, Word};
