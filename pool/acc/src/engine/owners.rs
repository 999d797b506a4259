//! All that jobs are for.

use super::group::Group;
use super::owner::{Owner, OwnerId};
use super::run::Run;
use fpga_pool_leases::ids::{GroupUuid, JobUuid};
use std::collections::HashMap;

/// All owners.
#[derive(Default)]
pub(super) struct Owners {
    pub(super) runs: HashMap<JobUuid, Run>,
    pub(super) groups: HashMap<GroupUuid, Group>,
}

impl Owners {
    pub(super) fn get_mut(&mut self, id: OwnerId) -> Option<&mut dyn Owner> {
        match id {
            OwnerId::Run(job) => self.runs.get_mut(&job).map(|run| run as &mut dyn Owner),
            OwnerId::Group(group) => self.groups.get_mut(&group).map(|group| group as &mut dyn Owner),
        }
    }
}
