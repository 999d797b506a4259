//! What functions return.

use acc::Error;
use fpga_foreign_process::c_boundary::{self, Failure, TextError};
use std::ffi::c_int;
use std::fmt;

/// The operation has not ended yet.
pub const ACC_PENDING: c_int = 1;
/// A pointer is NULL, or a value is not possible.
pub const ACC_E_INVALID: c_int = -1;
/// The input is longer than the job takes, or the output longer than its buffer.
pub const ACC_E_SIZE: c_int = -2;
/// The input ends within a block, and more follows; or the accelerator does not take an input of this length.
pub const ACC_E_BLOCK: c_int = -3;
/// An argument of the accelerator is missing or wrong.
pub const ACC_E_ARGUMENT: c_int = -4;
/// Nobody has said what this accelerator takes and gives.
pub const ACC_E_ACCELERATOR: c_int = -5;
/// The broker gives no slot: none fits, or a quota is used up.
pub const ACC_E_REFUSED: c_int = -6;
/// A slot was lost in the middle of a step that must not run twice.
pub const ACC_E_LOST: c_int = -7;
/// The accelerator failed several times in a row.
pub const ACC_E_FAILED: c_int = -8;
/// The time is over. What was waited for goes on, unless the function says otherwise.
pub const ACC_E_TIMEOUT: c_int = -9;
/// The job or the group was given up.
pub const ACC_E_CANCELLED: c_int = -10;
/// The whole workload is done; or the group has no action.
pub const ACC_E_DONE: c_int = -11;
/// The handle is the parent's.
pub const ACC_E_FORKED: c_int = -12;
/// A descriptor can't be read or written.
pub const ACC_E_IO: c_int = -13;
/// The configuration can't be used.
pub const ACC_E_CONFIG: c_int = -14;
/// The system has no threads, descriptors, or random numbers.
pub const ACC_E_SYSTEM: c_int = -15;
/// Another operation of the job is under way, or the pool is connected already.
pub const ACC_E_BUSY: c_int = -16;
/// A bug in the library.
pub const ACC_E_BUG: c_int = -17;

/// A program's buffer is too small.
#[derive(Debug)]
pub struct NoRoom;

impl fmt::Display for NoRoom {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("there is more output than the buffer takes")
    }
}

impl std::error::Error for NoRoom {}

/// A value that is not possible.
pub fn invalid(text: impl Into<String>) -> Failure {
    Failure::new(ACC_E_INVALID, text)
}

/// The failure of an error of the client.
pub fn failure(error: &Error) -> Failure {
    let code = match error {
        Error::Config(_) => ACC_E_CONFIG,
        Error::Thread(_) => ACC_E_SYSTEM,
        Error::Size { .. } => ACC_E_SIZE,
        Error::Block { .. } | Error::Length(_) => ACC_E_BLOCK,
        Error::Argument(_) => ACC_E_ARGUMENT,
        Error::Slots { .. } | Error::Many { .. } | Error::Goal | Error::NoFallback(_) => ACC_E_INVALID,
        Error::UnknownAccelerator(_) | Error::Interface { .. } => ACC_E_ACCELERATOR,
        Error::Refused { .. } => ACC_E_REFUSED,
        Error::Lost => ACC_E_LOST,
        Error::Failed { .. } | Error::Processor(_) => ACC_E_FAILED,
        Error::TimedOut(_) => ACC_E_TIMEOUT,
        Error::Cancelled => ACC_E_CANCELLED,
        Error::Done => ACC_E_DONE,
        Error::Forked => ACC_E_FORKED,
        Error::Write(error) if error.get_ref().is_some_and(|inner| inner.is::<NoRoom>()) => ACC_E_SIZE,
        Error::Read(_) | Error::Write(_) => ACC_E_IO,
    };
    Failure::new(code, error.to_string())
}

/// The failure of a text that can't be used.
pub fn unusable(what: &str, error: TextError) -> Failure {
    invalid(format!("{what} {error}"))
}

/// Runs the body of a function that C calls.
pub fn call(body: impl FnOnce() -> Result<c_int, Failure>) -> c_int {
    c_boundary::call(|| Failure::new(ACC_E_BUG, "a bug in libfpga_acc"), body)
}
