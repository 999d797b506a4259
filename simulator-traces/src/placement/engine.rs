//! The event loop of the simulation. Arrivals come from the trace, all other events from a heap; `fpga-core` makes
//! the decisions.

use super::collector::Collector;
use super::jobs::{Job, Jobs};
use super::known_boards::KnownBoards;
use super::measures::Measures;
use super::memory::Memory;
use super::node::Node;
use super::options::{AfterUse, Queue, Reach, Requests, Route, Scenario};
use super::served::{Served, SlotStart};
use super::units::Units;
use crate::error::ScenarioError;
use crate::outcome::Outcome;
use crate::progress::{Progress, Unit};
use crate::random::Random;
use crate::time::{Micros, SimTime};
use crate::trace::Trace;
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::num::NonZeroU32;

/// Number of waiting requests of a node among which the next one with the same bitstream is searched.
const LOOK_INTO_QUEUE: usize = 64;

/// One run of a scenario.
pub struct Engine<'s> {
    scenario: &'s Scenario,
    now: SimTime,
    nodes: Vec<Node>,
    units: Units,
    memory: Memory,
    events: BinaryHeap<Reverse<Event>>,
    measures: Measures,
    routing: Random,
    serial_usage: Vec<Micros>,
    uses: u64,
    sizes: Vec<Option<f64>>,
    /// For each unit, the number of requests that were sent to its nodes in turn.
    turns: Vec<usize>,
    /// What each picker knows; none if the router sees the boards as they are.
    known: Vec<KnownBoards>,
    /// The requests that have begun, if somebody wants to know.
    served: Option<Vec<Served>>,
}

/// A future event at a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Event {
    at: SimTime,
    what: What,
    node: u32,
    slot: u32,
    bitstream: u32,
    picker: u32,
    came: SimTime,
    took: Micros,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum What {
    Loaded,
    Ended,
    /// The router hears that a request has ended.
    Heard,
    Arrived {
        board: Micros,
        unit: u32,
    },
}

impl<'s> Engine<'s> {
    /// Prepares a run.
    ///
    /// # Errors
    /// [`ScenarioError`] if the scenario is invalid.
    pub fn new(scenario: &'s Scenario) -> Result<Self, ScenarioError> {
        scenario.check()?;
        let mut nodes = Vec::new();
        for boards in scenario.all_boards() {
            let slots = NonZeroU32::new(boards.slots)
                .ok_or_else(|| ScenarioError::Invalid("a board has no slots; write at least 1".to_owned()))?;
            for _ in 0..boards.nodes {
                let collector = Collector::new(
                    &scenario.freshness,
                    boards.slots,
                    &boards.model,
                    scenario.cluster.reconfigures,
                )?;
                let reconfiguration =
                    (Micros::from_millis(boards.reconfiguration_ms), boards.reconfiguration_ms_per_mb);
                nodes.push(Node::new(slots, collector, reconfiguration));
            }
        }
        let begin = SimTime::from_secs(scenario.trace.from_day * 86_400.0);
        Ok(Self {
            now: begin,
            units: Units::new(&scenario.placement, nodes.len(), scenario.seed, begin)?,
            memory: Memory::new(scenario, nodes.len())?,
            events: BinaryHeap::new(),
            measures: Measures::new(
                Micros::from_secs(scenario.freshness.window_s),
                Micros::from_secs(scenario.measure.sample_s),
                Micros::from_secs(scenario.measure.warm_up_days * 86_400.0),
                begin,
            ),
            routing: Random::new(scenario.seed, 40),
            serial_usage: vec![Micros::ZERO; nodes.len()],
            uses: 0,
            sizes: Vec::new(),
            turns: Vec::new(),
            known: match scenario.routing.policy {
                Route::Tracked => vec![KnownBoards::new(nodes.len()); scenario.routing.pickers as usize],
                _ => Vec::new(),
            },
            served: None,
            nodes,
            scenario,
        })
    }

    /// Puts each unit on the nodes that `placed` has for it, and records what becomes of each request.
    ///
    /// # Errors
    /// [`ScenarioError::Invalid`] if there is no such node.
    pub fn placed(mut self, placed: Vec<Vec<u32>>) -> Result<Self, ScenarioError> {
        let nodes = u32::try_from(self.nodes.len()).unwrap_or(u32::MAX);
        if let Some(node) = placed.iter().flatten().find(|node| **node >= nodes) {
            return Err(ScenarioError::Invalid(format!("a unit is on node {node} of {nodes}")));
        }
        self.units.place_on(placed);
        self.served = Some(Vec::new());
        Ok(self)
    }

