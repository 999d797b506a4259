//! The C functions for groups.

use super::{readable, store};
use crate::code::{call, failure, invalid};
use crate::group::AccGroup;
use crate::process;
use crate::request::group_request;
use crate::signal::Deadline;
use crate::values::{AccArgument, AccDone, AccGoal, AccStatistics};
use fpga_foreign_process::c_boundary::Failure;
use std::ffi::{c_char, c_int, c_void};

/// Opens a group of least to most slots and stores a handle in *group. The call does not wait: a group that the
/// pool refuses says so by its actions.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn acc_group_open(
    accelerator: *const c_char,
    arguments: *const AccArgument,
    argument_count: usize,
    goal: *const AccGoal,
    least: u32,
    most: u32,
    group: *mut *mut AccGroup,
) -> c_int {
    call(|| {
        // SAFETY: NULL or writable: the caller's duty.
        unsafe { store(group, std::ptr::null_mut(), "group") }?;
        // SAFETY: the caller has the same duties.
        let request = unsafe { group_request(accelerator, arguments, argument_count, goal, (least, most)) }?;
        let opened = process::pool()?.open_group(request).map_err(|error| failure(&error))?;
        let handle = Box::new(AccGroup::new(opened)?);
        // SAFETY: not NULL, so writable: the caller's duty.
        unsafe { group.write(Box::into_raw(handle)) };
        Ok(0)
    })
}

/// Puts an action into the group's queue: bytes of input, which the library copies, and a tag by which
/// acc_group_next() names the action. Waits while the group has more than 256 MiB of input; after the timeout the action
/// is not in the queue.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn acc_group_submit(
    group: *const AccGroup,
    tag: u64,
    input: *const c_void,
    bytes: usize,
    timeout_ms: i64,
) -> c_int {
    with(group, |group| {
        // SAFETY: the caller's duty.
        let input = unsafe { readable(input, bytes, "input") }?;
        group.submit(tag, input, Deadline::after(timeout_ms)).map(|()| 0)
    })
}

/// Waits for an action that has ended, in whatever order, and stores it in *done. ACC_E_DONE if all actions that were
/// submitted have been stored. One thread at a time.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn acc_group_next(
    group: *const AccGroup,
    done: *mut AccDone,
    timeout_ms: i64,
) -> c_int {
    with(group, |group| {
        if done.is_null() {
            return Err(invalid("done is NULL"));
        }
        let (tag, output) = group.next(Deadline::after(timeout_ms))?;
        let (code, output, bytes) = match output {
            Ok(output) => (0, output.as_ptr(), output.len()),
            // The text of the action's error is that of the thread.
            Err(failure) => (call(|| Err(failure)), std::ptr::null(), 0),
        };
        // SAFETY: not NULL, so writable: the caller's duty.
        unsafe { done.write(AccDone { tag, code, output: output.cast(), bytes }) };
        Ok(0)
    })
}

/// A descriptor for poll() that is readable when acc_group_next() may have an action. It is the library's: read nothing
/// from it, and do not close it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn acc_group_descriptor(group: *const AccGroup) -> c_int {
    with(group, |group| Ok(group.descriptor()))
}

/// Stores in *statistics how far the group is, and what it will reach. Any thread may call it at any time.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn acc_group_statistics(
    group: *const AccGroup,
    statistics: *mut AccStatistics,
) -> c_int {
    with(group, |group| {
        // SAFETY: NULL or writable: the caller's duty.
        unsafe { store(statistics, AccStatistics::of(&group.statistics()), "statistics") }?;
        Ok(0)
    })
}

/// Waits until all actions that were submitted before have ended, whether with output or with an error.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn acc_group_wait(group: *const AccGroup, timeout_ms: i64) -> c_int {
    with(group, |group| group.wait(Deadline::after(timeout_ms)).map(|()| 0))
}

/// Waits until all actions have ended, gives the slots up, and frees the handle: no other call with it may be running or
/// follow. After the timeout the group is given up, and the handle is freed as well. NULL is allowed. In a forked child
/// it only returns ACC_E_FORKED.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn acc_group_close(group: *mut AccGroup, timeout_ms: i64) -> c_int {
    call(|| {
        // SAFETY: NULL or a handle: the caller's duty.
        let Some(known) = (unsafe { group.as_ref() }) else { return Ok(0) };
        known.check_process()?;
        // SAFETY: made by Box::into_raw, and given back once: the caller's duty.
        let owned = unsafe { Box::from_raw(group) };
        owned.close(Deadline::after(timeout_ms)).map(|()| 0)
    })
}

fn with(group: *const AccGroup, body: impl FnOnce(&AccGroup) -> Result<c_int, Failure>) -> c_int {
    call(|| {
        // SAFETY: NULL or a live handle: the caller's duty.
        let group = unsafe { group.as_ref() }.ok_or_else(|| invalid("group is NULL"))?;
        group.check_process()?;
        body(group)
    })
}
