//! For tests: an OpenCL runtime that behaves as a board, thin over PoCL.
//!
//! PoCL runs any number of programs side by side, so that no test over it sees when a board is loaded. This runtime has one
//! image at a time: a program that is made of a binary loads it, each load is counted, and kernels of another image are
//! refused, as a board's are. It fails and hangs when a test says so ([`Controls`]).
//!
//! `libfpga_emulated_board.so` is an ICD: `fpga-device-manager serve --runtime PATH`. It hands out PoCL's own objects and
//! replaces some functions in the table to which they all point, so that all other calls go to PoCL untouched.

mod cl;
mod controls;
mod endless;
mod icd;
mod image;
mod pocl;

pub use controls::{Controls, VARIABLE};
