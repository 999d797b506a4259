//! What the manager and a tenant process say to each other over their control socket.
//!
//! Packets are JSON, which is read with bounds and without trust. Descriptors go down only, but for the one beside the
//! first packet that comes up, before any code of the tenant's runs.

mod control;

pub use control::{Control, Received, Room, encode};

use crate::command_ring::CommandRing;
use crate::confine::ConfineBuilds;
use crate::dispatcher::{Bitstreams, Demand, Grant, Kind, Load, OtherKernels, SessionId, SlotIndex, TaskId};
use crate::governor::Limits;
use crate::health::LaunchOutcome;
use crate::peer::Credentials;
use crate::quotas::Quota;
use fpga_core::bitstream::Digest;
use serde::{Deserialize, Serialize};
use std::path::PathBuf;
use std::time::Duration;

/// To a tenant process.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub enum Down {
    /// The first one.
    Setup(Box<Setup>),
    /// A session begins; the descriptor is its link.
    Open {
        /// Its id.
        session: u64,
        /// The client's process, where memory can be shared with it.
        shares_memory_with: Option<Credentials>,
    },
    /// The session's client has connected for descriptors; the descriptor is that socket.
    Side {
        /// Whose.
        session: u64,
    },
    /// A task may start.
    Granted(Granted),
    /// Whether the process may what it has asked for: reconfigure the device, hold bytes, build.
    Answer {
        /// To which question.
        question: u64,
        /// Why not; nothing if it may.
        refused: Option<String>,
    },
    /// The tenant's quota from now on.
    Quota(Quota),
    /// All sessions end.
    End,
}

/// From a tenant process.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub enum Up {
    /// The first one: the process has given up what it doesn't need. The descriptor beside it, where the kernel has filters
    /// of system calls, is the one over which the kernel asks for new threads and processes.
    Confined,
    /// A task wants to start.
    Submit {
        /// Whose it is.
        session: u64,
        /// Its id.
        task: u64,
        /// What it runs.
        kind: Option<u64>,
        /// What it needs.
        demand: Wanted,
        /// On which queues it has commands; nothing where it may run beside any other.
        lanes: Option<Vec<u64>>,
    },
    /// A task has ended.
    Finished {
        /// Which.
        task: u64,
        /// How its last kernel ended; nothing where it had none, or where that is the program's own affair.
        launches: Option<LaunchOutcome>,
    },
    /// What a granted task was to load is not loaded.
    LoadFailed {
        /// The number of the task that was granted.
        task: u64,
    },
    /// A session has gone.
    Cancelled {
        /// Which.
        session: u64,
    },
    /// A slot was loaded for a task that was granted so.
    Reconfigured {
        /// Which.
        slot: u32,
        /// With what.
        bitstream: Digest,
        /// How long that took, in µs.
        took_us: u64,
    },
    /// May a session have the device reconfigured to a bitstream?
    Ask {
        /// Names the question in its answer.
        question: u64,
        /// Whose it is.
        session: u64,
        /// What is to be loaded.
        bitstream: Digest,
    },
    /// May the tenant hold so many lasting bytes?
    Hold {
        /// Names the question in its answer, and what is held then.
        question: u64,
        /// How many.
        bytes: u64,
    },
    /// May a program be built? The answer is yes, when there is a place.
    Build {
        /// Names the question in its answer, and the place.
        question: u64,
    },
    /// What was held, or a place for a build, is given back.
    GiveBack {
        /// What it was asked for by.
        question: u64,
    },
    /// What was counted since it was last told.
    Counted(Counted),
}

/// What a tenant process counts for the manager's metrics.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counted {
    /// Bytes in messages and in shared memory, received and sent.
    pub bytes: [[u64; 2]; 2],
    /// Bytes of buffers in shared memory and with the vendor.
    pub buffer_bytes: [u64; 2],
    /// Refusals of the quotas.
    pub refused: [u64; 6],
}

