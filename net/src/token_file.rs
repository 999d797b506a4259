//! A token that proves a peer's identity, in a file that is read at each use, so that a mounted Secret may change under
//! a running program.

use std::fmt;
use std::fs::File;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};
use subtle::ConstantTimeEq as _;

/// Minimum length of a token in bytes; `openssl rand -hex 16` prints 32.
pub const MIN_BYTES: usize = 16;
/// Maximum length of a token in bytes; one of a service account has one or two thousand.
pub const MAX_BYTES: usize = 8 * 1024;

/// The file of a token.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TokenFile(PathBuf);

/// A token, which `Debug` does not print.
#[derive(Clone)]
pub struct Token(String);

/// Reason why no token could be read.
#[derive(Debug, thiserror::Error)]
pub enum TokenError {
    /// The file cannot be read.
    #[error("the token file {path} can't be read: {source}")]
    Io {
        /// The file.
        path: PathBuf,
        /// The system's error.
        #[source]
        source: io::Error,
    },
    /// The file's content is not a token.
    #[error(
        "the token file {0} must have {MIN_BYTES} to {MAX_BYTES} visible ASCII characters; make one by `openssl rand -hex 32`"
    )]
    NoToken(PathBuf),
}

impl TokenFile {
    /// The token in the file at `path`, which is read at each use.
    #[must_use]
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Self(path.into())
    }

    /// Reads the token, without the white space around it.
    ///
    /// # Errors
    /// [`TokenError::Io`] if the file cannot be read, [`TokenError::NoToken`] if its content is too short, too long,
    /// or not visible ASCII.
    pub fn read(&self) -> Result<Token, TokenError> {
        let token = read_text(&self.0, MAX_BYTES)
            .map_err(|source| TokenError::Io { path: self.0.clone(), source })?;
        let fits = (MIN_BYTES..=MAX_BYTES).contains(&token.len());
        if fits && token.bytes().all(|byte| byte.is_ascii_graphic()) {
            Ok(Token(token))
        } else {
            Err(TokenError::NoToken(self.0.clone()))
        }
    }
}

/// The text of the file at `path` without the white space around it. Of a text that is longer than `max_bytes`, the
/// answer is longer as well.
///
/// # Errors
/// The file can't be read, or its content is not UTF-8.
pub fn read_text(path: &Path, max_bytes: usize) -> io::Result<String> {
    let mut text = String::new();
    // A little more than the maximum, so that a token that is too long is not taken for its beginning.
    let limit = (max_bytes + 64) as u64;
    File::open(path)?.take(limit).read_to_string(&mut text)?;
    Ok(text.trim().to_owned())
}

impl Token {
    /// The value of the header `authorization` with this token.
    #[must_use]
    pub fn header(&self) -> String {
        format!("Bearer {}", self.0)
    }

    /// The token itself, for a protocol that does not carry it in a header.
    #[must_use]
    pub fn secret(&self) -> &str {
        &self.0
    }

    /// Whether the header's value has this token. The comparison takes the same time for all tokens of the same
    /// length.
    #[must_use]
    pub fn is_proved_by(&self, header: &[u8]) -> bool {
        let Some((scheme, token)) = header.split_at_checked(b"Bearer ".len()) else { return false };
        scheme.eq_ignore_ascii_case(b"Bearer ") && bool::from(token.ct_eq(self.0.as_bytes()))
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token(…)")
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<Token, TokenError> {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), text).unwrap();
        TokenFile::new(file.path()).read()
    }

    #[test]
    fn a_token_is_proved_by_itself_alone() {
        let token = read("0123456789abcdef\n").unwrap();
        assert!(token.is_proved_by(token.header().as_bytes()));
        assert!(token.is_proved_by(b"bearer 0123456789abcdef"));
        for wrong in [
            "",
            "Bearer ",
            "Bearer 0123456789abcde",
            "Bearer 0123456789abcdef0",
            "0123456789abcdef",
            "Basic x",
        ] {
            assert!(!token.is_proved_by(wrong.as_bytes()), "{wrong:?}");
        }
    }

    #[test]
    fn what_is_no_token_is_refused_with_how_to_make_one() {
        let long = "x".repeat(MAX_BYTES + 1);
        for text in [
            "",
            "short",
            "with space inside it",
            "\u{fc}\u{fc}\u{fc}\u{fc}\u{fc}\u{fc}\u{fc}\u{fc}\u{fc}",
            &long,
        ] {
            assert!(read(text).unwrap_err().to_string().contains("openssl"), "{text:?}");
        }
        assert!(matches!(TokenFile::new("/nowhere/token").read(), Err(TokenError::Io { .. })));
    }

    #[test]
    fn nobody_is_shown_a_token() {
        assert_eq!(format!("{:?}", read("0123456789abcdef").unwrap()), "Token(…)");
    }
}
