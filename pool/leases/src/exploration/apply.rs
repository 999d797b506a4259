//! Lets something happen in a world: the machines take it in.

use super::link::Side;
use super::moves::Move;
use super::world::{ClientLink, MANAGER, ManagerLink, World};
use crate::broker::{self, Grant, SwapOutcome};
use crate::client;
use crate::ids::{ConnectionId, JobUuid, LeaseId, StepNumber, Term};
use crate::lease::Usage;
use crate::manager::{self, Outcome};
use crate::messages::BrokerToClient;
use fpga_board::dispatch::Tenant;
use fpga_board::slots::SlotIndex;

impl World {
    /// Lets a move happen. A move that is not possible changes nothing.
    pub fn apply(&mut self, what: Move) {
        if what.is_fault() {
            self.faults_left = self.faults_left.saturating_sub(1);
        }
        let before = self.leases_of_slots();
        self.act(what);
        self.sweep();
        self.number_reports_from_0();
        self.note(&before);
    }

    fn act(&mut self, what: Move) {
        match what {
            Move::Arrives(id, side) => self.arrive(id, side),
            Move::Notices(id, side) => self.notice(id, side),
            Move::ManagerConnects(broker) => {
                let id = self.unused_connection();
                self.manager_links.push(ManagerLink::new(id, broker));
                self.manager(manager::Event::BrokerConnected(id));
            }
            Move::ClientConnects(client, broker) => {
                let id = self.unused_connection();
                self.client_links.push(ClientLink::new(id, (client, broker)));
                self.client(client, client::Event::BrokerConnected(id));
            }
            Move::ManagerTimer(timer) => {
                let now = self.now;
                let actions = self.manager.as_mut().map(|manager| manager.fire(timer, now));
                self.manager_actions(actions.unwrap_or_default());
            }
            Move::BrokerTimer(index, timer) => {
                let actions = self.brokers.get_mut(index).map(|broker| broker.fire(timer));
                self.broker_actions(index, actions.unwrap_or_default());
            }
            Move::ClientTimer(index) => {
                let job = self.clients.get_mut(index).and_then(|client| client.job.as_mut());
                let actions = job.map(client::Job::fire).unwrap_or_default();
                self.client_actions(index, actions);
            }
            Move::ClientAsks(index) => self.ask_by_itself(index),
            Move::Grants(index, job, slot) => self.grant(index, job, slot),
            Move::GrantsTogether(index) => {
                for (job, slot) in self.together(index) {
                    self.grant(index, job, slot);
                }
            }
            Move::Recalls(index, slot) => {
                let action = self.brokers.get(index).and_then(|broker| broker.recall(MANAGER, slot));
                self.broker_actions(index, action.into_iter().collect());
            }
            Move::ChildrenReaped => {
                self.board.reap = false;
                self.board.regions.iter_mut().for_each(|region| region.tasks.clear());
                self.manager(manager::Event::ChildrenReaped);
            }
            Move::LoadEnds(slot, outcome) => {
                if let Some(lease) = self.region_mut(slot).and_then(|region| region.load.take()) {
                    self.manager(manager::Event::Loaded { slot, lease, outcome });
                }
            }
            Move::StepEnds(lease, step) => self.end_step(lease, step),
            Move::KillEnds(slot, outcome) => {
                let Some(region) = self.region_mut(slot) else { return };
                if let Some(lease) = region.kill.take() {
                    if outcome == Outcome::Done {
                        region.tasks.retain(|(of, _)| *of != lease);
                    }
                    self.manager(manager::Event::Killed { slot, lease, outcome });
                }
            }
            Move::ProbeEnds(slot) => {
                let Some(region) = self.region_mut(slot) else { return };
                region.probe = false;
                let is_clear = region.tasks.is_empty() && region.load.is_none();
                let outcome = if is_clear { Outcome::Done } else { Outcome::Failed };
                self.manager(manager::Event::Probed { slot, outcome });
            }
            Move::MayLead(index) | Move::LeaseExpires(index) => {
                let term = self.kubernetes_lease.term;
                self.broker(index, broker::Event::MayLead { term });
            }
            Move::SwapAnswered(index) => self.answer_swap(index),
            Move::LeaseLost(index) => self.broker(index, broker::Event::LeaseLost),
            Move::ManagerRestarts => {
                self.manager_life += 1;
                self.start_manager();
            }
            Move::ClientRestarts(index) => {
                for index in self.process_of(index) {
                    if let Some(client) = self.clients.get_mut(index) {
                        client.life += 1;
                        client.delivered.clear();
                    }
                    self.start_client(index);
                }
            }
            Move::Cut(id) => self.cut(id),
            Move::ManagerCrashes => self.crash_manager(),
            Move::BrokerCrashes(index) => self.crash_broker(index),
            Move::ClientCrashes(index) => self.process_of(index).for_each(|index| self.crash_client(index)),
            Move::Cancels(index) => {
                for index in self.leave_bundle_of(index) {
                    self.client(index, client::Event::Cancel);
                }
            }
        }
    }

