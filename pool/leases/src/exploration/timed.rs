//! Lets true time pass from a state, without further faults: I4, I6, and the second half of I3.
//!
//! Why that is enough for I4 and I6: how long a lease lasts after its client's death or its recall depends on the
//! manager's timers and the manager's own processes alone; a message can only end it sooner, or, from the client, prove
//! that the client is not dead. So the manager is run alone, with steps that never end, and kills that work only at the
//! last moment. An armed timer has its whole time to go, which no real state exceeds.
//!
//! For I3 everything runs: messages arrive at once, what has crashed starts again, a first-come-first-served policy
//! grants, steps take [`STEP`]. The search has every fault at every moment before that; the faults end where the run
//! begins, since no protocol promises an end while they go on.

use super::invariant::{Invariant, Violation};
use super::invariants::check;
use super::lease_ids::of_status;
use super::moves::Move;
use super::world::{MOMENT, STEP, World};
use crate::client;
use crate::ids::{LeaseId, StepNumber};
use crate::manager::{Action, Event, Manager, Outcome, SlotTimer, Timer};
use crate::messages::SlotStatus;
use crate::timing;
use fpga_board::slots::SlotIndex;
use fpga_core::units::{Millis, MonotonicTime};
use std::collections::{BTreeMap, BTreeSet};

/// I4: from the last byte of the client.
pub const DEAD_CLIENT: Millis = Millis::from_secs(35);
/// I6: from the recall, beyond a step.
pub const RECALL: Millis = Millis::from_secs(31);
/// I3: until all live clients have all their outputs, from any state of this world without a bad slot's probe.
pub const ONCE_AT_LAST: Millis = Millis::from_secs(150);

/// How long things took.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Longest {
    /// A dead client's slot.
    pub dead_client: Millis,
    /// A recalled slot.
    pub recall: Millis,
    /// All outputs of all live clients.
    pub once_at_last: Millis,
}

impl Longest {
    /// The longer of each.
    #[must_use]
    pub fn max(self, other: Self) -> Self {
        Self {
            dead_client: self.dead_client.max(other.dead_client),
            recall: self.recall.max(other.recall),
            once_at_last: self.once_at_last.max(other.once_at_last),
        }
    }
}

/// Whether I4 and I6 hold from a state, and how long they took.
pub(super) fn check_slot(world: &World) -> Result<Longest, Violation> {
    let mut longest = Longest::default();
    if let Some(manager) = world.manager.as_ref().filter(|manager| manager.is_serving()) {
        for slot in world.slots() {
            longest = longest.max(check_one(world, manager, slot)?);
        }
    }
    Ok(longest)
}

fn check_one(world: &World, manager: &Manager, slot: SlotIndex) -> Result<Longest, Violation> {
    let mut longest = Longest::default();
    let Some(status) = manager.slot(slot) else { return Ok(longest) };
    let (SlotStatus::Reserved(lease) | SlotStatus::Held(lease, _) | SlotStatus::Draining(lease)) = &status
    else {
        return Ok(longest);
    };
    if !world.has_live_job(lease.job) {
        let broken = |took| Violation {
            invariant: Invariant::DeadClientsLoseSlots,
            what: format!("{:?} of a dead client still has the slot after {took}", lease.id),
        };
        longest.dead_client = leave(manager, slot, lease.id, DEAD_CLIENT, Client::Dead).map_err(broken)?;
    }
    if world.ghosts.recalled.contains(&lease.id) {
        let broken = |took| Violation {
            invariant: Invariant::RecallsEnd,
            what: format!("the recalled {:?} still has the slot after {took}", lease.id),
        };
        longest.recall = leave(manager, slot, lease.id, STEP + RECALL, Client::Deaf).map_err(broken)?;
    }
    Ok(longest)
}

/// How the client of a lease behaves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Client {
    /// It is gone.
    Dead,
    /// It answers pings and does nothing else.
    Deaf,
}

/// How long a lease keeps its slot while its tasks never end by themselves; an error if longer than `bound`.
fn leave(
    manager: &Manager,
    slot: SlotIndex,
    lease: LeaseId,
    bound: Millis,
    client: Client,
) -> Result<Millis, Millis> {
    let mut manager = manager.clone();
    let end = MOMENT + bound;
    // What happens in other slots changes nothing in this one.
    let counts = |timer: &Timer| match *timer {
        Timer::Slot(of, _) if of != slot => false,
        Timer::Slot(_, SlotTimer::Silent | SlotTimer::Attach) => client == Client::Dead,
        Timer::Slot(..) | Timer::Orphans => true,
    };
    let mut now = MOMENT;
    let mut pending: Option<LeaseId> = None;
    while manager.slot(slot).as_ref().and_then(of_status) == Some(lease) {
        // The kill ends just before the manager gives it up.
        let timers = manager.timers().into_iter().filter(|(timer, _)| counts(timer));
        let Some((timer, at)) = timers.filter(|(_, at)| *at <= end).min_by_key(|(_, at)| *at) else {
            return Err(bound);
        };
        now = now.max(at);
        if let Some(lease) = pending.take() {
            manager.handle(Event::Killed { slot, lease, outcome: Outcome::Done }, now);
            continue;
        }
        let killed = manager.fire(timer, now).into_iter().find_map(|action| match action {
            Action::Kill { lease, .. } => Some(lease),
            _ => None,
        });
        pending = killed;
    }
    Ok(now - MOMENT)
}

