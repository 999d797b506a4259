//! The test bed: runs kube-fpga's programs against a real Kubernetes control plane on one machine, as ordinary
//! processes that end with the program that started them.
//!
//! The tests are in `tests/`, the demo is `bin/fpga-demo.rs`.

#![deny(unsafe_code)]

pub mod demo;
pub mod functions;
pub mod testbed;
