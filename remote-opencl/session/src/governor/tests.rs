use super::limits::limit_of;
use super::*;
use proptest::prelude::*;
use std::collections::VecDeque;

const MIB: u64 = 1 << 20;

fn governor(manager: u64, tenant: u64) -> Governor {
    let limits = |passing| Limits { lasting: 1 << 40, passing };
    Governor::new(limits(manager), limits(tenant))
}

#[test]
fn what_is_dropped_is_held_no_more() {
    let budget = Budget::default();
    let (one, two) = (budget.hold(3), budget.hold(4 * MIB));
    assert_eq!(budget.held(), 3 + 4 * MIB);
    drop(one);
    assert_eq!(budget.held(), 4 * MIB);
    drop(two);
    assert_eq!(budget.held(), 0);
}

#[test]
fn a_tenant_has_its_limit_over_all_sessions_and_others_have_theirs() {
    let governor = governor(30 * MIB, 20 * MIB);
    let (one, two) = (governor.tenant(), governor.tenant());
    let (first, second, other) = (one.session().unwrap(), one.session().unwrap(), two.session().unwrap());
    let held = first.try_hold(12 * MIB).unwrap();
    assert_eq!(second.try_hold(9 * MIB).unwrap_err(), MemoryRefusal::NotNow);
    assert_eq!(second.try_hold(21 * MIB).unwrap_err(), MemoryRefusal::Never);
    let more = second.try_hold(8 * MIB).unwrap();
    assert_eq!(other.try_hold(11 * MIB).unwrap_err(), MemoryRefusal::NotNow, "the manager's limit");
    let rest = other.try_hold(10 * MIB).unwrap();
    assert_eq!(governor.held().passing, 30 * MIB);
    drop((held, more, rest));
    assert_eq!(governor.held().passing, 0);
}

#[test]
fn a_session_has_bytes_of_its_own_when_all_others_are_taken() {
    let governor = governor(10 * MIB, 10 * MIB);
    let tenant = governor.tenant();
    let (greedy, small) = (tenant.session().unwrap(), tenant.session().unwrap());
    let _all = greedy.try_hold(10 * MIB).unwrap();
    assert!(greedy.is_pressed() && !small.is_pressed());
    let own = small.try_hold(OWN_BYTES).unwrap();
    assert_eq!(small.try_hold(1).unwrap_err(), MemoryRefusal::NotNow);
    assert!(!small.is_pressed(), "it holds nothing that others want");
    drop(own);
    assert!(small.try_hold(OWN_BYTES).is_ok());
}

#[test]
fn sessions_and_lasting_bytes_have_limits_of_their_own() {
    let limits = Limits { lasting: 64 * MIB, passing: 64 * MIB };
    let governor = Governor::new(limits, limits);
    let tenant = governor.tenant();
    let session = tenant.session().unwrap();
    let each = governor.held().lasting;
    assert!(each > 10 * MIB, "windows, buffers and a message are part of a session");
    let rest = session.lasting(64 * MIB - each).unwrap();
    assert!(session.lasting(1).is_none() && tenant.session().is_none());
    drop(rest);
    assert!(tenant.session().is_some());
    drop(session);
    assert_eq!(governor.held(), Limits { lasting: 0, passing: 0 });
}

#[test]
fn a_part_of_held_bytes_goes_by_itself() {
    let budget = Budget::default();
    let mut whole = budget.hold(5 * MIB);
    let part = whole.split(2 * MIB);
    drop(whole);
    assert_eq!(budget.held(), 2 * MIB);
    let mut part = part;
    assert_eq!(part.split(9 * MIB).bytes(), 2 * MIB, "no more than there is");
    drop(part);
    assert_eq!(budget.held(), 0);
}

#[test]
fn who_watches_hears_of_bytes_that_were_freed_after_it_looked() {
    let governor = governor(2 * MIB, 2 * MIB);
    let tenant = governor.tenant();
    let (one, two) = (tenant.session().unwrap(), tenant.session().unwrap());
    let all = one.try_hold(2 * MIB).unwrap();
    let _watch = two.watch();
    let freed = two.freed();
    let _own = two.try_hold(OWN_BYTES).unwrap();
    assert!(two.try_hold(1).is_err());
    drop(all);
    let mut freed = std::pin::pin!(freed);
    let mut context = std::task::Context::from_waker(std::task::Waker::noop());
    assert!(freed.as_mut().poll(&mut context).is_ready());
}

