//! The node plugin, one per node with boards (B-7): a device plugin of the kubelet that gives containers boards.
//!
//! ```text
//!  kubelet ── Allocate ──────────► a folder for the container, and what is mounted and set
//!          ── PreStartContainer ─► who is it? (PodResources, API server)
//!                                  which boards? (collector's state, Algorithm 1)
//!                                  which bitstreams? (the API server's Bitstreams; the store fetches them)
//!                                  a token: for the managers, and into the folder
//!  managers ── gate ─────────────► may this container have this bitstream on this board? (allocations, library)
//!  collector ◄─ PUT, every second  I am here; these boards; these pods can't be served here
//!          ◄─ List, every second ─ who has ended? (confirmed by the API server): the token is revoked
//! ```
//! [`allocations`] decides what follows from each event, without I/O; the other modules ask and act.
#![forbid(unsafe_code)]

mod advertised;
pub mod allocations;
mod api;
mod args;
mod boards;
mod checkpoint;
mod collector;
mod gate;
mod gate_socket;
mod holders;
mod identity;
mod injection;
mod kubelet;
mod layout;
mod library;
mod library_args;
mod listed;
pub mod meanings;
mod node_bitstreams;
mod plugin;
mod probes;
mod refusal_events;
mod refusals;
mod report;
mod revocation;
mod service;
mod turns;

pub use args::Args;
