//! What the pool decides of groups and jobs together, carried out.

use super::Engine;
use fpga_cluster::pool::{AcceleratorId, Grant, SlotClass};
use fpga_cluster::qos::groups::NewGroup;
use fpga_cluster::shared_pool::Actions;
use std::collections::BTreeMap;

impl Engine<'_> {
    /// Ends actions and periods that are due, and opens the groups that come.
    pub(super) fn pursue_goals(&mut self, grants: &mut Vec<Grant>) {
        while let Some(ended) = self.groups.end_action(self.now) {
            if let Some(slot) = ended.free {
                let actions = self.pool.released(ended.group, slot, self.clock());
                self.carry_out(actions, grants);
            }
            if ended.is_last {
                let actions = self.pool.close_group(ended.group, self.clock());
                self.carry_out(actions, grants);
            }
        }
        if self.groups.ends_period(self.now) {
            let (groups, pool, now) = (&self.groups, &self.pool, self.now);
            let given: BTreeMap<_, _> = groups.open().map(|id| (id, pool.given(id))).collect();
            let progress = |id| groups.progress(id, now, given.get(&id).copied().unwrap_or(0));
            let actions = self.pool.end_period(progress, self.clock());
            self.carry_out(actions, grants);
        }
        while let Some((id, group)) = self.groups.arrived(self.now) {
            let new = NewGroup { tenant: group.tenant, goal: group.goal, limits: group.limits };
            let (class, accelerator) = (SlotClass::default(), AcceleratorId(0));
            let opened = self.pool.open_group(id, new, class, accelerator, self.clock());
            self.groups.opened(id, opened.is_ok());
            if let Ok(actions) = opened {
                self.carry_out(actions, grants);
            }
        }
    }

    /// Carries out what the pool decided, but for the starts of jobs, which are added to `grants`.
    pub(super) fn carry_out(&mut self, actions: Actions, grants: &mut Vec<Grant>) {
        let mut left = vec![actions];
        while let Some(actions) = left.pop() {
            grants.extend(actions.jobs);
            for (id, slot) in actions.grown {
                self.groups.grow(id, slot, self.now);
            }
            for (id, slot) in actions.recalled {
                if self.groups.recall(id, slot, self.now) {
                    left.push(self.pool.released(id, slot, self.clock()));
                }
            }
        }
    }
}
