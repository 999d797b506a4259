//! The client of the pool: runs an accelerator over bytes, on whichever board of the cluster has a slot for it.
//!
//! ```no_run
//! use fpga_acc::{Config, Pool, Request, wait};
//! use std::time::Duration;
//!
//! # fn main() -> Result<(), fpga_acc::Error> {
//! let pool = Pool::connect(Config::from_environment()?)?;
//! let input = vec![7; 1_000_000];
//! let request = Request::new("sha-256", input.len() as u64);
//! let mut job = wait(pool.open(request), Some(Duration::from_secs(60)))?;
//! let digest = wait(job.run(input), None)?;
//! assert_eq!(digest.len(), 32);
//! # Ok(())
//! # }
//! ```
//!
//! - [`Pool`] is the connection of the process to the broker of the pool, [`Pool::open`] waits for a slot, and
//!   [`Pool::open_many`] for several at the same time.
//! - [`Job`] has a slot. [`Job::run`] takes pieces of the input, [`Job::stream`] a reader and a writer (P-1).
//! - [`Group`] has as many slots as its [`Goal`] needs, and one queue of independent actions for all of them (Q-1, Q-2).
//! - [`Request::or_else`] lets the processor do a job for which no slot comes in time.
//! - All calls return futures that any executor may poll; [`wait`] blocks the thread instead, with a deadline.
//!
//! The bytes of a job go straight to the device manager that has the slot: through shared memory on its node, by TLS
//! else. A slot that is lost, or wanted for others, is no error: the job waits for another one and does only what is not
//! done yet.
#![forbid(unsafe_code)]

mod asked;
#[doc(hidden)]
pub mod cli;
mod config;
mod engine;
mod error;
mod fallback;
mod goal;
mod group;
mod job;
mod many;
mod opening;
mod piece;
mod pool;
mod random;
mod request;
mod slot;
mod statistics;
mod status;
mod step;
mod stream;
mod wait;

pub use config::{
    AUTHORITIES_VARIABLE, BROKERS_VARIABLE, Broker, Config, Given, NODE_VARIABLE, TOKEN_FILE_VARIABLE,
};
pub use error::Error;
pub use fallback::{Fallback, Room};
pub use fpga_accelerators::{ChunkInput, Position};
pub use goal::{Goal, GroupRequest};
pub use group::{Action, Group};
pub use job::Job;
pub use many::OpeningMany;
pub use opening::Opening;
pub use piece::MAX_PIECE_BYTES;
pub use pool::Pool;
pub use request::Request;
pub use statistics::{Forecast, Statistics};
pub use status::{Status, Where};
pub use stream::Streamed;
pub use wait::wait;
