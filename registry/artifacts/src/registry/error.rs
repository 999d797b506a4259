//! Why a registry did not do what it was asked.

use crate::manifest::InvalidManifest;
use ::http::StatusCode;
use fpga_core::bitstream::Digest;
use std::io;
use std::time::Duration;

/// Longest text of others in a message, in characters.
const MAX_TEXT: usize = 300;

/// Why a registry did not do what it was asked.
#[derive(Debug, thiserror::Error)]
pub enum RegistryError {
    /// The registry can't be reached, or the connection broke.
    #[error(
        "registry {registry} can't be reached: {error}. Check the name and the network; a registry without TLS needs --plain-http"
    )]
    Unreachable {
        /// The registry.
        registry: String,
        /// The error and its causes.
        error: String,
    },
    /// No answer within the time.
    #[error("registry {registry} does not answer within {}. Try again, or give it more time by --timeout", seconds(.time))]
    Silent {
        /// The registry.
        registry: String,
        /// The time.
        time: Duration,
    },
    /// The registry asks for a login, or refuses it.
    #[error(
        "registry {0} takes no credentials of yours. Run `docker login {0}`, or set FPGA_REGISTRY_USER and FPGA_REGISTRY_PASSWORD"
    )]
    Unauthorized(String),
    /// The registry asks for a login in a way that is not known.
    #[error("registry {registry} asks for a login by {challenge:?}; only Basic and Bearer are known")]
    Challenge {
        /// The registry.
        registry: String,
        /// What the registry asks for.
        challenge: String,
    },
    /// The registry does not have it.
    #[error(
        "{0} is not in the registry. Check the repository and the tag; `kubectl fpga bitstream push` prints the right one"
    )]
    Missing(String),
    /// The registry refuses.
    #[error("{doing}: registry {registry} answers {status}: {message}")]
    Refused {
        /// The registry.
        registry: String,
        /// What was asked.
        doing: String,
        /// The status of the answer.
        status: StatusCode,
        /// The registry's own words.
        message: String,
    },
    /// The registry sends to a place that is not asked.
    #[error(
        "registry {registry} sends to {place:?}, which is not followed. It must be https without a user, or http from a host without TLS"
    )]
    Elsewhere {
        /// The registry.
        registry: String,
        /// The place.
        place: String,
    },
    /// The registry sends from place to place.
    #[error("{place} sends elsewhere again, after more than {limit} redirects")]
    Redirects {
        /// The host that was asked last.
        place: String,
        /// Number of redirects that are followed.
        limit: usize,
    },
    /// The host may not be asked.
    #[error("{place} is not asked: {reason}")]
    Forbidden {
        /// The host, and its port if it has one.
        place: String,
        /// Why it is not asked.
        reason: &'static str,
    },
    /// The answer is about other bytes than those that were asked for.
    #[error("{what}: registry {registry} answers with another range of bytes: {range:?}")]
    Range {
        /// What was read.
        what: String,
        /// The registry.
        registry: String,
        /// The range of the answer.
        range: String,
    },
    /// The answer is longer than it may be.
    #[error("{what} has more than {limit} bytes, which is more than announced or taken")]
    TooLong {
        /// What was read.
        what: String,
        /// The limit.
        limit: u64,
    },
    /// The answer ended before all bytes were there.
    #[error("{what} ended after {found} of {expected} bytes: {reason}. Try again")]
    TooShort {
        /// What was read.
        what: String,
        /// The number of bytes that were expected.
        expected: u64,
        /// The number of bytes that came.
        found: u64,
        /// Why it ended.
        reason: String,
    },
    /// The bytes are others.
    #[error("{what} has the digest {found}, and {expected} was expected: the registry has other bytes")]
    Digest {
        /// What was read.
        what: String,
        /// The expected digest.
        expected: Digest,
        /// The digest of the bytes.
        found: Digest,
    },
    /// The artifact is not ours, or is wrong.
    #[error("{reference}: {source}")]
    Manifest {
        /// The artifact.
        reference: String,
        /// The fault of the manifest.
        #[source]
        source: InvalidManifest,
    },
    /// The certificate authorities can't be used.
    #[error("the certificate authorities can't be used: {0}")]
    Authorities(String),
    /// A request can't be made of the registry's own words.
    #[error("no request can be made: {0}")]
    Request(#[from] ::http::Error),
    /// A file to send can't be read.
    #[error("{path} can't be read: {source}")]
    Read {
        /// The file.
        path: String,
        /// The system's error.
        #[source]
        source: io::Error,
    },
    /// What was read can't be written.
    #[error("what was read can't be written: {0}")]
    Write(#[source] io::Error),
}

/// Text of others: bounded, and without characters that steer a terminal.
pub(crate) fn printable(text: &str) -> String {
    text.chars().take(MAX_TEXT).map(|c| if c.is_control() { '\u{fffd}' } else { c }).collect()
}

/// The error and its causes, as one line.
pub(crate) fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let more = error.to_string();
        if !text.contains(&more) {
            text = format!("{text}: {more}");
        }
        cause = error.source();
    }
    printable(&text)
}

fn seconds(time: &Duration) -> String {
    format!("{} s", time.as_secs_f64())
}