    /// Runs the trace to its end.
    ///
    /// # Errors
    /// [`ScenarioError`] if the trace can't be read or an invariant was broken.
    pub fn run(mut self, trace: &mut Trace) -> Result<Outcome, ScenarioError> {
        self.go(trace)
    }

    /// Runs the trace to its end. Returns the requests, too, in the order in which they got slots; none without
    /// [`Self::placed`].
    ///
    /// # Errors
    /// [`ScenarioError`] if the trace can't be read or an invariant was broken.
    pub fn run_recorded(mut self, trace: &mut Trace) -> Result<(Outcome, Vec<Served>), ScenarioError> {
        let outcome = self.go(trace)?;
        Ok((outcome, self.served.unwrap_or_default()))
    }

    fn go(&mut self, trace: &mut Trace) -> Result<Outcome, ScenarioError> {
        let begin = self.now.secs() / 86_400.0;
        let end = self.scenario.trace.to_day.min(trace.end.secs() / 86_400.0);
        let mut progress = Progress::new(end - begin, Unit::Days);
        let mut jobs = Jobs::new(self.scenario);
        while let Some(job) = jobs.next(trace) {
            self.events_until(job.at)?;
            self.arrive(&job)?;
            progress.at(self.now.secs() / 86_400.0 - begin);
        }
        self.events_until(SimTime::END)?;
        drop(progress);
        let serial = self.scenario.slots.requests == Requests::Serial;
        let mut outcome = self.measures.finish(&self.nodes, self.now, serial)?;
        for (name, count) in self.units.counts() {
            outcome.push(name, count as f64);
        }
        outcome.remarks = trace.remarks();
        Ok(outcome)
    }

    /// Processes all events up to and including `until`. Requests that end at an instant end before the arrivals of
    /// the same instant.
    fn events_until(&mut self, until: SimTime) -> Result<(), ScenarioError> {
        loop {
            let next = self.events.peek().map(|Reverse(event)| event.at);
            let next_or_until = next.map_or(until, |next| next.min(until));
            while self.measures.next_look() <= next_or_until && next_or_until < SimTime::END {
                self.look()?;
            }
            match next {
                Some(next) if next <= until => {
                    let Some(Reverse(event)) = self.events.pop() else { return Ok(()) };
                    self.step_to(event.at)?;
                    self.happen(event)?;
                }
                _ => {
                    if until < SimTime::END {
                        self.step_to(until)?;
                    }
                    return Ok(());
                }
            }
        }
    }

    fn step_to(&mut self, at: SimTime) -> Result<(), ScenarioError> {
        if at < self.now {
            return Err(ScenarioError::Invariant(format!("{at} comes after {}", self.now)));
        }
        self.now = at;
        Ok(())
    }

    fn look(&mut self) -> Result<(), ScenarioError> {
        let serial = self.scenario.slots.requests == Requests::Serial;
        self.measures.look(&self.nodes, serial.then_some(&self.serial_usage[..]))
    }

    fn happen(&mut self, event: Event) -> Result<(), ScenarioError> {
        let Event { node: index, slot, bitstream, picker, came, took, .. } = event;
        let now = self.now;
        match event.what {
            What::Arrived { board, unit } => {
                let (cpu, board) = (Micros::ZERO, Some(board));
                self.enter(index, Job { at: came, function: 0, unit, bitstream, cpu, board, picker });
            }
            What::Loaded => self.node(index)?.collector.loaded(bitstream, took, now),
            What::Ended => {
                let mut uses = self.uses;
                let node = self.node(index)?;
                node.collector.ran(bitstream, took, now);
                node.release(slot, &mut uses, now);
                self.uses = uses;
                self.measures.left(came, now);
                self.next_waiting(index, bitstream)?;
                self.answer(index, event);
            }
            What::Heard => {
                if let Some(known) = self.known.get_mut(picker as usize) {
                    known.end(index, bitstream, now);
                }
            }
        }
        Ok(())
    }

    /// The answer of a request that has ended goes to the picker that has chosen its node.
    fn answer(&mut self, index: u32, ended: Event) {
        let at = self.now + Micros::from_millis(self.scenario.routing.way_ms);
        match self.known.get_mut(ended.picker as usize) {
            Some(known) if at == self.now => known.end(index, ended.bitstream, at),
            Some(_) => self.events.push(Reverse(Event { at, what: What::Heard, ..ended })),
            None => {}
        }
    }

