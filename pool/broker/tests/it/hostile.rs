use crate::bed::{Bed, Client, Manager, lease, want};
use fpga_board::slots::SlotIndex;
use fpga_core::units::WallTime;
use fpga_pool_api::client::{FromClient, SealedTicket, ToClient};
use fpga_pool_api::limits::{MAX_SLOTS, MAX_WAITING_JOBS_OF_CLIENT};
use fpga_pool_api::v1;
use fpga_pool_leases::ids::{JobUuid, LeaseId};
use fpga_pool_leases::lease::Ticket;
use fpga_pool_leases::messages::{Activity, CancelCause, ManagerToBroker, SlotCause, SlotStatus};
use fpga_test_kit::{patience, until_async};
use tokio::time::timeout;
use tonic::Code;

#[tokio::test]
async fn a_forged_ticket_gives_no_earlier_arrival() {
    let bed = Bed::active().await;
    let mut client = bed.client("n1").await;
    let ticket = Ticket { job: JobUuid(1), first_arrival: WallTime(1) };
    let forged = SealedTicket { ticket, code: [9; 32] };
    let sealed = client.want(fpga_pool_api::client::Want { ticket: Some(forged), ..want(1, 10) }).await;
    assert!(sealed.ticket.first_arrival > WallTime(1_000_000));
    // A true one is taken, and it is the job's own only.
    let mut again = bed.client("n1").await;
    let shown = fpga_pool_api::client::Want { ticket: Some(sealed), ..want(2, 10) };
    assert!(again.want(shown).await.ticket.first_arrival >= sealed.ticket.first_arrival);
}

#[tokio::test]
async fn a_stream_that_breaks_the_protocol_ends_with_the_reason() {
    let bed = Bed::active().await;
    let client = bed.client("n1").await;
    let bad = v1::FromClient { kind: Some(v1::from_client::Kind::Cancel(v1::JobRef { job: vec![1; 15] })) };
    assert_eq!(ends(client, bad).await, Code::InvalidArgument);
    let client = bed.client("n1").await;
    assert_eq!(ends(client, v1::FromClient { kind: None }).await, Code::InvalidArgument);
    let client = bed.client("n1").await;
    let long = v1::from_client::Kind::Hello(v1::Hello { token: "x".repeat(100_000), ..v1::Hello::default() });
    let code = ends(client, v1::FromClient { kind: Some(long) }).await;
    assert!(matches!(code, Code::OutOfRange | Code::Unavailable | Code::InvalidArgument), "{code:?}");
    let mut manager = bed.manager("n1", 1).await;
    manager.register(vec![SlotStatus::Free]).await;
    assert_eq!(manager.next().await.unwrap_err().code(), Code::InvalidArgument);
    let mut manager = Manager::hello(bed.connect().await, "", "n2").await.unwrap();
    manager.register(vec![SlotStatus::Free; MAX_SLOTS + 1]).await;
    assert_eq!(manager.next().await.unwrap_err().code(), Code::InvalidArgument);
    // Others are served as before.
    let (mut manager, mut client) = (bed.manager("n3", 1).await, bed.client("n3").await);
    client.want(want(1, 10)).await;
    manager.prepared().await;
    client.offered().await;
}

async fn ends(mut client: Client, message: v1::FromClient) -> Code {
    client.to.send(message).await.unwrap();
    client.try_next_error().await
}

#[tokio::test]
async fn a_manager_that_lies_harms_its_own_slots_only() {
    let bed = Bed::active().await;
    let mut honest = bed.manager("n1", 1).await;
    let mut liar = bed.manager("n2", 1).await;
    // Leases that nobody granted, answers that nobody asked for, and a report about a slot that is not there.
    liar.send(ManagerToBroker::Prepared { lease: LeaseId(99) }).await;
    liar.report(
        SlotIndex(0),
        SlotStatus::Held(lease(5, 0, 77, "victim"), Activity::Idle),
        SlotCause::Attached,
    )
    .await;
    liar.report(SlotIndex(63), SlotStatus::Free, SlotCause::Drained).await;
    assert_eq!(liar.next().await.unwrap_err().code(), Code::Unavailable);
    let mut client = bed.client("n1").await;
    client.want(want(77, 10)).await;
    let lease = honest.prepared().await;
    assert_eq!(client.offered().await.lease, lease.id);
}

