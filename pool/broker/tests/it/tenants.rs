use crate::bed::{Bed, Client, Manager, Options, TOKENS, want};
use fpga_net::proof::PROVED_FOR;
use fpga_pool::identity::TokensFile;
use fpga_pool::looks::PAUSE;
use fpga_pool::policy::TenantSettings;
use fpga_pool_api::client::{FromClient, ToClient, Want};
use fpga_pool_api::v1;
use fpga_pool_leases::ids::{Attempt, JobUuid};
use fpga_pool_leases::messages::{Activity, CancelCause, SlotStatus};
use fpga_test_kit::{on_paused_clock, until_async};
use std::time::Duration;
use tokio::time::advance;
use tonic::Code;

const A: &str = "client-token-of-a-00";
const B: &str = "client-token-of-b-00";
const MANAGER: &str = "manager-token-of-n1";
const OPERATOR: &str = "operator-token-00000";
const MOMENT: Duration = Duration::from_millis(1);

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
    for token in [A, OPERATOR] {
        let lend = Manager::hello(bed.connect().await, token, "n1").await;
        assert_eq!(lend.err().map(|status| status.code()), Some(Code::PermissionDenied));
    }
    assert_eq!(code(Client::hello(bed.connect().await, OPERATOR, "n1").await), Some(Code::PermissionDenied));
}

#[tokio::test]
async fn a_managers_token_lends_its_board_and_shows_nothing_of_the_pool() {
    let (_folder, bed) = with_tokens("").await;
    let look = bed.connect().await.look(v1::LookRequest { token: MANAGER.to_owned() }).await.unwrap_err();
    assert_eq!(look.code(), Code::PermissionDenied);
    assert!(look.message().contains("registers its board"), "{}", look.message());
    bed.manager_with(MANAGER, "n1", vec![SlotStatus::Free]).await;
}

#[tokio::test]
async fn a_stream_lasts_an_hour_at_most_and_a_revoked_token_opens_no_other() {
    let (folder, bed) = with_tokens("").await;
    on_paused_clock(async {
        let mut manager = bed.manager_with(MANAGER, "n1", vec![SlotStatus::Bad]).await;
        let mut client = Client::hello(bed.connect().await, A, "").await.unwrap();
        let revoked = TOKENS.replace(MANAGER, "another-token-of-n1").replace(A, "another-token-of-a-0");
        std::fs::write(folder.path().join("tokens.json"), revoked).unwrap();
        advance(Duration::from_secs(40 * 60)).await;
        client.want(want(1, 10)).await;
        advance(Duration::from_secs(20 * 60) + MOMENT).await;
        let of_client = loop {
            if let Err(status) = client.try_next().await {
                break status;
            }
        };
        for status in [of_client, manager.next().await.unwrap_err()] {
            assert_eq!(status.code(), Code::Unavailable);
            assert!(status.message().contains("shows its token again"), "{}", status.message());
        }
        let again = Client::hello(bed.connect().await, A, "").await;
        assert_eq!(again.err().map(|status| status.code()), Some(Code::Unauthenticated));
        let again = Manager::hello(bed.connect().await, MANAGER, "n1").await;
        assert_eq!(again.err().map(|status| status.code()), Some(Code::Unauthenticated));
        Client::hello(bed.connect().await, B, "").await.unwrap();
    })
    .await;
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
async fn the_hourly_end_of_streams_costs_no_job_its_place_and_no_lease_its_slot() {
    let (_folder, bed) = with_tokens("").await;
    on_paused_clock(async {
        let mut manager = bed.manager_with(MANAGER, "n1", vec![SlotStatus::Free]).await;
        let mut first = Client::hello(bed.connect().await, A, "").await.unwrap();
        first.want(want(1, 10)).await;
        let lease = manager.prepared().await;
        first.offered().await;
        manager.held(&lease, Activity::Busy).await;
        let ticket = first.want(want(2, 10)).await;
        advance(MOMENT).await;
        let mut second = Client::hello(bed.connect().await, A, "").await.unwrap();
        second.want(want(3, 10)).await;
        advance(PROVED_FOR).await;
        for code in [
            first.try_next_error().await,
            second.try_next_error().await,
            manager.next().await.unwrap_err().code(),
        ] {
            assert_eq!(code, Code::Unavailable);
        }
        // All come back as our library and manager do, the later job first.
        let mut second = Client::hello(bed.connect().await, A, "").await.unwrap();
        second.want(Want { attempt: Attempt(2), ..want(3, 10) }).await;
        let held = SlotStatus::Held(lease.clone(), Activity::Busy);
        let mut manager = bed.manager_with(MANAGER, "n1", vec![held]).await;
        let mut first = Client::hello(bed.connect().await, A, "").await.unwrap();
        first.want(Want { attempt: Attempt(2), ticket: Some(ticket), ..want(2, 10) }).await;
        manager.free(lease.slot).await;
        assert_eq!(
            manager.prepared().await.job,
            JobUuid(2),
            "the slot was kept for its lease, and the job its place"
        );
        assert_eq!(first.offered().await.job, JobUuid(2));
    })
    .await;
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
    for (token, jobs) in [(A, vec![1]), (B, vec![2]), (OPERATOR, vec![1, 2])] {
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
    let port = bed.connect().await;
    let look = |token: &str| {
        let (mut port, token) = (port.clone(), token.to_owned());
        tokio::spawn(async move { port.look(v1::LookRequest { token }).await })
    };
    on_paused_clock(async {
        look(B).await.unwrap().unwrap();
        // The next view is not due, so all of these are under way at once.
        let of_a = [(); 16].map(|()| look(A));
        let of_b = look(B);
        let answered = || of_a.iter().chain([&of_b]).filter(|look| look.is_finished()).count();
        let until_answered = async |count| {
            until_async(format!("{count} answers"), async || match answered() {
                found if found == count => Ok(()),
                found => Err(found.to_string()),
            })
            .await;
        };
        until_answered(12).await;
        for seen in 1..=5 {
            advance(PAUSE - MOMENT).await;
            assert_eq!(answered(), 11 + seen, "a view before its time");
            advance(MOMENT * 2).await;
            until_answered(12 + seen).await;
        }
        of_b.await.unwrap().unwrap();
        let mut refused = 0;
        for look in of_a {
            if let Err(status) = look.await.unwrap() {
                refused += 1;
                assert_eq!(status.code(), Code::ResourceExhausted);
                assert!(status.message().contains("look again"), "{}", status.message());
            }
        }
        assert_eq!(refused, 12);
        // The looks are over: the tenant has its places again.
        let again = look(A);
        advance(PAUSE + MOMENT).await;
        again.await.unwrap().unwrap();
    })
    .await;
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
    for (token, accelerator) in [(A, "aes"), (B, ""), (OPERATOR, "aes")] {
        let pool = port.look(v1::LookRequest { token: token.to_owned() }).await.unwrap().into_inner();
        let slot = &pool.boards[0].slots[0];
        assert_eq!((slot.state.as_str(), slot.accelerator.as_str()), ("reserved", accelerator));
        assert_eq!(slot.work.is_some(), !accelerator.is_empty());
    }
}
