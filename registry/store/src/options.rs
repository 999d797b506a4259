//! How a store works.

use fpga_artifacts::Hosts;
use std::path::PathBuf;
use std::time::Duration;

/// How a store works.
#[derive(Debug, Clone)]
pub struct StoreOptions {
    /// The folder.
    pub folder: PathBuf,
    /// Number of bytes that its files have at most.
    pub limit_bytes: u64,
    /// Which hosts are asked.
    pub hosts: Hosts,
    /// Certificate authorities (PEM) instead of the system's.
    pub ca: Option<PathBuf>,
    /// File with users and passwords of registries, as `docker login` writes it. It is read for each download.
    pub credentials: Option<PathBuf>,
    /// Longest time for an answer, and for content that does not come fast enough.
    pub timeout: Duration,
}
