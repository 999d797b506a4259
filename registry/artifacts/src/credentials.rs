//! What registries are shown, from the files that `docker login`, `podman login` and `kubectl create secret
//! docker-registry` write.

mod helper;
mod keys;

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, STANDARD_NO_PAD};
use helper::Helper;
use serde::Deserialize;
use std::collections::HashMap;
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

/// Longest file that is read, in bytes.
const MAX_BYTES: u64 = 1 << 20;

/// What a registry is shown. `Debug` prints no secret.
#[derive(Clone, PartialEq, Eq)]
pub enum Credentials {
    /// A user and a password, or a token that stands for the password.
    Password {
        /// The user.
        user: String,
        /// The password.
        password: String,
    },
    /// A token for which the registry's token service gives others (`identitytoken`).
    IdentityToken(String),
    /// A token that the registry takes as it is (`registrytoken`).
    RegistryToken(String),
}

/// The reason why a file gives no credentials.
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
    /// The program that keeps the password does not give it.
    #[error("the program docker-credential-{helper}, which {path} names, gives no password: {reason}")]
    Helper {
        /// The file.
        path: PathBuf,
        /// Name of the program after `docker-credential-`.
        helper: String,
        /// What failed, or the program's words.
        reason: String,
    },
}

/// The file. As in Go, `null` is the same as nothing.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct File {
    auths: Option<HashMap<String, Option<Entry>>>,
    creds_store: Option<String>,
    cred_helpers: Option<HashMap<String, String>>,
}

#[derive(Deserialize)]
struct Entry {
    username: Option<String>,
    password: Option<String>,
    /// User and password in base64, which outdo the other two fields.
    auth: Option<String>,
    identitytoken: Option<String>,
    registrytoken: Option<String>,
}

impl Entry {
    /// The entry's credentials; `None` if it has none.
    fn credentials(&self) -> Result<Option<Credentials>, &'static str> {
        let given = |field: &Option<String>| field.clone().filter(|text| !text.is_empty());
        if let Some(token) = given(&self.registrytoken) {
            return Ok(Some(Credentials::RegistryToken(token)));
        }
        if let Some(token) = given(&self.identitytoken) {
            return Ok(Some(Credentials::IdentityToken(token)));
        }
        let Some(auth) = given(&self.auth) else {
            let password = given(&self.password).unwrap_or_default();
            return Ok(given(&self.username).map(|user| Credentials::Password { user, password }));
        };
        let decoded = STANDARD_NO_PAD.decode(auth.trim().trim_end_matches('='));
        let decoded = decoded.ok().and_then(|bytes| String::from_utf8(bytes).ok());
        let decoded = decoded.ok_or("an `auth` is not base64")?;
        let (user, password) = decoded.split_once(':').ok_or("an `auth` has no user")?;
        // Docker fills a password with zeros.
        let password = password.trim_matches('\0');
        Ok(Some(Credentials::Password { user: user.to_owned(), password: password.to_owned() }))
    }
}

impl File {
    /// Reads a file; `None` if there is none.
    fn read(path: &Path) -> Result<Option<Self>, CredentialsError> {
        let io = |source| CredentialsError::Io { path: path.to_owned(), source };
        let form = |reason: &str| CredentialsError::Form { path: path.to_owned(), reason: reason.to_owned() };
        let text = match std::fs::metadata(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(io(error)),
            Ok(metadata) if metadata.len() > MAX_BYTES => return Err(form("it is too long")),
            Ok(_) => std::fs::read_to_string(path).map_err(io)?,
        };
        serde_json::from_str(&text).map(Some).map_err(|error| form(&error.to_string()))
    }

    /// The credentials of all entries for `image`, in the kubelet's order.
    fn entries(&self, path: &Path, image: &str) -> Result<Vec<Credentials>, CredentialsError> {
        let entries = self.auths.iter().flatten();
        let entries = entries.filter_map(|(key, entry)| Some((key.as_str(), entry.as_ref()?)));
        let found = keys::matching(entries, image).into_iter().map(Entry::credentials);
        let found: Result<Vec<_>, _> = found.filter_map(Result::transpose).collect();
        found.map_err(|reason| CredentialsError::Form { path: path.to_owned(), reason: reason.to_owned() })
    }

    /// The program that keeps the password for the registry of `image`.
    fn helper(&self, image: &str) -> Option<Helper> {
        let of_registry = self.cred_helpers.iter().flatten().map(|(key, name)| (key.as_str(), name));
        let of_registry = keys::matching(of_registry, keys::registry(image)).into_iter().next();
        let name = of_registry.or(self.creds_store.as_ref()).filter(|name| !name.is_empty())?;
        Some(Helper { name: name.clone(), server: keys::docker_server(image) })
    }
}

impl Credentials {
    /// A user and a password.
    #[must_use]
    pub fn password(user: &str, password: &str) -> Self {
        Self::Password { user: user.to_owned(), password: password.to_owned() }
    }

    /// What a pull Secret, the file at `path`, has for `image`, a registry and a repository in it. Keys match as for
    /// the kubelet, and what comes first is to be tried first. Nothing if the file or an entry is missing. Programs
    /// that keep passwords are not asked.
    ///
    /// # Errors
    /// The file or an entry can't be read or understood.
    pub fn of_pull_secret(path: &Path, image: &str) -> Result<Vec<Self>, CredentialsError> {
        File::read(path)?.map_or(Ok(Vec::new()), |file| file.entries(path, image))
    }

    /// What the user's own configuration of Docker or podman has for `image`. As [`Self::of_pull_secret`], and before
    /// it what the program has that the file names for the registry (`credHelpers`, `credsStore`).
    ///
    /// # Errors
    /// The file or an entry can't be read or understood, or the program fails.
    pub fn of_login(path: &Path, image: &str) -> Result<Vec<Self>, CredentialsError> {
        let Some(file) = File::read(path)? else { return Ok(Vec::new()) };
        let kept = file.helper(image).map(|helper| {
            let failed = |reason| CredentialsError::Helper {
                path: path.to_owned(),
                helper: helper.name.clone(),
                reason,
            };
            helper.get().map_err(failed)
        });
        let kept = kept.transpose()?.flatten();
        Ok(kept.into_iter().chain(file.entries(path, image)?).collect())
    }

    /// The value of a header `Authorization` of the scheme Basic; `None` for tokens.
    pub(crate) fn basic(&self) -> Option<String> {
        match self {
            Self::Password { user, password } => {
                Some(format!("Basic {}", STANDARD.encode(format!("{user}:{password}"))))
            }
            Self::IdentityToken(_) | Self::RegistryToken(_) => None,
        }
    }
}

impl fmt::Debug for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Password { user, .. } => write!(f, "Password {{ user: {user:?}, password: … }}"),
            Self::IdentityToken(_) => f.write_str("IdentityToken(…)"),
            Self::RegistryToken(_) => f.write_str("RegistryToken(…)"),
        }
    }
}

#[cfg(test)]
mod tests;
