//! A board that is reconfigured as a whole (T-2) and that several processes use.
//!
//! A load takes the board from all processes: each saves what its buffers contain, releases the objects of the vendor, and
//! says so. Then the process of the granted task loads the image. The others return when they next need the board.
//!
//! [`WholeBoard`] is the manager's side, [`Presence`] the side of each process, and [`MemberDeadline`] bounds how long the
//! manager waits for a process. None has I/O; tests run them against each other in random orders.

mod deadline;
mod presence;
#[cfg(test)]
mod tests;

pub use deadline::{MemberDeadline, Step, TimeLimits, UnknownRound};
pub use presence::{LoadTicket, LoadWork, Presence, Word, Work};

use crate::dispatch::{Grant, TaskId};
use crate::slots::SessionId;
use fpga_core::bitstream::Digest;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, HashMap, VecDeque};

/// A process that uses the board.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MemberId(pub u64);

/// Number of a request to leave the board. Answers repeat it, so that a late one means nothing.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Round(pub u64);

/// Whether a process that returns has loaded the image.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Loaded {
    /// The image is on the board, or the granted task loads it.
    Yes,
    /// The load failed or was given up.
    No,
}

/// What the manager tells a process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Order {
    /// Use the vendor no more, release all its objects, and say that you have.
    Leave(Round),
    /// Use the vendor again when you need it. Programs of these images may be made.
    Return(Vec<Digest>),
    /// A task may start.
    Start(Grant),
}

/// The board and its processes.
#[derive(Debug, Default)]
pub struct WholeBoard {
    round: Round,
    members: BTreeMap<MemberId, Place>,
    phase: Phase,
    /// Loads that wait for the one before them, or for earlier tasks of their session.
    waiting: VecDeque<Load>,
    /// The tasks that were started and have not ended.
    running: HashMap<TaskId, (MemberId, SessionId)>,
    /// The images whose programs processes may make when they return.
    images: Vec<Digest>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Place {
    /// The process may use the board.
    Uses,
    /// The process was told to leave.
    Leaves,
    /// The process has left.
    Off,
}

#[derive(Debug, Default)]
enum Phase {
    #[default]
    Open,
    /// The processes leave, for this load.
    Closing(Load),
    /// One process loads.
    Loading { member: MemberId, task: TaskId, images: Vec<Digest> },
}

/// A grant with a load, and the grants of the same session that came after it. A session starts its tasks in order, so
/// the load begins when the tasks before it have ended: they could not start while the board is closed.
#[derive(Debug)]
struct Load {
    member: MemberId,
    grant: Grant,
    behind: Vec<Grant>,
}

type Orders = Vec<(MemberId, Order)>;

impl WholeBoard {
    /// A process that has not used the board yet may do so when it is told to return.
    #[must_use]
    pub fn joined(&mut self, member: MemberId) -> Orders {
        self.members.insert(member, Place::Off);
        match self.phase {
            Phase::Open => self.open(),
            Phase::Closing(_) | Phase::Loading { .. } => Vec::new(),
        }
    }

    /// A process has ended. Its grants are no longer delivered.
    #[must_use]
    pub fn left(&mut self, member: MemberId) -> Orders {
        self.members.remove(&member);
        self.waiting.retain(|load| load.member != member);
        self.running.retain(|_, (of, _)| *of != member);
        match &self.phase {
            Phase::Closing(load) if load.member == member => self.advance(),
            Phase::Closing(_) => self.start_if_empty(),
            Phase::Loading { member: loads, .. } if *loads == member => {
                self.images.clear();
                self.advance()
            }
            Phase::Loading { .. } => Vec::new(),
            Phase::Open => self.close_if_ready(),
        }
    }

