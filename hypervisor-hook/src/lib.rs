//! The reporter that a device runtime links (S-6): it sends timing events to the collector of its node.
//!
//! The accelerated path only puts an event into a bounded queue. One background thread, with a runtime of its own and
//! all signals blocked, numbers the events, sends them in batches, and repeats a batch until it is acknowledged. When
//! the queue is full, events are merged rather than dropped, so no time on the board goes unreported.
//!
//! The reporter measures nothing itself: durations come from the caller's monotonic clock.
#![forbid(unsafe_code)]

mod config;
mod connection;
mod devices;
mod dispatch;
mod merge;
mod queue;
mod reporter;
mod retry_timer;
mod shared;
mod whole_millis;

pub use config::{Config, Endpoint, InvalidEndpoint};
pub use reporter::{Reporter, StartError, Stats, Unsent};
pub use whole_millis::WholeMillis;
