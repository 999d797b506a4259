//! What may happen next in a world.

use super::link::Side;
use super::world::{MANAGER, World};
use crate::broker;
use crate::ids::{ConnectionId, JobUuid, LeaseId, StepNumber};
use crate::manager::{self, LoadOutcome, Outcome};
use crate::messages::BrokerToManager;
use fpga_board::slots::SlotIndex;

/// One thing that happens.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Move {
    /// The first message under way on a connection arrives at this side.
    Arrives(ConnectionId, Side),
    /// This side notices that a connection has ended.
    Notices(ConnectionId, Side),
    /// The manager connects to a broker.
    ManagerConnects(usize),
    /// A client connects to a broker.
    ClientConnects(usize, usize),
    /// A timer of the manager fires.
    ManagerTimer(manager::Timer),
    /// A timer of a broker fires.
    BrokerTimer(usize, broker::Timer),
    /// The timer of a client fires.
    ClientTimer(usize),
    /// A client asks for a slot without its bundle, which was granted: its own Offer has not come.
    ClientAsks(usize),
    /// The policy gives a job a slot. Of a bundle's job: the grants of the others could not be carried out.
    Grants(usize, JobUuid, SlotIndex),
    /// The policy gives all jobs of the bundle slots.
    GrantsTogether(usize),
    /// The policy takes a slot back.
    Recalls(usize, SlotIndex),
    /// The children of the manager's former life are reaped.
    ChildrenReaped,
    /// A slot's load ends.
    LoadEnds(SlotIndex, LoadOutcome),
    /// A step ends.
    StepEnds(LeaseId, StepNumber),
    /// The kill of a tenant's process ends.
    KillEnds(SlotIndex, Outcome),
    /// The probe of a bad slot ends.
    ProbeEnds(SlotIndex),
    /// A broker finds the Kubernetes Lease without a holder.
    MayLead(usize),
    /// The API server answers a broker that wants to write a term.
    SwapAnswered(usize),
    /// A broker learns that another one holds the Kubernetes Lease.
    LeaseLost(usize),
    /// The manager's process starts again.
    ManagerRestarts,
    /// A client's process starts again, with a new job.
    ClientRestarts(usize),
    /// Fault: a connection is cut.
    Cut(ConnectionId),
    /// Fault: the manager's process ends. Its tenants' processes go on.
    ManagerCrashes,
    /// Fault: a broker's process ends, and starts again.
    BrokerCrashes(usize),
    /// Fault: a client's process ends.
    ClientCrashes(usize),
    /// Fault: the Kubernetes Lease runs out while its holder is active.
    LeaseExpires(usize),
    /// Fault: a program gives its job up.
    Cancels(usize),
}

impl Move {
    /// Whether the move is one of the faults of which a search has a limited number.
    pub(super) fn is_fault(self) -> bool {
        matches!(
            self,
            Self::Cut(_)
                | Self::ManagerCrashes
                | Self::BrokerCrashes(_)
                | Self::ClientCrashes(_)
                | Self::LeaseExpires(_)
                | Self::Cancels(_)
                | Self::LoadEnds(_, LoadOutcome::Failed | LoadOutcome::NoFile)
                | Self::KillEnds(_, Outcome::Failed)
        )
    }
}

impl World {
    /// Everything that may happen next.
    #[must_use]
    pub fn moves(&self) -> Vec<Move> {
        let mut moves = self.prompt_moves();
        self.policy_moves(&mut moves);
        self.partial_grants(&mut moves);
        moves.extend(self.tasks().map(|(lease, step)| Move::StepEnds(lease, step)));
        self.timer_moves(&mut moves);
        if self.faults_left > 0 {
            self.fault_moves(&mut moves);
        }
        moves
    }

