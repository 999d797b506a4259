//! The options of a build: as the client wrote them, as the vendor gets them, and what tells builds apart.

use crate::includes::Laid;
use std::sync::Arc;

/// The options of a build.
#[derive(Debug, Clone)]
pub struct Options {
    /// With the folders in which the client's files are laid out.
    pub(super) for_vendor: String,
    /// The client's, and what tells the files that it includes from others.
    pub(super) identity: String,
    /// They stay as long as the program may be built with them.
    pub(super) laid: Option<Arc<Laid>>,
}

impl Options {
    /// Those that the client wrote, with what was laid out of its files, and its working folder.
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
}
