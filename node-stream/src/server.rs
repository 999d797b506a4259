//! The server's side of the streams: states that arrive directly, a moment after they were measured.
//!
//! A stream is for one node. The [`receiver`] must know the node under the UID that the collector names, and the
//! collector's token or certificate must be for that node ([`authenticator`]). Sizes and rates are bounded.

mod annotation;
pub mod authenticator;
mod connection;
mod listener;
pub mod options;
pub mod receiver;
mod service;
mod session;
mod streams;

pub use annotation::annotation_age;
pub use listener::{serve, serve_with};
pub use service::Service;
pub use streams::{Intervals, Streams};
