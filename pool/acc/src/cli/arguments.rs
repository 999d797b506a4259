//! Values of an accelerator's arguments, from files and from the command line.

use anyhow::{Context as _, bail};
use fpga_accelerators::Accelerator;
use std::path::Path;
use zeroize::Zeroizing;

/// Maximum size of a file with a value, in bytes: that of a parameter, in hexadecimal digits, and a line end.
const MAX_FILE_BYTES: usize = 2 * 65_536 + 2;

/// Splits `NAME=VALUE`.
pub(super) fn named(text: &str) -> anyhow::Result<(String, String)> {
    let (name, value) = text.split_once('=').context("write NAME=VALUE, for example counter=00…")?;
    Ok((name.to_owned(), value.to_owned()))
}

/// The value in a file: its bytes, or the bytes that its hexadecimal digits stand for, whichever has the length of the
/// parameter.
pub(super) fn from_file(accelerator: &str, name: &str, path: &Path) -> anyhow::Result<Zeroizing<Vec<u8>>> {
    let file = std::fs::File::open(path).with_context(|| format!("argument {name}: {}", path.display()))?;
    let mut bytes = Zeroizing::new(Vec::with_capacity(MAX_FILE_BYTES + 1));
    std::io::Read::read_to_end(&mut std::io::Read::take(file, MAX_FILE_BYTES as u64 + 1), &mut bytes)?;
    if bytes.len() > MAX_FILE_BYTES {
        bail!("argument {name}: {} is longer than any argument", path.display());
    }
    let expected = parameter_bytes(accelerator, name);
    if expected != Some(bytes.len())
        && let Ok(text) = std::str::from_utf8(&bytes)
        && let Ok(decoded) = from_hex(text.trim())
        && expected.is_none_or(|expected| expected == decoded.len())
    {
        return Ok(decoded);
    }
    Ok(bytes)
}

/// The bytes for which hexadecimal digits stand.
pub(super) fn from_hex(digits: &str) -> anyhow::Result<Zeroizing<Vec<u8>>> {
    if !digits.len().is_multiple_of(2) || !digits.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        bail!("write two hexadecimal digits for each byte");
    }
    let digit = |byte: u8| char::from(byte).to_digit(16).and_then(|digit| u8::try_from(digit).ok());
    let byte = |pair: &[u8]| Some(digit(pair[0])? << 4 | digit(pair[1])?);
    let mut bytes = Zeroizing::new(Vec::with_capacity(digits.len() / 2));
    bytes.extend(digits.as_bytes().chunks_exact(2).filter_map(byte));
    Ok(bytes)
}

/// Bytes of a parameter of a shipped accelerator.
fn parameter_bytes(accelerator: &str, name: &str) -> Option<usize> {
    let interface = Accelerator::named(accelerator)?.interface();
    let parameter = interface.spec().parameters.iter().find(|parameter| parameter.name == name)?;
    usize::try_from(parameter.bytes).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_file_has_the_bytes_or_their_digits() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("key");
        let read = |content: &[u8]| {
            std::fs::write(&path, content).unwrap();
            from_file("aes-256-ctr", "key", &path).unwrap().to_vec()
        };
        assert_eq!(read(&[7; 32]), [7; 32]);
        assert_eq!(read(format!("{}\n", "0aB1".repeat(16)).as_bytes()), [0x0a, 0xb1].repeat(16));
        // 32 digits are 32 bytes, too: the length of a key decides.
        assert_eq!(read(&[b'0'; 32]), [b'0'; 32]);
        assert_eq!(read(b"short"), b"short", "the job says what length it wants");
        assert!(from_hex("abc").is_err() && from_hex("zz").is_err());
    }
}
