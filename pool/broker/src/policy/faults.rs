//! Bitstreams that do not load: is it the slot or the bitstream?
//!
//! A slot that refuses a bitstream leaves the pool for a minute. If a second slot refuses the same bitstream meanwhile, the
//! bitstream is at fault: nobody asks for it for a minute, and both slots come back. So a broken bitstream takes no more
//! than two slots out of the pool, and a broken slot denies no accelerator.
//!
//! The bitstream is at fault at once if no other slot of the kind is left to try, or if its tenant has a slot out of the pool already:
//! a tenant with many bitstreams that no manager has takes no more than one slot from others.

use super::SlotId;
use fpga_cluster::pool::TenantId;
use fpga_core::bitstream::Digest;
use fpga_core::units::MonotonicTime;
use fpga_pool_leases::timing;
use std::collections::BTreeMap;

/// Slots and bitstreams that are not used for a while.
#[derive(Debug, Default)]
pub(super) struct Faults {
    slots: BTreeMap<SlotId, Suspect>,
    bitstreams: BTreeMap<Digest, MonotonicTime>,
    /// Why a slot has refused a bitstream, for people: the latest reason for each bitstream.
    reasons: BTreeMap<Digest, (String, MonotonicTime)>,
}

/// A slot that has refused a bitstream of a tenant's job.
#[derive(Debug)]
struct Suspect {
    digest: Digest,
    tenant: TenantId,
    until: MonotonicTime,
}

/// Whether other slots of the kind can be tried.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum OtherSlots {
    Some,
    None,
}

impl Faults {
    /// A slot has refused a bitstream of a tenant's job.
    pub(super) fn bitstream_failed(
        &mut self,
        slot: SlotId,
        digest: Digest,
        (tenant, others): (TenantId, OtherSlots),
        now: MonotonicTime,
    ) {
        self.forget(now);
        let until = now + timing::PROBE;
        let counts = |(other, suspect): (&SlotId, &Suspect)| {
            *other != slot && (suspect.digest == digest || suspect.tenant == tenant)
        };
        if others == OtherSlots::None || self.slots.iter().any(counts) {
            self.slots.retain(|_, suspect| suspect.digest != digest);
            self.bitstreams.insert(digest, until);
        } else if !self.bitstreams.contains_key(&digest) {
            self.slots.insert(slot, Suspect { digest, tenant, until });
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
        self.slots.get(&slot).is_some_and(|suspect| now < suspect.until)
    }

    pub(super) fn is_banned(&self, digest: &Digest, now: MonotonicTime) -> bool {
        self.bitstreams.get(digest).is_some_and(|until| now < *until)
    }

    /// Forgets what is over. True if a bitstream may be used again.
    pub(super) fn forget(&mut self, now: MonotonicTime) -> bool {
        let before = self.bitstreams.len();
        self.slots.retain(|_, suspect| now < suspect.until);
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
        let of = |tenant| (TenantId(tenant), OtherSlots::Some);
        faults.bitstream_failed(slot(0), a, of(1), at(0));
        faults.bitstream_failed(slot(1), b, of(2), at(1));
        assert!(faults.is_suspect(slot(0), at(59)) && !faults.is_banned(&a, at(1)));
        faults.bitstream_failed(slot(2), a, of(3), at(30));
        assert!(!faults.is_suspect(slot(0), at(30)) && !faults.is_suspect(slot(2), at(30)));
        assert!(faults.is_suspect(slot(1), at(30)) && faults.is_banned(&a, at(89)));
        assert!(
            faults.forget(at(90)) && !faults.is_banned(&a, at(90)) && !faults.is_suspect(slot(1), at(90))
        );
    }
    #[test]
    fn bitstreams_of_one_tenant_and_the_last_slot_of_a_kind_take_no_further_slot_out() {
        let slot = |number| SlotId { manager: ManagerId(1), slot: SlotIndex(number) };
        let digest = |number| Digest::from_bytes([number; 32]);
        let (mut faults, now) = (Faults::default(), MonotonicTime(0));
        for number in 0..3 {
            let of = (TenantId(1), OtherSlots::Some);
            faults.bitstream_failed(slot(number.into()), digest(number), of, now);
            assert_eq!(faults.is_banned(&digest(number), now), number > 0);
            assert_eq!(faults.is_suspect(slot(number.into()), now), number == 0);
        }
        faults.bitstream_failed(slot(3), digest(3), (TenantId(2), OtherSlots::None), now);
        assert!(faults.is_banned(&digest(3), now) && !faults.is_suspect(slot(3), now));
    }
}
