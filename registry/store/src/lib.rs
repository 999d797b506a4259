//! The bitstreams of a node (T-3): a folder of files by digest, which are fetched when a pod needs them.
//!
//! ```text
//!  FOLDER/sha256/HEX    whole files, whose digest was compared
//!  FOLDER/partial/KEY   what has come of a file so far; a try after a break goes on from there
//!  FOLDER/delivered/HEX/KEY   a note that a source of this owner has delivered the file
//! ```
//! [`Store::get`] gives the path of a file. Callers that want the same one wait for one download. Files have room for
//! [`StoreOptions::limit_bytes`]: the least recently used ones go, but never one that is in use.
//!
//! `contents` decides what goes, `turns` which downloads run, and `retry` what follows from a failure, without I/O; `store`
//! and `download` act. Whoever
//! sends is not trusted: hosts, addresses, lengths and times are bounded, and bytes count by their digest alone.
#![forbid(unsafe_code)]

mod contents;
mod download;
mod files;
mod options;
mod retry;
mod source;
mod store;
mod turns;

pub use contents::Full;
pub use options::StoreOptions;
pub use source::{InvalidSource, Owner, Source, Wanted};
pub use store::{Figures, Store, StoreError};
pub use turns::Asker;