    /// The dispatch has granted a task of a process.
    #[must_use]
    pub fn granted(&mut self, member: MemberId, grant: Grant) -> Orders {
        if !self.members.contains_key(&member) {
            return Vec::new();
        }
        let closing = match &mut self.phase {
            Phase::Closing(load) => Some(load),
            Phase::Open | Phase::Loading { .. } => None,
        };
        let mut ahead = closing.into_iter().chain(&mut self.waiting);
        if let Some(load) = ahead.find(|load| (load.member, load.grant.session) == (member, grant.session)) {
            load.behind.push(grant);
            return Vec::new();
        }
        if grant.load.is_empty() {
            return vec![self.start(member, grant)];
        }
        self.waiting.push_back(Load { member, grant, behind: Vec::new() });
        match self.phase {
            Phase::Open => self.close_if_ready(),
            Phase::Closing(_) | Phase::Loading { .. } => Vec::new(),
        }
    }

    /// A process says that it has left the board.
    #[must_use]
    pub fn is_off(&mut self, member: MemberId, round: Round) -> Orders {
        if round != self.round {
            return Vec::new();
        }
        match self.members.get_mut(&member) {
            Some(place @ Place::Leaves) => *place = Place::Off,
            _ => return Vec::new(),
        }
        self.start_if_empty()
    }

    /// A process says that it has returned.
    #[must_use]
    pub fn is_back(&mut self, member: MemberId, loaded: Loaded) -> Orders {
        match &mut self.phase {
            Phase::Loading { member: loads, images, .. } if *loads == member => {
                self.images = match loaded {
                    Loaded::Yes => std::mem::take(images),
                    Loaded::No => Vec::new(),
                };
                self.members.insert(member, Place::Uses);
                self.advance()
            }
            _ => Vec::new(),
        }
    }

    /// A task has ended. Returns whether it was to load and its process has not returned: then the load was given up, and
    /// the content of the slot is unknown.
    #[must_use]
    pub fn ended(&mut self, task: TaskId) -> (bool, Orders) {
        self.running.remove(&task);
        match &self.phase {
            Phase::Loading { member, task: loads, .. } if *loads == task => {
                (true, vec![(*member, Order::Return(Vec::new()))])
            }
            Phase::Open => (false, self.close_if_ready()),
            Phase::Loading { .. } | Phase::Closing(_) => (false, Vec::new()),
        }
    }

    fn start(&mut self, member: MemberId, grant: Grant) -> (MemberId, Order) {
        self.running.insert(grant.task, (member, grant.session));
        (member, Order::Start(grant))
    }

    /// Begins with the next load, or opens the board.
    fn advance(&mut self) -> Orders {
        if self.is_ready() {
            return self.close_if_ready();
        }
        self.open()
    }

    /// Whether the next load may begin.
    fn is_ready(&self) -> bool {
        let ahead = |load: &Load| self.running.values().any(|of| *of == (load.member, load.grant.session));
        self.waiting.front().is_some_and(|load| !ahead(load))
    }

    /// Begins with the next load if it may begin.
    fn close_if_ready(&mut self) -> Orders {
        if !self.is_ready() {
            return Vec::new();
        }
        let Some(load) = self.waiting.pop_front() else { return Vec::new() };
        self.round.0 += 1;
        let mut orders = Vec::new();
        for (member, place) in &mut self.members {
            if *place != Place::Off {
                *place = Place::Leaves;
                orders.push((*member, Order::Leave(self.round)));
            }
        }
        self.phase = Phase::Closing(load);
        orders.extend(self.start_if_empty());
        orders
    }

    fn open(&mut self) -> Orders {
        self.phase = Phase::Open;
        let kept_out = self.members.iter_mut().filter(|(_, place)| **place != Place::Uses);
        let may_return = |(member, place): (&MemberId, &mut Place)| {
            *place = Place::Uses;
            (*member, Order::Return(self.images.clone()))
        };
        kept_out.map(may_return).collect()
    }

    /// Starts the load if all processes have left.
    fn start_if_empty(&mut self) -> Orders {
        if self.members.values().any(|place| *place != Place::Off) {
            return Vec::new();
        }
        let Load { member, grant, behind } = match std::mem::take(&mut self.phase) {
            Phase::Closing(load) => load,
            phase => {
                self.phase = phase;
                return Vec::new();
            }
        };
        let images = grant.load.iter().map(|load| load.bitstream).collect();
        self.phase = Phase::Loading { member, task: grant.task, images };
        std::iter::once(grant).chain(behind).map(|grant| self.start(member, grant)).collect()
    }
}
