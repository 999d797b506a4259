//! A text and its encryption, by which the results of jobs are checked.

use aes::Aes256;
use aes::cipher::{KeyIvInit as _, StreamCipher as _};
use anyhow::Result;
use bytes::Bytes;
use ctr::Ctr128BE;

/// Arguments of `aes-256-ctr`.
pub(super) const KEY: [u8; 32] = [7; 32];
pub(super) const COUNTER: [u8; 16] = [9; 16];

/// A text of so many bytes: the beginning of any longer one.
#[derive(Debug, Clone)]
pub(super) struct Text {
    pub plain: Bytes,
    pub secret: Bytes,
}

impl Text {
    pub fn of(bytes: u64) -> Result<Self> {
        let plain: Vec<u8> = (0_u32..).map(mixed).take(usize::try_from(bytes)?).collect();
        let mut secret = plain.clone();
        Ctr128BE::<Aes256>::new(&KEY.into(), &COUNTER.into()).apply_keystream(&mut secret);
        Ok(Self { plain: plain.into(), secret: secret.into() })
    }

    /// The first bytes of the text.
    pub fn first(&self, bytes: u64) -> Result<Self> {
        let bytes = usize::try_from(bytes)?.min(self.plain.len());
        Ok(Self { plain: self.plain.slice(..bytes), secret: self.secret.slice(..bytes) })
    }
}

fn mixed(at: u32) -> u8 {
    at.wrapping_mul(2_654_435_761).to_le_bytes()[3]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_is_encrypted_by_the_stream() {
        let text = Text::of(40).unwrap();
        assert_eq!(text.plain.len(), 40);
        assert_ne!(text.plain, text.secret);
        assert_eq!(Text::of(20).unwrap().secret, text.secret.slice(..20));
    }
}
