//! The C functions: each checks its pointers and values and makes one call.
//!
//! The callers' duties are those in the header: each pointer is NULL or valid for what is read or written through it; a
//! handle comes from this library and was not closed.

mod groups;
mod many;
mod streams;

use crate::code::{call, failure, invalid};
use crate::fallback::AccOrElse;
use crate::job::{AccJob, Ended, Inner, Operation};
use crate::process;
use crate::request::JobRequest;
use crate::signal::Deadline;
use crate::values::{AccArgument, AccConfig, AccStatus, readable};
use acc::{Error, Job, Opening};
use bytes::Bytes;
use fpga_foreign_process::c_boundary::{Failure, last_error};
use std::ffi::{c_char, c_int, c_void};

/// Says where the pool is, in place of the environment, before the first job or group of the process.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn acc_configure(config: *const AccConfig) -> c_int {
    call(|| {
        // SAFETY: NULL or readable: the caller's duty.
        let config = unsafe { config.as_ref() }.ok_or_else(|| invalid("config is NULL"))?;
        // SAFETY: strings or NULL: the caller's duty.
        process::configure(unsafe { config.read() }?)?;
        Ok(0)
    })
}

/// Opens a job over workload_bytes of input (P-1) and waits until it has a slot; stores a handle in *job. After the
/// timeout the job is given up and *job is NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn acc_open(
    accelerator: *const c_char,
    workload_bytes: u64,
    arguments: *const AccArgument,
    argument_count: usize,
    timeout_ms: i64,
    job: *mut *mut AccJob,
) -> c_int {
    let or_else = std::ptr::null();
    // SAFETY: the caller has the same duties.
    unsafe {
        acc_open_or_else(accelerator, workload_bytes, arguments, argument_count, or_else, timeout_ms, job)
    }
}

/// Like acc_open(), with a fallback: if the job waits for a slot for longer than or_else says, the processor of this machine
/// does it, or the rest of it, and the job counts as open. or_else may be NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn acc_open_or_else(
    accelerator: *const c_char,
    workload_bytes: u64,
    arguments: *const AccArgument,
    argument_count: usize,
    or_else: *const AccOrElse,
    timeout_ms: i64,
    job: *mut *mut AccJob,
) -> c_int {
    let request = JobRequest { accelerator, workload_bytes, arguments, argument_count, or_else };
    call(|| {
        // SAFETY: the caller has the same duties.
        let opened = unsafe { start_open(&request, job) }?;
        opened.wait(&mut *opened.lock()?, Deadline::after(timeout_ms))?;
        // SAFETY: not NULL, so writable: the caller's duty.
        unsafe { job.write(Box::into_raw(Box::new(opened))) };
        Ok(0)
    })
}

/// Opens a job and does not wait: the job has a slot when acc_wait() or acc_poll() return 0.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn acc_start_open(
    accelerator: *const c_char,
    workload_bytes: u64,
    arguments: *const AccArgument,
    argument_count: usize,
    job: *mut *mut AccJob,
) -> c_int {
    let or_else = std::ptr::null();
    // SAFETY: the caller has the same duties.
    unsafe { acc_start_open_or_else(accelerator, workload_bytes, arguments, argument_count, or_else, job) }
}

/// Like acc_start_open(), with the fallback of acc_open_or_else().
#[unsafe(no_mangle)]
pub unsafe extern "C" fn acc_start_open_or_else(
    accelerator: *const c_char,
    workload_bytes: u64,
    arguments: *const AccArgument,
    argument_count: usize,
    or_else: *const AccOrElse,
    job: *mut *mut AccJob,
) -> c_int {
    let request = JobRequest { accelerator, workload_bytes, arguments, argument_count, or_else };
    call(|| {
        // SAFETY: the caller has the same duties.
        let opening = unsafe { start_open(&request, job) }?;
        // SAFETY: not NULL, so writable: the caller's duty.
        unsafe { job.write(Box::into_raw(Box::new(opening))) };
        Ok(0)
    })
}

/// Stores where the program writes the job's input, and how many bytes there is room for, in *buffer and *bytes. The
/// buffer is the same for all runs of the job.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn acc_input(job: *const AccJob, buffer: *mut *mut c_void, bytes: *mut usize) -> c_int {
    with(job, |_, inner| {
        let room = inner.buffer()?;
        // SAFETY: NULL or writable: the caller's duty.
        unsafe { store(buffer, room.as_mut_ptr().cast(), "buffer") }?;
        // SAFETY: as above.
        unsafe { store(bytes, room.len(), "bytes") }?;
        Ok(0)
    })
}

/// Runs the first bytes of the job's input buffer through the accelerator, as the next piece of the job's input. The
/// piece that completes the workload is the last one. ACC_E_SIZE if there are more bytes than the buffer takes, or than
/// are left of the workload; ACC_E_BLOCK if a piece before the last one ends within a block. These change nothing. After
/// the timeout the run goes on: acc_wait() waits for its end.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn acc_run(job: *const AccJob, bytes: usize, timeout_ms: i64) -> c_int {
    with(job, |job, inner| {
        begin_run(inner, bytes)?;
        job.wait(inner, Deadline::after(timeout_ms))
    })
}

/// Like acc_run(), and does not wait. The input buffer may be filled again at once.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn acc_start_run(job: *const AccJob, bytes: usize) -> c_int {
    with(job, |job, inner| {
        begin_run(inner, bytes)?;
        job.poll(inner).map(|_| 0)
    })
}

