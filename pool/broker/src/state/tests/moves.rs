//! Whatever managers and clients do: the rules that hold for slots and jobs.

use super::*;
use fpga_pool_leases::broker::SlotRecord;
use proptest::prelude::*;

#[derive(Debug, Clone, Copy)]
enum Move {
    Register(u64),
    Close(u64),
    Want(u128, bool),
    Cancel(u128),
    ClientClosed,
    Answer(usize, bool),
    Step(usize, u8),
    Pass(u64),
}

fn any_move() -> impl Strategy<Value = Move> {
    prop_oneof![
        (0_u64..3).prop_map(Move::Register),
        (0_u64..3).prop_map(Move::Close),
        (0_u128..12, any::<bool>()).prop_map(|(job, group)| Move::Want(job, group)),
        (0_u128..12, any::<bool>()).prop_map(|(job, group)| Move::Want(job, group)),
        (0_u128..12).prop_map(Move::Cancel),
        Just(Move::ClientClosed),
        (0_usize..8, any::<bool>()).prop_map(|(which, yes)| Move::Answer(which, yes)),
        (0_usize..8, any::<bool>()).prop_map(|(which, yes)| Move::Answer(which, yes)),
        (0_usize..8, 0_u8..5).prop_map(|(which, to)| Move::Step(which, to)),
        (0_usize..8, 0_u8..5).prop_map(|(which, to)| Move::Step(which, to)),
        (0_u64..4000).prop_map(Move::Pass),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]
    #[test]
    fn no_slot_idles_while_a_job_waits_and_no_slot_is_granted_twice(
        moves in prop::collection::vec(any_move(), 1..80),
    ) {
        // Without guaranteed slots: groups have no slot while a job waits.
        let mut bench = Bench::new("");
        // Leases as their managers have them: asked for, and held.
        let (mut asked, mut held): (Leases, Leases) = Default::default();
        for step in moves {
            let outputs = match step {
                Move::Register(manager) => {
                    asked.retain(|(of, _)| *of != manager);
                    let slots = (0..2).map(|slot| {
                        let lease = held.iter().find(|(of, lease)| *of == manager && lease.slot.0 == slot);
                        lease.map_or(SlotStatus::Free, |(_, lease)| SlotStatus::Held(lease.clone(), Activity::Busy))
                    });
                    let slots = slots.collect();
                    bench.register(manager, slots)
                }
                Move::Close(manager) => {
                    asked.retain(|(of, _)| *of != manager);
                    bench.input(Input::ManagerClosed(ConnectionId(manager)))
                }
                Move::Want(job, false) => bench.run(job),
                Move::Want(job, true) => {
                    let goal = Goal::Deadline { actions: 100, within: Millis(5_000) };
                    let group = Group { id: GroupUuid(job / 4), goal, least: 0, most: 3 };
                    bench.want(job, "aes", Work::Group(group))
                }
                Move::Cancel(job) => bench.cancel(job),
                Move::ClientClosed => bench.input(Input::ClientClosed(CLIENT)),
                Move::Answer(which, yes) if which < asked.len() => {
                    let (manager, lease) = asked.remove(which);
                    if yes {
                        held.push((manager, lease.clone()));
                        bench.manager(manager, ManagerToBroker::Prepared { lease: lease.id })
                    } else {
                        let refused = ManagerToBroker::Refused { lease: lease.id, why: Refusal::LoadFailed };
                        let mut outputs = bench.manager(manager, refused);
                        outputs.extend(bench.report(manager, lease.slot, SlotStatus::Free));
                        outputs
                    }
                }
                Move::Step(which, to) if which < held.len() => {
                    let (manager, lease) = held[which].clone();
                    let status = match to {
                        0 => SlotStatus::Held(lease.clone(), Activity::Idle),
                        1 => SlotStatus::Held(lease.clone(), Activity::Busy),
                        2 => SlotStatus::Draining(lease.clone()),
                        _ => {
                            held.remove(which);
                            SlotStatus::Free
                        }
                    };
                    bench.report(manager, lease.slot, status)
                }
                Move::Pass(time) => bench.pass(Millis(time)),
                Move::Answer(..) | Move::Step(..) => Vec::new(),
            };
            for (manager, lease) in prepares(&outputs) {
                let has = |(of, other): &(u64, Lease)| *of == manager && other.slot == lease.slot;
                prop_assert!(!asked.iter().any(has) && !held.iter().any(has), "granted twice: {lease:?}");
                asked.push((manager, lease));
            }
            bench.state.policy.check();
            let runs = bench.state.broker.jobs().filter(|job| {
                job.connection.is_some() && job.preparing.is_none() && matches!(job.wanted.work, Work::Run { .. })
            });
            let runs = runs.count();
            let free = bench.state.broker.slots().filter(|(.., record)| matches!(record, SlotRecord::Free));
            let free = free.count();
            prop_assert!(runs == 0 || free == 0, "{runs} jobs wait while {free} slots are free, after {step:?}");
        }
        bench.input(Input::LeaseLost);
        prop_assert!(bench.state.jobs.is_empty() && bench.state.granted.is_empty());
    }
}
