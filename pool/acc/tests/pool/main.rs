//! The client with the real broker and real device managers over PoCL.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

#[path = "../common/mod.rs"]
mod common;
mod full;
mod groups;
mod many;
mod own;
mod program;
mod reasons;
mod sizes;

use common::real::RealBed;
use fpga_acc::{Config, Pool};

/// The pool of a bed, for a process on the node of the managers.
fn pool(bed: &RealBed) -> Pool {
    let config = Config { node: Some("localhost".to_owned()), ..Config::of(&bed.address).unwrap() };
    Pool::connect(config).unwrap()
}
