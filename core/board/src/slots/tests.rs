use super::*;
use proptest::prelude::*;

fn digest(n: u8) -> Digest {
    Digest::from_bytes([n; 32])
}

fn table(slots: u32) -> SlotTable {
    SlotTable::new(NonZeroU32::new(slots).unwrap())
}

fn bitstreams(of: &[u8]) -> Demand {
    Demand::of(of.iter().copied().map(digest), OtherKernels::None)
}

fn loads(assignment: &Assignment) -> Vec<(u32, u8)> {
    assignment.load.iter().map(|load| (load.slot.0, load.bitstream.as_bytes()[0])).collect()
}

const A: SessionId = SessionId(1);
const B: SessionId = SessionId(2);

#[test]
fn a_resident_bitstream_wins_then_an_empty_slot_then_the_one_idle_longest() {
    let mut table = table(2);
    let first = table.take(A, &bitstreams(&[1])).unwrap();
    assert_eq!(loads(&first), [(0, 1)]);
    table.release(&first.slots);
    let second = table.take(A, &bitstreams(&[2])).unwrap();
    assert_eq!(loads(&second), [(1, 2)], "the empty slot, not the one that holds 1");
    table.release(&second.slots);
    let again = table.take(A, &bitstreams(&[1])).unwrap();
    assert_eq!((loads(&again), again.slots.clone()), (vec![], vec![SlotIndex(0)]));
    table.release(&again.slots);
    let third = table.take(A, &bitstreams(&[3])).unwrap();
    assert_eq!(loads(&third), [(1, 3)], "2 was used before 1");
}

#[test]
fn the_bitstream_worth_least_is_evicted_first() {
    let mut table = table(2);
    for bitstream in [1, 2] {
        let taken = table.take(A, &bitstreams(&[bitstream])).unwrap();
        table.release(&taken.slots);
    }
    let worth = |bitstream: Digest, _| 3 - bitstream.as_bytes()[0];
    let taken = table.take_keeping(A, &bitstreams(&[3]), worth).unwrap();
    assert_eq!(loads(&taken), [(1, 3)], "2 is worth less than 1, though 1 was used before");
    assert_eq!(taken.evicted, [Digest::from_bytes([2; 32])]);
}

#[test]
fn worth_gets_the_number_of_copies_including_those_in_use() {
    let mut table = table(4);
    let first = table.take(A, &bitstreams(&[1])).unwrap();
    let second = table.take(B, &bitstreams(&[1])).unwrap();
    let other = table.take(B, &bitstreams(&[2])).unwrap();
    table.take(B, &bitstreams(&[3])).unwrap();
    table.release(&first.slots);
    table.release(&other.slots);
    let taken = table.take_keeping(A, &bitstreams(&[4]), |_, copies| 12 / copies.get()).unwrap();
    assert_eq!(
        (loads(&taken), second.slots),
        (vec![(0, 4)], vec![SlotIndex(1)]),
        "a copy of 1 is still in use"
    );
}

proptest! {
    /// Only idle slots are reloaded, and no idle bitstream is worth less than the evicted one.
    #[test]
    fn copies_are_counted_as_the_table_has_them(steps in prop::collection::vec((1_u8..5, any::<bool>()), 1..60)) {
        let mut table = table(4);
        let mut held: Vec<(u64, Vec<SlotIndex>)> = Vec::new();
        for (session, (bitstream, release)) in (1..).zip(steps) {
            if release && !held.is_empty() {
                let (_, slots) = held.remove(0);
                table.release(&slots);
                continue;
            }
            let before: Vec<Option<Digest>> = table.resident().collect();
            let count = |of: Digest| before.iter().filter(|is| **is == Some(of)).count();
            let idle: Vec<Digest> = (0..4)
                .filter(|slot| table.holder(SlotIndex(*slot)).is_none())
                .filter_map(|slot| table.resident_in(SlotIndex(slot)))
                .collect();
            let asked = std::cell::RefCell::new(Vec::new());
            let worth = |of: Digest, copies: NonZeroU32| {
                asked.borrow_mut().push((of, copies.get() as usize));
                12 / copies.get()
            };
            let taken = table.take_keeping(SessionId(session), &bitstreams(&[bitstream]), worth);
            for (of, copies) in asked.into_inner() {
                prop_assert_eq!(copies, count(of));
            }
            if let Some(taken) = taken {
                for gone in &taken.evicted {
                    prop_assert!(idle.iter().all(|other| count(*other) <= count(*gone)));
                }
                held.push((session, taken.slots));
            }
        }
    }
}

