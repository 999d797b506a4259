//! What is wanted, and where it is.

use fpga_artifacts::{Reference, of_bytes};
use fpga_core::bitstream::Digest;
use http::Uri;
use http::uri::Scheme;
use std::fmt;

/// A bitstream that is wanted.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Wanted {
    /// Digest of the bytes.
    pub digest: Digest,
    /// Number of the bytes.
    pub bytes: u64,
    /// Where the bytes are.
    pub source: Source,
    /// Whose Bitstream names the source.
    pub owner: Owner,
}

/// Whose Bitstream names a source. The bytes that its sources have delivered are for this owner alone, so that a digest
/// opens nothing that another owner withholds.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Owner {
    /// The library's, which administrators write. Its sources may need the pull Secret.
    Library,
    /// A namespace's own Bitstream, by its namespace and its UID: a namespace of the same name that comes later inherits
    /// nothing. Its sources are asked without the pull Secret.
    Own {
        /// The namespace.
        namespace: String,
        /// UID of the Bitstream.
        uid: String,
    },
}

/// Where the bytes of a bitstream are.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Source {
    /// A repository of a registry, which has the bytes as a blob.
    Oci {
        /// Host of the registry, with a port if it has one.
        registry: String,
        /// Repository in the registry.
        repository: String,
    },
    /// An address whose answer has exactly the bytes.
    Https {
        /// Host, with a port if it has one.
        host: String,
        /// Path, with the query if there is one.
        path: String,
    },
}

/// The text is no [`Source`].
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is no place of a bitstream: {1}")]
pub struct InvalidSource(String, String);

impl Source {
    /// The place of an artifact, written `REGISTRY/REPOSITORY@sha256:DIGEST`.
    ///
    /// # Errors
    /// [`InvalidSource`]
    pub fn oci(text: &str) -> Result<Self, InvalidSource> {
        let reference: Reference =
            text.parse().map_err(|error| InvalidSource(text.to_owned(), format!("{error}")))?;
        Ok(Self::Oci { registry: reference.registry, repository: reference.repository })
    }

    /// The place with this address, written `https://HOST/PATH`.
    ///
    /// # Errors
    /// [`InvalidSource`]
    pub fn https(text: &str) -> Result<Self, InvalidSource> {
        let invalid =
            || InvalidSource(text.to_owned(), "write https://HOST/PATH, without user and #".to_owned());
        let uri: Uri = text.parse().map_err(|_| invalid())?;
        let (Some(host), Some(path)) = (uri.authority(), uri.path_and_query()) else { return Err(invalid()) };
        if uri.scheme() != Some(&Scheme::HTTPS) || host.as_str().contains('@') || text.contains('#') {
            return Err(invalid());
        }
        Ok(Self::Https { host: host.to_string(), path: path.to_string() })
    }

    /// The host, with a port if it has one.
    #[must_use]
    pub fn host(&self) -> &str {
        match self {
            Self::Oci { registry: host, .. } | Self::Https { host, .. } => host,
        }
    }
}

impl Wanted {
    /// The name of the partial file. Each place and each owner has another one: a wrong place must not hinder a right one.
    pub(crate) fn key(&self) -> String {
        let text = format!("{} {} {} {}", self.digest, self.bytes, self.source, self.owner);
        hex(&of_bytes(text.as_bytes()))
    }
}

impl Owner {
    /// The name of the note that a source of this owner has delivered.
    pub(crate) fn key(&self) -> String {
        hex(&of_bytes(self.to_string().as_bytes()))
    }
}

/// The hexadecimal digits of a digest.
pub(crate) fn hex(digest: &Digest) -> String {
    digest.as_bytes().iter().map(|byte| format!("{byte:02x}")).collect()
}

impl fmt::Display for Owner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            // No namespace has a name with spaces.
            Self::Library => f.write_str("the library"),
            Self::Own { namespace, uid } => write!(f, "{namespace}/{uid}"),
        }
    }
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Oci { registry, repository } => write!(f, "{registry}/{repository}"),
            Self::Https { host, path } => write!(f, "https://{host}{path}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_read_as_bitstreams_have_them_and_others_are_refused() {
        let digest = format!("sha256:{}", "0a".repeat(32));
        let oci = Source::oci(&format!("registry.example:5000/team/sobel@{digest}")).unwrap();
        assert_eq!(
            (oci.host(), oci.to_string().as_str()),
            ("registry.example:5000", "registry.example:5000/team/sobel")
        );
        let hub = Source::oci(&format!("team/sobel@{digest}")).unwrap();
        assert_eq!(hub.to_string(), "docker.io/team/sobel");
        let https = Source::https("https://files.example/a/b?x=1").unwrap();
        assert_eq!(
            (https.host(), https.to_string().as_str()),
            ("files.example", "https://files.example/a/b?x=1")
        );
        for text in [
            "http://files.example/a",
            "https://me:secret@files.example/a",
            "files.example/a",
            "file:///etc/passwd",
            "https://files.example/a#b",
            "",
        ] {
            assert!(Source::https(text).is_err(), "{text}");
        }
        for text in ["", "Sobel", "registry.example/UP@x", "https://registry.example/a"] {
            assert!(Source::oci(text).is_err(), "{text}");
        }
    }

    #[test]
    fn each_place_of_a_bitstream_and_each_owner_has_a_key_of_its_own() {
        let wanted = |bytes, host: &str, owner| Wanted {
            digest: of_bytes(b"x"),
            bytes,
            source: Source::Https { host: host.to_owned(), path: "/".to_owned() },
            owner,
        };
        let of = |uid: &str| Owner::Own { namespace: "shop".to_owned(), uid: uid.to_owned() };
        let shop = || of("1");
        let all = [
            wanted(1, "a", shop()),
            wanted(2, "a", shop()),
            wanted(1, "b", shop()),
            wanted(1, "a", of("2")),
            wanted(1, "a", Owner::Library),
        ];
        let keys: std::collections::BTreeSet<_> = all.iter().map(Wanted::key).collect();
        assert_eq!(keys.len(), all.len());
        assert!(keys.iter().all(|key| key.len() == 64 && key.chars().all(|c| c.is_ascii_hexdigit())));
    }
}