    fn arrive(&mut self, id: ConnectionId, side: Side) {
        if let Some(link) = self.manager_links.iter_mut().find(|link| link.id == id) {
            let broker = link.between;
            match side {
                Side::Listener => {
                    if let Some(message) = link.up.pop_front() {
                        self.broker(broker, broker::Event::Manager(id, MANAGER, message));
                    }
                }
                Side::Dialer => {
                    if let Some(message) = link.down.pop_front() {
                        self.note_recall(&message);
                        self.manager(manager::Event::Broker(id, message));
                    }
                }
            }
        } else if let Some(link) = self.client_links.iter_mut().find(|link| link.id == id) {
            let (client, broker) = link.between;
            match side {
                Side::Listener => {
                    if let Some(message) = link.up.pop_front() {
                        let tenant = Tenant::new("tenant");
                        self.broker(broker, broker::Event::Client(id, tenant, message));
                    }
                }
                Side::Dialer => {
                    if let Some(message) = link.down.pop_front() {
                        if matches!(message, BrokerToClient::Offer { .. }) {
                            self.leave_bundle_of(client);
                        }
                        self.client(client, client::Event::Broker(id, message));
                    }
                }
            }
        } else if let Some(link) = self.lease_links.iter_mut().find(|link| link.id == id) {
            let (client, lease) = link.between;
            match side {
                Side::Listener => {
                    if let Some(message) = link.up.pop_front() {
                        self.manager(manager::Event::Client(id, message));
                    }
                }
                Side::Dialer => {
                    if let Some(message) = link.down.pop_front() {
                        self.client(client, client::Event::Manager(lease, message));
                    }
                }
            }
        }
    }

    fn notice(&mut self, id: ConnectionId, side: Side) {
        if let Some(link) = self.manager_links.iter_mut().find(|link| link.id == id) {
            let broker = link.between;
            link.notice(side);
            match side {
                Side::Listener => self.broker(broker, broker::Event::ManagerClosed(id)),
                Side::Dialer => self.manager(manager::Event::BrokerClosed(id)),
            }
        } else if let Some(link) = self.client_links.iter_mut().find(|link| link.id == id) {
            let (client, broker) = link.between;
            link.notice(side);
            match side {
                Side::Listener => self.broker(broker, broker::Event::ClientClosed(id)),
                Side::Dialer => self.client(client, client::Event::BrokerClosed(id)),
            }
        } else if let Some(link) = self.lease_links.iter_mut().find(|link| link.id == id) {
            let (client, lease) = link.between;
            link.notice(side);
            match side {
                Side::Listener => self.manager(manager::Event::ClientClosed(id)),
                Side::Dialer => self.client(client, client::Event::ManagerClosed(lease)),
            }
        }
    }

    fn cut(&mut self, id: ConnectionId) {
        self.manager_links.iter_mut().filter(|link| link.id == id).for_each(|link| link.is_cut = true);
        self.client_links.iter_mut().filter(|link| link.id == id).for_each(|link| link.is_cut = true);
        self.lease_links.iter_mut().filter(|link| link.id == id).for_each(|link| link.is_cut = true);
    }

