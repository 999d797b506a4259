//! `libfpga_opencl_icd.so`: the remote OpenCL library as an installable client driver.
//!
//! Unmodified OpenCL programs load it through any ICD loader. Here are only the C boundary and what C needs: the
//! dispatch table, handles and their reference counts, pointer and argument checks that need no state. Everything else
//! is safe Rust in `fpga-client`. Loaded into foreign processes, it doesn't panic, exit, touch signal dispositions or
//! do anything at exit; see [`fork`] for what a forked child gets.

mod api;
mod cl;
mod dispatch;
mod entry;
mod exports;
mod fork;
mod handle;
mod info;
mod masks;
mod memory;
mod objects;
mod platforms;
mod unsupported;

/// The dispatch table, for the library that has the standard's names itself (`fpga-opencl-drop-in`).
pub mod table {
    pub use crate::dispatch::{DISPATCH as TABLE, Dispatch};
    pub use opencl_dynamic_sys::types::cl_icd::cl_icd_dispatch;
}
