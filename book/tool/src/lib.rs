//! The tool of the book. [`reference`](mod@reference) writes the reference chapters from the code: flags from the
//! programs' own parsers, metrics and HTTP paths from the sources, values from the chart, and resources from their
//! definitions. [`layout`] copies the documents of the book into one folder, from which mdBook makes pages.
#![forbid(unsafe_code)]

pub mod args;
pub mod layout;
pub mod reference;

use std::path::Path;

/// The folder of the repository from which this program was built.
#[must_use]
pub fn repository() -> &'static Path {
    let own = Path::new(env!("CARGO_MANIFEST_DIR"));
    own.ancestors().nth(2).unwrap_or(own)
}
