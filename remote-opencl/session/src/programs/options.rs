//! The options of a build: the client's, the vendor's, and an identity that distinguishes builds.

use crate::includes::Laid;
use fpga_vendor::Included;
use std::sync::Arc;

/// The options of a build.
#[derive(Debug, Clone)]
pub struct Options {
    /// The options for the vendor, with the folders that hold the client's files.
    pub(super) for_vendor: String,
    /// The client's options, and a digest of the files that the build includes.
    pub(super) identity: String,
    /// The folders with the client's files. They exist as long as the program may be built.
    pub(super) laid: Option<Arc<Laid>>,
}

impl Options {
    /// Options from those of the client. `laid` has the folders with the client's files, and the client's working
    /// folder.
    #[must_use]
    pub fn new(options: &str, laid: Option<(&Arc<Laid>, &str)>) -> Self {
        match laid {
            Some((laid, folder)) => Self {
                for_vendor: laid.options(options, folder),
                identity: format!("{options}\0{}", laid.identity()),
                laid: Some(laid.clone()),
            },
            None => Self { for_vendor: options.to_owned(), identity: options.to_owned(), laid: None },
        }
    }

    /// What the vendor's program keeps as long as it may be built again.
    pub(super) fn included(&self) -> Option<Included> {
        self.laid.clone().map(|laid| laid as Included)
    }
}
