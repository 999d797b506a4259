//! AES, by an accelerator and by a library.

use aes::cipher::{KeyIvInit as _, StreamCipher as _};
use fpga_acc::Request;

pub const KEY: [u8; 32] = [0x42; 32];
pub const COUNTER: [u8; 16] = [0x17; 16];

/// A request for AES over so many bytes.
pub fn aes(bytes: usize) -> Request {
    Request::new("aes-256-ctr", bytes as u64).argument("key", &KEY).argument("counter", &COUNTER)
}

/// What AES makes of the bytes, by a library.
pub fn encrypted(bytes: &[u8]) -> Vec<u8> {
    let mut bytes = bytes.to_vec();
    ctr::Ctr128BE::<aes::Aes256>::new(&KEY.into(), &COUNTER.into()).apply_keystream(&mut bytes);
    bytes
}
