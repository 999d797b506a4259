//! Names of allocations and instances, and tokens.

use fpga_core::bitstream::Digest;
use ring::digest::{SHA256, digest};
use ring::rand::{SecureRandom, SystemRandom};
use serde::{Deserialize, Serialize};
use std::fmt::{self, Write as _};

/// Bytes of a token, and of an allocation's id.
const RANDOM_BYTES: usize = 16;
const TOKEN_BYTES: usize = 32;
/// Maximum length of a workload's name in bytes: names of files have up to 255.
const MAX_WORKLOAD_NAME: usize = 200;

/// Name of an allocation and of its folder.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct AllocationId(String);

/// One of the instances that the plugin advertises.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct InstanceId(String);

/// Name of what owns a pod, for example of its Deployment. It is part of the name of a file.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct WorkloadName(String);

/// What a container shows to a device manager. It is never logged.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Token(String);

/// The system has no random bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the system has no random bytes")]
pub struct NoRandomBytes;

impl AllocationId {
    /// An id that no allocation had before.
    ///
    /// # Errors
    /// The system has no random bytes.
    pub fn fresh() -> Result<Self, NoRandomBytes> {
        random_hex(RANDOM_BYTES).map(Self)
    }

    /// The id as text: the name of a folder.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    #[cfg(test)]
    pub(crate) fn of(text: &str) -> Self {
        Self(text.to_owned())
    }
}

impl WorkloadName {
    /// The name of the pod's controller; of a ReplicaSet whose name ends with `template_hash` it is that of its Deployment.
    /// `None` if the name can't be part of a file's.
    #[must_use]
    pub fn of(controller: &str, template_hash: Option<&str>) -> Option<Self> {
        let of_deployment =
            || controller.strip_suffix(template_hash?)?.strip_suffix('-').filter(|name| !name.is_empty());
        let name = of_deployment().unwrap_or(controller);
        let is_allowed = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || matches!(c, '-' | '.');
        let is_name = !name.is_empty()
            && name.len() <= MAX_WORKLOAD_NAME
            && !name.starts_with('.')
            && name.chars().all(is_allowed);
        is_name.then(|| Self(name.to_owned()))
    }

    /// The name as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl InstanceId {
    /// The instance `number` that a board adds to what the node has. A container with it need not get that board.
    #[must_use]
    pub fn of_board(board: &str, number: u32) -> Self {
        Self(format!("{board}-{number}"))
    }

    /// The instance `number` that a board adds to what the node has of the board's vendor.
    #[must_use]
    pub fn of_vendor(board: &str, number: u32) -> Self {
        // Instances of both resources are told apart by their ids alone.
        Self(format!("{board}-v{number}"))
    }

    /// The id as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl From<String> for InstanceId {
    fn from(text: String) -> Self {
        Self(text)
    }
}

impl Token {
    /// A token that cannot be guessed.
    ///
    /// # Errors
    /// The system has no random bytes.
    pub fn fresh() -> Result<Self, NoRandomBytes> {
        random_hex(TOKEN_BYTES).map(Self)
    }

    /// The secret text.
    #[must_use]
    pub fn secret(&self) -> &str {
        &self.0
    }

    /// SHA-256 of the secret text, by which device managers name the token.
    #[must_use]
    pub fn digest(&self) -> Digest {
        let mut bytes = [0; 32];
        bytes.copy_from_slice(digest(&SHA256, self.0.as_bytes()).as_ref());
        Digest::from_bytes(bytes)
    }

    #[cfg(test)]
    pub(crate) fn of(text: &str) -> Self {
        Self(text.to_owned())
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token(…)")
    }
}

impl fmt::Display for AllocationId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

fn random_hex(bytes: usize) -> Result<String, NoRandomBytes> {
    let mut random = vec![0; bytes];
    SystemRandom::new().fill(&mut random).map_err(|_| NoRandomBytes)?;
    Ok(random.iter().fold(String::new(), |mut text, byte| {
        // Writing to a string can't fail.
        let _ = write!(text, "{byte:02x}");
        text
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_workload_is_the_controller_or_the_deployment_of_its_replica_set() {
        for (controller, hash, expected) in [
            ("sobel-7c9d", Some("7c9d"), Some("sobel")),
            ("sobel-7c9d", Some("aaaa"), Some("sobel-7c9d")),
            ("sobel", None, Some("sobel")),
            ("a.b-1", None, Some("a.b-1")),
            ("-7c9d", Some("7c9d"), Some("-7c9d")),
            ("", None, None),
            ("../../etc", None, None),
            (".hidden", None, None),
            ("a@b", None, None),
        ] {
            let name = WorkloadName::of(controller, hash);
            assert_eq!(name.as_ref().map(WorkloadName::as_str), expected, "{controller}");
        }
        assert_eq!(WorkloadName::of(&"x".repeat(201), None), None);
    }
}
