//! Carries out in a world what the machines ask for.

use super::link::Side;
use super::world::{LeaseLink, World};
use crate::broker;
use crate::client;
use crate::ids::LeaseId;
use crate::manager;
use crate::messages::ClientToManager;

impl World {
    pub(super) fn manager_actions(&mut self, actions: Vec<manager::Action>) {
        for action in actions {
            match action {
                manager::Action::ReapChildren => self.board.reap = true,
                manager::Action::ToBroker(message) => {
                    let current = self.manager.as_ref().and_then(manager::Manager::broker_connection);
                    if let Some(link) = self.manager_links.iter_mut().find(|link| Some(link.id) == current) {
                        link.send_up(message);
                    }
                }
                manager::Action::ToClient(id, message) => {
                    if let Some(link) = self.lease_links.iter_mut().find(|link| link.id == id) {
                        link.send_down(message);
                    }
                }
                manager::Action::CloseClient(id) => {
                    if let Some(link) = self.lease_links.iter_mut().find(|link| link.id == id) {
                        link.close(Side::Listener);
                    }
                }
                manager::Action::Load { slot, lease, .. } => {
                    self.region_mut(slot).into_iter().for_each(|region| region.load = Some(lease));
                }
                manager::Action::Start { slot, lease, step } => {
                    self.region_mut(slot).into_iter().for_each(|region| {
                        region.tasks.insert((lease, step));
                    });
                }
                manager::Action::Kill { slot, lease } => {
                    self.region_mut(slot).into_iter().for_each(|region| region.kill = Some(lease));
                }
                manager::Action::Probe(slot) => {
                    self.region_mut(slot).into_iter().for_each(|region| region.probe = true);
                }
            }
        }
    }

    pub(super) fn broker_actions(&mut self, index: usize, actions: Vec<broker::Action>) {
        for action in actions {
            match action {
                broker::Action::SwapTerm { expected, next } => {
                    if let Some(swap) = self.swaps.get_mut(index) {
                        *swap = Some((expected, next));
                    }
                }
                broker::Action::ToManager(id, message) => {
                    if let Some(link) = self.manager_links.iter_mut().find(|link| link.id == id) {
                        link.send_down(message);
                    }
                }
                broker::Action::ToClient(id, message) => {
                    if let Some(link) = self.client_links.iter_mut().find(|link| link.id == id) {
                        link.send_down(message);
                    }
                }
                broker::Action::Close(id) => {
                    let links = self.manager_links.iter_mut().filter(|link| link.id == id);
                    links.for_each(|link| link.close(Side::Listener));
                    let links = self.client_links.iter_mut().filter(|link| link.id == id);
                    links.for_each(|link| link.close(Side::Listener));
                }
                broker::Action::Notice(_) => {}
            }
        }
    }

    pub(super) fn client_actions(&mut self, index: usize, actions: Vec<client::Action>) {
        for action in actions {
            match action {
                client::Action::ToBroker(message) => {
                    self.note_want(index, &message);
                    let job = self.clients.get(index).and_then(|client| client.job.as_ref());
                    let current = job.and_then(client::Job::broker_connection);
                    if let Some(link) = self.client_links.iter_mut().find(|link| Some(link.id) == current) {
                        link.send_up(message);
                    }
                }
                client::Action::Attach { lease, .. } => {
                    self.dial(index, lease, ClientToManager::Attach { lease });
                }
                client::Action::Decline { lease, .. } => {
                    self.dial(index, lease, ClientToManager::Release { lease });
                    self.close_at_client(index, lease);
                }
                client::Action::ToManager(lease, message) => {
                    if let Some(link) =
                        self.lease_links.iter_mut().find(|link| link.between == (index, lease))
                    {
                        link.send_up(message);
                    }
                }
                client::Action::CloseManager(lease) => self.close_at_client(index, lease),
                client::Action::Deliver(step) => {
                    if let Some(client) = self.clients.get_mut(index) {
                        *client.delivered.entry(step).or_default() += 1;
                    }
                }
                client::Action::Ended(_) => {}
            }
        }
    }

    /// Connects a client to the manager. To a manager that is down the connection fails.
    fn dial(&mut self, client: usize, lease: LeaseId, first: ClientToManager) {
        let mut link = LeaseLink::new(self.unused_connection(), (client, lease));
        link.send_up(first);
        if self.manager.is_none() {
            link.crash(Side::Listener);
        }
        self.lease_links.push(link);
    }

    fn close_at_client(&mut self, client: usize, lease: LeaseId) {
        let links = self.lease_links.iter_mut().filter(|link| link.between == (client, lease));
        links.for_each(|link| link.close(Side::Dialer));
    }
}
