//! What must be true in every state.

use super::invariant::{Invariant, Violation};
use super::lease_ids::of_status;
use super::world::{MANAGER, Region, World};
use crate::broker::{Broker, SlotRecord};
use crate::client::{Job, Phase};
use crate::ids::{LeaseId, StepNumber};
use crate::manager::Manager;
use crate::messages::{BrokerToClient, SlotStatus};

/// The first broken invariant of a state.
pub(super) fn check(world: &World) -> Result<(), Violation> {
    let broken = slot_is_its_leases(world)
        .or_else(|| delivered_once(world))
        .or_else(|| one_life(world))
        .or_else(|| arrival_stays(world))
        .or_else(|| broker_counts_right(world))
        .or_else(|| offers_are_loaded(world))
        .or_else(|| terms_grow(world))
        .or_else(|| world.ghosts.broken.map(|(invariant, what)| (invariant, what.to_owned())));
    match broken {
        Some((invariant, what)) => Err(Violation { invariant, what }),
        None => Ok(()),
    }
}

type Broken = Option<(Invariant, String)>;

/// I1 and I2. Before the manager has reaped its former children it says nothing of its slots to anybody.
fn slot_is_its_leases(world: &World) -> Broken {
    let manager = world.manager.as_ref().filter(|manager| manager.is_serving())?;
    world.regions().find_map(|(slot, region)| region_is_its_lease(&manager.slot(slot)?, region))
}

fn region_is_its_lease(status: &SlotStatus, region: &Region) -> Broken {
    let tasks = &region.tasks;
    let lease = of_status(status);
    match status {
        SlotStatus::Free => {
            let is_idle = tasks.is_empty() && region.load.is_none();
            (!is_idle).then(|| (Invariant::FreeIsIdle, format!("the slot is free and runs {region:?}")))
        }
        SlotStatus::Bad => None,
        SlotStatus::Reserved(_) | SlotStatus::Held(..) | SlotStatus::Draining(_) => {
            let stranger = tasks.iter().find(|(of, _)| Some(*of) != lease)?;
            Some((Invariant::OneLease, format!("the slot has {lease:?} and runs a task of {:?}", stranger.0)))
        }
    }
}

fn delivered_once(world: &World) -> Broken {
    let twice = |(step, times): (&StepNumber, &u32)| (*times > 1).then_some(*step);
    let step = world.clients.iter().find_map(|client| client.delivered.iter().find_map(twice))?;
    Some((Invariant::AtMostOnce, format!("step {} is delivered twice", step.0)))
}

fn one_life(world: &World) -> Broken {
    let lease = world.leases_of_slots().into_iter().find(|lease| world.ghosts.ended.contains(lease))?;
    Some((Invariant::OneLife, format!("{lease:?} has ended and has a slot again")))
}

/// I5: once a client knows its first arrival, the client keeps it, and so does each broker that the client is
/// connected to.
fn arrival_stays(world: &World) -> Broken {
    for (index, client) in world.clients.iter().enumerate() {
        let Some(job) = &client.job else { continue };
        let Some(first) = world.ghosts.arrivals.get(&job.id()) else { continue };
        let own = job.ticket().map(|ticket| ticket.first_arrival);
        if own != Some(*first) {
            return Some((Invariant::ArrivalStays, format!("client {index} had {first:?} and has {own:?}")));
        }
        let (Some(connection), Phase::Waiting) = (job.broker_connection(), job.phase()) else { continue };
        let of_broker = |broker: &Broker| {
            let known = broker.jobs().find(|known| known.id == job.id())?;
            (known.connection == Some(connection)).then_some(known.first_arrival)
        };
        if let Some(other) = world.brokers.iter().filter_map(of_broker).find(|arrival| arrival != first) {
            let what = format!("client {index} arrived at {first:?}, and its broker says {other:?}");
            return Some((Invariant::ArrivalStays, what));
        }
    }
    None
}

fn broker_counts_right(world: &World) -> Broken {
    let manager = world.manager.as_ref().filter(|manager| manager.is_serving())?;
    let connection = manager.broker_connection()?;
    let link = world.manager_links.iter().find(|link| link.id == connection && link.is_whole())?;
    let broker = world.brokers.get(link.between)?;
    if !link.up.is_empty() || broker.connection_of(MANAGER) != Some(connection) {
        return None;
    }
    let free = broker.slots().filter(|(id, _, record)| *id == MANAGER && **record == SlotRecord::Free);
    let statuses = free.filter_map(|(_, slot, _)| manager.slot(slot));
    let wrong = statuses.into_iter().find(|status| *status != SlotStatus::Free)?;
    let what = format!("broker {} counts a slot as free, which is {wrong:?}", link.between);
    Some((Invariant::BrokersCountRight, what))
}

fn offers_are_loaded(world: &World) -> Broken {
    let is_offered = |lease: &LeaseId| {
        let is_its = |message: &BrokerToClient| matches!(message, BrokerToClient::Offer { lease: of, .. } if of == lease);
        let has = |job: &Job| job.lease() == Some(*lease);
        world.client_links.iter().flat_map(|link| &link.down).any(is_its)
            || world.clients.iter().filter_map(|client| client.job.as_ref()).any(has)
    };
    let loading = world.slots().filter(|slot| world.is_loading(*slot));
    let lease = loading.filter_map(|slot| of_status(&world.slot(slot)?)).find(is_offered)?;
    Some((Invariant::OffersAreLoaded, format!("{lease:?} is offered during its load")))
}

fn terms_grow(world: &World) -> Broken {
    let now = world.manager.as_ref().map(Manager::max_term)?;
    let before = world.ghosts.max_term;
    (now < before)
        .then(|| (Invariant::TermsGrow, format!("the manager had accepted {before:?} and accepts {now:?}")))
}
