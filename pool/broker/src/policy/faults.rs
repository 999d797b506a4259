//! Bitstreams that do not load: is it the slot or the bitstream?
//!
//! A slot that refuses a bitstream leaves the pool for a minute. If a second slot refuses the same bitstream meanwhile, the
//! bitstream is at fault: nobody asks for it for a minute, and both slots come back. So a broken bitstream takes no more
//! than two slots out of the pool, and a broken slot denies no accelerator.

use super::SlotId;
use fpga_core::bitstream::Digest;
use fpga_core::units::MonotonicTime;
use fpga_pool_leases::timing;
use std::collections::BTreeMap;

/// Slots and bitstreams that are not used for a while.
#[derive(Debug, Default)]
pub(super) struct Faults {
    slots: BTreeMap<SlotId, (Digest, MonotonicTime)>,
    bitstreams: BTreeMap<Digest, MonotonicTime>,
    /// Why a slot has refused a bitstream, for people: the latest reason for each bitstream.
    reasons: BTreeMap<Digest, (String, MonotonicTime)>,
}

impl Faults {
    /// A slot has refused a bitstream.
    pub(super) fn bitstream_failed(&mut self, slot: SlotId, digest: Digest, now: MonotonicTime) {
        self.forget(now);
        let until = now + timing::PROBE;
        let is_second =
            |(other, (of, _)): (&SlotId, &(Digest, MonotonicTime))| *other != slot && *of == digest;
        if self.slots.iter().any(is_second) {
            self.slots.retain(|_, (of, _)| *of != digest);
            self.bitstreams.insert(digest, until);
        } else if !self.bitstreams.contains_key(&digest) {
            self.slots.insert(slot, (digest, until));
        }
    }

    /// Keeps the reason why a slot has refused a bitstream, for as long as the slot is not asked again.
    pub(super) fn explain(&mut self, digest: Digest, reason: String, now: MonotonicTime) {
        self.reasons.insert(digest, (reason, now + timing::PROBE));
    }

    /// Why a slot has refused a bitstream.
    pub(super) fn reason(&self, digest: &Digest) -> Option<&str> {
        self.reasons.get(digest).map(|(reason, _)| reason.as_str())
    }

    pub(super) fn is_suspect(&self, slot: SlotId, now: MonotonicTime) -> bool {
        self.slots.get(&slot).is_some_and(|(_, until)| now < *until)
    }

    pub(super) fn is_banned(&self, digest: &Digest, now: MonotonicTime) -> bool {
        self.bitstreams.get(digest).is_some_and(|until| now < *until)
    }

    /// Forgets what is over. True if a bitstream may be used again.
    pub(super) fn forget(&mut self, now: MonotonicTime) -> bool {
        let before = self.bitstreams.len();
        self.slots.retain(|_, (_, until)| now < *until);
        self.bitstreams.retain(|_, until| now < *until);
        self.reasons.retain(|_, (_, until)| now < *until);
        self.bitstreams.len() < before
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use fpga_board::slots::SlotIndex;
    use fpga_pool_leases::ids::ManagerId;

    #[test]
    fn of_two_slots_that_refuse_a_bitstream_none_is_at_fault() {
        let slot = |number| SlotId { manager: ManagerId(1), slot: SlotIndex(number) };
        let (a, b) = (Digest::from_bytes([1; 32]), Digest::from_bytes([2; 32]));
        let at = |seconds: u64| MonotonicTime(seconds * 1000);
        let mut faults = Faults::default();
        faults.bitstream_failed(slot(0), a, at(0));
        faults.bitstream_failed(slot(1), b, at(1));
        assert!(faults.is_suspect(slot(0), at(59)) && !faults.is_banned(&a, at(1)));
        faults.bitstream_failed(slot(2), a, at(30));
        assert!(!faults.is_suspect(slot(0), at(30)) && !faults.is_suspect(slot(2), at(30)));
        assert!(faults.is_suspect(slot(1), at(30)) && faults.is_banned(&a, at(89)));
        assert!(
            faults.forget(at(90)) && !faults.is_banned(&a, at(90)) && !faults.is_suspect(slot(1), at(90))
        );
    }
}
