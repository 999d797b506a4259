use crate::bed::{Bed, Client, Options, TOKENS, want};
use fpga_pool::identity::TokensFile;
use fpga_pool::looks::PAUSE;
use fpga_pool::policy::TenantSettings;
use fpga_pool_api::client::{FromClient, ToClient};
use fpga_pool_api::v1;
use fpga_pool_api::v1::broker_client::BrokerClient;
use fpga_pool_leases::ids::JobUuid;
use fpga_pool_leases::messages::{Activity, CancelCause, SlotStatus};
use std::time::Instant;
use tonic::Code;
use tonic::transport::Channel;

const A: &str = "client-token-of-a-00";
const B: &str = "client-token-of-b-00";
const MANAGER: &str = "manager-token-of-n1";

async fn with_tokens(tenants: &str) -> (tempfile::TempDir, Bed) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("tokens.json");
    std::fs::write(&path, TOKENS).unwrap();
    let tokens = Some(TokensFile::open(&path).unwrap());
    let tenants = TenantSettings::parse(tenants).unwrap();
    (folder, Bed::start(Options { tenants, tokens, ..Options::default() }).await)
}

#[tokio::test]
async fn quotas_of_slots_and_of_waiting_jobs_hold() {
    let (_folder, bed) = with_tokens("[tenants.a]\nheld-slots = 1\nwaiting-jobs = 1\n").await;
    let mut manager = bed.manager_with(MANAGER, "n1", vec![SlotStatus::Free; 2]).await;
    let mut a = Client::hello(bed.connect().await, A, "").await.unwrap();
    a.want(want(1, 10)).await;
    let lease = manager.prepared().await;
    assert_eq!(lease.tenant.as_str(), "a");
    a.offered().await;
    manager.held(&lease, Activity::Busy).await;
    // The second job waits although a slot is free, and the third one is one too many.
    a.want(want(2, 10)).await;
    a.want(want(3, 10)).await;
    match a.next().await {
        ToClient::Cancelled(cancelled) => {
            assert_eq!((cancelled.job, cancelled.why), (JobUuid(3), CancelCause::Quota));
            assert!(cancelled.message.contains("quota of waiting jobs"), "{}", cancelled.message);
        }
        other => panic!("{other:?}"),
    }
    let mut b = Client::hello(bed.connect().await, B, "").await.unwrap();
    b.want(want(4, 10)).await;
    let of_b = manager.prepared().await;
    assert_eq!(of_b.job, JobUuid(4));
    manager.free(lease.slot).await;
    assert_eq!(manager.prepared().await.job, JobUuid(2));
}

#[tokio::test]
async fn a_token_opens_its_kind_of_stream_only() {
    let (_folder, bed) = with_tokens("").await;
    let code = |result: Result<Client, tonic::Status>| result.err().map(|status| status.code());
    assert_eq!(code(Client::hello(bed.connect().await, "", "n1").await), Some(Code::Unauthenticated));
    assert_eq!(code(Client::hello(bed.connect().await, "x", "n1").await), Some(Code::Unauthenticated));
    assert_eq!(code(Client::hello(bed.connect().await, MANAGER, "n1").await), Some(Code::PermissionDenied));
    assert_eq!(code(Client::hello(bed.connect().await, A, "n1").await), None);
    let lend = crate::bed::Manager::hello(bed.connect().await, A, "n1").await;
    assert_eq!(lend.err().map(|status| status.code()), Some(Code::PermissionDenied));
}

#[tokio::test]
async fn a_manager_lends_slots_of_the_node_that_its_token_names() {
    let (_folder, bed) = with_tokens("").await;
    let mut manager = bed.manager_with(MANAGER, "n5", vec![SlotStatus::Free]).await;
    let mut a = Client::hello(bed.connect().await, A, "").await.unwrap();
    a.want(want(1, 10)).await;
    manager.prepared().await;
    assert_eq!(&*a.offered().await.node, "n1");
}

#[tokio::test]
async fn tenants_see_their_own_jobs_and_cancel_no_others() {
    let (_folder, bed) = with_tokens("").await;
    let mut a = Client::hello(bed.connect().await, A, "").await.unwrap();
    let mut b = Client::hello(bed.connect().await, B, "").await.unwrap();
    a.want(want(1, 10)).await;
    b.want(want(2, 10)).await;
    b.send(FromClient::Cancel(JobUuid(1))).await;
    b.send(FromClient::Want(want(1, 10))).await;
    match b.next().await {
        ToClient::Cancelled(cancelled) => assert_eq!(cancelled.why, CancelCause::Foreign),
        other => panic!("{other:?}"),
    }
    let mut port = bed.connect().await;
    for (token, jobs) in
        [(A, vec![1]), (B, vec![2]), (MANAGER, vec![1, 2]), ("operator-token-00000", vec![1, 2])]
    {
        let pool = port.look(v1::LookRequest { token: token.to_owned() }).await.unwrap().into_inner();
        let seen: Vec<u8> = pool.jobs.iter().map(|job| job.job[15]).collect();
        assert_eq!((seen, pool.waiting), (jobs.clone(), jobs.len() as u64));
        assert!(pool.jobs.iter().all(|job| job.reason.contains("no lent slot can run aes")));
    }
    let unknown = port.look(v1::LookRequest { token: "x".repeat(20) }).await.unwrap_err();
    assert_eq!(unknown.code(), Code::Unauthenticated);
}

#[tokio::test]
async fn who_looks_again_and_again_is_refused_with_what_to_do_and_others_see_the_pool() {
    let (_folder, bed) = with_tokens("").await;
    let look = |mut port: BrokerClient<Channel>, token: &str| {
        let request = v1::LookRequest { token: token.to_owned() };
        async move { port.look(request).await }
    };
    let (port, began) = (bed.connect().await, Instant::now());
    let looks: Vec<_> = (0..16).map(|_| tokio::spawn(look(port.clone(), A))).collect();
    look(bed.connect().await, B).await.unwrap();
    let mut seen = 1;
    for answer in looks {
        match answer.await.unwrap() {
            Ok(_) => seen += 1,
            Err(status) => {
                assert_eq!(status.code(), Code::ResourceExhausted);
                assert!(status.message().contains("look again"), "{}", status.message());
            }
        }
    }
    assert!((2..17).contains(&seen), "{seen}");
    assert!(began.elapsed() >= (seen - 1) * PAUSE);
    // The looks are over: the tenant has its places again.
    look(port, A).await.unwrap();
}

#[tokio::test]
async fn what_a_slot_computes_is_shown_to_its_tenant_and_to_operators() {
    let (_folder, bed) = with_tokens("").await;
    let mut manager = bed.manager_with(MANAGER, "n1", vec![SlotStatus::Free]).await;
    let mut a = Client::hello(bed.connect().await, A, "").await.unwrap();
    a.want(want(1, 10)).await;
    manager.prepared().await;
    a.offered().await;
    let mut port = bed.connect().await;
    for (token, accelerator) in [(A, "aes"), (B, ""), ("operator-token-00000", "aes")] {
        let pool = port.look(v1::LookRequest { token: token.to_owned() }).await.unwrap().into_inner();
        let slot = &pool.boards[0].slots[0];
        assert_eq!((slot.state.as_str(), slot.accelerator.as_str()), ("reserved", accelerator));
        assert_eq!(slot.work.is_some(), !accelerator.is_empty());
    }
}
