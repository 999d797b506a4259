//! Worlds and moves as people read them.

use super::link::Side;
use super::moves::Move;
use super::world::World;
use crate::client::Phase;
use crate::ids::ConnectionId;
use crate::lease::Lease;
use crate::manager::Timer;
use crate::messages::SlotStatus;
use std::collections::VecDeque;
use std::fmt;

impl fmt::Display for World {
    /// Writes each slot, what runs in it, and what each client has.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let has = |state: &str, lease: &Lease| format!("{state}({:?} of {:?})", lease.id, lease.job);
        write!(f, "| A")?;
        for (slot, region) in self.regions() {
            let slot = match self.slot(slot) {
                None => "down".to_owned(),
                Some(SlotStatus::Free) => "Free".to_owned(),
                Some(SlotStatus::Bad) => "Bad".to_owned(),
                Some(SlotStatus::Reserved(lease)) => has("Reserved", &lease),
                Some(SlotStatus::Held(lease, _)) => has("Held", &lease),
                Some(SlotStatus::Draining(lease)) => has("Draining", &lease),
            };
            write!(f, " {slot}")?;
            for (lease, step) in &region.tasks {
                write!(f, " runs {lease:?}.{}", step.0)?;
            }
        }
        for (index, client) in self.clients.iter().enumerate() {
            let phase = match client.job.as_ref().map(|job| job.phase().clone()) {
                None => "dead".to_owned(),
                Some(Phase::Waiting) => "Waiting".to_owned(),
                Some(Phase::Offered { lease, .. }) => format!("Offered({lease:?})"),
                Some(Phase::Running { lease, .. }) => format!("Running({lease:?})"),
                Some(Phase::Ended(end)) => format!("{end:?}"),
            };
            write!(f, " | C{index} {phase}")?;
        }
        Ok(())
    }
}

impl World {
    /// A move in this world, in words.
    pub(super) fn describe(&self, what: Move) -> String {
        match what {
            Move::Arrives(id, side) => self.describe_arrival(id, side),
            Move::Notices(id, side) => {
                let (dialer, listener) = self.parties(id);
                let (who, other) = if side == Side::Dialer { (dialer, listener) } else { (listener, dialer) };
                format!("{who} notices that the connection to {other} has ended")
            }
            Move::ManagerConnects(broker) => format!("A connects to B{broker}"),
            Move::ClientConnects(client, broker) => format!("C{client} connects to B{broker}"),
            Move::ManagerTimer(Timer::Slot(_, timer)) => format!("A timer {timer:?}"),
            Move::ManagerTimer(Timer::Orphans) => "A timer Orphans".to_owned(),
            Move::BrokerTimer(broker, timer) => format!("B{broker} timer {timer:?}"),
            Move::ClientTimer(client) => format!("C{client} timer Silent"),
            Move::ClientAsks(client) => format!("C{client} asks without its bundle"),
            Move::Grants(broker, job, slot) => format!("B{broker} grants slot {} to {job:?}", slot.0),
            Move::GrantsTogether(broker) => format!("B{broker} grants slots to the bundle"),
            Move::Recalls(broker, slot) => format!("B{broker} recalls slot {}", slot.0),
            Move::StepEnds(lease, step) => format!("step {lease:?}.{} ends", step.0),
            Move::Cut(id) => {
                let (dialer, listener) = self.parties(id);
                format!("FAULT the connection of {dialer} and {listener} is cut")
            }
            Move::ManagerCrashes => "FAULT A crashes".to_owned(),
            Move::BrokerCrashes(broker) => format!("FAULT B{broker} crashes"),
            Move::ClientCrashes(client) => format!("FAULT C{client} crashes"),
            Move::LeaseExpires(broker) => format!("FAULT the Kubernetes Lease expires, B{broker} sees it"),
            Move::Cancels(client) => format!("C{client} gives its job up"),
            other => format!("{other:?}"),
        }
    }

    fn parties(&self, id: ConnectionId) -> (String, String) {
        if let Some(link) = self.manager_links.iter().find(|link| link.id == id) {
            ("A".to_owned(), format!("B{}", link.between))
        } else if let Some(link) = self.client_links.iter().find(|link| link.id == id) {
            (format!("C{}", link.between.0), format!("B{}", link.between.1))
        } else if let Some(link) = self.lease_links.iter().find(|link| link.id == id) {
            (format!("C{}", link.between.0), "A".to_owned())
        } else {
            (String::new(), String::new())
        }
    }

    fn describe_arrival(&self, id: ConnectionId, side: Side) -> String {
        let (dialer, listener) = self.parties(id);
        let (from, to) = if side == Side::Listener { (dialer, listener) } else { (listener, dialer) };
        format!("{from}→{to} {}", self.first_message(id, side))
    }

    /// The first message under way to a side.
    fn first_message(&self, id: ConnectionId, side: Side) -> String {
        if let Some(link) = self.manager_links.iter().find(|link| link.id == id) {
            first(side, &link.up, &link.down)
        } else if let Some(link) = self.client_links.iter().find(|link| link.id == id) {
            first(side, &link.up, &link.down)
        } else if let Some(link) = self.lease_links.iter().find(|link| link.id == id) {
            first(side, &link.up, &link.down)
        } else {
            String::new()
        }
    }
}

/// The beginning of the first message: the leases' parts and the endpoint are the same everywhere.
fn first<U: fmt::Debug, D: fmt::Debug>(side: Side, up: &VecDeque<U>, down: &VecDeque<D>) -> String {
    let text = match side {
        Side::Listener => up.front().map(|message| format!("{message:?}")),
        Side::Dialer => down.front().map(|message| format!("{message:?}")),
    };
    text.unwrap_or_default().chars().take(48).collect()
}
