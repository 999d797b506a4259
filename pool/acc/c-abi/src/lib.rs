//! `libfpga_acc.so`: the client of the pool for programs in C (P-1, Q-2), described by `include/acc.h`.
//!
//! This crate has only the C boundary: pointer checks, numbers for errors, and futures that C programs wait for or poll by a
//! descriptor. All else is `fpga-acc`. The library is loaded into programs of others, so it doesn't panic, print or act at
//! exit, and is never unmapped.
//!
//! Futures run on the threads that call: whoever waits for a job polls its future, and a future's waker makes the job's
//! descriptor readable. So the library adds no thread to those of `fpga-acc`.

mod api;
mod code;
mod fallback;
mod group;
mod job;
mod process;
mod request;
mod signal;
mod values;
