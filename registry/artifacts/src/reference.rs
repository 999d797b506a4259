//! Names of artifacts: `REGISTRY/REPOSITORY:TAG` and `REGISTRY/REPOSITORY@sha256:DIGEST`.

use fpga_core::bitstream::Digest;
use http::uri::Authority;
use std::fmt;
use std::net::Ipv6Addr;
use std::str::FromStr;

/// Docker Hub, the registry of names without one.
pub(crate) const DOCKER_HUB: &str = "docker.io";
/// Old name of Docker Hub.
pub(crate) const DOCKER_HUB_INDEX: &str = "index.docker.io";
/// Host that answers for Docker Hub.
const DOCKER_HUB_HOST: &str = "registry-1.docker.io";
/// Tag of names without a tag and a digest.
const LATEST: &str = "latest";
/// Longest repository, in bytes; the bound of the OCI distribution specification for registry and repository.
const MAX_REPOSITORY_BYTES: usize = 255;
/// Longest tag, in bytes.
const MAX_TAG_BYTES: usize = 128;

/// The name of an artifact in a registry.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reference {
    /// Host of the registry, with a port if it has one.
    pub registry: String,
    /// Repository in the registry.
    pub repository: String,
    /// Tag or digest of the artifact in the repository.
    pub target: Target,
}

/// Which artifact of a repository.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Target {
    /// The one that has this tag now.
    Tag(String),
    /// The one with this digest, always.
    Digest(Digest),
}

/// The reason why a text is no [`Reference`].
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "{text:?} names no artifact: {reason}; write REGISTRY/REPOSITORY:TAG, for example registry.example/team/sobel:1.0"
)]
pub struct InvalidReference {
    text: String,
    reason: &'static str,
}

impl FromStr for Reference {
    type Err = InvalidReference;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let invalid = |reason| InvalidReference { text: text.to_owned(), reason };
        if text.contains("://") {
            return Err(invalid("it has a scheme"));
        }
        let (name, digest) = match text.split_once('@') {
            None => (text, None),
            Some((name, digest)) => {
                let digest: Digest = digest.parse().map_err(|_| invalid("what follows `@` is no digest"))?;
                (name, Some(digest))
            }
        };
        // The last colon is a port's where a slash follows.
        let (name, tag) = match name.rsplit_once(':') {
            Some((name, tag)) if !tag.contains('/') => (name, Some(tag)),
            _ => (name, None),
        };
        let (registry, repository) = split_registry(name);
        if !is_registry(registry) {
            return Err(invalid("the part before the first `/` is no host"));
        }
        let is_part = |part: &str| {
            let ends = |c: Option<char>| c.is_some_and(|c| c.is_ascii_lowercase() || c.is_ascii_digit());
            let inner =
                |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || matches!(c, '.' | '_' | '-');
            ends(part.chars().next()) && ends(part.chars().last()) && part.chars().all(inner)
        };
        if repository.len() > MAX_REPOSITORY_BYTES || !repository.split('/').all(is_part) {
            return Err(invalid(
                "the repository has other characters than a-z, 0-9, `.`, `_`, `-` and `/`, or is too long",
            ));
        }
        let is_tag = |tag: &str| {
            let inner = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-');
            (1..=MAX_TAG_BYTES).contains(&tag.len()) && !tag.starts_with(['.', '-']) && tag.chars().all(inner)
        };
        let target = match (digest, tag) {
            // As for images: the digest counts.
            (Some(digest), _) => Target::Digest(digest),
            (None, Some(tag)) if is_tag(tag) => Target::Tag(tag.to_owned()),
            (None, Some(_)) => {
                return Err(invalid(
                    "the tag has other characters than letters, digits, `.`, `_` and `-`, or is too long",
                ));
            }
            (None, None) => Target::Tag(LATEST.to_owned()),
        };
        Ok(Self { registry: registry.to_owned(), repository, target })
    }
}

/// Registry and repository of a name, as Docker reads it: a first part that is no host is a part of the repository, and
/// Docker Hub's own repositories need no folder.
fn split_registry(name: &str) -> (&str, String) {
    let is_host = |first: &str| {
        first == "localhost" || first.contains(|c: char| matches!(c, '.' | ':') || c.is_ascii_uppercase())
    };
    let (registry, repository) = match name.split_once('/') {
        Some((first, rest)) if is_host(first) => (first, rest),
        _ => (DOCKER_HUB, name),
    };
    match registry {
        DOCKER_HUB | DOCKER_HUB_INDEX if repository.contains('/') => (DOCKER_HUB, repository.to_owned()),
        DOCKER_HUB | DOCKER_HUB_INDEX => (DOCKER_HUB, format!("library/{repository}")),
        _ => (registry, repository.to_owned()),
    }
}

