//! The accelerators that this manager knows by name: files `NAME.bitstream` of one folder.
//!
//! Read once at the start. A bitstream that isn't here has no name and is known by its digest.

use fpga_core::bitstream::{BitstreamId, Digest};
use std::collections::BTreeMap;

/// Names of bitstreams.
#[derive(Debug, Default)]
pub struct Catalogue {
    names: BTreeMap<Digest, String>,
}

impl Catalogue {
    /// The accelerator name of a bitstream.
    #[must_use]
    pub fn name_of(&self, digest: &Digest) -> Option<&str> {
        self.names.get(digest).map(String::as_str)
    }

    /// How a bitstream is called in events: by name, else by digest.
    #[must_use]
    pub fn id_of(&self, digest: Digest) -> BitstreamId {
        match self.names.get(&digest) {
            Some(name) => BitstreamId::Name(name.clone()),
            None => BitstreamId::Digest(digest),
        }
    }
}
