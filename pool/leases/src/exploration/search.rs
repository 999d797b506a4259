//! The breadth-first search.

use super::invariant::{Invariant, Violation};
use super::invariants::check;
use super::moves::Move;
use super::timed::{Longest, check_progress, check_slot};
use super::world::{Clients, Setup, World};
use std::collections::HashSet;
use std::fmt;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::ops::ControlFlow;

/// Where a search stops.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// Number of moves from a run without faults.
    pub depth: u32,
    /// Number of states.
    pub states: usize,
    /// From one in so many states everything runs in true time to its end (the second half of I3); I4 and I6 are
    /// checked from every state.
    pub timed_one_in: u64,
    /// The moves that are tried.
    pub only: fn(Move) -> bool,
    /// The invariant whose breach ends the search; `None`: any.
    pub watched: Option<Invariant>,
}

/// How far a search is.
#[derive(Debug, Clone, Copy)]
pub struct Progress {
    /// The depth of which all states were visited.
    pub depth: u32,
    /// Number of different states so far.
    pub states: usize,
    /// Number of moves so far.
    pub moves: u64,
}

/// What a search found.
#[derive(Debug)]
pub struct Report {
    /// Number of different states.
    pub states: usize,
    /// Number of moves.
    pub moves: u64,
    /// The depth of which all states were visited.
    pub depth: u32,
    /// Whether there are no further states.
    pub is_complete: bool,
    /// Number of runs in true time to the end.
    pub timed_runs: u64,
    /// The longest of the times that were measured.
    pub longest: Longest,
    /// A shortest way to a broken invariant.
    pub broken: Option<Trace>,
}

/// The moves to a broken invariant.
#[derive(Debug)]
pub struct Trace {
    /// The broken invariant.
    pub violation: Violation,
    /// The moves, and the state after each.
    pub lines: Vec<String>,
}

impl fmt::Display for Trace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (number, line) in self.lines.iter().enumerate() {
            writeln!(f, "{number:3}  {line}")?;
        }
        write!(f, "  => {}", self.violation)
    }
}

/// The way to a state: its predecessor's number, and the move.
type Step = Option<(u32, Move)>;

/// States of one depth from which a search goes on, by number. A world takes about 10 KiB, so that only the first
/// [`KEPT`] are there; others are made again from their way.
type Frontier = Vec<(u32, Option<Box<World>>)>;

/// Number of worlds of a depth that are kept.
const KEPT: usize = 200_000;
/// Number of states between two tellings of the progress.
const TELLING: usize = 250_000;

struct Search<'a> {
    limits: &'a Limits,
    start: World,
    /// 64 bits of each state: of ten million states two are taken for one with a probability of 3 in a million.
    seen: HashSet<u64>,
    /// The way to each state, by number.
    steps: Vec<Step>,
    /// Number of states at which the progress is told.
    tell_at: usize,
    depth: u32,
    moves: u64,
    timed_runs: u64,
    longest: Longest,
}

/// Visits the states of a setup, the nearest first, until an invariant is broken, a limit is reached, or `progress` breaks
/// the search off. It is told after each depth and each quarter of a million states. The search begins
/// at all states of a run without faults, so that a small depth reaches every stage of a lease; with the clients away, it
/// begins at the start alone.
pub fn explore(setup: &Setup, limits: &Limits, progress: impl FnMut(Progress) -> ControlFlow<()>) -> Report {
    let mut search = Search {
        limits,
        start: World::started(setup),
        seen: HashSet::new(),
        steps: Vec::new(),
        tell_at: TELLING,
        depth: 0,
        moves: 0,
        timed_runs: 0,
        longest: Longest::default(),
    };
    let result = search.run(setup, progress);
    let is_complete = result == Ok(true);
    let broken = result.err().map(|violation| Trace { violation, lines: search.replay() });
    Report {
        states: search.steps.len(),
        moves: search.moves,
        depth: search.depth,
        is_complete,
        timed_runs: search.timed_runs,
        longest: search.longest,
        broken,
    }
}

