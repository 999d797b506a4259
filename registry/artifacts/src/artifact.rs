//! What an artifact has: the name of an accelerator, and its bitstreams.

use fpga_accelerators::Interface;
use fpga_core::bitstream::Digest;
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;

/// Maximum number of variants of an artifact.
pub const MAX_VARIANTS: usize = 64;
/// Longest bitstream, in bytes.
pub const MAX_BITSTREAM_BYTES: u64 = 4 << 30;
/// Longest name of an accelerator.
const MAX_NAME_BYTES: usize = 128;
/// Longest value of a label of Kubernetes.
const MAX_LABEL_BYTES: usize = 63;
/// Maximum size of a region, in slots.
const MAX_REGION_SIZE: u32 = 64;

/// An accelerator with its bitstreams. Its JSON is the configuration of the artifact.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Artifact {
    /// Name of the accelerator, and of the Bitstream that is made of the artifact.
    pub name: String,
    /// The bitstreams.
    pub variants: Vec<Variant>,
    /// What the kernel takes and gives. Only jobs of the pool need it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub interface: Option<Interface>,
}

/// A bitstream: bytes that were built for one kind of board.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Variant {
    /// Vendor of the board.
    pub vendor: String,
    /// Name of the board.
    pub board: String,
    /// Version of the board's shell.
    pub shell: String,
    /// Number of the board's slots that the region of the bitstream takes.
    pub region_size: u32,
    /// Digest of the bytes.
    pub digest: Digest,
    /// Number of the bytes.
    pub bytes: u64,
    /// Requests per second that the accelerator completes at most, in one region.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub peak_requests_per_second: Option<f64>,
}

/// The reason why values form no [`Artifact`].
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum InvalidArtifact {
    /// The name can't be that of an object of Kubernetes.
    #[error(
        "{0:?} is no name of an accelerator; write lower-case letters, digits, `-` and `.`, at most {MAX_NAME_BYTES}, for example sobel"
    )]
    Name(String),
    /// There is no variant, or there are more than [`MAX_VARIANTS`].
    #[error("there are {0} variants; write 1 to {MAX_VARIANTS}")]
    Variants(usize),
    /// A field is no value of a label of Kubernetes.
    #[error(
        "{field} {value:?} is no value of a node label; write letters, digits, `-`, `_` and `.`, at most {MAX_LABEL_BYTES}, with a letter or digit first and last"
    )]
    Label {
        /// Name of the field.
        field: &'static str,
        /// The value of the field.
        value: String,
    },
    /// The region has no slot, or too many.
    #[error("a region of {0} slots is not possible; write 1 to {MAX_REGION_SIZE}")]
    RegionSize(u32),
    /// The bitstream is empty, or longer than [`MAX_BITSTREAM_BYTES`].
    #[error("a bitstream has {0} bytes; 1 to {MAX_BITSTREAM_BYTES} are taken")]
    Bytes(u64),
    /// The highest number of requests is not positive.
    #[error("{0} requests per second are no peak; write a positive number, for example 152.5")]
    Peak(f64),
    /// Two variants are for the same kind of board and size of region.
    #[error(
        "two variants are for vendor {vendor}, board {board}, shell {shell} and a region of {region_size} slots; write one of them"
    )]
    Twice {
        /// Vendor of the board.
        vendor: String,
        /// Name of the board.
        board: String,
        /// Version of the shell.
        shell: String,
        /// Slots of the region.
        region_size: u32,
    },
}

impl Artifact {
    /// Checks all fields.
    ///
    /// # Errors
    /// The first field that is wrong.
    pub fn check(&self) -> Result<(), InvalidArtifact> {
        if !is_object_name(&self.name) {
            return Err(InvalidArtifact::Name(self.name.clone()));
        }
        if !(1..=MAX_VARIANTS).contains(&self.variants.len()) {
            return Err(InvalidArtifact::Variants(self.variants.len()));
        }
        let mut kinds = BTreeSet::new();
        for variant in &self.variants {
            variant.check()?;
            let Variant { vendor, board, shell, region_size, .. } = variant;
            if !kinds.insert((vendor, board, shell, region_size)) {
                return Err(InvalidArtifact::Twice {
                    vendor: vendor.clone(),
                    board: board.clone(),
                    shell: shell.clone(),
                    region_size: *region_size,
                });
            }
        }
        Ok(())
    }
}

