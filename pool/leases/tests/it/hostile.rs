//! Each machine among honest and hostile peers: no sequence of messages makes the machine panic, grow, or stop, or
//! changes what belongs to the honest peers.

mod broker;
mod client;
mod manager;

use std::fmt::Debug;

/// Most characters that a machine of these tests takes as text. The text has every field, so that nothing grows unseen.
const LONGEST: usize = 12_000;

fn assert_small(machine: &impl Debug) {
    let length = format!("{machine:?}").len();
    assert!(length <= LONGEST, "the machine has grown to {length} characters");
}
