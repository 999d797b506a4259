//! The C functions for streams.

use super::{ended, readable, store, with};
use crate::code::{NoRoom, failure, invalid};
use crate::job::{AccJob, Inner};
use crate::signal::Deadline;
use bytes::Bytes;
use fpga_foreign_process::c_boundary::Failure;
use futures::io::{AllowStdIo, AsyncRead, AsyncWrite};
use std::ffi::{c_int, c_void};
use std::fs::File;
use std::io;
use std::mem::ManuallyDrop;
use std::os::fd::FromRawFd as _;
use std::pin::Pin;
use std::task::{Context, Poll};

/// Runs all of the input, of any length, in pieces of at most 4 MB of which several are under way (P-6), and writes what
/// comes out of it to output, in order. acc_status() says how many bytes that are. ACC_E_SIZE if output_bytes is too
/// small: the job is over then. After the timeout the stream goes on whenever acc_wait() or acc_poll() are called, and
/// uses both buffers until one of them returns another value than ACC_E_TIMEOUT or ACC_PENDING, or acc_close() has
/// returned.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn acc_stream(
    job: *const AccJob,
    input: *const c_void,
    input_bytes: usize,
    output: *mut c_void,
    output_bytes: usize,
    timeout_ms: i64,
) -> c_int {
    with(job, |job, inner| {
        // SAFETY: the caller's duty.
        unsafe { begin_stream(inner, (input, input_bytes), (output, output_bytes)) }?;
        job.wait(inner, Deadline::after(timeout_ms))
    })
}

/// Like acc_stream(), and does not wait.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn acc_start_stream(
    job: *const AccJob,
    input: *const c_void,
    input_bytes: usize,
    output: *mut c_void,
    output_bytes: usize,
) -> c_int {
    with(job, |job, inner| {
        // SAFETY: the caller's duty.
        unsafe { begin_stream(inner, (input, input_bytes), (output, output_bytes)) }?;
        job.poll(inner).map(|_| 0)
    })
}

/// Stores in *bytes how many bytes of output a stream of so many bytes of input has.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn acc_output_size(job: *const AccJob, input_bytes: u64, bytes: *mut u64) -> c_int {
    with(job, |_, inner| {
        let chunks = fpga_accelerators::chunks(inner.job()?.interface(), input_bytes);
        let size = chunks.map_err(|error| failure(&error.into()))?.output_bytes();
        // SAFETY: NULL or writable: the caller's duty.
        unsafe { store(bytes, size, "bytes") }?;
        Ok(0)
    })
}

/// Runs what one descriptor yields, until its end, and writes the output to another one. The call returns when all is
/// written; a read or a write that blocks is not broken off by the timeout or by acc_cancel(). As for write(), a pipe that
/// nobody reads raises SIGPIPE, unless the program ignores it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn acc_stream_descriptors(
    job: *const AccJob,
    input: c_int,
    output: c_int,
    timeout_ms: i64,
) -> c_int {
    with(job, |job, inner| {
        if input < 0 || output < 0 {
            return Err(invalid("a descriptor is negative"));
        }
        // SAFETY: open until the operation ends: the caller's duty. They stay the caller's.
        let [input, output] = [input, output].map(|it| ManuallyDrop::new(unsafe { File::from_raw_fd(it) }));
        begin(inner, AllowStdIo::new(Borrowed(input)), AllowStdIo::new(Borrowed(output)))?;
        let end = job.wait(inner, Deadline::after(timeout_ms));
        if end.is_err() {
            // The descriptors are the caller's again.
            job.cancel();
            inner.take();
        }
        end
    })
}

/// # Safety
/// The buffers are NULL or valid until the operation has ended.
unsafe fn begin_stream(
    inner: &mut Inner,
    input: (*const c_void, usize),
    output: (*mut c_void, usize),
) -> Result<(), Failure> {
    // SAFETY: this function's contract; the operation that has the slice is dropped at its end.
    let reader: &'static [u8] = unsafe { readable(input.0, input.1, "input") }?;
    if output.0.is_null() && output.1 > 0 {
        return Err(invalid("output is NULL"));
    }
    begin(inner, reader, Output { at: output.0.cast(), room: output.1 })
}

fn begin(
    inner: &mut Inner,
    reader: impl AsyncRead + Unpin + Send + 'static,
    writer: impl AsyncWrite + Unpin + Send + 'static,
) -> Result<(), Failure> {
    inner.begin(|mut job| {
        Box::pin(async move {
            let streamed = job.stream(reader, writer).await;
            ended(job, streamed.map(|_| Bytes::new()))
        })
    })
}

/// A descriptor of the caller, which is not closed.
struct Borrowed(ManuallyDrop<File>);

impl io::Read for Borrowed {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        self.0.read(bytes)
    }
}

impl io::Write for Borrowed {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// The caller's buffer for output.
struct Output {
    at: *mut u8,
    room: usize,
}

// SAFETY: the buffer is used by one thread at a time: the one that drives the operation.
unsafe impl Send for Output {}

impl AsyncWrite for Output {
    fn poll_write(mut self: Pin<&mut Self>, _: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        if bytes.len() > self.room {
            return Poll::Ready(Err(io::Error::other(NoRoom)));
        }
        // SAFETY: `room` bytes from `at` on are writable until the operation ends: the caller's duty.
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), self.at, bytes.len()) };
        // SAFETY: within the buffer, or one past its end.
        self.at = unsafe { self.at.add(bytes.len()) };
        self.room -= bytes.len();
        Poll::Ready(Ok(bytes.len()))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_close(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}