    fn crash_manager(&mut self) {
        self.manager = None;
        // Steps run in processes of their own; a load is the manager's.
        for region in &mut self.board.regions {
            (region.load, region.kill, region.probe) = (None, None, false);
        }
        self.board.reap = false;
        self.manager_links.iter_mut().for_each(|link| link.crash(Side::Dialer));
        self.lease_links.iter_mut().for_each(|link| link.crash(Side::Listener));
        self.ghosts.max_term = Term::default();
    }

    fn crash_broker(&mut self, index: usize) {
        self.restart_broker(index);
        if let Some(swap) = self.swaps.get_mut(index) {
            *swap = None;
        }
        let links = self.manager_links.iter_mut().filter(|link| link.between == index);
        links.for_each(|link| link.crash(Side::Listener));
        let links = self.client_links.iter_mut().filter(|link| link.between.1 == index);
        links.for_each(|link| link.crash(Side::Listener));
    }

    fn crash_client(&mut self, index: usize) {
        if let Some(client) = self.clients.get_mut(index)
            && let Some(job) = client.job.take()
        {
            self.ghosts.arrivals.remove(&job.id());
        }
        let links = self.client_links.iter_mut().filter(|link| link.between.0 == index);
        links.for_each(|link| link.crash(Side::Dialer));
        let links = self.lease_links.iter_mut().filter(|link| link.between.0 == index);
        links.for_each(|link| link.crash(Side::Dialer));
    }

    pub(super) fn end_step(&mut self, lease: LeaseId, step: StepNumber) {
        let place = self.board.regions.iter_mut().position(|region| region.tasks.remove(&(lease, step)));
        if let Some(slot) = place.and_then(|place| self.slots().nth(place)) {
            let usage = Usage::default();
            self.manager(manager::Event::StepEnded { slot, lease, step, usage });
        }
    }

    fn grant(&mut self, index: usize, job: JobUuid, slot: SlotIndex) {
        let grant = Grant { lease: self.unused_lease(), ..self.grant_of(job, slot) };
        let (now, bundled) = (self.now, self.bundled_at(index));
        let actions = self.brokers.get_mut(index).and_then(|broker| broker.grant(&grant, now).ok());
        let actions = actions.unwrap_or_default();
        self.note_offers(&bundled, &actions);
        self.broker_actions(index, actions);
    }

    fn answer_swap(&mut self, index: usize) {
        let Some((expected, next)) = self.swaps.get_mut(index).and_then(Option::take) else { return };
        let outcome = if self.kubernetes_lease.term == expected {
            self.kubernetes_lease.term = next;
            self.kubernetes_lease.holder = Some(index);
            SwapOutcome::Done
        } else {
            SwapOutcome::Failed
        };
        self.broker(index, broker::Event::Swapped(outcome));
    }

    pub(super) fn manager(&mut self, event: manager::Event) {
        let now = self.now;
        let actions = self.manager.as_mut().map(|manager| manager.handle(event, now));
        self.manager_actions(actions.unwrap_or_default());
    }

    fn broker(&mut self, index: usize, event: broker::Event) {
        let (now, bundled) = (self.moment(), self.bundled_at(index));
        let actions = self.brokers.get_mut(index).map(|broker| broker.handle(event, now));
        let actions = actions.unwrap_or_default();
        self.note_offers(&bundled, &actions);
        self.broker_actions(index, actions);
    }

    pub(super) fn client(&mut self, index: usize, event: client::Event) {
        let now = self.now;
        let job = self.clients.get_mut(index).and_then(|client| client.job.as_mut());
        let actions = job.map(|job| job.handle(event, now)).unwrap_or_default();
        self.client_actions(index, actions);
    }

    fn restart_broker(&mut self, index: usize) {
        let fresh = self.fresh_broker();
        if let Some(broker) = self.brokers.get_mut(index) {
            *broker = fresh;
        }
    }
}
