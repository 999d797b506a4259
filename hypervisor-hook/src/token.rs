//! The token that a collector on the network requires: a line in a file, read at each use, so that a mounted Secret
//! may change under a running program.

use hyper::header::HeaderValue;
use std::io::Read as _;
use std::path::{Path, PathBuf};

/// Maximum length of a token in bytes; one of a service account has one or two thousand.
const MAX_BYTES: usize = 8 * 1024;

/// Reason why no token can be shown.
#[derive(Debug, thiserror::Error)]
pub(crate) enum TokenError {
    #[error("the token file {path} can't be read: {source}")]
    Io {
        path: PathBuf,
        #[source]
        source: std::io::Error,
    },
    #[error("the token file {0} must have 1 to {MAX_BYTES} visible ASCII characters")]
    NoToken(PathBuf),
}

/// The value of the header `Authorization` with the token that the file holds now.
pub(crate) fn bearer(path: &Path) -> Result<HeaderValue, TokenError> {
    let mut text = String::new();
    // A little more than the maximum, so that a token that is too long is not taken for its beginning.
    let limit = (MAX_BYTES + 64) as u64;
    std::fs::File::open(path)
        .and_then(|file| file.take(limit).read_to_string(&mut text))
        .map_err(|source| TokenError::Io { path: path.to_owned(), source })?;
    let token = text.trim();
    let fits = (1..=MAX_BYTES).contains(&token.len()) && token.bytes().all(|byte| byte.is_ascii_graphic());
    let header = fits.then(|| HeaderValue::try_from(format!("Bearer {token}")).ok()).flatten();
    let mut header = header.ok_or_else(|| TokenError::NoToken(path.to_owned()))?;
    // Keeps the token out of debug output.
    header.set_sensitive(true);
    Ok(header)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_line_in_the_file_is_the_token_and_nobody_else_is_shown_it() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("token");
        assert!(matches!(bearer(&path), Err(TokenError::Io { .. })));
        std::fs::write(&path, "0123456789abcdef\n").unwrap();
        let header = bearer(&path).unwrap();
        assert_eq!(header.as_bytes(), b"Bearer 0123456789abcdef");
        assert!(!format!("{header:?}").contains("0123"), "{header:?}");
        for no_token in ["", "two words", "\u{fc}", &"x".repeat(MAX_BYTES + 1)] {
            std::fs::write(&path, no_token).unwrap();
            assert!(matches!(bearer(&path), Err(TokenError::NoToken(_))), "{no_token:?}");
        }
    }
}
