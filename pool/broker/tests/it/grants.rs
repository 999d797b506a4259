use crate::bed::{Bed, digest, want};
use fpga_pool_api::client::{FromClient, ToClient, Want};
use fpga_pool_leases::ids::JobUuid;
use fpga_pool_leases::messages::{
    Activity, BrokerToManager, ManagerToBroker, Refusal, SlotCause, SlotStatus,
};
use std::time::Duration;

#[tokio::test]
async fn a_job_is_offered_a_free_slot_when_its_bitstream_is_loaded() {
    let bed = Bed::active().await;
    let (mut manager, mut client) = (bed.manager("n1", 1).await, bed.client("n2").await);
    let ticket = client.want(want(1, 10)).await;
    assert_eq!(ticket.ticket.job, JobUuid(1));
    let lease = manager.prepared().await;
    assert_eq!((lease.job, lease.digest, lease.tenant.as_str()), (JobUuid(1), digest(), "default"));
    let offer = client.offered().await;
    assert_eq!((offer.job, offer.lease, offer.digest), (JobUuid(1), lease.id, digest()));
    assert_eq!((&*offer.node, &*offer.endpoint.address), ("n1", "n1:1"));
    // The slot is taken until the manager says that it is free.
    client.want(want(2, 10)).await;
    manager.held(&lease, Activity::Busy).await;
    manager.free(lease.slot).await;
    assert_eq!(manager.prepared().await.job, JobUuid(2));
    assert_eq!(client.offered().await.job, JobUuid(2));
}

#[tokio::test]
async fn an_idle_lease_is_recalled_when_another_job_waits() {
    let bed = Bed::active().await;
    let (mut manager, mut client) = (bed.manager("n1", 1).await, bed.client("n1").await);
    let ticket = client.want(want(1, 10)).await;
    let lease = manager.prepared().await;
    client.offered().await;
    manager.held(&lease, Activity::Busy).await;
    manager.held(&lease, Activity::Idle).await;
    // First arrivals are told apart by milliseconds.
    tokio::time::sleep(Duration::from_millis(2)).await;
    client.want(want(2, 10)).await;
    assert_eq!(manager.next().await.unwrap(), BrokerToManager::Recall { lease: lease.id });
    manager.report(lease.slot, SlotStatus::Draining(lease.clone()), SlotCause::Recalled).await;
    // The recalled job wants its rest. Its ticket says that it came first.
    client.want(Want { ticket: Some(ticket), ..want(1, 5) }).await;
    manager.free(lease.slot).await;
    assert_eq!(manager.prepared().await.job, JobUuid(1));
}

#[tokio::test]
async fn a_refused_job_gets_another_slot() {
    let bed = Bed::active().await;
    let (mut manager, mut client) = (bed.manager("n1", 2).await, bed.client("n1").await);
    client.want(want(1, 10)).await;
    let lease = manager.prepare().await;
    manager.send(ManagerToBroker::Refused { lease: lease.id, why: Refusal::BadBitstream }).await;
    manager.free(lease.slot).await;
    let other = manager.prepared().await;
    assert_ne!(other.slot, lease.slot, "the first slot is out for a minute");
    assert_eq!(client.offered().await.lease, other.id);
}

#[tokio::test]
async fn a_cancelled_job_gets_nothing_and_a_job_that_waits_is_told_why() {
    let bed = Bed::active().await;
    let (mut manager, mut client) = (bed.manager("n1", 1).await, bed.client("n1").await);
    client.want(want(1, 10)).await;
    let lease = manager.prepared().await;
    client.offered().await;
    manager.held(&lease, Activity::Busy).await;
    client.want(want(2, 10)).await;
    client.want(want(3, 10)).await;
    // The reason comes with the ticket, and the number of jobs before with the next count.
    let mut told = Vec::new();
    while told.len() < 2 {
        match client.try_next().await.unwrap() {
            ToClient::Waits(waits) if waits.job == JobUuid(3) => {
                assert_eq!(waits.reason, "all fitting slots are taken");
                told.push(waits.ahead);
            }
            ToClient::Waits(_) => {}
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(told, [0, 1]);
    client.send(FromClient::Cancel(JobUuid(2))).await;
    // The Cancel has arrived when the answer to a later message has.
    client.want(want(4, 10)).await;
    manager.free(lease.slot).await;
    assert_eq!(manager.prepared().await.job, JobUuid(3));
}

#[tokio::test]
async fn a_lost_managers_slot_is_no_slot_and_comes_back_with_it() {
    let bed = Bed::active().await;
    let (manager, mut client) = (bed.manager("n1", 1).await, bed.client("n1").await);
    client.want(want(1, 10)).await;
    drop(manager);
    let mut manager = bed.manager("n1", 1).await;
    assert_eq!(manager.prepared().await.job, JobUuid(1));
    assert_eq!(client.offered().await.job, JobUuid(1));
}
