use super::*;
use crate::testing::{damage, digest as any_digest, endpoint, lease, name as any_name, usage};
use fpga_pool_leases::messages::{Activity, Refusal, SlotCause, SlotReport};
use proptest::collection::vec;
use proptest::prelude::*;
use prost::Message as _;

fn status() -> impl Strategy<Value = SlotStatus> {
    let held = (lease(), prop_oneof![Just(Activity::Busy), Just(Activity::Idle)])
        .prop_map(|(lease, activity)| SlotStatus::Held(lease, activity));
    prop_oneof![
        Just(SlotStatus::Free),
        lease().prop_map(SlotStatus::Reserved),
        held,
        lease().prop_map(SlotStatus::Draining),
        Just(SlotStatus::Bad),
    ]
}

fn cause() -> impl Strategy<Value = SlotCause> {
    use SlotCause::*;
    prop::sample::select(vec![
        Attached,
        NotAttached,
        Released,
        Closed,
        Silent,
        Recalled,
        YieldOverdue,
        Misbehaved,
        Idle,
        Busy,
        Drained,
        Killed,
        NotReaped,
        LoadFailed,
        Probed,
        Unchanged,
        Used,
    ])
}

fn refusal() -> impl Strategy<Value = Refusal> {
    use Refusal::*;
    let others = prop::sample::select(vec![
        OtherIncarnation,
        NoSuchSlot,
        NotFree,
        Ended,
        BadBitstream,
        LoadFailed,
        NoFile,
        Recalled,
    ]);
    prop_oneof![any::<u64>().prop_map(|term| OldTerm { max_term: Term(term) }), others]
}

fn report() -> impl Strategy<Value = SlotReport> {
    (any::<u64>(), 0_u32..64, status(), cause(), usage()).prop_map(|(seq, slot, status, why, usage)| {
        SlotReport { seq, slot: fpga_board::slots::SlotIndex(slot), status, why, usage }
    })
}

fn board() -> impl Strategy<Value = Board> {
    (any_name(), any_name(), proptest::option::of(any_name()), any_name())
        .prop_map(|(name, kind, shell, node)| Board { name, kind, shell, node })
}

fn lent() -> impl Strategy<Value = LentSlot> {
    (proptest::option::of(any_name()), proptest::option::of(any_digest()))
        .prop_map(|(region, loaded)| LentSlot { region, loaded })
}

prop_compose! {
    fn register()(
        incarnation in any::<u128>(), term in any::<u64>(), endpoint in endpoint(), board in board(),
        slots in vec((status(), lent()), 0..=8),
    ) -> (LentBoard, ManagerToBroker) {
        let (slots, lent) = slots.into_iter().unzip();
        let (incarnation, max_term) = (Incarnation(incarnation), Term(term));
        (LentBoard { board, slots: lent }, ManagerToBroker::Register { incarnation, max_term, endpoint, slots })
    }
}

fn message() -> impl Strategy<Value = FromManager> {
    prop_oneof![
        register().prop_map(|(board, register)| FromManager::Register(board, register)),
        report().prop_map(|report| FromManager::Message(ManagerToBroker::Slot(report))),
        any::<u128>().prop_map(|id| FromManager::Message(ManagerToBroker::Prepared { lease: LeaseId(id) })),
        (any::<u128>(), refusal()).prop_map(|(id, why)| {
            FromManager::Message(ManagerToBroker::Refused { lease: LeaseId(id), why })
        }),
    ]
}

fn encode(message: FromManager) -> v1::FromManager {
    let none = Board { name: "b".into(), kind: "k".into(), shell: None, node: "n".into() };
    match message {
        FromManager::Hello(hello) => hello.into(),
        FromManager::Register(board, register) => FromManager::encode(register, &board),
        FromManager::Message(message) => {
            FromManager::encode(message, &LentBoard { board: none, slots: Vec::new() })
        }
    }
}

fn to_manager() -> impl Strategy<Value = BrokerToManager> {
    prop_oneof![
        (any::<u64>(), lease(), prop::option::of(10..=u32::MAX)).prop_map(|(term, lease, every)| {
            let usage_every = every.map(|every| Millis(every.into()));
            BrokerToManager::Prepare { term: Term(term), lease, usage_every }
        }),
        any::<u128>().prop_map(|id| BrokerToManager::Recall { lease: LeaseId(id) }),
    ]
}

