//! The reasons why a request can't be decoded.

use super::limits::MAX_VICTIMS;

/// Why a request can't be decoded.
#[derive(Debug, thiserror::Error)]
pub enum Malformed {
    /// The body is not the JSON of such a request.
    #[error("the request can't be read: {0}")]
    Json(#[from] serde_json::Error),
    /// The body is not UTF-8.
    #[error("the request is not UTF-8: {0}")]
    Utf8(#[from] std::str::Utf8Error),
    /// The request contains no pod.
    #[error("the request has no `Pod`")]
    NoPod,
    /// The request has more victims than [`MAX_VICTIMS`].
    #[error("the request has more than {} victims", MAX_VICTIMS)]
    TooManyVictims,
    /// A name or UID is longer than Kubernetes allows.
    #[error("the request's {0} is longer than Kubernetes allows")]
    LongName(&'static str),
    /// A node has no name.
    #[error("node {0} of the request has no `metadata.name`")]
    NamelessNode(usize),
}

/// Checks the length of a name or UID. Explanations and expectations keep names, so their length must be bounded.
pub(super) fn check_length(what: &'static str, name: &str, most: usize) -> Result<(), Malformed> {
    if name.len() <= most { Ok(()) } else { Err(Malformed::LongName(what)) }
}
