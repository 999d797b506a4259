//! Tokens that prove a tenant: a folder with one file for each, its name the tenant's and its content the token, as a
//! mounted Kubernetes Secret is. Read again when it changes.
//!
//! Only digests are kept, and looked up by: how long a comparison takes tells nothing of a token.

use crate::dispatcher::Tenant;
use crate::objects::lock;
use crate::store::digest_of;
use fpga_core::bitstream::Digest;
use std::collections::HashMap;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

/// Shorter tokens can be guessed.
pub const MIN_TOKEN_BYTES: usize = 16;
/// Longest token.
pub const MAX_TOKEN_BYTES: usize = 16 << 10;

/// The tokens of a folder. Clones share them.
#[derive(Debug, Clone)]
pub struct Tokens {
    folder: PathBuf,
    known: Arc<Mutex<HashMap<Digest, Tenant>>>,
}

/// Why tokens can't be used.
#[derive(Debug, thiserror::Error)]
pub enum TokensError {
    /// A file can't be read.
    #[error("cannot read {}: {source}", .path.display())]
    Read {
        /// Which, or the folder.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// A token is too short or too long.
    #[error(
        "the token in {} has {length} bytes; {MIN_TOKEN_BYTES} to {MAX_TOKEN_BYTES} are taken, for example 32 random \
         bytes in hexadecimal",
        .path.display()
    )]
    Length {
        /// Which.
        path: PathBuf,
        /// How long it is, or more.
        length: usize,
    },
    /// The name could be mistaken for another kind of tenant.
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
    /// [`TokensError`] names the file.
    pub fn read(folder: &Path) -> Result<Self, TokensError> {
        let tokens = Self { folder: folder.to_owned(), known: Arc::default() };
        tokens.reload()?;
        Ok(tokens)
    }

    /// Reads it again; on an error what was known stays. Returns whether something has changed.
    ///
    /// # Errors
    /// [`TokensError`].
    pub fn reload(&self) -> Result<bool, TokensError> {
        let new = read_folder(&self.folder)?;
        let mut known = lock(&self.known);
        let changed = *known != new;
        *known = new;
        Ok(changed)
    }

    /// Whose token that is.
    #[must_use]
    pub fn tenant(&self, token: &str) -> Option<Tenant> {
        let token = token.trim();
        if !(MIN_TOKEN_BYTES..=MAX_TOKEN_BYTES).contains(&token.len()) {
            return None;
        }
        lock(&self.known).get(&digest_of(token.as_bytes())).cloned()
    }

    /// How many there are.
    #[must_use]
    pub fn len(&self) -> usize {
        lock(&self.known).len()
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
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
        // Kubernetes keeps what is mounted in folders whose names begin with dots.
        if name.starts_with('.') || !path.is_file() {
            continue;
        }
        if name.contains(':') {
            return Err(TokensError::Name(path));
        }
        let mut text = String::new();
        std::fs::File::open(&path)
            .and_then(|file| file.take(MAX_TOKEN_BYTES as u64 + 2).read_to_string(&mut text))
            .map_err(unreadable(&path))?;
        let token = text.trim();
        if !(MIN_TOKEN_BYTES..=MAX_TOKEN_BYTES).contains(&token.len()) {
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
