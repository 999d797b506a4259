//! Leases and what they are for.

use crate::limits::{MAX_ADDRESS_BYTES, MAX_GROUP_SLOTS, MAX_NAME_BYTES, MAX_SLOTS, MAX_SOCKET_BYTES};
use crate::wire::{array, id, id_bytes, name, optional_array, present, text, within};
use crate::{Malformed, v1};
use fpga_board::dispatch::Tenant;
use fpga_board::slots::SlotIndex;
use fpga_core::bitstream::Digest;
use fpga_core::units::{Millis, WallTime};
use fpga_pool_leases::ids::{GroupUuid, Incarnation, JobUuid, LeaseId};
use fpga_pool_leases::lease::{Endpoint, Goal, Group, Lease, Usage, Work};

/// The index of a slot.
pub fn slot(index: u32) -> Result<SlotIndex, Malformed> {
    // The conversion is exact: MAX_SLOTS is small.
    if (index as usize) < MAX_SLOTS { Ok(SlotIndex(index)) } else { Err(Malformed::Range("slot")) }
}

/// A digest.
pub fn digest(bytes: &[u8]) -> Result<Digest, Malformed> {
    array(bytes, "digest").map(Digest::from_bytes)
}

impl TryFrom<v1::Lease> for Lease {
    type Error = Malformed;

    fn try_from(lease: v1::Lease) -> Result<Self, Malformed> {
        let v1::Lease {
            id: lease_id,
            incarnation,
            slot: index,
            job,
            tenant,
            digest: bytes,
            work,
            first_arrival_ms,
        } = lease;
        Ok(Self {
            id: LeaseId(id(&lease_id, "Lease.id")?),
            incarnation: Incarnation(id(&incarnation, "Lease.incarnation")?),
            slot: slot(index)?,
            job: JobUuid(id(&job, "Lease.job")?),
            tenant: Tenant::new(&name(&tenant, MAX_NAME_BYTES, "Lease.tenant")?),
            digest: digest(&bytes)?,
            work: present(work, "Lease.work")?.try_into()?,
            first_arrival: WallTime(first_arrival_ms),
        })
    }
}

impl From<Lease> for v1::Lease {
    fn from(lease: Lease) -> Self {
        let Lease { id, incarnation, slot, job, tenant, digest, work, first_arrival } = lease;
        Self {
            id: id_bytes(id.0),
            incarnation: id_bytes(incarnation.0),
            slot: slot.0,
            job: id_bytes(job.0),
            tenant: tenant.as_str().to_owned(),
            digest: digest.as_bytes().to_vec(),
            work: Some(work.into()),
            first_arrival_ms: first_arrival.0,
        }
    }
}

impl TryFrom<v1::JobWork> for Work {
    type Error = Malformed;

    fn try_from(work: v1::JobWork) -> Result<Self, Malformed> {
        match present(work.kind, "JobWork.kind")? {
            v1::job_work::Kind::RunBytes(bytes) => Ok(Self::Run { bytes }),
            v1::job_work::Kind::Group(group) => group.try_into().map(Self::Group),
        }
    }
}

impl From<Work> for v1::JobWork {
    fn from(work: Work) -> Self {
        let kind = match work {
            Work::Run { bytes } => v1::job_work::Kind::RunBytes(bytes),
            Work::Group(group) => v1::job_work::Kind::Group(group.into()),
        };
        Self { kind: Some(kind) }
    }
}

impl TryFrom<v1::Group> for Group {
    type Error = Malformed;

    fn try_from(group: v1::Group) -> Result<Self, Malformed> {
        let v1::Group { id: group_id, goal, least, most } = group;
        Ok(Self {
            id: GroupUuid(id(&group_id, "Group.id")?),
            goal: present(goal, "Group.goal")?.try_into()?,
            least: within(least, 0, most, "Group.least")?,
            most: within(most, 1, MAX_GROUP_SLOTS, "Group.most")?,
        })
    }
}

impl From<Group> for v1::Group {
    fn from(group: Group) -> Self {
        let Group { id, goal, least, most } = group;
        Self { id: id_bytes(id.0), goal: Some(goal.into()), least, most }
    }
}

impl TryFrom<v1::Goal> for Goal {
    type Error = Malformed;

    fn try_from(goal: v1::Goal) -> Result<Self, Malformed> {
        let positive = |number, field| within(number, 1, u64::MAX, field);
        match present(goal.kind, "Goal.kind")? {
            v1::goal::Kind::Deadline(v1::Deadline { actions, within_ms }) => Ok(Self::Deadline {
                actions: positive(actions, "Deadline.actions")?,
                within: Millis(positive(within_ms, "Deadline.within_ms")?),
            }),
            v1::goal::Kind::ActionsPerHour(rate) => {
                Ok(Self::Throughput { actions_per_hour: positive(rate, "Goal.actions_per_hour")? })
            }
        }
    }
}

impl From<Goal> for v1::Goal {
    fn from(goal: Goal) -> Self {
        let kind = match goal {
            Goal::Deadline { actions, within } => {
                v1::goal::Kind::Deadline(v1::Deadline { actions, within_ms: within.0 })
            }
            Goal::Throughput { actions_per_hour } => v1::goal::Kind::ActionsPerHour(actions_per_hour),
        };
        Self { kind: Some(kind) }
    }
}

impl TryFrom<v1::Endpoint> for Endpoint {
    type Error = Malformed;

    fn try_from(endpoint: v1::Endpoint) -> Result<Self, Malformed> {
        let v1::Endpoint { address, key, socket } = endpoint;
        // An address may have brackets, and a path may have anything: whoever opens them checks them.
        if address.is_empty() {
            return Err(Malformed::Missing("Endpoint.address"));
        }
        text(&address, MAX_ADDRESS_BYTES, "Endpoint.address")?;
        text(&socket, MAX_SOCKET_BYTES, "Endpoint.socket")?;
        let socket = (!socket.is_empty()).then(|| socket.into());
        Ok(Self { address: address.into(), key: optional_array(&key, "Endpoint.key")?, socket })
    }
}

impl From<Endpoint> for v1::Endpoint {
    fn from(endpoint: Endpoint) -> Self {
        let Endpoint { address, key, socket } = endpoint;
        Self {
            address: address.as_ref().to_owned(),
            key: key.map(Vec::from).unwrap_or_default(),
            socket: socket.as_deref().unwrap_or_default().to_owned(),
        }
    }
}

impl From<v1::Usage> for Usage {
    fn from(usage: v1::Usage) -> Self {
        let v1::Usage { bytes, actions, busy_ms } = usage;
        Self { bytes, actions, busy: Millis(busy_ms) }
    }
}

impl From<Usage> for v1::Usage {
    fn from(usage: Usage) -> Self {
        let Usage { bytes, actions, busy } = usage;
        Self { bytes, actions, busy_ms: busy.0 }
    }
}