/// Whether all live clients get all their outputs from a state, and how long that takes.
pub(super) fn check_progress(world: &World) -> Result<Longest, Violation> {
    let mut run = Run { world: world.clone(), ends: BTreeMap::new() };
    run.world.faults_left = 0;
    run.note_steps();
    let end = MOMENT + ONCE_AT_LAST;
    // Far more moves than any run needs: a run that does not end is one that moves in a circle.
    for _ in 0..20_000 {
        if run.world.is_done() {
            return Ok(Longest { once_at_last: run.world.now - MOMENT, ..Longest::default() });
        }
        let done = run.move_promptly()?;
        if !done {
            run.wait();
        }
        if run.world.now > end {
            break;
        }
    }
    let what = format!("a live client lacks outputs after {}", run.world.now - MOMENT);
    Err(Violation { invariant: Invariant::OnceAtLast, what })
}

/// A run in true time.
struct Run {
    world: World,
    /// When each running step ends.
    ends: BTreeMap<(LeaseId, StepNumber), MonotonicTime>,
}

impl Run {
    /// Lets something happen that takes no time.
    fn move_promptly(&mut self) -> Result<bool, Violation> {
        let mut moves = self.world.prompt_moves();
        // A client that has crashed stays dead: I3 is about live ones.
        moves.retain(|what| !matches!(what, Move::ClientRestarts(_)));
        if moves.is_empty() {
            self.world.policy_moves(&mut moves);
            moves.retain(|what| matches!(what, Move::Grants(..) | Move::GrantsTogether(_)));
        }
        let Some(next) = moves.first().copied() else { return Ok(false) };
        self.world.apply(next);
        self.note_steps();
        check(&self.world)?;
        Ok(true)
    }

    /// Notes when the steps that run now end.
    fn note_steps(&mut self) {
        let now = self.world.now;
        let tasks: BTreeSet<_> = self.world.tasks().collect();
        self.ends.retain(|task, _| tasks.contains(task));
        for task in tasks {
            self.ends.entry(task).or_insert(now + STEP);
        }
    }

    /// Lets time pass until something is due.
    fn wait(&mut self) {
        let world = &self.world;
        let managers = world.manager.as_ref().and_then(Manager::next_deadline);
        let brokers = world.brokers.iter().filter_map(crate::broker::Broker::next_deadline);
        let jobs = world.clients.iter().filter_map(|client| client.job.as_ref());
        let clients = jobs.filter_map(client::Job::next_deadline);
        let deadlines = managers.into_iter().chain(brokers).chain(clients).chain(self.ends.values().copied());
        // Pings are answered each second.
        let next = deadlines.min().unwrap_or(MonotonicTime::NEVER).min(world.now + timing::IDLE);
        self.world.now = self.world.now.max(next);
        let now = self.world.now;
        self.ping();
        let ended: Vec<_> = self.ends.iter().filter(|(_, at)| **at <= now).map(|(task, _)| *task).collect();
        for (lease, step) in ended {
            self.ends.remove(&(lease, step));
            self.world.end_step(lease, step);
        }
        let actions = self.world.manager.as_mut().map(|manager| manager.tick(now));
        self.world.manager_actions(actions.unwrap_or_default());
        for index in 0..self.world.brokers.len() {
            let actions = self.world.brokers.get_mut(index).map(|broker| broker.tick(now));
            self.world.broker_actions(index, actions.unwrap_or_default());
        }
        for index in 0..self.world.clients.len() {
            let job = self.world.clients.get_mut(index).and_then(|client| client.job.as_mut());
            let actions = job.map(|job| job.tick(now)).unwrap_or_default();
            self.world.client_actions(index, actions);
            self.world.ask_by_itself(index);
        }
    }

    fn ping(&mut self) {
        let whole = self.world.lease_links.iter().filter(|link| link.is_whole());
        let whole: Vec<_> = whole.map(|link| (link.id, link.between)).collect();
        for (id, (client, lease)) in whole {
            self.world.manager(Event::ClientAlive(id));
            self.world.client(client, client::Event::ManagerAlive(lease));
        }
    }
}
