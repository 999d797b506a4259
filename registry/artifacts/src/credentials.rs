//! Users and passwords of registries, from the file that `docker login` and `podman login` write.

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, STANDARD_NO_PAD};
use serde::Deserialize;
use std::collections::HashMap;
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

/// Longest file that is read, in bytes.
const MAX_BYTES: u64 = 1 << 20;
/// Host of Docker's own registry in the files of `docker login`.
const DOCKER_INDEX: &str = "index.docker.io";

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
    #[serde(default)]
    username: String,
    #[serde(default)]
    password: String,
    /// User and password in base64, which outdo the other two fields.
    #[serde(default)]
    auth: String,
}

impl Entry {
    /// The entry's credentials; `None` if it has none.
    fn credentials(&self) -> Result<Option<Credentials>, &'static str> {
        if self.auth.is_empty() {
            let (user, password) = (self.username.clone(), self.password.clone());
            return Ok((!user.is_empty()).then_some(Credentials { user, password }));
        }
        let decoded = STANDARD_NO_PAD.decode(self.auth.trim().trim_end_matches('='));
        let decoded = decoded.ok().and_then(|bytes| String::from_utf8(bytes).ok());
        let decoded = decoded.ok_or("an `auth` is not base64")?;
        let (user, password) = decoded.split_once(':').ok_or("an `auth` has no user")?;
        // Docker fills a password with zeros.
        Ok(Some(Credentials { user: user.to_owned(), password: password.trim_matches('\0').to_owned() }))
    }
}