/// What a tenant process is to know.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Setup {
    /// Whose it is.
    pub tenant: String,
    /// Id of the device on its node.
    pub device: String,
    /// What the tenant may have.
    pub quota: Quota,
    /// How many bytes its clients may make the process hold.
    pub memory: Limits,
    /// What the ids of its tasks begin after.
    pub first_task: u64,
    /// A folder of its own.
    pub folder: PathBuf,
    /// What all are told alike.
    pub common: Common,
}

/// What all tenant processes of a manager are to know.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Common {
    /// Slots of the device.
    pub slots: std::num::NonZeroU32,
    /// In the model.
    pub reconfiguration_time: Duration,
    /// Whether programs from source count as bitstreams.
    pub source_as_bitstream: bool,
    /// Folder of accelerators.
    pub bitstreams: Option<PathBuf>,
    /// Most bytes of bitstreams that each keeps.
    pub store_limit: u64,
    /// Whether they give up the manager's files, as builds do.
    pub confine: ConfineBuilds,
    /// How many programs each builds at a time, as far as the manager has places.
    pub builds: usize,
    /// Whether they offer command rings.
    pub command_ring: CommandRing,
}

/// A demand in a packet.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub enum Wanted {
    /// No slot.
    Nothing,
    /// Any slot.
    AnySlot,
    /// A slot for each of these.
    Bitstreams(Vec<Digest>),
}

/// A grant in a packet.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Granted {
    session: u64,
    task: u64,
    slots: Vec<u32>,
    load: Vec<(u32, Digest)>,
}

impl Counted {
    /// What came since `before`.
    #[must_use]
    pub fn since(&self, before: &Self) -> Self {
        let less = |now: u64, then: u64| now.saturating_sub(then);
        let mut news = *self;
        for (now, then) in news.bytes.iter_mut().flatten().zip(before.bytes.iter().flatten()) {
            *now = less(*now, *then);
        }
        for (now, then) in news.buffer_bytes.iter_mut().zip(before.buffer_bytes) {
            *now = less(*now, then);
        }
        for (now, then) in news.refused.iter_mut().zip(before.refused) {
            *now = less(*now, then);
        }
        news
    }
}

impl From<&Demand> for Wanted {
    fn from(demand: &Demand) -> Self {
        match demand {
            Demand::Nothing => Self::Nothing,
            Demand::AnySlot => Self::AnySlot,
            Demand::Bitstreams(all) => Self::Bitstreams(all.as_slice().to_vec()),
        }
    }
}

impl From<Wanted> for Demand {
    fn from(wanted: Wanted) -> Self {
        match wanted {
            Wanted::Nothing => Self::Nothing,
            Wanted::AnySlot => Self::of([], OtherKernels::Some),
            Wanted::Bitstreams(all) => Bitstreams::new(all).map_or(Self::Nothing, Self::Bitstreams),
        }
    }
}

impl From<&Grant> for Granted {
    fn from(grant: &Grant) -> Self {
        Self {
            session: grant.session.0,
            task: grant.task.0,
            slots: grant.slots.iter().map(|slot| slot.0).collect(),
            load: grant.load.iter().map(|load| (load.slot.0, load.bitstream)).collect(),
        }
    }
}

impl From<Granted> for Grant {
    fn from(granted: Granted) -> Self {
        let Granted { session, task, slots, load } = granted;
        let load = load.into_iter().map(|(slot, bitstream)| Load { slot: SlotIndex(slot), bitstream });
        Self {
            session: SessionId(session),
            task: TaskId(task),
            slots: slots.into_iter().map(SlotIndex).collect(),
            load: load.collect(),
        }
    }
}

/// The number of a kind in a packet, and back.
#[must_use]
pub fn kind(number: Option<u64>) -> Option<Kind> {
    number.map(Kind)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn demands_survive_a_round_trip() {
        let digest = |n| Digest::from_bytes([n; 32]);
        for demand in
            [Demand::Nothing, Demand::AnySlot, Demand::of([digest(1), digest(2)], OtherKernels::Some)]
        {
            assert_eq!(Demand::from(Wanted::from(&demand)), demand);
        }
    }
}
