//! Tokens that prove a tenant. A folder has one file for each tenant, with the tenant's name and the token as
//! content, like a mounted Kubernetes Secret. It is read again when it changes.
//!
//! Only the digests of tokens are stored and looked up, so the duration of a comparison reveals nothing about a
//! token.

use fpga_board::dispatch::Tenant;
use fpga_core::bitstream::Digest;
use fpga_net::token_file;
use fpga_protocol::limits::MAX_TOKEN_BYTES;
use fpga_session::store::digest_of;
use parking_lot::Mutex;
use std::collections::HashMap;
use std::io;
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The lengths of tokens in bytes. Shorter ones can be guessed.
const LENGTHS: RangeInclusive<usize> = token_file::MIN_BYTES..=MAX_TOKEN_BYTES;

/// The tokens of a folder. Clones share them.
#[derive(Debug, Clone)]
pub struct Tokens {
    folder: PathBuf,
    known: Arc<Mutex<HashMap<Digest, Tenant>>>,
}

/// The reason why tokens can't be used.
#[derive(Debug, thiserror::Error)]
pub enum TokensError {
    /// A file can't be read.
    #[error("cannot read {}: {source}", .path.display())]
    Read {
        /// The file or the folder.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// A token is too short or too long.
    #[error(
        "the token in {} has {length} bytes; {} to {} are taken, for example 32 random bytes in hexadecimal",
        .path.display(),
        LENGTHS.start(),
        LENGTHS.end()
    )]
    Length {
        /// The file.
        path: PathBuf,
        /// Number of bytes that were read.
        length: usize,
    },
    /// The file's name could be that of a user, an address or a certificate.
    #[error("{} is no name of a tenant; a `:` is for users, addresses and certificates", .0.display())]
    Name(PathBuf),
    /// Two tenants have the same token.
    #[error("{} has the token of another tenant", .0.display())]
    Twice(PathBuf),
}

impl Tokens {
    /// Reads the folder.
    ///
    /// # Errors
    /// [`TokensError`], if a file can't be read or is not valid; it has the path of the file.
    pub fn read(folder: &Path) -> Result<Self, TokensError> {
        let tokens = Self { folder: folder.to_owned(), known: Arc::default() };
        tokens.reload()?;
        Ok(tokens)
    }

    /// Reads the folder again. Returns whether a token has changed.
    ///
    /// # Errors
    /// [`TokensError`], if a file can't be read or is not valid. The previous tokens stay then.
    pub fn reload(&self) -> Result<bool, TokensError> {
        let new = read_folder(&self.folder)?;
        let mut known = self.known.lock();
        let changed = *known != new;
        *known = new;
        Ok(changed)
    }

    /// The tenant with this token.
    #[must_use]
    pub fn tenant(&self, token: &str) -> Option<Tenant> {
        let token = token.trim();
        if !LENGTHS.contains(&token.len()) {
            return None;
        }
        self.known.lock().get(&digest_of(token.as_bytes())).cloned()
    }

    /// Number of tokens.
    #[must_use]
    pub fn len(&self) -> usize {
        self.known.lock().len()
    }
}

fn read_folder(folder: &Path) -> Result<HashMap<Digest, Tenant>, TokensError> {
    let unreadable = |path: &Path| {
        let path = path.to_owned();
        move |source| TokensError::Read { path, source }
    };
    let mut known = HashMap::new();
    for entry in std::fs::read_dir(folder).map_err(unreadable(folder))? {
        let path = entry.map_err(unreadable(folder))?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        // Kubernetes keeps the content of mounted volumes in folders whose names begin with a dot.
        if name.starts_with('.') || !path.is_file() {
            continue;
        }
        if name.contains(':') {
            return Err(TokensError::Name(path));
        }
        let token = token_file::read_text(&path, MAX_TOKEN_BYTES).map_err(unreadable(&path))?;
        if !LENGTHS.contains(&token.len()) {
            return Err(TokensError::Length { path, length: token.len() });
        }
        if known.insert(digest_of(token.as_bytes()), Tenant::new(&name)).is_some() {
            return Err(TokensError::Twice(path));
        }
    }
    Ok(known)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_names_its_tenant_until_the_folder_says_otherwise() {
        let folder = tempfile::tempdir().unwrap();
        let write = |name: &str, token: &str| std::fs::write(folder.path().join(name), token).unwrap();
        write("alice", "0123456789abcdef\n");
        write(".hidden", "x");
        let tokens = Tokens::read(folder.path()).unwrap();
        assert_eq!(tokens.tenant("0123456789abcdef"), Some(Tenant::new("alice")));
        assert_eq!(tokens.tenant("0123456789abcdee"), None);
        assert_eq!((tokens.tenant(""), tokens.tenant("x")), (None, None));
        write("alice", "fedcba9876543210");
        assert!(tokens.reload().unwrap());
        assert!(!tokens.reload().unwrap());
        assert_eq!(tokens.tenant("0123456789abcdef"), None);
        assert_eq!(tokens.tenant("fedcba9876543210"), Some(Tenant::new("alice")));
    }

    #[test]
    fn folders_that_could_let_the_wrong_one_in_are_refused() {
        for (name, token) in [("a", "short"), ("uid:0", "0123456789abcdef"), ("b", "0123456789abcdefG")] {
            let folder = tempfile::tempdir().unwrap();
            std::fs::write(folder.path().join("c"), "0123456789abcdefG").unwrap();
            std::fs::write(folder.path().join(name), token).unwrap();
            let error = Tokens::read(folder.path()).unwrap_err().to_string();
            assert!(error.contains(folder.path().to_str().unwrap()), "{error}");
        }
    }
}