impl Credentials {
    /// The credentials for `image`, a registry and a repository in it, in the configuration of Docker at `path`. Keys match
    /// as for the kubelet, the longest path first. `None` if the file or the entry is missing, also where a helper keeps the
    /// password.
    ///
    /// # Errors
    /// The file can't be read or understood.
    pub fn from_docker_config(path: &Path, image: &str) -> Result<Option<Self>, CredentialsError> {
        let io = |source| CredentialsError::Io { path: path.to_owned(), source };
        let form = |reason: &str| CredentialsError::Form { path: path.to_owned(), reason: reason.to_owned() };
        let text = match std::fs::metadata(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(io(error)),
            Ok(metadata) if metadata.len() > MAX_BYTES => return Err(form("it is too long")),
            Ok(_) => std::fs::read_to_string(path).map_err(io)?,
        };
        let file: File = serde_json::from_str(&text).map_err(|error| form(&error.to_string()))?;
        let mut entries: Vec<(String, &Entry)> =
            file.auths.iter().map(|(key, entry)| (place(key), entry)).collect();
        // Reverse order: a longer path before a shorter one, and a name before a wildcard.
        entries.sort_by(|(one, _), (other, _)| other.cmp(one));
        let of_docker = is_of_docker(image);
        let matching = entries.iter().filter(|(key, _)| matches(key, image));
        let default = entries.iter().filter(|(key, _)| of_docker && *key == DOCKER_INDEX);
        for (_, entry) in matching.chain(default) {
            let credentials = entry.credentials().map_err(form)?;
            if credentials.is_some() {
                return Ok(credentials);
            }
        }
        Ok(None)
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

/// Host and path of a key, without scheme, version of the API, and a slash alone.
fn place(key: &str) -> String {
    let key = key.strip_prefix("https://").or_else(|| key.strip_prefix("http://")).unwrap_or(key);
    let (host, path) = key.split_once('/').unwrap_or((key, ""));
    let path = path.strip_prefix("v1/").or_else(|| path.strip_prefix("v2/")).unwrap_or(path);
    if path.is_empty() { host.to_owned() } else { format!("{host}/{path}") }
}

/// Whether a key of the file is for `image`. Ports are equal, `*` and `?` stand for characters within a part of the host
/// name, and the key's path is the beginning of the image's.
fn matches(key: &str, image: &str) -> bool {
    let (key_host, key_path) = key.split_once('/').unwrap_or((key, ""));
    let (host, path) = image.split_once('/').unwrap_or((image, ""));
    let (key_name, key_port) = split_port(key_host);
    let (name, port) = split_port(host);
    key_port == port
        && key_name.split('.').count() == name.split('.').count()
        && key_name.split('.').zip(name.split('.')).all(|(pattern, part)| {
            is_like(pattern.to_ascii_lowercase().as_bytes(), part.to_ascii_lowercase().as_bytes())
        })
        && path.starts_with(key_path)
}

/// Name and port of a host; no port where it has none.
fn split_port(host: &str) -> (&str, Option<&str>) {
    match host.rsplit_once(':') {
        Some((name, port)) if !port.ends_with(']') => (name, Some(port)),
        _ => (host, None),
    }
}

/// Whether `text` is as `pattern` says, where `*` stands for any characters and `?` for one. The time is at most the product
/// of both lengths.
fn is_like(pattern: &[u8], text: &[u8]) -> bool {
    // Element i: whether the pattern so far stands for the first i characters.
    let mut so_far = vec![false; text.len() + 1];
    so_far[0] = true;
    for &wanted in pattern {
        let mut next = vec![false; so_far.len()];
        for end in 0..so_far.len() {
            let before = end.checked_sub(1);
            next[end] = if wanted == b'*' {
                so_far[end] || before.is_some_and(|before| next[before])
            } else {
                before.is_some_and(|before| so_far[before] && (wanted == b'?' || wanted == text[before]))
            };
        }
        so_far = next;
    }
    so_far[text.len()]
}

/// Whether the image is at Docker's own registry, for which `docker login` writes [`DOCKER_INDEX`].
fn is_of_docker(image: &str) -> bool {
    let (host, _) = image.split_once('/').unwrap_or((image, ""));
    matches!(host, "docker.io" | DOCKER_INDEX)
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

    #[test]
    fn keys_match_as_for_the_kubelet() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("config.json");
        for (key, image, is_for_it) in [
            ("r.example", "r.example/team/sobel", true),
            ("r.example", "r.example", true),
            ("R.example", "r.EXAMPLE/team/sobel", true),
            ("r.example/", "r.example/team/sobel", true),
            ("r.example/v1/", "r.example/team/sobel", true),
            ("https://r.example/v2/", "r.example/team/sobel", true),
            ("http://r.example", "r.example/team/sobel", true),
            ("https://r.example/v2/team", "r.example/team/sobel", true),
            ("r.example/team", "r.example/team/sobel", true),
            ("r.example/team/", "r.example/team/sobel", true),
            ("r.example/team", "r.example/other/sobel", false),
            ("r.example/team/sobel/more", "r.example/team/sobel", false),
            ("r.example:5000", "r.example:5000/sobel", true),
            ("r.example:5000", "r.example/sobel", false),
            ("r.example", "r.example:5000/sobel", false),
            ("*.example", "r.example/sobel", true),
            ("*.example:5000", "r.example:5000/sobel", true),
            ("*.example", "a.r.example/sobel", false),
            ("*.*.example", "a.r.example/sobel", true),
            ("*.example", "example/sobel", false),
            ("r*.example", "registry.example/sobel", true),
            ("?.example", "r.example/sobel", true),
            ("*.example", "r.example.evil/sobel", false),
            ("*", "r.example/sobel", false),
            ("[fd00::7]:5000", "[fd00::7]:5000/sobel", true),
            ("https://index.docker.io/v1/", "docker.io/library/sobel", true),
            ("https://index.docker.io/v1/", "index.docker.io/library/sobel", true),
            ("docker.io", "docker.io/team/sobel", true),
            ("https://index.docker.io/v1/", "r.example/sobel", false),
        ] {
            let entry = serde_json::json!({"auths": {key: {"username": "me", "password": "secret"}}});
            std::fs::write(&path, entry.to_string()).unwrap();
            let found = Credentials::from_docker_config(&path, image).unwrap();
            assert_eq!(found.is_some(), is_for_it, "{key} for {image}");
        }
    }

    #[test]
    fn the_longest_path_and_a_name_before_a_wildcard_win_and_an_empty_entry_hides_none() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("config.json");
        let entry = |user: &str| serde_json::json!({"username": user, "password": "p"});
        let file = serde_json::json!({"auths": {
            "*.example": entry("all"),
            "https://r.example/v2/": entry("host"),
            "r.example/team": entry("team"),
            "r.example/team/sobel": {},
            // Without padding, and with the zeros that Docker writes.
            "padded.example": {"auth": "bWU6cAAA", "username": "another", "password": "another"},
        }});
        std::fs::write(&path, file.to_string()).unwrap();
        for (image, user) in [
            ("r.example/team/sobel", "team"),
            ("r.example/other/sobel", "host"),
            ("mirror.example/sobel", "all"),
            ("padded.example/sobel", "me"),
        ] {
            let found = Credentials::from_docker_config(&path, image).unwrap().unwrap();
            assert_eq!((found.user.as_str(), found.password.as_str()), (user, "p"), "{image}");
        }
    }
}
