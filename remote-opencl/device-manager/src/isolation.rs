//! `--isolate process`: each tenant's vendor context lives in a process of its own, a *tenant process*, so that a vendor
//! library that dies, or a kernel that reads and writes what it likes, harms that tenant's sessions only.
//!
//! The manager stays the front door: connections, TLS, tokens, quotas of sessions, and the one dispatch of the slots are
//! its own, and it calls the vendor for no tenant. A session's messages are relayed ([`relay`]); tasks ask for slots and
//! get them over the process's control socket ([`packets`]). What a tenant process says is a stranger's word: it can
//! name its own sessions and tasks only, for its own tenant, within bounds. It is not a place for the one who wants no
//! cost: each message on the stream takes another two hops.

pub mod child;
pub mod folder;
#[cfg(feature = "fuzzing")]
pub mod fuzzing;
mod guard;
mod memory;
pub mod outbound;
pub mod packets;
pub mod pool;
pub mod process;
pub mod relay;
pub mod seccomp;
pub mod tenant_process;

use clap::ValueEnum;

/// What keeps tenants apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Isolate {
    /// The protocol: all vendor contexts are in the manager's process.
    Protocol,
    /// A process for each tenant too.
    Process,
}
