//! Names of artifacts: `REGISTRY/REPOSITORY:TAG` and `REGISTRY/REPOSITORY@sha256:DIGEST`.

use fpga_core::bitstream::Digest;
use std::fmt;
use std::str::FromStr;

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
        let (registry, rest) = name.split_once('/').ok_or_else(|| invalid("it has no registry"))?;
        let (repository, tag) = match rest.split_once(':') {
            None => (rest, None),
            Some((repository, tag)) => (repository, Some(tag)),
        };
        // Docker's own rule: without a dot or a port the first part is a folder of docker.io.
        if registry != "localhost" && !registry.contains(['.', ':']) {
            return Err(invalid("the part before the first `/` is no host with a dot or a port"));
        }
        let (host, port) = registry.split_once(':').unwrap_or((registry, "443"));
        let is_host =
            !host.is_empty() && host.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '.' | '-'));
        if !is_host || !port.parse::<u16>().is_ok_and(|port| port > 0) {
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
            (None, None) => return Err(invalid("it has neither a tag nor a digest")),
        };
        Ok(Self { registry: registry.to_owned(), repository: repository.to_owned(), target })
    }
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
    fn what_names_no_artifact_is_refused_with_the_reason() {
        for (text, reason) in [
            ("sobel", "no registry"),
            ("team/sobel:1", "no host with a dot or a port"),
            ("https://registry.example/sobel:1", "a scheme"),
            ("registry.example/sobel", "neither a tag nor a digest"),
            ("registry.example/sobel@sha256:12", "no digest"),
            ("registry.example/Sobel:1", "the repository"),
            ("registry.example/../etc:1", "the repository"),
            ("registry.example//sobel:1", "the repository"),
            ("registry.example/sobel:../x", "the tag"),
            ("registry.example:0/sobel:1", "no host"),
            ("me@registry.example/sobel:1", "no digest"),
        ] {
            let error = text.parse::<Reference>().unwrap_err().to_string();
            assert!(error.contains(reason) && error.contains("write REGISTRY/REPOSITORY:TAG"), "{error}");
        }
    }
}