    /// What happens soon where nothing fails: messages arrive, processes start, requests are answered.
    pub(super) fn prompt_moves(&self) -> Vec<Move> {
        let mut moves = Vec::new();
        for link in &self.manager_links {
            arrivals(link.id, !link.up.is_empty(), !link.down.is_empty(), &mut moves);
            notices(link.id, |side| link.may_notice(side), &mut moves);
        }
        for link in &self.client_links {
            arrivals(link.id, !link.up.is_empty(), !link.down.is_empty(), &mut moves);
            notices(link.id, |side| link.may_notice(side), &mut moves);
        }
        for link in &self.lease_links {
            arrivals(link.id, !link.up.is_empty(), !link.down.is_empty(), &mut moves);
            notices(link.id, |side| link.may_notice(side), &mut moves);
        }
        if self.manager.is_none() {
            moves.push(Move::ManagerRestarts);
        }
        if self.board.reap {
            moves.push(Move::ChildrenReaped);
        }
        for (slot, region) in self.regions() {
            moves.extend(region.load.map(|_| Move::LoadEnds(slot, LoadOutcome::Loaded)));
            moves.extend(region.kill.map(|_| Move::KillEnds(slot, Outcome::Done)));
            moves.extend(region.probe.then_some(Move::ProbeEnds(slot)));
        }
        self.broker_moves(&mut moves);
        moves
    }

    fn broker_moves(&self, moves: &mut Vec<Move>) {
        let holder = self.kubernetes_lease.holder;
        let manager_is_connected = self.manager_links.iter().any(|link| link.is_open_at(Side::Dialer));
        for broker in 0..self.brokers.len() {
            let is_asking = self.swaps.get(broker).is_some_and(Option::is_some);
            if is_asking {
                moves.push(Move::SwapAnswered(broker));
            } else if self.is_standby(broker) {
                if holder.is_none_or(|holder| self.is_standby(holder)) {
                    moves.push(Move::MayLead(broker));
                }
            } else if holder != Some(broker) {
                moves.push(Move::LeaseLost(broker));
            }
            if self.is_standby(broker) {
                continue;
            }
            if self.manager.is_some() && !manager_is_connected {
                moves.push(Move::ManagerConnects(broker));
            }
            for client in (0..self.clients.len()).filter(|client| self.is_waiting(*client)) {
                let mut links = self.client_links.iter().filter(|link| link.between.0 == client);
                if !links.any(|link| link.is_open_at(Side::Dialer)) {
                    moves.push(Move::ClientConnects(client, broker));
                }
            }
        }
        let dead = (0..self.clients.len())
            .filter(|client| self.clients.get(*client).is_some_and(|client| client.job.is_none()))
            .filter(|client| self.process_of(*client).start == *client);
        moves.extend(dead.map(Move::ClientRestarts));
    }

    pub(super) fn policy_moves(&self, moves: &mut Vec<Move>) {
        for (index, broker) in self.brokers.iter().enumerate() {
            if self.may_grant() {
                let alone = broker.jobs().filter(|job| job.wanted.bundle.is_none()).map(|job| job.id);
                moves.extend(alone.flat_map(|job| self.grants(index, job)));
                moves.extend((!self.together(index).is_empty()).then_some(Move::GrantsTogether(index)));
            }
            let is_active = matches!(broker.role(), broker::Role::Active { .. });
            for slot in self.slots().filter(|_| is_active) {
                let recall = broker.recall(MANAGER, slot).filter(|recall| !self.has_recall_under_way(recall));
                moves.extend(recall.map(|_| Move::Recalls(index, slot)));
            }
        }
    }

    /// Without a bound, connections of ever more former leases could linger beside each other, each with messages that
    /// never arrive, and there would be no end of states.
    pub(super) fn may_grant(&self) -> bool {
        self.lease_links.len() <= self.clients.len()
    }

    /// The slots that a broker may grant to a job.
    pub(super) fn grants(&self, index: usize, job: JobUuid) -> impl Iterator<Item = Move> {
        let can = move |slot: &SlotIndex| {
            let grant = self.grant_of(job, *slot);
            self.brokers.get(index).is_some_and(|broker| broker.can_grant(&grant, self.now).is_ok())
        };
        self.slots().filter(can).map(move |slot| Move::Grants(index, job, slot))
    }

