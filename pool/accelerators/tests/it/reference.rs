//! The same results by other programs: published crates where there are some, else the definition in `f64`.

#[path = "reference/black_scholes.rs"]
pub mod black_scholes;
#[path = "reference/fourier.rs"]
pub mod fourier;
#[path = "reference/time_warping.rs"]
pub mod time_warping;

use aes::Aes256;
use ctr::Ctr128BE;
use ctr::cipher::{KeyIvInit as _, StreamCipher as _};
use reed_solomon_erasure::galois_8::ReedSolomon;
use sha2::{Digest as _, Sha256};

/// What a kernel must return.
pub enum Expected {
    /// These bytes.
    Exact(Vec<u8>),
    /// Floats (`f32`) near these numbers.
    Near(Vec<Near>),
}

/// A number, and how far from it a result may be.
pub struct Near {
    pub value: f64,
    pub tolerance: f64,
}

impl Expected {
    /// Says where `found` is something else.
    pub fn compare(&self, found: &[u8]) -> Result<(), String> {
        match self {
            Self::Exact(bytes) => match bytes.iter().zip(found).position(|(a, b)| a != b) {
                Some(at) => Err(format!("byte {at} differs")),
                None if bytes.len() == found.len() => Ok(()),
                None => Err(format!("{} bytes instead of {}", found.len(), bytes.len())),
            },
            Self::Near(all) if all.len() * 4 != found.len() => {
                Err(format!("{} bytes instead of {}", found.len(), all.len() * 4))
            }
            Self::Near(all) => {
                // A result that is no number is near to none.
                let is_near = |(near, found): (&Near, f64)| (near.value - found).abs() <= near.tolerance;
                match all.iter().zip(floats(found)).enumerate().find(|(_, pair)| !is_near(*pair)) {
                    Some((at, (near, found))) => Err(format!("float {at} is {found}, not {}", near.value)),
                    None => Ok(()),
                }
            }
        }
    }
}

/// The numbers of an array of `f32`.
pub fn floats(bytes: &[u8]) -> impl Iterator<Item = f64> {
    bytes.chunks_exact(4).map(|bytes| f64::from(f32::from_le_bytes(bytes.try_into().unwrap())))
}

/// AES-256 in counter mode by the crates `aes` and `ctr`.
pub fn cipher(key: &[u8], counter: &[u8], input: &[u8]) -> Expected {
    let mut bytes = input.to_vec();
    Ctr128BE::<Aes256>::new_from_slices(key, counter).unwrap().apply_keystream(&mut bytes);
    Expected::Exact(bytes)
}

/// SHA-256 by the crate `sha2`.
pub fn digest(input: &[u8]) -> Expected {
    Expected::Exact(Sha256::digest(input).to_vec())
}

/// Parity of blocks of 10 shards by the crate `reed-solomon-erasure`.
pub fn parity(input: &[u8]) -> Expected {
    const SHARD_BYTES: usize = 4096;
    let code = ReedSolomon::new(10, 4).unwrap();
    let mut output = Vec::new();
    for block in input.chunks(10 * SHARD_BYTES) {
        let mut block = block.to_vec();
        block.resize(10 * SHARD_BYTES, 0);
        let data: Vec<&[u8]> = block.chunks(SHARD_BYTES).collect();
        let mut parity = vec![vec![0; SHARD_BYTES]; 4];
        code.encode_sep(&data, &mut parity).unwrap();
        output.extend(parity.concat());
    }
    Expected::Exact(output)
}
