//! Jobs over real device managers with PoCL: results against references, and what happens when parts go away.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

#[path = "../common/mod.rs"]
mod common;
mod fallback;
mod faults;
mod program;
mod results;

use aes::cipher::{KeyIvInit as _, StreamCipher as _};
use fpga_acc::Request;

const KEY: [u8; 32] = [0x42; 32];
const COUNTER: [u8; 16] = [0x17; 16];

/// A request for AES over so many bytes.
fn aes(bytes: usize) -> Request {
    Request::new("aes-256-ctr", bytes as u64).argument("key", &KEY).argument("counter", &COUNTER)
}

/// What AES makes of the bytes, by a library.
fn encrypted(bytes: &[u8]) -> Vec<u8> {
    let mut bytes = bytes.to_vec();
    ctr::Ctr128BE::<aes::Aes256>::new(&KEY.into(), &COUNTER.into()).apply_keystream(&mut bytes);
    bytes
}
