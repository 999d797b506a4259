//! How tenants are isolated from each other.

use clap::ValueEnum;

/// How tenants are isolated from each other.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Isolate {
    /// The protocol: all vendor contexts are in the manager's process.
    Protocol,
    /// A process for each tenant too.
    Process,
}