    /// Whether a Recall of this action's lease is under way, or as many others as there are slots.
    fn has_recall_under_way(&self, recall: &broker::Action) -> bool {
        let messages = self.manager_links.iter().flat_map(|link| &link.down);
        let under_way: Vec<_> =
            messages.filter(|message| matches!(message, BrokerToManager::Recall { .. })).collect();
        let is_its = |message: &BrokerToManager| matches!(recall, broker::Action::ToManager(_, recall) if recall == message);
        under_way.len() >= self.slots().count() || under_way.into_iter().any(is_its)
    }

    fn timer_moves(&self, moves: &mut Vec<Move>) {
        if let Some(manager) = &self.manager {
            moves.extend(manager.timers().into_iter().map(|(timer, _)| Move::ManagerTimer(timer)));
        }
        for (index, broker) in self.brokers.iter().enumerate() {
            moves.extend(broker.timers().into_iter().map(|timer| Move::BrokerTimer(index, timer)));
        }
        for (index, client) in self.clients.iter().enumerate() {
            if client.job.as_ref().is_some_and(|job| job.next_deadline().is_some()) {
                moves.push(Move::ClientTimer(index));
            }
            if self.may_ask(index) {
                moves.push(Move::ClientAsks(index));
            }
        }
    }

    fn fault_moves(&self, moves: &mut Vec<Move>) {
        let whole = self.manager_links.iter().filter(|link| link.is_whole());
        moves.extend(whole.map(|link| Move::Cut(link.id)));
        let whole = self.client_links.iter().filter(|link| link.is_whole());
        moves.extend(whole.map(|link| Move::Cut(link.id)));
        let whole = self.lease_links.iter().filter(|link| link.is_whole());
        moves.extend(whole.map(|link| Move::Cut(link.id)));
        if self.manager.is_some() {
            moves.push(Move::ManagerCrashes);
        }
        for broker in (0..self.brokers.len()).filter(|broker| !self.is_standby(*broker)) {
            moves.push(Move::BrokerCrashes(broker));
        }
        let holder = self.kubernetes_lease.holder.filter(|holder| !self.is_standby(*holder));
        if holder.is_some() {
            let others = (0..self.brokers.len()).filter(|broker| self.is_standby(*broker));
            let others = others.filter(|broker| self.swaps.get(*broker) == Some(&None));
            moves.extend(others.map(Move::LeaseExpires));
        }
        for (index, client) in self.clients.iter().enumerate() {
            if let Some(job) = &client.job {
                if self.process_of(index).start == index {
                    moves.push(Move::ClientCrashes(index));
                }
                if !matches!(job.phase(), crate::client::Phase::Ended(_)) {
                    moves.push(Move::Cancels(index));
                }
            }
        }
        for (slot, region) in self.regions() {
            if region.load.is_some() {
                moves.push(Move::LoadEnds(slot, LoadOutcome::Failed));
                moves.push(Move::LoadEnds(slot, LoadOutcome::NoFile));
            }
            if region.kill.is_some() {
                moves.push(Move::KillEnds(slot, Outcome::Failed));
            }
        }
    }

    /// Whether a slot's bitstream is being loaded.
    pub(super) fn is_loading(&self, slot: SlotIndex) -> bool {
        self.manager.as_ref().is_some_and(|manager| manager.is_loading(slot))
    }
}

fn arrivals(id: ConnectionId, up: bool, down: bool, moves: &mut Vec<Move>) {
    moves.extend(up.then_some(Move::Arrives(id, Side::Listener)));
    moves.extend(down.then_some(Move::Arrives(id, Side::Dialer)));
}

fn notices(id: ConnectionId, may: impl Fn(Side) -> bool, moves: &mut Vec<Move>) {
    let sides = [Side::Dialer, Side::Listener].into_iter().filter(|side| may(*side));
    moves.extend(sides.map(|side| Move::Notices(id, side)));
}
