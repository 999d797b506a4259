//! `libfpga_hook.so`: the reporter for device runtimes in C (S-6), described by `include/fpga_hook.h`.
//!
//! This crate has only the C boundary: pointer checks, errors as negative errno, and the handling of forks. The
//! queue, its thread and the connection to the collector are in `fpga-hook`. The library is loaded into applications,
//! so it doesn't panic, print or act at exit, and is never unmapped.

mod api;
mod entry;
mod handle;
mod hold;
mod text;