/// Whether the text is a name or an address, with a port or without.
fn is_registry(text: &str) -> bool {
    let Ok(authority) = text.parse::<Authority>() else { return false };
    let host = authority.host();
    let address = host.strip_prefix('[').and_then(|host| host.strip_suffix(']'));
    let is_host = match address {
        Some(address) => address.parse::<Ipv6Addr>().is_ok(),
        None => !host.is_empty() && host.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '.' | '-')),
    };
    let port = text.strip_prefix(host).unwrap_or_default();
    is_host && (port.is_empty() || authority.port_u16().is_some_and(|port| port > 0))
}

/// The host that answers for a registry.
pub(crate) fn host(registry: &str) -> &str {
    if [DOCKER_HUB, DOCKER_HUB_INDEX].contains(&registry) { DOCKER_HUB_HOST } else { registry }
}

impl Reference {
    /// The same repository's artifact with this digest.
    #[must_use]
    pub fn with_digest(&self, digest: Digest) -> Self {
        Self { target: Target::Digest(digest), ..self.clone() }
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tag(tag) => f.write_str(tag),
            Self::Digest(digest) => digest.fmt(f),
        }
    }
}

impl fmt::Display for Reference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let separator = if matches!(self.target, Target::Tag(_)) { ':' } else { '@' };
        write!(f, "{}/{}{separator}{}", self.registry, self.repository, self.target)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_survive_a_round_trip_and_a_digest_outdoes_a_tag() {
        let digest = format!("sha256:{}", "0a".repeat(32));
        for text in
            ["registry.example/team/sobel:1.0", "localhost/a:b", &format!("127.0.0.1:5000/a/b-c@{digest}")]
        {
            assert_eq!(text.parse::<Reference>().unwrap().to_string(), text);
        }
        let both: Reference = format!("registry.example/sobel:1.0@{digest}").parse().unwrap();
        assert_eq!(both.to_string(), format!("registry.example/sobel@{digest}"));
    }

    #[test]
    fn short_names_are_docker_hubs_as_for_docker() {
        for (text, full) in [
            ("busybox", "docker.io/library/busybox:latest"),
            ("busybox:1", "docker.io/library/busybox:1"),
            ("localhost:5000", "docker.io/library/localhost:5000"),
            ("team/sobel:1", "docker.io/team/sobel:1"),
            ("a/b/c", "docker.io/a/b/c:latest"),
            ("docker.io/busybox", "docker.io/library/busybox:latest"),
            ("index.docker.io/busybox:1", "docker.io/library/busybox:1"),
            ("index.docker.io/team/sobel", "docker.io/team/sobel:latest"),
            ("localhost/sobel", "localhost/sobel:latest"),
            ("TEAM/sobel", "TEAM/sobel:latest"),
            ("registry.example/sobel", "registry.example/sobel:latest"),
            ("registry:5000/sobel", "registry:5000/sobel:latest"),
            ("[fd00::7]:5000/team/sobel", "[fd00::7]:5000/team/sobel:latest"),
            ("[fd00::7]/sobel:1", "[fd00::7]/sobel:1"),
        ] {
            assert_eq!(text.parse::<Reference>().unwrap().to_string(), full, "{text}");
        }
        assert_eq!(host("docker.io"), "registry-1.docker.io");
        assert_eq!(host("registry.example"), "registry.example");
    }

    #[test]
    fn what_names_no_artifact_is_refused_with_the_reason() {
        for (text, reason) in [
            ("", "the repository"),
            ("Sobel", "the repository"),
            ("/sobel:1", "the repository"),
            ("team/:1", "the repository"),
            ("library/sobel@sha256:12", "no digest"),
            ("https://registry.example/sobel:1", "a scheme"),
            ("registry.example/sobel@sha256:12", "no digest"),
            ("registry.example/Sobel:1", "the repository"),
            ("registry.example/../etc:1", "the repository"),
            ("registry.example//sobel:1", "the repository"),
            ("registry.example/sobel:../x", "the repository"),
            ("registry.example/sobel:.x", "the tag"),
            ("registry.example/sobel:", "the tag"),
            ("[fd00::7/sobel:1", "no host"),
            ("[registry]:5000/sobel:1", "no host"),
            ("registry.example:x/sobel:1", "no host"),
            ("registry.example:0/sobel:1", "no host"),
            ("me@registry.example/sobel:1", "no digest"),
        ] {
            let error = text.parse::<Reference>().unwrap_err().to_string();
            assert!(error.contains(reason) && error.contains("write REGISTRY/REPOSITORY:TAG"), "{error}");
        }
    }
}
