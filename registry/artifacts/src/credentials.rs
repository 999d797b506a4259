//! Users and passwords of registries, from the file that `docker login` and `podman login` write.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::Deserialize;
use std::collections::HashMap;
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

/// Longest file that is read, in bytes.
const MAX_BYTES: u64 = 1 << 20;

/// A user and a password, which `Debug` does not print.
#[derive(Clone, PartialEq, Eq)]
pub struct Credentials {
    /// The user.
    pub user: String,
    /// The password, or a token that stands for it.
    pub password: String,
}

/// The reason why a file has no credentials.
#[derive(Debug, thiserror::Error)]
pub enum CredentialsError {
    /// The file can't be read.
    #[error("{path} can't be read: {source}")]
    Io {
        /// The file.
        path: PathBuf,
        /// The system's error.
        #[source]
        source: io::Error,
    },
    /// The file has another form.
    #[error("{path} is not what `docker login` writes: {reason}")]
    Form {
        /// The file.
        path: PathBuf,
        /// The parser's message, or the entry that has another form.
        reason: String,
    },
}

#[derive(Deserialize)]
struct File {
    #[serde(default)]
    auths: HashMap<String, Entry>,
}

#[derive(Deserialize)]
struct Entry {
    auth: Option<String>,
}

impl Credentials {
    /// The credentials for `registry` in the configuration of Docker at `path`. `None` if the file or the entry is
    /// missing, also where a helper keeps the password.
    ///
    /// # Errors
    /// The file can't be read or understood.
    pub fn from_docker_config(path: &Path, registry: &str) -> Result<Option<Self>, CredentialsError> {
        let io = |source| CredentialsError::Io { path: path.to_owned(), source };
        let form = |reason: &str| CredentialsError::Form { path: path.to_owned(), reason: reason.to_owned() };
        let text = match std::fs::metadata(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(io(error)),
            Ok(metadata) if metadata.len() > MAX_BYTES => return Err(form("it is too long")),
            Ok(_) => std::fs::read_to_string(path).map_err(io)?,
        };
        let file: File = serde_json::from_str(&text).map_err(|error| form(&error.to_string()))?;
        let auth = file.auths.get(registry).or_else(|| file.auths.get(&format!("https://{registry}")));
        let Some(auth) = auth.and_then(|entry| entry.auth.as_deref()).filter(|auth| !auth.is_empty()) else {
            return Ok(None);
        };
        let decoded = STANDARD.decode(auth.trim()).ok().and_then(|bytes| String::from_utf8(bytes).ok());
        let decoded = decoded.ok_or_else(|| form("an `auth` is not base64"))?;
        let (user, password) = decoded.split_once(':').ok_or_else(|| form("an `auth` has no user"))?;
        Ok(Some(Self { user: user.to_owned(), password: password.to_owned() }))
    }

    /// The value of a header `Authorization` of the scheme Basic.
    pub(crate) fn basic(&self) -> String {
        format!("Basic {}", STANDARD.encode(format!("{}:{}", self.user, self.password)))
    }
}

impl fmt::Debug for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Credentials {{ user: {:?}, password: … }}", self.user)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_file_of_docker_login_is_read_and_a_wrong_one_told() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("config.json");
        let read = |registry: &str| Credentials::from_docker_config(&path, registry);
        assert_eq!(read("a.example").unwrap(), None);
        std::fs::write(&path, r#"{"auths": {"a.example": {"auth": "bWU6YTpi"}, "b.example": {}}}"#).unwrap();
        let credentials = read("a.example").unwrap().unwrap();
        assert_eq!((credentials.user.as_str(), credentials.password.as_str()), ("me", "a:b"));
        assert!(!format!("{credentials:?}").contains("a:b"));
        assert_eq!(read("b.example").unwrap(), None);
        for (text, reason) in
            [("{", "docker login"), (r#"{"auths": {"a.example": {"auth": "?"}}}"#, "base64")]
        {
            std::fs::write(&path, text).unwrap();
            let error = read("a.example").unwrap_err().to_string();
            assert!(error.contains(reason), "{error}");
        }
    }
}
