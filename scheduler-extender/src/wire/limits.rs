//! Bounds of requests, and of the memory that answering one takes.

/// Most nodes in one request: several times the size of the largest clusters.
pub const MAX_NODES: usize = 65_536;
/// Longest name of a namespace, pod or node (RFC 1123 subdomains).
pub const MAX_NAME_BYTES: usize = 253;
/// Longest UID in bytes; the API server's UIDs have 36.
pub const MAX_UID_BYTES: usize = 128;
/// Most victims in a request.
pub const MAX_VICTIMS: usize = 262_144;
/// Upper bounds of the memory that a decision takes, per byte of its request and per node: names, verdicts with all
/// terms, and the answer.
const BYTES_PER_BYTE: usize = 130;
const BYTES_PER_NODE: usize = 400;

/// Upper bound of the memory for the decoded request, the decision and the answer, in bytes, beside the body of
/// length `body`. A body with the shortest possible names needs many times its own length.
#[must_use]
pub fn working_bytes(body: usize) -> usize {
    body.saturating_mul(BYTES_PER_BYTE).min(MAX_WORKING_BYTES)
}

/// Upper bound of [`working_bytes`].
pub const MAX_WORKING_BYTES: usize = MAX_NODES * BYTES_PER_NODE;
