//! Limits of an account, and what they are if nobody says.

use fpga_net::memory::MemoryLimit;

/// Memory of the process that is assumed if no limit is known.
const UNKNOWN_MEMORY_BYTES: u64 = 4 << 30;

/// Least bytes for clients. With less, a tenant could not have a session or would have no bytes besides it.
pub const LEAST_BYTES: u64 = 64 << 20;

/// The limits of an account, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Limits {
    /// Bytes that stay until their client gives them back.
    pub lasting: u64,
    /// Bytes that are freed without the client's doing.
    pub passing: u64,
}

impl Limits {
    /// Divides `bytes`: two thirds for lasting and one third for passing bytes.
    #[must_use]
    pub fn of(bytes: u64) -> Self {
        let passing = bytes / 3;
        Self { lasting: bytes - passing, passing }
    }

    /// No limits.
    #[must_use]
    pub fn none() -> Self {
        Self { lasting: u64::MAX, passing: u64::MAX }
    }
}

/// Default limit of the bytes that clients may make the manager hold: three quarters of what the store of
/// bitstreams, whose limit is `store_limit`, leaves of the process's memory. The rest is for the vendor's
/// runtime and the manager itself.
#[must_use]
pub fn default_limit(store_limit: u64) -> u64 {
    limit_of(process_memory(), store_limit)
}

/// Default limit of the store of bitstreams: a quarter of the process's memory, at most 1 GiB. The store's
/// bytes are in the memory of the process, and also in a folder if one is given.
#[must_use]
pub fn default_store_limit() -> u64 {
    store_limit_of(process_memory())
}

/// As [`default_store_limit`], for a process that may use this memory.
#[must_use]
pub fn store_limit_of(memory: u64) -> u64 {
    (memory / 4).min(1 << 30)
}

fn process_memory() -> u64 {
    MemoryLimit::of_this_process().map_or(UNKNOWN_MEMORY_BYTES, |limit| limit.bytes)
}

/// As [`default_limit`], for a process that may use this memory. If a flag gives the store more than half of the
/// memory, clients get their part of one half.
#[must_use]
pub fn limit_of(memory: u64, store_limit: u64) -> u64 {
    (memory - store_limit.min(memory / 2)) / 4 * 3
}