    fn node(&mut self, index: u32) -> Result<&mut Node, ScenarioError> {
        self.nodes
            .get_mut(index as usize)
            .ok_or_else(|| ScenarioError::Invariant(format!("there is no node {index}")))
    }

    /// A slot that holds `bitstream` became idle: begins the next waiting request.
    fn next_waiting(&mut self, index: u32, bitstream: u32) -> Result<(), ScenarioError> {
        let queue = self.scenario.slots.queue;
        let node = self.node(index)?;
        let place = match queue {
            Queue::Fifo => 0,
            Queue::SameBitstream => {
                let same = |job: &Job| job.bitstream == bitstream;
                node.waiting.iter().take(LOOK_INTO_QUEUE).position(same).unwrap_or(0)
            }
        };
        if let Some(job) = node.waiting.remove(place) {
            self.begin(index, &job);
        }
        Ok(())
    }

    fn arrive(&mut self, job: &Job) -> Result<(), ScenarioError> {
        let counts = self.measures.counts(self.now);
        self.measures.requests += u64::from(counts);
        let measures = &self.measures;
        let cpu = |nodes: &[Node]| measures.recent_cpu(nodes);
        self.units.place_if_needed(job, &mut self.nodes, cpu, self.now);
        self.units.look_if_due(&mut self.nodes, cpu, self.now);
        if self.is_refused(job) {
            self.measures.refused += u64::from(counts);
            return Ok(());
        }
        let board = job.board;
        let index = match board {
            None => self.any_replica(job.unit),
            Some(_) => self.route(job),
        };
        let now = self.now;
        let node = self.node(index)?;
        node.cpu += job.cpu;
        let Some(board) = board else { return Ok(()) };
        self.measures.board_requests += u64::from(counts);
        self.memory.used(index, job.bitstream, now);
        if let Some(known) = self.known.get_mut(job.picker as usize) {
            known.begin(index, job.bitstream, now);
        }
        self.units.used(job, board);
        self.measures.arrived(now);
        if self.scenario.slots.requests == Requests::Serial {
            self.serve_at_once(index, job, board);
            return Ok(());
        }
        let at = self.units.ready(job.unit).max(now) + Micros::from_millis(self.scenario.cluster.network_ms);
        if at > now {
            self.events.push(Reverse(Event {
                at,
                what: What::Arrived { board, unit: job.unit },
                node: index,
                slot: 0,
                bitstream: job.bitstream,
                picker: job.picker,
                came: now,
                took: Micros::ZERO,
            }));
        } else {
            self.enter(index, *job);
        }
        Ok(())
    }

    /// A request arrives at its node.
    fn enter(&mut self, index: u32, job: Job) {
        let Some(node) = self.nodes.get_mut(index as usize) else { return };
        if node.has_room() {
            self.begin(index, &job);
        } else {
            let now = self.now;
            let shown = node.shown();
            node.collector.before_change(now, || shown);
            node.waiting.push_back(job);
        }
    }

    /// A request takes a slot; one must be idle.
    fn begin(&mut self, index: u32, job: &Job) {
        let now = self.now;
        let Some((took, load)) = self.take(index, job) else { return };
        let Some((slot, loading)) = load else { return };
        if loading > Micros::ZERO {
            self.events.push(Reverse(Event {
                at: now + loading,
                what: What::Loaded,
                node: index,
                slot,
                bitstream: job.bitstream,
                picker: job.picker,
                came: job.at,
                took: loading,
            }));
        }
        self.events.push(Reverse(Event {
            at: now + took,
            what: What::Ended,
            node: index,
            slot,
            bitstream: job.bitstream,
            picker: job.picker,
            came: job.at,
            took,
        }));
    }

    /// Serves a request completely before the next event, as the paper does (6.8).
    fn serve_at_once(&mut self, index: u32, job: &Job, board: Micros) {
        let now = self.now;
        let Some((took, Some((slot, loading)))) = self.take(index, job) else { return };
        let mut uses = self.uses;
        if let Some(node) = self.nodes.get_mut(index as usize) {
            node.release(slot, &mut uses, now);
            if loading > Micros::ZERO {
                node.collector.loaded(job.bitstream, loading, now);
            }
            node.collector.ran(job.bitstream, took, now);
        }
        self.uses = uses;
        self.serial_usage[index as usize] += board + loading;
        if let Some(known) = self.known.get_mut(job.picker as usize) {
            known.end(index, job.bitstream, now);
        }
        self.measures.left(now, now);
    }

