use super::*;
use crate::limits::MAX_TOKEN_BYTES;
use crate::testing::{damage, digest as any_digest, endpoint, name as any_name, ticket, work};
use proptest::collection::vec;
use proptest::prelude::*;
use prost::Message as _;

fn sealed() -> impl Strategy<Value = SealedTicket> {
    (ticket(), any::<[u8; 32]>()).prop_map(|(ticket, code)| SealedTicket { ticket, code })
}

fn from_client() -> impl Strategy<Value = FromClient> {
    let hello = (any::<u32>(), ".{0,40}", proptest::option::of(any_name()))
        .prop_map(|(version, token, node)| FromClient::Hello(Hello { version, token, node }));
    let bundle = proptest::option::of((any::<u128>(), 2..=MAX_BUNDLE_JOBS));
    let want = (any::<(u128, u64)>(), any_name(), work(), proptest::option::of(sealed()), bundle).prop_map(
        |((job, attempt), accelerator, work, ticket, bundle)| {
            let is_run = matches!(work, Work::Run { .. });
            let bundle = bundle.filter(|_| is_run).map(|(id, size)| Bundle { id: BundleUuid(id), size });
            let wanted = Wanted { accelerator, work, bundle };
            FromClient::Want(Want { job: JobUuid(job), wanted, ticket, attempt: Attempt(attempt) })
        },
    );
    prop_oneof![hello, want, any::<u128>().prop_map(|job| FromClient::Cancel(JobUuid(job)))]
}

fn to_client() -> impl Strategy<Value = ToClient> {
    use CancelCause::*;
    let offer = (any::<(u128, u128)>(), endpoint(), any_name(), any_digest()).prop_map(
        |((job, lease), endpoint, node, digest)| {
            ToClient::Offer(Offer { job: JobUuid(job), lease: LeaseId(lease), endpoint, node, digest })
        },
    );
    let why = prop::sample::select(vec![NoFittingSlot, Full, Quota, Foreign, Incomplete]);
    let cancelled = (any::<u128>(), why, ".{0,100}")
        .prop_map(|(job, why, message)| ToClient::Cancelled(Cancelled { job: JobUuid(job), why, message }));
    let waits = (any::<(u128, u64)>(), ".{0,100}")
        .prop_map(|((job, ahead), reason)| ToClient::Waits(Waits { job: JobUuid(job), ahead, reason }));
    let ticket = (sealed(), proptest::option::of("[ -~]{1,40}"))
        .prop_map(|(ticket, interface)| ToClient::Ticket(ticket, interface.map(Into::into)));
    prop_oneof![ticket, offer, cancelled, waits]
}

proptest! {
    #[test]
    fn what_a_client_says_arrives_as_it_was(message in from_client()) {
        let bytes = v1::FromClient::from(message.clone()).encode_to_vec();
        let read = v1::FromClient::decode(&*bytes).unwrap();
        prop_assert_eq!(FromClient::try_from(read), Ok(message));
    }

    #[test]
    fn what_the_broker_says_to_a_client_arrives_as_it_was(message in to_client()) {
        let bytes = v1::ToClient::from(message.clone()).encode_to_vec();
        let read = v1::ToClient::decode(&*bytes).unwrap();
        prop_assert_eq!(ToClient::try_from(read), Ok(message));
    }

    #[test]
    fn damaged_messages_are_refused_or_keep_all_bounds(
        from in from_client(), to in to_client(), changes in vec((any::<usize>(), any::<u8>()), 0..6), cut in 0_usize..9,
    ) {
        let bytes = damage(v1::FromClient::from(from).encode_to_vec(), &changes, cut);
        if let Ok(Ok(read)) = v1::FromClient::decode(&*bytes).map(FromClient::try_from) {
            prop_assert_eq!(FromClient::try_from(v1::FromClient::from(read.clone())), Ok(read));
        }
        let bytes = damage(v1::ToClient::from(to).encode_to_vec(), &changes, cut);
        if let Ok(Ok(read)) = v1::ToClient::decode(&*bytes).map(ToClient::try_from) {
            prop_assert_eq!(ToClient::try_from(v1::ToClient::from(read.clone())), Ok(read));
        }
    }

    #[test]
    fn arbitrary_bytes_are_no_reason_to_panic(bytes in vec(any::<u8>(), 0..300)) {
        let _ = v1::FromClient::decode(&*bytes).map(FromClient::try_from);
        let _ = v1::ToClient::decode(&*bytes).map(ToClient::try_from);
    }
}

