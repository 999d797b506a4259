//! The breadth-first search.

use super::invariants::{Invariant, Violation, check};
use super::moves::Move;
use super::timed::{Longest, check_progress, check_slot};
use super::world::{Clients, Setup, World};
use std::collections::HashSet;
use std::fmt;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};

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
    /// The promise whose breach ends the search; `None`: any.
    pub watched: Option<Invariant>,
}

/// What a search has done when it has visited all states of a depth.
#[derive(Debug, Clone, Copy)]
pub struct Progress {
    /// The depth.
    pub depth: u32,
    /// Number of different states so far.
    pub states: usize,
    /// Number of states of this depth.
    pub frontier: usize,
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
    /// A shortest way to a broken promise.
    pub broken: Option<Trace>,
}

/// The moves to a broken promise.
#[derive(Debug)]
pub struct Trace {
    /// The broken promise.
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

struct Search<'a> {
    limits: &'a Limits,
    /// 64 bits of each state: of ten million states two are taken for one with a probability of 3 in a million.
    seen: HashSet<u64>,
    steps: Vec<Step>,
    moves: u64,
    timed_runs: u64,
    longest: Longest,
}

/// Visits the states of a setup, the nearest first, until a promise is broken or a limit is reached. The search begins
/// at all states of a run without faults, so that a small depth reaches every stage of a lease; with the clients away, it
/// begins at the start alone.
pub fn explore(setup: &Setup, limits: &Limits, mut progress: impl FnMut(Progress)) -> Report {
    let start = World::started(setup);
    let mut search = Search {
        limits,
        seen: HashSet::new(),
        steps: Vec::new(),
        moves: 0,
        timed_runs: 0,
        longest: Longest::default(),
    };
    let mut depth = 0;
    let mut broken = search.visit(&start, None).err();
    let mut frontier = vec![(0, start.clone())];
    let run = match setup.clients_are {
        Clients::Waiting => World::uneventful(setup),
        Clients::Away => Vec::new(),
    };
    for (what, world) in run {
        let before = u32::try_from(search.steps.len().saturating_sub(1)).unwrap_or(u32::MAX);
        match search.visit(&world, Some((before, what))) {
            Ok(number) => frontier.extend(number.map(|number| (number, world))),
            Err(violation) => {
                broken = Some(violation);
                break;
            }
        }
    }
    while broken.is_none()
        && !frontier.is_empty()
        && depth < limits.depth
        && search.steps.len() < limits.states
    {
        let mut next = Vec::new();
        for (number, world) in frontier {
            for what in world.moves().into_iter().filter(|what| (limits.only)(*what)) {
                let mut after = world.clone();
                after.apply(what);
                search.moves += 1;
                match search.visit(&after, Some((number, what))) {
                    Ok(None) => {}
                    Ok(Some(number)) => next.push((number, after)),
                    Err(violation) => {
                        broken = Some(violation);
                        break;
                    }
                }
            }
            if broken.is_some() || search.steps.len() >= limits.states {
                break;
            }
        }
        frontier = next;
        if broken.is_none() && search.steps.len() < limits.states {
            depth += 1;
            let states = search.steps.len();
            progress(Progress { depth, states, frontier: frontier.len(), moves: search.moves });
        }
    }
    let is_complete = broken.is_none() && frontier.is_empty();
    let broken = broken.map(|violation| Trace { violation, lines: search.replay(&start) });
    Report {
        states: search.steps.len(),
        moves: search.moves,
        depth,
        is_complete,
        timed_runs: search.timed_runs,
        longest: search.longest,
        broken,
    }
}

impl Search<'_> {
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

    /// Leaves out the breach of a promise that is not watched.
    fn unless_watched<T: Default>(&self, result: Result<T, Violation>) -> Result<T, Violation> {
        match (result, self.limits.watched) {
            (Err(violation), Some(watched)) if violation.invariant != watched => Ok(T::default()),
            (result, _) => result,
        }
    }

    /// The way to the last state.
    fn replay(&self, start: &World) -> Vec<String> {
        let mut way = Vec::new();
        let mut step = self.steps.last().copied().flatten();
        while let Some((number, what)) = step {
            way.push(what);
            step = self.steps.get(number as usize).copied().flatten();
        }
        let mut world = start.clone();
        let mut lines = vec![format!("{:60} {world}", "start")];
        for what in way.into_iter().rev() {
            let text = world.describe(what);
            world.apply(what);
            lines.push(format!("{text:60} {world}"));
        }
        lines
    }
}