/// Stores the output of the last run, and its number of bytes, in *output and *bytes. The output stays valid until the
/// next operation of the job begins.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn acc_output(
    job: *const AccJob,
    output: *mut *const c_void,
    bytes: *mut usize,
) -> c_int {
    with(job, |_, inner| {
        // SAFETY: NULL or writable: the caller's duty.
        unsafe { store(output, inner.output.as_ptr().cast(), "output") }?;
        // SAFETY: as above.
        unsafe { store(bytes, inner.output.len(), "bytes") }?;
        Ok(0)
    })
}

/// Waits for the end of the job's operation and returns what it ended with; 0 if there is none. ACC_E_TIMEOUT: it goes
/// on.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn acc_wait(job: *const AccJob, timeout_ms: i64) -> c_int {
    with(job, |job, inner| job.wait(inner, Deadline::after(timeout_ms)))
}

/// Lets the job's operation go on without waiting: ACC_PENDING, or what the operation ended with. Call it when
/// acc_descriptor() is readable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn acc_poll(job: *const AccJob) -> c_int {
    with(job, |job, inner| job.poll(inner))
}

/// A descriptor for poll() that is readable when acc_poll() is to be called. It is the library's: read nothing from it,
/// and do not close it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn acc_descriptor(job: *const AccJob) -> c_int {
    any_thread(job, |job| Ok(job.descriptor()))
}

/// Stores in *status how far the job is, and why it waits. Any thread may call it at any time.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn acc_status(job: *const AccJob, status: *mut AccStatus) -> c_int {
    any_thread(job, |job| {
        // SAFETY: NULL or writable: the caller's duty.
        unsafe { store(status, AccStatus::of(&job.status()), "status") }?;
        Ok(0)
    })
}

/// Gives the job up and returns at once: its operation ends with ACC_E_CANCELLED, also for a thread that waits for it. A
/// step that has started on the board ends unseen. Any thread may call it. The handle is still to be closed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn acc_cancel(job: *const AccJob) -> c_int {
    any_thread(job, |job| {
        job.cancel();
        Ok(0)
    })
}

/// Gives the job's slot up and frees the handle: no other call with it may be running or follow. An operation that is
/// under way is given up. NULL is allowed. In a forked child it only returns ACC_E_FORKED.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn acc_close(job: *mut AccJob) -> c_int {
    call(|| {
        // SAFETY: NULL or a handle: the caller's duty.
        let Some(known) = (unsafe { job.as_ref() }) else { return Ok(0) };
        known.check_process()?;
        // A handle that another thread uses in spite of its duty is not freed.
        let open = known.lock()?.take();
        // SAFETY: made by Box::into_raw, and given back once: the caller's duty.
        drop(unsafe { Box::from_raw(job) });
        match open {
            Some(open) => acc::wait(open.close(), None).map(|()| 0).map_err(|error| failure(&error)),
            None => Ok(0),
        }
    })
}

/// The text of the last failure on this thread; empty before the first. It stays valid until the thread's next
/// failure.
#[unsafe(no_mangle)]
pub extern "C" fn acc_last_error() -> *const c_char {
    last_error()
}

/// Starts to open a job, and stores NULL in `job` meanwhile.
///
/// # Safety
/// The pointers are NULL or valid.
unsafe fn start_open(request: &JobRequest, job: *mut *mut AccJob) -> Result<AccJob, Failure> {
    // SAFETY: this function's contract. The request is read first: it has data that are to be released.
    let request = unsafe { request.read() };
    // SAFETY: NULL or writable by this function's contract.
    unsafe { store(job, std::ptr::null_mut(), "job") }?;
    let opening = process::pool()?.open(request?);
    let status = opening.status();
    AccJob::opening(open(opening), status)
}

fn open(opening: Opening) -> Operation {
    Box::pin(async move {
        match opening.await {
            Ok(job) => Ok((Box::new(job), Bytes::new())),
            Err(error) => Err((None, error)),
        }
    })
}

fn begin_run(inner: &mut Inner, bytes: usize) -> Result<(), Failure> {
    let buffer = inner.buffer()?;
    let Some(input) = buffer.get(..bytes) else {
        let (given, most) = (bytes as u64, buffer.len() as u64);
        return Err(failure(&Error::Size { given, most }));
    };
    let input = Bytes::copy_from_slice(input);
    inner.begin(|mut job| {
        Box::pin(async move {
            let output = job.run(input).await;
            ended(job, output)
        })
    })
}

/// The end of an operation whose job is still there.
fn ended(job: Box<Job>, output: Result<Bytes, Error>) -> Ended {
    match output {
        Ok(output) => Ok((job, output)),
        Err(error) => Err((Some(job), error)),
    }
}

/// Stores a value for the program.
///
/// # Safety
/// `place` is NULL or writable.
unsafe fn store<T>(place: *mut T, value: T, what: &str) -> Result<(), Failure> {
    if place.is_null() {
        return Err(invalid(format!("{what} is NULL")));
    }
    // SAFETY: this function's contract.
    unsafe { place.write(value) };
    Ok(())
}

fn any_thread(job: *const AccJob, body: impl FnOnce(&AccJob) -> Result<c_int, Failure>) -> c_int {
    call(|| {
        // SAFETY: NULL or a live handle: the caller's duty.
        let job = unsafe { job.as_ref() }.ok_or_else(|| invalid("job is NULL"))?;
        job.check_process()?;
        body(job)
    })
}

fn with(job: *const AccJob, body: impl FnOnce(&AccJob, &mut Inner) -> Result<c_int, Failure>) -> c_int {
    any_thread(job, |job| body(job, &mut *job.lock()?))
}