fn wire_want() -> v1::Want {
    let kind = Some(v1::job_work::Kind::RunBytes(5));
    v1::Want {
        job: vec![1; 16],
        accelerator: "aes".into(),
        work: Some(v1::JobWork { kind }),
        ticket: None,
        attempt: 1,
        bundle: None,
    }
}

fn bundle(size: u32) -> Option<v1::Bundle> {
    Some(v1::Bundle { id: vec![3; 16], size })
}

fn group(least: u32, most: u32, actions: u64) -> Option<v1::JobWork> {
    let deadline = v1::goal::Kind::Deadline(v1::Deadline { actions, within_ms: 1 });
    let goal = Some(v1::Goal { kind: Some(deadline) });
    let group = v1::Group { id: vec![2; 16], goal, least, most };
    Some(v1::JobWork { kind: Some(v1::job_work::Kind::Group(group)) })
}

#[test]
fn a_want_that_breaks_a_bound_is_refused() {
    let read = |change: fn(&mut v1::Want)| {
        let mut want = wire_want();
        change(&mut want);
        FromClient::try_from(v1::FromClient { kind: Some(v1::from_client::Kind::Want(want)) })
    };
    assert!(read(|_| {}).is_ok() && read(|want| want.work = group(0, 1, 1)).is_ok());
    assert!(read(|want| want.bundle = bundle(MAX_BUNDLE_JOBS)).is_ok());
    let changes: [fn(&mut v1::Want); 13] = [
        |want| want.job = Vec::new(),
        |want| want.accelerator = String::new(),
        |want| want.accelerator = "a".repeat(MAX_ACCELERATOR_BYTES + 1),
        |want| want.accelerator = "a\nb".into(),
        |want| want.work = None,
        |want| want.work = group(2, 1, 1),
        |want| want.work = group(0, 1025, 1),
        |want| want.work = group(0, 1, 0),
        |want| want.bundle = bundle(1),
        |want| want.bundle = bundle(MAX_BUNDLE_JOBS + 1),
        |want| want.bundle = Some(v1::Bundle { id: Vec::new(), size: 2 }),
        |want| (want.work, want.bundle) = (group(0, 1, 1), bundle(2)),
        |want| {
            want.ticket = Some(v1::Ticket {
                job: vec![1; 16],
                first_arrival_ms: 1,
                code: vec![0; 8],
                ..v1::Ticket::default()
            });
        },
    ];
    for (number, change) in changes.into_iter().enumerate() {
        assert!(read(change).is_err(), "{number}");
    }
}

#[test]
fn a_ticket_without_its_code_is_left_out() {
    let wanted = Wanted { accelerator: "aes".into(), work: Work::Run { bytes: 1 }, bundle: None };
    let ticket = Ticket { job: JobUuid(1), first_arrival: WallTime(2) };
    let want = ClientToBroker::Want { job: JobUuid(1), wanted, ticket: Some(ticket), attempt: Attempt(1) };
    for code in [None, Some([7; 32])] {
        let Ok(FromClient::Want(read)) = FromClient::encode(want.clone(), code).try_into() else {
            panic!("no Want");
        };
        assert_eq!(read.ticket, code.map(|code| SealedTicket { ticket, code }));
    }
}

#[test]
fn texts_for_people_are_cut_at_a_character() {
    let message = "é".repeat(400);
    let cancelled = Cancelled { job: JobUuid(1), why: CancelCause::Quota, message };
    let Ok(ToClient::Cancelled(read)) = v1::ToClient::from(ToClient::Cancelled(cancelled)).try_into() else {
        panic!("not cancelled");
    };
    assert_eq!(read.message, "é".repeat(MAX_TEXT_BYTES / 2));
}

#[test]
fn a_log_does_not_give_a_token_away() {
    let hello = Hello { version: 1, token: "secret".into(), node: None };
    assert!(!format!("{hello:?}").contains("secret"));
    let long = v1::Hello { token: "x".repeat(MAX_TOKEN_BYTES + 1), ..v1::Hello::default() };
    assert!(matches!(Hello::try_from(long), Err(Malformed::TooLong { .. })));
}
