use super::*;
use crate::dependencies::{EventId, QueueId, QueueOrder};
use proptest::prelude::*;

fn digest(number: u8) -> Digest {
    Digest::from_bytes([number; 32])
}

fn commands(needs: &[Need]) -> Vec<Command<Need>> {
    (1..)
        .zip(needs)
        .map(|(event, need)| Command {
            event: EventId(event),
            queue: QueueId(1),
            order: QueueOrder::InOrder,
            wait: Vec::new(),
            body: *need,
        })
        .collect()
}

#[test]
fn commands_without_kernels_take_no_slot() {
    let tasks = split(commands(&[Need::Nothing, Need::Nothing]), 1, |need| *need);
    assert_eq!((tasks.len(), &tasks[0].demand), (1, &Demand::Nothing));
}

#[test]
fn a_task_takes_all_its_slots_at_once() {
    let needs = [Need::Bitstream(digest(1)), Need::Nothing, Need::Bitstream(digest(2)), Need::AnySlot];
    let tasks = split(commands(&needs), 2, |need| *need);
    assert_eq!(tasks.len(), 1);
    assert_eq!(tasks[0].demand, Demand::of([digest(1), digest(2)], OtherKernels::None));
}

#[test]
fn more_bitstreams_than_slots_split_the_task_in_command_order() {
    let needs = [1, 2, 1, 3].map(|number| Need::Bitstream(digest(number)));
    let tasks = split(commands(&needs), 2, |need| *need);
    assert_eq!(tasks.iter().map(|task| task.commands.len()).collect::<Vec<_>>(), [3, 1]);
}

fn needs() -> impl Strategy<Value = Vec<Need>> {
    let need = prop_oneof![
        Just(Need::Nothing),
        Just(Need::AnySlot),
        (1_u8..6).prop_map(|number| Need::Bitstream(digest(number))),
    ];
    prop::collection::vec(need, 0..40)
}

proptest! {
    #[test]
    fn splitting_keeps_all_commands_in_order_and_asks_for_no_more_slots_than_there_are(
        needs in needs(), slots in 1_usize..5
    ) {
        let all = commands(&needs);
        let tasks = split(all.clone(), slots, |need| *need);
        prop_assert!(tasks.iter().all(|task| task.demand.slots() <= slots));
        prop_assert_eq!(tasks.into_iter().flat_map(|task| task.commands).collect::<Vec<_>>(), all);
    }
}
