//! `libfpga_opencl_icd.so`: the remote OpenCL library as an installable client driver.
//!
//! Unmodified OpenCL programs load it through any ICD loader. This crate has only the C boundary: the dispatch
//! table, handles and their reference counts, and checks of pointers and arguments that need no state. All else is
//! safe Rust in `fpga-client`. In a foreign process the library doesn't panic, exit, change signal dispositions, or
//! run code at exit; see `fpga-foreign-process` for forked children.

mod api;
mod cl;
mod dispatch;
mod entry;
mod exports;
mod handle;
mod info;
mod masks;
mod memory;
mod objects;
mod platforms;
mod unsupported;

/// The dispatch table, for the library that exports the standard's names (`fpga-opencl-drop-in`).
pub mod table {
    pub use crate::dispatch::{DISPATCH as TABLE, Dispatch};
    pub use opencl_dynamic_sys::types::cl_icd::cl_icd_dispatch;
}
