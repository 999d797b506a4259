//! `libfpga_hook.so`: the reporter for device runtimes in C (S-6), described by `include/fpga_hook.h`.
//!
//! Only the C boundary is here: pointer checks, errors as negative errno, and what a fork means. The queue, its thread
//! and the way to the collector are `fpga-hook`'s. Loaded into foreign processes, it doesn't panic, print or do
//! anything at exit, and is never unmapped.

mod api;
mod entry;
mod fork;
mod handle;
mod hold;
mod text;
