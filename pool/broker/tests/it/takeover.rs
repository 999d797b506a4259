use crate::bed::{Bed, Options, lease, want};
use fpga_pool_api::client::Want;
use fpga_pool_leases::ids::{Attempt, JobUuid};
use fpga_pool_leases::messages::{Activity, SlotStatus};
use tonic::Code;

#[tokio::test]
async fn after_a_restart_managers_register_again_and_jobs_keep_their_first_arrival() {
    let bed = Bed::active().await;
    let mut client = bed.client("n1").await;
    let ticket = client.want(want(1, 10)).await;
    let mut manager = bed.manager_with("", "n2", vec![SlotStatus::Bad]).await;
    bed.stop().await;
    // Streams end with the word to ask another broker.
    assert_eq!(client.try_next_error().await, Code::Unavailable);
    assert_eq!(manager.next().await.unwrap_err().code(), Code::Unavailable);

    let bed = Bed::listening(Options::default()).await;
    // While the broker listens, a newcomer is the first to come.
    let mut newcomer = bed.client("n1").await;
    newcomer.want(want(2, 10)).await;
    let mut client = bed.client("n1").await;
    let shown = Want { ticket: Some(ticket), attempt: Attempt(2), ..want(1, 10) };
    assert_eq!(client.want(shown).await.ticket, ticket.ticket);
    let held = lease(50, 0, 60, "default");
    let slots = vec![SlotStatus::Held(held.clone(), Activity::Busy), SlotStatus::Free];
    let mut manager = bed.manager_with("", "n1", slots).await;
    // The free slot goes to the job that came first, the other one when its lease has ended.
    assert_eq!(manager.prepared().await.job, JobUuid(1));
    client.offered().await;
    manager.free(held.slot).await;
    assert_eq!(manager.prepared().await.job, JobUuid(2));
    newcomer.offered().await;
}

#[tokio::test]
async fn a_broker_that_stands_by_sends_everybody_away() {
    let bed = Bed::active().await;
    let client = bed.client("n1").await;
    bed.desk.tell(fpga_pool::state::Input::LeaseLost).await.unwrap();
    let mut client = client;
    assert_eq!(client.try_next_error().await, Code::Unavailable);
    let refused = crate::bed::Client::hello(bed.connect().await, "", "n1").await;
    assert_eq!(refused.err().map(|status| status.code()), Some(Code::Unavailable));
}