/// The next step of a session in the model.
#[derive(Debug, Clone, Copy)]
enum Step {
    /// A message for which bytes are held until a command has ended.
    Command(u64),
    /// The first chunk of an upload, which needs this many bytes, and is then referred to by a command.
    Upload(u64),
}

/// A session that follows the rule: it waits only while it holds nothing that its client would have to free.
struct Model {
    budget: Budget,
    steps: VecDeque<Step>,
    /// The bytes of commands, which end without further messages.
    running: Vec<Hold>,
    /// An upload that no command has referred to yet.
    upload: Option<Hold>,
}

impl Model {
    /// Takes a step if it need not wait. Returns whether it did.
    fn step(&mut self) -> bool {
        if let Some(upload) = self.upload.take() {
            // The command that refers to the upload is accepted or refused, and never waits.
            self.running.push(upload);
            return true;
        }
        match self.steps.front().copied() {
            None => false,
            Some(Step::Command(bytes)) => match self.budget.try_hold(bytes) {
                Ok(hold) => {
                    self.running.push(hold);
                    self.steps.pop_front().is_some()
                }
                Err(MemoryRefusal::Never) => self.steps.pop_front().is_some(),
                Err(MemoryRefusal::NotNow) => false,
            },
            Some(Step::Upload(bytes)) => match self.budget.try_hold(bytes) {
                Ok(hold) => {
                    self.upload = Some(hold);
                    self.steps.pop_front().is_some()
                }
                Err(MemoryRefusal::Never) => self.steps.pop_front().is_some(),
                Err(MemoryRefusal::NotNow) => false,
            },
        }
    }
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![(0..12 * MIB).prop_map(Step::Command), (0..12 * MIB).prop_map(Step::Upload)]
}

proptest! {
    #[test]
    fn in_whatever_order_sessions_act_and_commands_end_all_of_them_come_to_their_end(
        sessions in prop::collection::vec((0..2_usize, prop::collection::vec(step(), 0..6)), 1..6),
        order in prop::collection::vec((any::<prop::sample::Index>(), any::<bool>()), 0..200),
    ) {
        let governor = governor(12 * MIB, 8 * MIB);
        let tenants = [governor.tenant(), governor.tenant()];
        let mut all: Vec<_> = sessions.into_iter().map(|(tenant, steps)| Model {
            budget: tenants[tenant].session().unwrap(),
            steps: steps.into(),
            running: Vec::new(),
            upload: None,
        }).collect();
        let mut order = order.into_iter();
        loop {
            let held = governor.held().passing;
            prop_assert!(held <= 12 * MIB, "{held} bytes are above the limit");
            let Some((index, ends)) = order.next() else {
                // A session that can take a step does. If none can, some command must be running, and ends.
                if all.iter_mut().any(Model::step) {
                    continue;
                }
                if let Some(model) = all.iter_mut().find(|model| !model.running.is_empty()) {
                    model.running.remove(0);
                    continue;
                }
                break;
            };
            let at = index.index(all.len());
            let model = &mut all[at];
            if ends && !model.running.is_empty() {
                model.running.remove(0);
                continue;
            }
            model.step();
        }
        let stuck = all.iter().filter(|model| !model.steps.is_empty() || model.upload.is_some()).count();
        prop_assert_eq!(stuck, 0, "sessions wait for each other");
        drop(all);
        prop_assert_eq!(governor.held(), Limits { lasting: 0, passing: 0 });
    }
}

#[test]
fn what_clients_and_the_store_may_have_leaves_the_runtime_a_part_of_any_memory() {
    const GIB: u64 = 1 << 30;
    for memory in [GIB / 2, GIB, 4 * GIB, 64 * GIB] {
        for store in [0, (memory / 4).min(GIB), memory / 2] {
            let clients = limit_of(memory, store);
            assert!(clients + store <= memory - memory / 8, "{memory} with a store of {store}");
        }
        assert!(limit_of(memory, u64::MAX) >= memory / 4, "a store's limit leaves clients something");
    }
    assert!(default_store_limit() <= GIB);
}