#[test]
fn a_task_takes_all_its_slots_or_none() {
    let mut table = table(2);
    let one = table.take(A, &bitstreams(&[1])).unwrap();
    assert_eq!(table.take(B, &bitstreams(&[2, 3])), None);
    assert_eq!((table.in_use(), table.resident().flatten().count()), (1, 1), "nothing was taken or loaded");
    table.release(&one.slots);
    assert_eq!(table.take(B, &bitstreams(&[2, 3])).unwrap().slots.len(), 2);
}

#[test]
fn a_bitstream_of_the_same_task_is_never_evicted_for_another_of_it() {
    let mut table = table(2);
    for bitstream in [2, 1] {
        let held = table.take(A, &bitstreams(&[bitstream])).unwrap();
        table.release(&held.slots);
    }
    // 2 is in the slot that was idle longest, and 3 comes first in the task.
    let both = table.take(A, &bitstreams(&[3, 2])).unwrap();
    assert_eq!((loads(&both), both.slots), (vec![(1, 3)], vec![SlotIndex(1), SlotIndex(0)]));
}

#[test]
fn kernels_without_a_bitstream_take_a_slot_and_leave_its_bitstream_resident() {
    let mut table = table(1);
    let loaded = table.take(A, &bitstreams(&[1])).unwrap();
    table.release(&loaded.slots);
    let any = table.take(B, &Demand::AnySlot).unwrap();
    assert_eq!((any.slots.len(), any.load.len(), table.resident_in(SlotIndex(0))), (1, 0, Some(digest(1))));
    assert_eq!(table.take(A, &bitstreams(&[1])), None);
}

#[test]
fn only_the_session_that_holds_a_slot_may_join_it() {
    let mut table = table(1);
    let held = table.take(A, &bitstreams(&[1])).unwrap();
    assert_eq!(table.join(B, &bitstreams(&[1]), MAX_TASKS_PER_SLOT), None);
    assert_eq!(table.join(A, &bitstreams(&[2]), MAX_TASKS_PER_SLOT), None);
    let joined = table.join(A, &bitstreams(&[1]), MAX_TASKS_PER_SLOT).unwrap();
    assert_eq!(table.release(&held.slots), [], "the other task still holds it");
    assert_eq!(table.release(&joined.slots), [SlotIndex(0)]);
    assert_eq!(table.release(&joined.slots), [], "a second release does nothing");
}

#[test]
fn a_bitstream_named_twice_takes_one_slot() {
    assert_eq!(bitstreams(&[1, 2, 1]).slots(), 2);
    assert_eq!(Demand::of([], OtherKernels::None), Demand::Nothing);
    assert_eq!(Demand::of([], OtherKernels::Some), Demand::AnySlot);
    assert_eq!(Demand::of([digest(1)], OtherKernels::Some).slots(), 1);
}

#[test]
fn a_preloaded_bitstream_is_resident_once_and_costs_no_load() {
    let mut table = table(2);
    assert_eq!(table.preload(digest(1)), Some(SlotIndex(0)));
    assert_eq!(table.preload(digest(1)), Some(SlotIndex(0)));
    assert_eq!(table.preload(digest(2)), Some(SlotIndex(1)));
    assert_eq!(table.preload(digest(3)), None);
    let taken = table.take(A, &bitstreams(&[2, 1])).unwrap();
    assert_eq!((loads(&taken), taken.slots), (vec![], vec![SlotIndex(1), SlotIndex(0)]));
}
