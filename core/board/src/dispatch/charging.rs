//! Which task the time of each slot is charged to.

use super::{Dispatch, Kernels, Running, SlotUsage, TaskId};
use crate::slots::SlotIndex;
use std::time::Duration;

impl Dispatch {
    /// The time so far of slots that have been held for `at_least`. Where several tasks share a slot, the one with
    /// the smallest id is charged. That task stays charged until its end, whose usage covers the same time again with
    /// the same `hold`.
    pub fn progress(&mut self, at_least: Duration, now: Duration) -> Vec<SlotUsage> {
        let mut told: Vec<SlotUsage> = Vec::new();
        for (task, running) in &self.running {
            for &slot in &running.slots {
                let from = self.uncharged_since(slot, now);
                if now - from >= at_least && told.iter().all(|other| other.slot != slot) {
                    told.push(self.usage(slot, *task, running, from, now));
                }
            }
        }
        for usage in &told {
            if let Some(claim) = self.claimed_by.get_mut(usage.slot.0 as usize) {
                *claim = Some(usage.task);
            }
        }
        told
    }

    /// The time of a slot that has not been charged yet; the end of `task` charges it to `task`.
    pub(super) fn charge(
        &mut self,
        slot: SlotIndex,
        task: TaskId,
        running: &Running,
        now: Duration,
    ) -> SlotUsage {
        let position = slot.0 as usize;
        let claimed_by_other =
            self.claimed_by.get(position).copied().flatten().is_some_and(|other| other != task);
        let from = if claimed_by_other { now } else { self.uncharged_since(slot, now) };
        if !claimed_by_other {
            self.set_charged(slot, now);
            if let Some(claim) = self.claimed_by.get_mut(position) {
                *claim = None;
            }
        }
        self.usage(slot, task, running, from, now)
    }

    fn usage(
        &self,
        slot: SlotIndex,
        task: TaskId,
        running: &Running,
        from: Duration,
        until: Duration,
    ) -> SlotUsage {
        let bitstream = match running.kernels {
            Kernels::Bitstreams => self.slots.resident_in(slot),
            Kernels::Source => None,
        };
        let at = running.slots.iter().position(|other| *other == slot).unwrap_or(0) as u64;
        let hold = running.first_hold + at;
        SlotUsage { slot, bitstream, task, hold, tenant: running.tenant.clone(), from, until }
    }

    fn uncharged_since(&self, slot: SlotIndex, now: Duration) -> Duration {
        self.charged_until.get(slot.0 as usize).copied().unwrap_or(now).min(now)
    }

    pub(super) fn set_charged(&mut self, slot: SlotIndex, now: Duration) {
        if let Some(until) = self.charged_until.get_mut(slot.0 as usize) {
            *until = now;
        }
    }
}
