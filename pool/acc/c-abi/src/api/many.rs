//! Jobs that get all of their slots at the same time or none.

use super::{open, store};
use crate::code::{call, failure};
use crate::job::AccJob;
use crate::process;
use crate::request::JobRequest;
use crate::signal::Deadline;
use crate::values::AccArgument;
use fpga_foreign_process::c_boundary::Failure;
use std::ffi::{c_char, c_int};

/// Opens job_count jobs with one accelerator, each over workload_bytes of input, and waits until all have slots: they get
/// them at the same time, or none does (P-1). Stores their handles in jobs[0], jobs[1] and so on. Nothing is held for them
/// while they wait. From then on they are jobs as all others. ACC_E_INVALID for no job, and for more than 256. After the
/// timeout all jobs are given up, and after any error all handles are NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn acc_open_many(
    accelerator: *const c_char,
    workload_bytes: u64,
    arguments: *const AccArgument,
    argument_count: usize,
    timeout_ms: i64,
    jobs: *mut *mut AccJob,
    job_count: u32,
) -> c_int {
    let or_else = std::ptr::null();
    let request = JobRequest { accelerator, workload_bytes, arguments, argument_count, or_else };
    call(|| {
        // SAFETY: the caller has the same duties.
        let opened = unsafe { start_open(&request, jobs, job_count) }?;
        let deadline = Deadline::after(timeout_ms);
        for job in &opened {
            job.wait(&mut *job.lock()?, deadline)?;
        }
        // SAFETY: as above.
        unsafe { hand_over(opened, jobs) };
        Ok(0)
    })
}

/// Like acc_open_many(), and does not wait: each job has a slot when acc_wait() or acc_poll() return 0 for it. If one of
/// them is given up or refused before that, all are.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn acc_start_open_many(
    accelerator: *const c_char,
    workload_bytes: u64,
    arguments: *const AccArgument,
    argument_count: usize,
    jobs: *mut *mut AccJob,
    job_count: u32,
) -> c_int {
    let or_else = std::ptr::null();
    let request = JobRequest { accelerator, workload_bytes, arguments, argument_count, or_else };
    call(|| {
        // SAFETY: the caller has the same duties.
        let opening = unsafe { start_open(&request, jobs, job_count) }?;
        // SAFETY: as above.
        unsafe { hand_over(opening, jobs) };
        Ok(0)
    })
}

/// Starts to open jobs, and stores NULL for each meanwhile.
///
/// # Safety
/// The pointers are NULL or valid, and `jobs` is for so many handles.
unsafe fn start_open(
    request: &JobRequest,
    jobs: *mut *mut AccJob,
    count: u32,
) -> Result<Vec<AccJob>, Failure> {
    for index in 0..count as usize {
        // SAFETY: NULL, which the first one finds, or writable by this function's contract.
        unsafe { store(jobs.wrapping_add(index), std::ptr::null_mut(), "jobs") }?;
    }
    // SAFETY: this function's contract.
    let request = unsafe { request.read() }?;
    let openings = process::pool()?.open_each(&request, count).map_err(|error| failure(&error))?;
    let jobs = openings.into_iter().map(|opening| {
        let status = opening.status();
        AccJob::opening(open(opening), status)
    });
    jobs.collect()
}

/// Gives handles to the program.
///
/// # Safety
/// `places` is writable for so many handles.
unsafe fn hand_over(jobs: Vec<AccJob>, places: *mut *mut AccJob) {
    for (index, job) in jobs.into_iter().enumerate() {
        // SAFETY: this function's contract.
        unsafe { places.add(index).write(Box::into_raw(Box::new(job))) };
    }
}
