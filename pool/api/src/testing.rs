//! Any value of the protocol, for tests.

use fpga_board::dispatch::Tenant;
use fpga_board::slots::SlotIndex;
use fpga_core::bitstream::Digest;
use fpga_core::units::{Millis, WallTime};
use fpga_pool_leases::ids::{GroupUuid, Incarnation, JobUuid, LeaseId};
use fpga_pool_leases::lease::{Endpoint, Goal, Group, Lease, Ticket, Usage, Work};
use proptest::prelude::*;
use std::sync::Arc;

pub fn name() -> impl Strategy<Value = Arc<str>> {
    "[A-Za-z0-9._/:@-]{1,128}".prop_map(Into::into)
}

pub fn digest() -> impl Strategy<Value = Digest> {
    any::<[u8; 32]>().prop_map(Digest::from_bytes)
}

pub fn work() -> impl Strategy<Value = Work> {
    let deadline =
        (1_u64.., 1_u64..).prop_map(|(actions, within)| Goal::Deadline { actions, within: Millis(within) });
    let throughput = (1_u64..).prop_map(|actions_per_hour| Goal::Throughput { actions_per_hour });
    let group = (any::<u128>(), prop_oneof![deadline, throughput], 0_u32..=1024, 1_u32..=1024).prop_map(
        |(id, goal, least, most)| {
            Work::Group(Group { id: GroupUuid(id), goal, least: least.min(most), most })
        },
    );
    prop_oneof![any::<u64>().prop_map(|bytes| Work::Run { bytes }), group]
}

pub fn lease() -> impl Strategy<Value = Lease> {
    (any::<(u128, u128, u128, u64)>(), 0_u32..64, name(), digest(), work()).prop_map(
        |((id, incarnation, job, first_arrival), slot, tenant, digest, work)| Lease {
            id: LeaseId(id),
            incarnation: Incarnation(incarnation),
            slot: SlotIndex(slot),
            job: JobUuid(job),
            tenant: Tenant::new(&tenant),
            digest,
            work,
            first_arrival: WallTime(first_arrival),
        },
    )
}

pub fn endpoint() -> impl Strategy<Value = Endpoint> {
    (name(), any::<Option<[u8; 32]>>(), proptest::option::of("/[a-z/]{1,100}"))
        .prop_map(|(address, key, socket)| Endpoint { address, key, socket: socket.map(Into::into) })
}

pub fn ticket() -> impl Strategy<Value = Ticket> {
    any::<(u128, u64)>().prop_map(|(job, at)| Ticket { job: JobUuid(job), first_arrival: WallTime(at) })
}

pub fn usage() -> impl Strategy<Value = Usage> {
    any::<(u64, u64, u64)>().prop_map(|(bytes, actions, busy)| Usage { bytes, actions, busy: Millis(busy) })
}

/// Changes some bytes of a message, and cuts it.
pub fn damage(mut bytes: Vec<u8>, changes: &[(usize, u8)], cut: usize) -> Vec<u8> {
    let length = bytes.len().max(1);
    for (at, to) in changes {
        if let Some(byte) = bytes.get_mut(at % length) {
            *byte = *to;
        }
    }
    bytes.truncate(length - cut % length);
    bytes
}