proptest! {
    #[test]
    fn what_a_manager_says_arrives_as_it_was(message in message()) {
        let bytes = encode(message.clone()).encode_to_vec();
        let read = v1::FromManager::decode(&*bytes).unwrap();
        prop_assert_eq!(FromManager::try_from(read), Ok(message));
    }

    #[test]
    fn what_the_broker_says_to_a_manager_arrives_as_it_was(message in to_manager()) {
        let bytes = v1::ToManager::from(message.clone()).encode_to_vec();
        let read = v1::ToManager::decode(&*bytes).unwrap();
        prop_assert_eq!(BrokerToManager::try_from(read), Ok(message));
    }

    #[test]
    fn damaged_messages_are_refused_or_keep_all_bounds(
        message in message(), to in to_manager(), changes in vec((any::<usize>(), any::<u8>()), 0..6), cut in 0_usize..9,
    ) {
        let bytes = damage(encode(message).encode_to_vec(), &changes, cut);
        if let Ok(Ok(read)) = v1::FromManager::decode(&*bytes).map(FromManager::try_from) {
            // A message that was read can be written.
            prop_assert_eq!(FromManager::try_from(encode(read.clone())), Ok(read));
        }
        let bytes = damage(v1::ToManager::from(to).encode_to_vec(), &changes, cut);
        if let Ok(Ok(read)) = v1::ToManager::decode(&*bytes).map(BrokerToManager::try_from) {
            prop_assert_eq!(BrokerToManager::try_from(v1::ToManager::from(read.clone())), Ok(read));
        }
    }
}

/// A Register with one slot.
fn wire_register() -> v1::Register {
    v1::Register {
        incarnation: vec![0; 16],
        max_term: 1,
        endpoint: Some(v1::Endpoint { address: "a:1".into(), ..v1::Endpoint::default() }),
        board: Some(v1::Board { name: "b".into(), kind: "k".into(), shell: String::new(), node: "n".into() }),
        slots: vec![free()],
    }
}

fn free() -> v1::LentSlot {
    let state = Some(v1::slot_status::State::Free(v1::Free {}));
    v1::LentSlot { status: Some(v1::SlotStatus { state }), ..v1::LentSlot::default() }
}

fn read(change: impl Fn(&mut v1::Register)) -> Result<FromManager, Malformed> {
    let mut register = wire_register();
    change(&mut register);
    v1::FromManager { kind: Some(v1::from_manager::Kind::Register(register)) }.try_into()
}

#[test]
fn a_register_that_breaks_a_bound_is_refused() {
    assert!(read(|_| {}).is_ok());
    let changes: [fn(&mut v1::Register); 10] = [
        |register| register.incarnation = vec![0; 15],
        |register| register.endpoint = None,
        |register| register.endpoint.as_mut().unwrap().key = vec![0; 31],
        |register| register.endpoint.as_mut().unwrap().socket = "x".repeat(108),
        |register| register.board = None,
        |register| register.board.as_mut().unwrap().name = "a\u{1b}[2J".into(),
        |register| register.board.as_mut().unwrap().node = "n".repeat(254),
        |register| register.slots = vec![free(); MAX_SLOTS + 1],
        |register| register.slots[0].loaded = vec![0; 33],
        |register| register.slots[0].status = None,
    ];
    for (number, change) in changes.into_iter().enumerate() {
        assert!(read(change).is_err(), "{number}");
    }
}

#[test]
fn a_slot_beyond_the_most_is_refused() {
    let report = |slot| v1::SlotReport {
        slot,
        status: free().status,
        why: v1::SlotCause::Released.into(),
        ..v1::SlotReport::default()
    };
    assert!(SlotReport::try_from(report(63)).is_ok());
    assert_eq!(SlotReport::try_from(report(64)), Err(Malformed::Range("slot")));
    let unknown = v1::SlotReport { why: 99, ..report(0) };
    assert_eq!(SlotReport::try_from(unknown), Err(Malformed::Missing("SlotCause")));
}
