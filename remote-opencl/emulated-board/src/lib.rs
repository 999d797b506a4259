//! For tests: an OpenCL runtime that behaves like a board, as a thin layer over PoCL.
//!
//! PoCL runs any number of programs side by side, so a test over it can't observe when a board is loaded. This
//! runtime has one image at a time: creating a program from a binary loads its image, each load is counted, and
//! kernels of another image are refused, as a board refuses them. It fails and hangs when a test asks for that
//! ([`Controls`]). Each process has an image of its own, unless a test has them share the board: then one image is there
//! for all, and another one is loaded only while no other process has a context.
//!
//! `libfpga_emulated_board.so` is an ICD: `fpga-device-manager serve --runtime PATH`. It returns PoCL's own objects
//! and replaces some functions in the table to which all of them point. All other calls go to PoCL unchanged.

mod cl;
mod contexts;
mod controls;
mod endless;
mod icd;
mod image;
mod pocl;

pub use controls::{Controls, VARIABLE};
