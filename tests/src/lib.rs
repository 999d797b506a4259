//! The test bed: everything needed to run kube-fpga's parts against a real Kubernetes control plane on one machine,
//! as ordinary processes that end with the program that started them.
//!
//! It holds no tests: those are in `tests/`, and the demo is `bin/fpga-demo.rs`.

#![deny(unsafe_code)]

pub mod bench;
pub mod demo;
pub mod functions;
pub mod soak;
pub mod testbed;
