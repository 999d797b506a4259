//! Traces of function invocations, for the demo and the simulator.
//!
//! It reads traces and turns them into what happens when; it runs nothing itself.

#![forbid(unsafe_code)]

pub mod azure;
