//! The command ring: two streams of frames, one each way, in memory that a client and a device manager share.
//!
//! The algorithm only, over any kind of atomic words, so that a model checker can run it (`tests/model.rs`): no mapping, no
//! descriptor, no waking. Whoever has the memory brings the words, and a bell that each side can ring for the other.
//!
//! The other side may write anything at any time. So each side keeps its own position to itself and only publishes it;
//! the other's position is checked whenever it is read; and what is read is copied out before anybody looks at it.
#![forbid(unsafe_code)]

mod frames;
mod ring;
mod words;

pub use frames::{Frames, TooLong, frame};
pub use ring::{Bell, Broken, Consumer, Producer, Readiness};
pub use words::{Direction, Layout, LayoutError, Memory, Word};
