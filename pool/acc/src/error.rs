//! What can go wrong with a job.

use fpga_accelerators::{ArgumentError, StreamError};
use fpga_pool_api::client::Cancelled;
use fpga_pool_leases::messages::CancelCause;
use std::io;
use std::sync::Arc;
use std::time::Duration;

/// The reason why a call failed.
#[derive(Debug, Clone, thiserror::Error)]
pub enum Error {
    /// The configuration can't be used.
    #[error("{0}")]
    Config(String),
    /// The library's thread can't be started.
    #[error("the library's thread can't be started: {0}")]
    Thread(Arc<io::Error>),
    /// The input of a run is longer than the job's buffer, or than what is left of the workload (`ACC_E_SIZE`).
    #[error("the input has {given} bytes, and the job takes {most} in this run; give less, or use a stream")]
    Size {
        /// Bytes of the input.
        given: u64,
        /// Maximum number of bytes.
        most: u64,
    },
    /// A piece before the last one does not end between two blocks.
    #[error("the input has {given} bytes, and more follow; give a multiple of {block}")]
    Block {
        /// Bytes of the input.
        given: u64,
        /// Bytes of a block.
        block: u32,
    },
    /// The accelerator does not take a stream of this length.
    #[error(transparent)]
    Length(#[from] StreamError),
    /// An argument of the accelerator is missing or wrong.
    #[error(transparent)]
    Argument(#[from] ArgumentError),
    /// No group can have so many slots.
    #[error(
        "a group with {least} to {most} slots is not possible; ask for at most 1024, and for a minimum that is no more than that"
    )]
    Slots {
        /// Minimum number of slots.
        least: u32,
        /// Maximum number of slots.
        most: u32,
    },
    /// No program can open so many jobs at the same time.
    #[error("{count} jobs can't be opened at the same time; ask for 1 to {most}")]
    Many {
        /// Number of jobs.
        count: u32,
        /// Maximum number of jobs.
        most: u32,
    },
    /// The goal is none.
    #[error("the group's goal asks for no action, or leaves no time; write at least 1 action and 1 ms")]
    Goal,
    /// Nobody has said what the accelerator takes and gives.
    #[error(
        "the interface of the accelerator {0:?} is unknown: `fpga-acc list` shows those that are shipped; write that of your own into its Bitstream"
    )]
    UnknownAccelerator(String),
    /// What the pool says of an accelerator is not possible.
    #[error("the pool's interface of the accelerator {accelerator:?} is not possible: {reason}")]
    Interface {
        /// Name of the accelerator.
        accelerator: String,
        /// What is wrong.
        reason: String,
    },
    /// The broker gives the job no slot.
    #[error("{message}")]
    Refused {
        /// The reason.
        why: CancelCause,
        /// The reason and what to do, for people.
        message: String,
    },
    /// A step was under way when its slot was lost, and the accelerator is not one whose steps may run again.
    #[error("a slot was lost in the middle of a step that must not run twice")]
    Lost,
    /// The accelerator failed several times in a row.
    #[error("the accelerator failed {times} times in a row, on the last board with: {why}")]
    Failed {
        /// Number of attempts.
        times: u32,
        /// The last failure.
        why: String,
    },
    /// The library has no code of the accelerator for the processor.
    #[error("this library can't do {0} on the processor: give a function for it, or leave the fallback out")]
    NoFallback(String),
    /// The processor did not do what it fell to.
    #[error("no slot came in time, and the processor could not do the job: {0}")]
    Processor(String),
    /// The wait was longer than its limit.
    #[error("nothing came within {} s", .0.as_secs_f64())]
    TimedOut(Duration),
    /// The job was cancelled, or a call of it was given up before its end.
    #[error("the job was cancelled")]
    Cancelled,
    /// The whole workload is done.
    #[error("the job's workload is done; open another job for more")]
    Done,
    /// The job belongs to the process from which this one was forked.
    #[error("the pool was opened before a fork; open it again in the child")]
    Forked,
    /// The input can't be read.
    #[error("the input can't be read: {0}")]
    Read(Arc<io::Error>),
    /// The output can't be written.
    #[error("the output can't be written: {0}")]
    Write(Arc<io::Error>),
}

impl Error {
    /// The broker's word that it gives no slot.
    pub(crate) fn refused(cancelled: &Cancelled) -> Self {
        let Cancelled { why, message, .. } = cancelled;
        let message = if message.is_empty() { why.to_string() } else { message.clone() };
        Self::Refused { why: *why, message }
    }
}
