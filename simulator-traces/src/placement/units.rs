//! The nodes of each unit. A unit is placed at its first request; it is moved and replicated when its demand has
//! changed (S-11).

use super::jobs::Job;
use super::mover::Mover;
use super::node::Node;
use super::options::{Lifetime, Placement};
use super::placer::Placer;
use crate::error::ScenarioError;
use crate::time::{Micros, SimTime};

/// All units with the placer and the mover.
#[derive(Debug)]
pub struct Units {
    placement: Placement,
    units: Vec<Unit>,
    placer: Placer,
    mover: Mover,
}

#[derive(Debug, Clone, Default)]
struct Unit {
    nodes: Vec<u32>,
    last: SimTime,
    ready: SimTime,
}

impl Units {
    /// No units yet.
    ///
    /// # Errors
    /// [`ScenarioError::Invalid`] if a setting of the extender is invalid.
    pub fn new(
        placement: &Placement,
        nodes: usize,
        seed: u64,
        begin: SimTime,
    ) -> Result<Self, ScenarioError> {
        Ok(Self {
            units: Vec::new(),
            placer: Placer::new(placement, nodes, seed)?,
            mover: Mover::new(placement, begin),
            placement: placement.clone(),
        })
    }

    /// Puts units on nodes, in the order of their numbers, without a decision.
    pub fn place_on(&mut self, placed: Vec<Vec<u32>>) {
        self.units = placed.into_iter().map(|nodes| Unit { nodes, ..Unit::default() }).collect();
    }

    /// The nodes that have a replica of a unit.
    #[must_use]
    pub fn nodes_of(&self, unit: u32) -> &[u32] {
        self.units.get(unit as usize).map_or(&[], |unit| &unit.nodes)
    }

    /// The time from which a unit can serve requests.
    #[must_use]
    pub fn ready(&self, unit: u32) -> SimTime {
        self.units.get(unit as usize).map_or(SimTime::BEGIN, |unit| unit.ready)
    }

    /// Number of placements, of moves, and of current replicas, with their names.
    #[must_use]
    pub fn counts(&self) -> [(&'static str, u64); 3] {
        let replicas = self.units.iter().map(|unit| unit.nodes.len() as u64).sum();
        [("placements", self.placer.placements()), ("moves", self.mover.moves()), ("replicas", replicas)]
    }

    /// Places the unit of a job that has arrived, if it has no valid placement. `cpu` returns the processor time of
    /// each node in the window.
    pub fn place_if_needed(
        &mut self,
        job: &Job,
        nodes: &mut [Node],
        cpu: impl Fn(&[Node]) -> Vec<u64>,
        now: SimTime,
    ) {
        let index = job.unit as usize;
        if self.units.len() <= index {
            self.units.resize(index + 1, Unit::default());
        }
        let unit = &mut self.units[index];
        let last = std::mem::replace(&mut unit.last, now);
        let needed = unit.nodes.is_empty()
            || match self.placement.lifetime {
                Lifetime::Forever => false,
                Lifetime::Idle => now - last > Micros::from_secs(self.placement.idle_s),
                Lifetime::Request => true,
            };
        if !needed {
            return;
        }
        for (replica, node) in (0..).zip(std::mem::take(&mut unit.nodes)) {
            self.placer.remove(job.unit, replica, node);
        }
        let cpu = cpu(nodes);
        unit.nodes = self.placer.place(job.unit, job.bitstream, self.placement.replicas, nodes, &cpu, now);
        unit.ready = now + Micros::from_millis(self.placement.start_ms);
    }

    /// Records that a unit uses a board for `board`.
    pub fn used(&mut self, job: &Job, board: Micros) {
        self.mover.used(job.unit, job.bitstream, board, job.at);
    }

    /// Moves and replicates units if the next look at them is due.
    pub fn look_if_due(&mut self, nodes: &mut [Node], cpu: impl Fn(&[Node]) -> Vec<u64>, now: SimTime) {
        if !self.mover.is_due(now) {
            return;
        }
        let placed: Vec<(u32, u32)> = (0..)
            .zip(&self.units)
            .filter_map(|(unit, placed)| Some((unit, *placed.nodes.first()?)))
            .collect();
        let slots: Vec<u32> =
            nodes.iter().map(|node| u32::try_from(node.view.len()).unwrap_or(u32::MAX)).collect();
        for (unit, bitstream, to) in self.mover.plan(&placed, &slots, now) {
            if let Some(placed) = self.units.get_mut(unit as usize)
                && let Some(from) = placed.nodes.first().copied()
                && !placed.nodes.contains(&to)
            {
                placed.nodes[0] = to;
                self.placer.remove(unit, 0, from);
                self.placer.count(unit, 0, bitstream, to, now);
            }
        }
        self.copy(nodes, cpu, now);
    }

    /// Adds and removes replicas according to demand and budget.
    fn copy(&mut self, nodes: &mut [Node], cpu: impl Fn(&[Node]) -> Vec<u64>, now: SimTime) {
        let wanted = self.mover.replicas(self.units.len(), nodes.len());
        if wanted.is_empty() {
            return;
        }
        let cpu = cpu(nodes);
        for ((unit, placed), (bitstream, wanted)) in (0..).zip(&mut self.units).zip(wanted) {
            if placed.nodes.is_empty() {
                continue;
            }
            while placed.nodes.len() > wanted as usize
                && let Some(node) = placed.nodes.pop()
            {
                let replica = u32::try_from(placed.nodes.len()).unwrap_or(u32::MAX);
                self.placer.remove(unit, replica, node);
            }
            self.placer.extend(unit, bitstream, &mut placed.nodes, wanted, nodes, &cpu, now);
        }
    }
}