impl Variant {
    fn check(&self) -> Result<(), InvalidArtifact> {
        for (field, value) in [("vendor", &self.vendor), ("board", &self.board), ("shell", &self.shell)] {
            if !is_label(value) {
                return Err(InvalidArtifact::Label { field, value: value.clone() });
            }
        }
        if !(1..=MAX_REGION_SIZE).contains(&self.region_size) {
            return Err(InvalidArtifact::RegionSize(self.region_size));
        }
        if !(1..=MAX_BITSTREAM_BYTES).contains(&self.bytes) {
            return Err(InvalidArtifact::Bytes(self.bytes));
        }
        match self.peak_requests_per_second {
            Some(peak) if !peak.is_finite() || peak <= 0.0 => Err(InvalidArtifact::Peak(peak)),
            _ => Ok(()),
        }
    }
}

/// Whether `text` is a subdomain of DNS (RFC 1123), as names of objects are.
fn is_object_name(text: &str) -> bool {
    let is_part = |part: &str| {
        let ends = |c: Option<char>| c.is_some_and(|c| c.is_ascii_lowercase() || c.is_ascii_digit());
        let inner = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
        ends(part.chars().next()) && ends(part.chars().last()) && part.chars().all(inner)
    };
    text.len() <= MAX_NAME_BYTES && text.split('.').all(is_part)
}

/// Whether `text` is a value of a label that is not empty.
fn is_label(text: &str) -> bool {
    let ends = |c: Option<char>| c.is_some_and(|c| c.is_ascii_alphanumeric());
    let inner = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    text.len() <= MAX_LABEL_BYTES
        && ends(text.chars().next())
        && ends(text.chars().last())
        && text.chars().all(inner)
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    pub fn artifact(bytes: &[&[u8]]) -> Artifact {
        let variant = |(index, bytes): (usize, &&[u8])| Variant {
            vendor: "intel".to_owned(),
            board: format!("board-{index}"),
            shell: "1.2".to_owned(),
            region_size: 1,
            digest: crate::of_bytes(bytes),
            bytes: bytes.len() as u64,
            peak_requests_per_second: None,
        };
        let variants = bytes.iter().enumerate().map(variant).collect();
        Artifact { name: "sobel".to_owned(), variants, interface: None }
    }

    #[test]
    fn a_wrong_field_is_refused_with_what_to_write() {
        let refused = |change: fn(&mut Artifact)| {
            let mut artifact = artifact(&[b"one", b"two"]);
            artifact.check().unwrap();
            change(&mut artifact);
            artifact.check().unwrap_err().to_string()
        };
        for (change, message) in [
            ((|a| a.name = "So_bel".to_owned()) as fn(&mut Artifact), "lower-case letters"),
            (|a| a.name = "x".repeat(129), "at most 128"),
            (|a| a.name = "sobel..v2".to_owned(), "lower-case letters"),
            (|a| a.variants.clear(), "write 1 to 64"),
            (|a| a.variants = vec![a.variants[0].clone(); 65], "write 1 to 64"),
            (|a| a.variants[1].vendor = String::new(), "vendor \"\" is no value"),
            (|a| a.variants[1].board = "-a".to_owned(), "board \"-a\" is no value"),
            (|a| a.variants[1].shell = "x".repeat(64), "at most 63"),
            (|a| a.variants[1].region_size = 0, "write 1 to 64"),
            (|a| a.variants[1].bytes = 0, "0 bytes"),
            (|a| a.variants[1].bytes = u64::MAX, "1 to 4294967296 are taken"),
            (|a| a.variants[1].peak_requests_per_second = Some(f64::NAN), "a positive number"),
            (|a| a.variants[1].board = "board-0".to_owned(), "write one of them"),
        ] {
            let error = refused(change);
            assert!(error.contains(message), "{error}");
        }
    }
}
