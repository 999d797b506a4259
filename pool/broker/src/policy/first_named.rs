//! What the managers of a node were the first to name.
//!
//! Numbers of classes, tenants and bitstreams are few. Classes are kept as long as a board has them, the others until the policy is
//! made anew. A manager that makes names up is not to use up those of all.

/// Maximum number of kinds of slots at a time that a node's managers are the first to lend: a few regions of a few kinds of boards.
const MAX_KINDS: u32 = 8;
/// Maximum number of tenants that a node's leases are the first to name: a broker that takes over learns some by them.
const MAX_TENANTS: u32 = 64;
/// Maximum number of bitstreams that a node's slots and leases are the first to name.
const MAX_BITSTREAMS: u32 = 64;

/// How much the managers of a node were the first to name.
#[derive(Debug, Default)]
pub(super) struct FirstNamed {
    kinds: u32,
    tenants: u32,
    bitstreams: u32,
    /// Whether it was told that slots of the node are not used.
    is_told: bool,
}

impl FirstNamed {
    /// Whether there may be a new kind of slots, which counts then.
    pub(super) fn take_kind(&mut self) -> bool {
        take(&mut self.kinds, MAX_KINDS)
    }

    /// No board has a kind any more that counted.
    pub(super) fn give_back_kind(&mut self) {
        self.kinds = self.kinds.saturating_sub(1);
        self.is_told = false;
    }

    /// Whether there may be a new tenant, which counts then.
    pub(super) fn take_tenant(&mut self) -> bool {
        take(&mut self.tenants, MAX_TENANTS)
    }

    /// Whether there may be a new bitstream, which counts then.
    pub(super) fn take_bitstream(&mut self) -> bool {
        take(&mut self.bitstreams, MAX_BITSTREAMS)
    }

    /// Slots of the node are not used. Whether that is to be told: once is enough.
    pub(super) fn tell(&mut self) -> bool {
        !std::mem::replace(&mut self.is_told, true)
    }
}

fn take(taken: &mut u32, most: u32) -> bool {
    let is_left = *taken < most;
    *taken += u32::from(is_left);
    is_left
}
