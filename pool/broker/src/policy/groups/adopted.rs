//! Groups that another broker has opened: their leases and their clients tell what they are.

use super::{Arrival, GroupKey, Origin, goal};
use crate::policy::Policy;
use fpga_cluster::pool::{AcceleratorId, SlotClass, TenantId};
use fpga_cluster::qos::JobId as GroupId;
use fpga_core::units::Moment;
use fpga_pool_leases::lease;
use std::time::Duration;

impl Policy {
    /// The group of a lease that this policy did not decide, which arrived at `since` if not earlier. `None` if the group
    /// can't be open in that class: the lease counts as a job of its own then.
    pub(in crate::policy) fn adopt_group(
        &mut self,
        tenant: TenantId,
        group: &lease::Group,
        class: SlotClass,
        accelerator: AcceleratorId,
        since: Duration,
        now: Moment,
    ) -> Option<(GroupKey, GroupId)> {
        let key = GroupKey { tenant, uuid: group.id };
        let arrival = Arrival { since, origin: Origin::Adopted };
        match self.groups.groups.get(&key) {
            None => {
                let opened = self.open(key, group, class, accelerator, arrival, now);
                // The tenant may have a smaller guarantee than before.
                let without_minimum = lease::Group { least: 0, ..*group };
                let opened =
                    opened.or_else(|_| self.open(key, &without_minimum, class, accelerator, arrival, now));
                self.act(opened.ok()?, now);
            }
            // A client has shown its ticket, and a manager could say anything.
            Some(known) if known.arrival.origin == Origin::Asked => {}
            Some(_) => self.arrived(key, since),
        }
        let of_key = self.groups.groups.get_mut(&key).filter(|of_key| of_key.class == class)?;
        of_key.held += 1;
        Some((key, of_key.id))
    }

    /// A job or a lease of a group tells when it arrived: the group is as old as the oldest of them.
    pub(super) fn arrived(&mut self, key: GroupKey, since: Duration) {
        if let Some(group) = self.groups.groups.get_mut(&key).filter(|group| since < group.arrival.since)
            && let Ok(goal) = goal(group.asked.goal, since)
        {
            (group.arrival.since, group.goal) = (since, goal);
            self.pool.set_goal(group.id, goal);
        }
    }
}