impl Search<'_> {
    /// Searches; says whether there are no further states.
    fn run(
        &mut self,
        setup: &Setup,
        mut progress: impl FnMut(Progress) -> ControlFlow<()>,
    ) -> Result<bool, Violation> {
        let mut frontier = self.begin(setup)?;
        while self.depth < self.limits.depth {
            let (next, found) = match self.deepen(frontier, &mut progress)? {
                ControlFlow::Continue(next) => next,
                ControlFlow::Break(()) => return Ok(false),
            };
            self.depth += 1;
            if found == 0 {
                return Ok(true);
            }
            if progress(self.progress()).is_break() {
                return Ok(false);
            }
            frontier = next;
        }
        Ok(false)
    }

    fn progress(&self) -> Progress {
        Progress { depth: self.depth, states: self.steps.len(), moves: self.moves }
    }

    /// Visits the states from which the search begins.
    fn begin(&mut self, setup: &Setup) -> Result<Frontier, Violation> {
        let start = self.start.clone();
        self.visit(&start, None)?;
        let mut frontier = vec![(0, Some(Box::new(start)))];
        let run = match setup.clients_are {
            Clients::Waiting => World::uneventful(setup),
            Clients::Away => Vec::new(),
        };
        let mut before = 0;
        for (what, world) in run {
            // A run without faults comes to no state twice.
            if let Some(number) = self.visit(&world, Some((before, what)))? {
                frontier.push((number, Some(Box::new(world))));
                before = number;
            }
        }
        Ok(frontier)
    }

    /// Visits all states that are one move from these; says how many are new.
    fn deepen(
        &mut self,
        frontier: Frontier,
        progress: &mut impl FnMut(Progress) -> ControlFlow<()>,
    ) -> Result<ControlFlow<(), (Frontier, usize)>, Violation> {
        // What the search doesn't go on from is not kept.
        let is_last = self.depth + 1 == self.limits.depth;
        let (mut next, mut found) = (Vec::new(), 0);
        for (number, world) in frontier {
            let world = world.unwrap_or_else(|| Box::new(self.world(number)));
            for what in world.moves().into_iter().filter(|what| (self.limits.only)(*what)) {
                let mut after = World::clone(&world);
                after.apply(what);
                self.moves += 1;
                if let Some(number) = self.visit(&after, Some((number, what)))? {
                    found += 1;
                    if !is_last {
                        next.push((number, (next.len() < KEPT).then(|| Box::new(after))));
                    }
                }
            }
            if self.steps.len() >= self.limits.states {
                return Ok(ControlFlow::Break(()));
            }
            if self.steps.len() >= self.tell_at {
                self.tell_at = self.steps.len() + TELLING;
                if progress(self.progress()).is_break() {
                    return Ok(ControlFlow::Break(()));
                }
            }
        }
        Ok(ControlFlow::Continue((next, found)))
    }

    /// Checks a state that was not seen before, and gives it a number.
    fn visit(&mut self, world: &World, step: Step) -> Result<Option<u32>, Violation> {
        let mut hasher = DefaultHasher::new();
        world.hash(&mut hasher);
        let hash = hasher.finish();
        if !self.seen.insert(hash) {
            return Ok(None);
        }
        let number = u32::try_from(self.steps.len()).unwrap_or(u32::MAX);
        self.steps.push(step);
        self.unless_watched(check(world))?;
        let longest = self.unless_watched(check_slot(world))?;
        self.longest = self.longest.max(longest);
        if hash.is_multiple_of(self.limits.timed_one_in) {
            self.timed_runs += 1;
            let longest = self.unless_watched(check_progress(world))?;
            self.longest = self.longest.max(longest);
        }
        Ok(Some(number))
    }

    /// Leaves out the breach of an invariant that is not watched.
    fn unless_watched<T: Default>(&self, result: Result<T, Violation>) -> Result<T, Violation> {
        match (result, self.limits.watched) {
            (Err(violation), Some(watched)) if violation.invariant != watched => Ok(T::default()),
            (result, _) => result,
        }
    }

    /// The moves from the start to a state.
    fn way(&self, number: u32) -> Vec<Move> {
        let mut way = Vec::new();
        let mut step = self.steps.get(number as usize).copied().flatten();
        while let Some((before, what)) = step {
            way.push(what);
            step = self.steps.get(before as usize).copied().flatten();
        }
        way.reverse();
        way
    }

    /// A state, made again.
    fn world(&self, number: u32) -> World {
        let mut world = self.start.clone();
        self.way(number).into_iter().for_each(|what| world.apply(what));
        world
    }

    /// The way to the last state, as people read it.
    fn replay(&self) -> Vec<String> {
        let last = u32::try_from(self.steps.len().saturating_sub(1)).unwrap_or(u32::MAX);
        let mut world = self.start.clone();
        let mut lines = vec![format!("{:60} {world}", "start")];
        for what in self.way(last) {
            let text = world.describe(what);
            world.apply(what);
            lines.push(format!("{text:60} {world}"));
        }
        lines
    }
}
