//! What must come out of the pool: parts of a text with their encryption, and outputs that are held against it.

use super::super::text::Text;
use anyhow::{Result, ensure};

/// The bytes of a text from `from` on, at most so many, as a stream of its own: its encryption begins with the counter.
pub(super) fn part(text: &Text, from: usize, bytes: usize) -> Text {
    let end = from.saturating_add(bytes).min(text.plain.len());
    let plain = text.plain.slice(from.min(end)..end);
    let key_stream = text.plain.iter().zip(&text.secret).map(|(plain, secret)| plain ^ secret);
    let secret: Vec<u8> = plain.iter().zip(key_stream).map(|(plain, key)| plain ^ key).collect();
    Text { plain, secret: secret.into() }
}

/// Fails unless the output is the whole encryption and nothing else.
pub(super) fn check(output: &[u8], secret: &[u8]) -> Result<()> {
    ensure!(output.len() == secret.len(), "{} bytes came of {}", output.len(), secret.len());
    ensure!(output == secret, "a byte is wrong");
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::super::super::text::{COUNTER, KEY};
    use super::*;
    use aes::Aes256;
    use aes::cipher::{KeyIvInit as _, StreamCipher as _};
    use ctr::Ctr128BE;

    #[test]
    fn a_part_is_encrypted_as_a_stream_of_its_own() {
        let text = Text::of(200).unwrap();
        let of_text = part(&text, 70, 50);
        assert_eq!(of_text.plain, text.plain[70..120]);
        let mut secret = of_text.plain.to_vec();
        Ctr128BE::<Aes256>::new(&KEY.into(), &COUNTER.into()).apply_keystream(&mut secret);
        assert_eq!(of_text.secret, secret);
        assert_eq!(part(&text, 190, 50).secret.len(), 10);
        assert_eq!(part(&text, 300, 50).secret.len(), 0);
    }

    #[test]
    fn only_the_whole_encryption_is_right() {
        assert!(check(b"abc", b"abc").is_ok());
        for wrong in [&b"ab"[..], b"abcc", b"abd"] {
            assert!(check(wrong, b"abc").is_err());
        }
    }
}
