//! Jobs and groups with the real broker.

mod full;
mod groups;
mod many;
mod own;
mod program;
mod reasons;
mod sizes;

use crate::real::RealBed;
use fpga_acc::{Config, Pool};

/// The pool of a bed, for a process on the node of the managers.
fn pool(bed: &RealBed) -> Pool {
    let config = Config { node: Some("localhost".to_owned()), ..Config::of(&bed.address).unwrap() };
    Pool::connect(config).unwrap()
}
