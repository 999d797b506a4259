//! A file of tokens, for a pool without a cluster.

use super::{Identity, NoIdentity};
use fpga_net::token_file::read_text;
use ring::digest::{SHA256, digest};
use serde::Deserialize;
use std::collections::HashMap;
use std::path::{Path, PathBuf};
use tracing::warn;

/// Maximum size of the file, in bytes.
const MAX_FILE_BYTES: usize = 4 << 20;
/// Minimum length of a token, in bytes; `openssl rand -hex 16` prints 32.
const MIN_TOKEN_BYTES: usize = 16;

/// A file of tokens (JSON), read again for each stream: an object whose keys are tokens.
#[derive(Debug)]
pub struct TokensFile(PathBuf);

/// The reason why a file of tokens can't be used.
#[derive(Debug, thiserror::Error)]
pub enum TokensError {
    /// The file can't be read.
    #[error("{path} can't be read")]
    Io {
        /// The file.
        path: PathBuf,
        /// The system's error.
        #[source]
        source: std::io::Error,
    },
    /// The file's content.
    #[error("{path} has no tokens: {reason}")]
    Malformed {
        /// The file.
        path: PathBuf,
        /// What the file says that it must not, and where.
        reason: String,
    },
}

#[derive(Debug, Clone, Deserialize)]
#[serde(tag = "role", rename_all = "lowercase", deny_unknown_fields)]
enum Entry {
    Manager { node: Option<String> },
    Client { tenant: String, node: Option<String> },
    Operator {},
}

impl TokensFile {
    /// The file, which is checked now.
    ///
    /// # Errors
    /// [`TokensError`].
    pub fn open(path: &Path) -> Result<Self, TokensError> {
        let file = Self(path.to_owned());
        file.read().map(|_| file)
    }

    pub(super) fn identity(&self, token: &str) -> Result<Identity, NoIdentity> {
        let tokens = self.read().map_err(|error| {
            warn!(%error, "Streams are refused");
            NoIdentity::NotNow
        })?;
        Ok(match tokens.get(&hash(token)).cloned().ok_or(NoIdentity::Token)? {
            Entry::Manager { node } => Identity::Manager { node: node.map(Into::into) },
            Entry::Client { tenant, node } => {
                Identity::Client { tenant: tenant.into(), node: node.map(Into::into) }
            }
            Entry::Operator {} => Identity::Operator,
        })
    }

    /// The entries by the hashes of their tokens: how long a look-up takes says nothing about tokens.
    fn read(&self) -> Result<HashMap<[u8; 32], Entry>, TokensError> {
        let path = || self.0.clone();
        let text =
            read_text(&self.0, MAX_FILE_BYTES).map_err(|source| TokensError::Io { path: path(), source })?;
        let malformed = |reason: String| TokensError::Malformed { path: path(), reason };
        let entries: HashMap<String, Entry> =
            serde_json::from_str(&text).map_err(|error| malformed(error.to_string()))?;
        if entries.keys().any(|token| token.len() < MIN_TOKEN_BYTES) {
            let reason = format!(
                "a token is shorter than {MIN_TOKEN_BYTES} bytes; make one by `openssl rand -hex 16`"
            );
            return Err(malformed(reason));
        }
        for entry in entries.values() {
            let (Entry::Manager { node } | Entry::Client { node, .. }) = entry else { continue };
            let tenant = if let Entry::Client { tenant, .. } = entry { Some(tenant) } else { None };
            if node.iter().chain(tenant).any(|name| !is_name(name)) {
                return Err(malformed(
                    "a tenant or node has no name of up to 253 letters, digits, `-`, `_`, `.`".to_owned(),
                ));
            }
        }
        Ok(entries.into_iter().map(|(token, entry)| (hash(&token), entry)).collect())
    }
}

fn is_name(text: &str) -> bool {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
    (1..=fpga_pool_api::limits::MAX_NAME_BYTES).contains(&text.len()) && text.bytes().all(is_plain)
}

fn hash(token: &str) -> [u8; 32] {
    let mut bytes = [0; 32];
    for (to, from) in bytes.iter_mut().zip(digest(&SHA256, token.as_bytes()).as_ref()) {
        *to = *from;
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_proves_what_the_file_says_and_the_file_may_change() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("tokens");
        std::fs::write(&path, r#"{"0123456789abcdef": {"role": "client", "tenant": "a", "node": "n1"}}"#)
            .unwrap();
        let file = TokensFile::open(&path).unwrap();
        let client = Identity::Client { tenant: "a".into(), node: Some("n1".into()) };
        assert_eq!(file.identity("0123456789abcdef"), Ok(client));
        assert_eq!(file.identity("0123456789abcdee"), Err(NoIdentity::Token));
        std::fs::write(&path, r#"{"fedcba9876543210": {"role": "manager"}}"#).unwrap();
        assert_eq!(file.identity("0123456789abcdef"), Err(NoIdentity::Token));
        assert_eq!(file.identity("fedcba9876543210"), Ok(Identity::Manager { node: None }));
        std::fs::write(&path, "{").unwrap();
        assert_eq!(file.identity("fedcba9876543210"), Err(NoIdentity::NotNow));
    }

    #[test]
    fn a_file_without_tokens_is_refused_with_the_reason() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("tokens");
        for (text, hint) in [
            ("[]", "map"),
            (r#"{"short": {"role": "manager"}}"#, "openssl"),
            (r#"{"0123456789abcdef": {"role": "king"}}"#, "king"),
            (r#"{"0123456789abcdef": {"role": "client", "tenant": "a b"}}"#, "letters"),
        ] {
            std::fs::write(&path, text).unwrap();
            let error = TokensFile::open(&path).unwrap_err().to_string();
            assert!(error.contains(hint), "{error}");
        }
    }
}
