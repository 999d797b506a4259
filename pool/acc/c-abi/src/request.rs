//! What programs ask for.

use crate::code::invalid;
use crate::fallback::{AccOrElse, fallback};
use crate::values::{AccArgument, AccGoal, accelerator, arguments};
use acc::{GroupRequest, Request};
use fpga_foreign_process::c_boundary::Failure;
use std::ffi::c_char;

/// A job that is to be opened, as the program's pointers say.
pub struct JobRequest {
    pub accelerator: *const c_char,
    pub workload_bytes: u64,
    pub arguments: *const AccArgument,
    pub argument_count: usize,
    pub or_else: *const AccOrElse,
}

impl JobRequest {
    /// The request of the client.
    ///
    /// # Safety
    /// The pointers are NULL or valid.
    pub unsafe fn read(&self) -> Result<Request, Failure> {
        // SAFETY: this function's contract.
        let fallback = unsafe { fallback(self.or_else) };
        // SAFETY: as above.
        let name = unsafe { accelerator(self.accelerator) }?;
        // SAFETY: as above.
        let values = unsafe { arguments(self.arguments, self.argument_count) }?;
        let request = Request::new(name, self.workload_bytes);
        let request =
            values.into_iter().fold(request, |request, (name, value)| request.argument(name, value));
        Ok(match fallback {
            Some(fallback) => fallback(request),
            None => request,
        })
    }
}

/// The request of a group.
///
/// # Safety
/// The pointers are NULL or valid.
pub unsafe fn group_request(
    name: *const c_char,
    values: *const AccArgument,
    count: usize,
    goal: *const AccGoal,
    slots: (u32, u32),
) -> Result<GroupRequest, Failure> {
    // SAFETY: this function's contract.
    let name = unsafe { accelerator(name) }?;
    // SAFETY: as above.
    let values = unsafe { arguments(values, count) }?;
    // SAFETY: as above.
    let goal = unsafe { goal.as_ref() }.ok_or_else(|| invalid("goal is NULL"))?.goal();
    let request = GroupRequest::new(name, goal, slots.0..=slots.1);
    Ok(values.into_iter().fold(request, |request, (name, value)| request.argument(name, value)))
}