    /// Takes a slot. Returns the time for which it is taken, and the slot with the time for loading.
    fn take(&mut self, index: u32, job: &Job) -> Option<(Micros, Option<(u32, Micros)>)> {
        let now = self.now;
        let memory = &self.memory;
        let node = self.nodes.get_mut(index as usize)?;
        let worth = |bitstream, copies| memory.worth(index, bitstream, copies, now);
        let taken = node.take(job.bitstream, &mut self.uses, now, worth)?;
        let cold = !taken.resident || self.scenario.slots.after_use == AfterUse::Goes;
        let loading = if cold {
            let (base, per_mb) = node.reconfiguration;
            let size = if per_mb > 0.0 { size(&mut self.sizes, self.scenario, job.bitstream) } else { 0.0 };
            base + Micros::from_millis(per_mb * size)
        } else {
            Micros::ZERO
        };
        if !taken.resident {
            self.memory.loaded(index, job.bitstream, taken.evicted, now);
        }
        let took = job.board.unwrap_or_default() + loading;
        node.done.started += 1;
        node.done.cold += u64::from(cold);
        node.done.reconfiguration += loading;
        node.done.service += took;
        let counts = self.measures.counts(now);
        self.measures.cold += u64::from(cold && counts);
        self.measures.began(now - job.at, counts);
        if let Some(served) = &mut self.served {
            let start = if cold { SlotStart::Cold } else { SlotStart::Warm };
            served.push(Served { at: job.at, unit: job.unit, node: index, wait: now - job.at, start });
        }
        Some((took, Some((taken.slot, loading))))
    }

    /// Whether no board was given to the unit of a request that needs one: its pod waits, and is tried again with the next
    /// request.
    fn is_refused(&self, job: &Job) -> bool {
        let is_placed =
            self.scenario.routing.reach == Reach::Any || !self.units.nodes_of(job.unit).is_empty();
        job.board.is_some() && !is_placed
    }

    fn any_replica(&mut self, unit: u32) -> u32 {
        match self.units.nodes_of(unit) {
            [] => 0,
            [only] => *only,
            several => several[self.routing.below(several.len())],
        }
    }

    /// Chooses the node that serves a request.
    fn route(&mut self, job: &Job) -> u32 {
        let routing = &self.scenario.routing;
        let all: Vec<u32>;
        let allowed: &[u32] = match routing.reach {
            Reach::Replicas => self.units.nodes_of(job.unit),
            Reach::Any => {
                all = (0..u32::try_from(self.nodes.len()).unwrap_or(u32::MAX)).collect();
                &all
            }
        };
        match (allowed, routing.policy) {
            ([], _) => 0,
            ([only], _) => *only,
            (several, Route::Random) => several[self.routing.below(several.len())],
            (several, Route::RoundRobin) => {
                let unit = job.unit as usize;
                if self.turns.len() <= unit {
                    self.turns.resize(unit + 1, 0);
                }
                let turn = self.turns[unit];
                self.turns[unit] += 1;
                several[turn % several.len()]
            }
            (several, Route::LeastBusy) => {
                let load = |node: &u32| {
                    let node = &self.nodes[*node as usize];
                    node.busy as usize + node.waiting.len()
                };
                several.iter().copied().min_by_key(load).unwrap_or(0)
            }
            (several, Route::Loaded) => {
                let boards = several.iter().map(|node| self.nodes[*node as usize].board());
                let worth = |place: usize, resident, copies| {
                    self.memory.worth(several[place], resident, copies, self.now)
                };
                let place = fpga_cluster::router::choose(boards, job.bitstream, worth);
                place.map_or(0, |place| several[place])
            }
            (several, Route::Tracked) => {
                for known in &mut self.known {
                    known.learn(&mut self.nodes, self.now);
                }
                let picker = self.known.get(job.picker as usize);
                let place = picker.and_then(|known| known.choose(several, job.bitstream, self.now));
                place.map_or(several[0], |place| several[place])
            }
        }
    }
}

/// The size of a bitstream in megabytes: drawn at its first use, constant afterwards.
fn size(sizes: &mut Vec<Option<f64>>, scenario: &Scenario, bitstream: u32) -> f64 {
    let index = bitstream as usize;
    if sizes.len() <= index {
        sizes.resize(index + 1, None);
    }
    *sizes[index].get_or_insert_with(|| {
        let [from, to] = scenario.workload.bitstream_mb;
        let drawn = Random::new(scenario.seed, 50_000_000 + u64::from(bitstream)).unit();
        from * libm::exp(libm::log(to / from) * drawn)
    })
}