#[tokio::test]
async fn boards_whose_streams_have_ended_make_room_for_others_of_their_node() {
    let bed = Bed::active().await;
    let lend = async |board: String| {
        let mut manager = Manager::hello(bed.connect().await, "", "n1").await.unwrap();
        manager.board = board;
        manager.register(vec![SlotStatus::Free]).await;
        manager
    };
    let mut managers = Vec::new();
    for board in 0..64 {
        managers.push(lend(board.to_string()).await);
    }
    until_async("64 boards", async || bed.boards().await.len() == 64).await;
    let mut beyond = lend("another".to_owned()).await;
    let refused = beyond.next().await.unwrap_err();
    assert_eq!(refused.code(), Code::ResourceExhausted);
    assert!(refused.message().contains("node n1 has 64 boards"), "{}", refused.message());
    drop(managers.pop());
    until_async("the place of a board that is gone", async || {
        let _lends = lend("another".to_owned()).await;
        bed.boards().await.contains(&"another".to_owned())
    })
    .await;
}

#[tokio::test]
async fn a_client_has_a_maximum_number_of_waiting_jobs() {
    let bed = Bed::active().await;
    let mut client = bed.client("n1").await;
    let most = MAX_WAITING_JOBS_OF_CLIENT as u128;
    for job in 0..most {
        client.want(want(job, 10)).await;
    }
    client.send(FromClient::Want(want(most, 10))).await;
    match client.next().await {
        ToClient::Cancelled(cancelled) => assert_eq!(cancelled.why, CancelCause::Full),
        other => panic!("{other:?}"),
    }
    // One that waits already may ask again.
    client.want(want(0, 20)).await;
}

#[tokio::test]
async fn floods_of_one_client_and_one_manager_keep_nobody_waiting() {
    let bed = Bed::active().await;
    let (mut manager, mut client) = (bed.manager("n1", 1).await, bed.client("n1").await);
    let flood = bed.client("n2").await;
    let flooding = tokio::spawn(async move {
        // The client never reads the answers.
        while flood.to.send(FromClient::Want(want(5, 10)).into()).await.is_ok() {}
    });
    let mut noise = bed.manager("n3", 1).await;
    let noisy = tokio::spawn(async move {
        loop {
            noise.report(SlotIndex(0), SlotStatus::Bad, SlotCause::LoadFailed).await;
        }
    });
    for job in 100..120 {
        client.want(want(job, 10)).await;
        loop {
            let lease = manager.prepared().await;
            manager.free(lease.slot).await;
            if lease.job == JobUuid(job) {
                break;
            }
        }
        client.offered().await;
    }
    flooding.abort();
    noisy.abort();
}

#[tokio::test]
async fn a_client_that_does_not_read_is_not_read_and_loses_no_answer() {
    const WANTS: usize = 10_000;
    let bed = Bed::active().await;
    let (mut manager, mut other) = (bed.manager("n1", 1).await, bed.client("n1").await);
    let Client { to, mut from } = Client::hello(bed.connect_with_window(1024).await, "", "n2").await.unwrap();
    let asking = tokio::spawn(async move {
        for _ in 0..WANTS {
            to.send(FromClient::Want(unfitting(5)).into()).await.unwrap();
        }
        to
    });
    // The broker has more than time enough to answer more than may wait.
    for job in 100..200 {
        other.want(want(job, 10)).await;
        let lease = manager.prepared().await;
        other.offered().await;
        manager.free(lease.slot).await;
    }
    let mut tickets = 0;
    while tickets < WANTS {
        let message = timeout(patience(), from.message()).await.unwrap().unwrap().unwrap();
        tickets += usize::from(matches!(message.kind, Some(v1::to_client::Kind::Ticket(_))));
    }
    drop(asking.await.unwrap());
}

/// A job for which there is no slot.
fn unfitting(job: u128) -> fpga_pool_api::client::Want {
    let mut want = want(job, 10);
    want.wanted.accelerator = "sha".into();
    want
}
