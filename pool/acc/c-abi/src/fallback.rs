//! The processor in place of a slot that does not come in time.

use acc::{ChunkInput, Fallback, Position, Request, Room};
use std::ffi::{c_int, c_void};
use std::time::Duration;

/// A chunk of a job that a function of the program computes. All pointers are valid until the function returns.
#[repr(C)]
#[derive(Debug)]
pub struct AccChunk {
    /// The chunk's bytes of the input: whole blocks, but at the end of the input where the accelerator takes a shorter one.
    pub input: *const c_void,
    /// Number of bytes of input.
    pub input_bytes: usize,
    /// The arguments, one after the other in the order of the accelerator's interface.
    pub arguments: *const c_void,
    /// Number of bytes of all arguments.
    pub argument_bytes: usize,
    /// The state that the chunk before has left; zeros for the first chunk.
    pub state: *const c_void,
    /// Where the function writes the state for the next chunk.
    pub next_state: *mut c_void,
    /// Number of bytes of the state, and of the next one.
    pub state_bytes: usize,
    /// Where the function writes the chunk's output.
    pub output: *mut c_void,
    /// Number of bytes of output.
    pub output_bytes: usize,
    /// 1 if the input ends with this chunk.
    pub is_last: c_int,
}

/// Who does a job, or the rest of it, for which no slot comes in time.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct AccOrElse {
    /// Milliseconds for which the job waits for a slot before, for its first one and after each loss. If the broker gives no
    /// slot, the job waits no longer.
    pub after_ms: u64,
    /// Computes a chunk. Returns 0, or another number with which the job ends (ACC_E_FAILED). The library calls it on a
    /// thread of its own, for one chunk after the other. NULL: the library's own code of the accelerators that are shipped.
    pub compute: Option<unsafe extern "C" fn(chunk: *const AccChunk, data: *mut c_void) -> c_int>,
    /// Handed to compute and release.
    pub data: *mut c_void,
    /// Called once, on any thread, when compute is not called any more, which may be after acc_close(), since a call that
    /// has begun ends; also if the job can't be opened. NULL: nothing is to be done then.
    pub release: Option<unsafe extern "C" fn(data: *mut c_void)>,
}

/// A function of a program with its data, which are released when it is dropped.
struct Function(AccOrElse);

// SAFETY: the program's functions may be called on any thread: the caller's duty.
unsafe impl Send for Function {}
// SAFETY: one call after the other: the client's promise.
unsafe impl Sync for Function {}

impl Drop for Function {
    fn drop(&mut self) {
        if let Some(release) = self.0.release {
            // SAFETY: the last use of the data, and the only call: the caller gave the function for that.
            unsafe { release(self.0.data) };
        }
    }
}

impl Function {
    fn compute(&self, chunk: &ChunkInput<'_>, room: Room<'_>) -> Result<(), String> {
        let Some(compute) = self.0.compute else { return Ok(()) };
        let Room { output, next_state } = room;
        let chunk = AccChunk {
            input: chunk.bytes.as_ptr().cast(),
            input_bytes: chunk.bytes.len(),
            arguments: chunk.arguments.as_ptr().cast(),
            argument_bytes: chunk.arguments.len(),
            state: chunk.state.as_ptr().cast(),
            next_state: next_state.as_mut_ptr().cast(),
            state_bytes: chunk.state.len(),
            output: output.as_mut_ptr().cast(),
            output_bytes: output.len(),
            is_last: (chunk.position == Position::Last).into(),
        };
        // SAFETY: the pointers are valid for their numbers of bytes; the function keeps to these: the caller's duty.
        match unsafe { compute(&raw const chunk, self.0.data) } {
            0 => Ok(()),
            code => Err(format!("the program's function returned {code}")),
        }
    }
}

/// Takes a program's fallback, whose data are released even if nothing comes of the job.
///
/// # Safety
/// `or_else` is NULL or valid, and its functions keep to what its fields say.
pub unsafe fn fallback(or_else: *const AccOrElse) -> Option<impl FnOnce(Request) -> Request> {
    // SAFETY: this function's contract.
    let function = Function(*unsafe { or_else.as_ref() }?);
    let after = Duration::from_millis(function.0.after_ms);
    let fallback = match function.0.compute {
        // The data are released now: nobody uses them.
        None => Fallback::shipped(),
        Some(_) => Fallback::function(move |chunk, room| function.compute(chunk, room)),
    };
    Some(move |request: Request| request.or_else(after, fallback))
}
