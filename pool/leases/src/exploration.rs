//! Explores the state machines of one manager, of clients, and of brokers together, breadth first.
//!
//! The machines are the real ones. Around them is a [`world::World`]: connections that keep the order and lose what is
//! under way when they are cut, a board that runs steps, the Kubernetes Lease, crashes and restarts.
//!
//! # Bounds
//! A job is granted a slot only while at most as many connections for leases linger as there are jobs. That is the only
//! bound beside those of [`world::Setup`] and [`Limits`].
//!
//! # Time
//! In the search every armed timer may fire at any moment. That covers clocks of any rates, also of rates that change,
//! so that I1, I2, I3 and I5 are shown without any trust in clocks. All machines see one and the same moment, so that a
//! state has no times that differ, and the number of states is finite.
//!
//! I4, I6 and the second half of I3 say that something happens in time. From the states that the search finds,
//! [`timed`] lets true time pass without further faults and measures how long it takes. An armed timer has its whole
//! time to go there, which is the longest case.

mod actions;
mod apply;
mod bundles;
mod ghosts;
mod invariant;
mod invariants;
mod lease_ids;
mod link;
mod moves;
mod search;
mod start;
mod text;
pub mod timed;
pub mod world;

pub use invariant::{Invariant, Violation};
pub use link::Side;
pub use moves::Move;
pub use search::{Limits, Progress, Report, Trace, explore};
