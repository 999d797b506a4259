//! The packets between the manager and a tenant process, over their control socket.
//!
//! Packets are JSON; the receiver bounds them and does not trust them. Descriptors go to the tenant process
//! only, except for the one with the first packet to the manager, which is sent before any code of the tenant
//! runs.

mod control;
mod spans;

pub use control::{Control, Received, Room, encode};
pub use spans::{MAX_SPANS, TenantSpan};

use fpga_board::dispatch::{Grant, Kind, TaskId};
use fpga_board::slots::{Bitstreams, Demand, OtherKernels, SessionId, SlotIndex, SlotLoad};
use fpga_board::whole_board::{Round, Word};
use fpga_core::bitstream::Digest;
use fpga_core::device::ReconfiguredPart;
use fpga_core::gate::Origin;
use fpga_session::command_ring::CommandRing;
use fpga_session::confine::ConfineBuilds;
use fpga_session::governor::Limits;
use fpga_session::health::LaunchOutcome;
use fpga_session::inventory::BoardDevices;
use fpga_session::locality::Credentials;
use fpga_session::metrics::Counted;
use fpga_session::quota::Quota;
use fpga_session::shorten::shorten;
use serde::{Deserialize, Serialize};
use std::path::PathBuf;
use std::time::Duration;

/// Most bitstreams of a task of a tenant process: its [`FromTenant::Submit`] and its [`ToTenant::Granted`] then fit a
/// packet, whatever the number of slots.
pub const MAX_BITSTREAMS: usize = 512;

/// Most bytes of the reason of a refusal. As JSON, a byte takes up to six.
const MAX_REASON_BYTES: usize = 4 << 10;

/// A packet to a tenant process.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub enum ToTenant {
    /// The first packet.
    Setup(Box<Setup>),
    /// A session begins; the descriptor is its link.
    Open {
        /// Id of the session.
        session: u64,
        /// The client's process, if memory can be shared with it.
        shares_memory_with: Option<Credentials>,
    },
    /// The session's client has connected to the side socket; the descriptor is that connection.
    FdChannel {
        /// Id of the session.
        session: u64,
    },
    /// The token of the session was revoked: the session ends.
    Revoked {
        /// Id of the session.
        session: u64,
    },
    /// The client of the session is to give its lent slot up.
    Yield {
        /// Id of the session.
        session: u64,
    },
    /// A task may start.
    Granted(Granted),
    /// Another process loads the whole board: release the vendor's objects.
    Leave {
        /// Number of the request, which the answer repeats.
        round: Round,
    },
    /// The vendor may be used. Until the first such packet a process on a board that is reconfigured as a whole doesn't load
    /// the vendor's runtime.
    Return {
        /// The images whose programs may be made.
        images: Vec<Digest>,
    },
    /// The answer to a question: whether the process may reconfigure the device, hold bytes, or build.
    Answer {
        /// Number of the question.
        question: u64,
        /// Reason of the refusal; `None` if the answer is yes.
        refused: Option<String>,
    },
    /// The tenant's new quota.
    Quota(Quota),
    /// All sessions end.
    End,
}

/// A packet from a tenant process.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub enum FromTenant {
    /// The first packet: the process has given up what it does not need. If the kernel has filters of system
    /// calls, the descriptor is the one over which the kernel reports new threads and processes.
    Confined,
    /// A task wants to start.
    Submit {
        /// Session of the task.
        session: u64,
        /// Id of the task.
        task: u64,
        /// Kind of the task.
        kind: Option<u64>,
        /// Slots that the task needs.
        demand: Wanted,
        /// Queues on which the task has commands; `None` if it may run beside any other task.
        lanes: Option<Vec<u64>>,
        /// Bytes that the task's commands take in from the client.
        bytes: u64,
    },
    /// A task has ended.
    Finished {
        /// Id of the task.
        task: u64,
        /// How the last kernel of the task ended; `None` if the task had no kernel, or if the outcome is not
        /// a sign of the device's health.
        launches: Option<LaunchOutcome>,
    },
    /// Loading the bitstreams of a granted task has failed.
    LoadFailed {
        /// Id of the granted task.
        task: u64,
    },
    /// The process has left a board that is reconfigured as a whole, or has returned.
    Board(Word),
    /// A session has ended.
    Cancelled {
        /// Id of the session.
        session: u64,
    },
    /// A slot was loaded for a granted task.
    Reconfigured {
        /// Index of the slot.
        slot: u32,
        /// Bitstream that was loaded.
        bitstream: Digest,
        /// Time that loading took, in µs.
        took_us: u64,
    },
    /// The question whether a session may have the device reconfigured to a bitstream.
    Ask {
        /// Number of the question, which the answer repeats.
        question: u64,
        /// Session that wants the bitstream.
        session: u64,
        /// Bitstream to load.
        bitstream: Digest,
        /// Where the bitstream comes from.
        origin: Origin,
    },
    /// The question whether the tenant may hold lasting bytes.
    Hold {
        /// Number of the question, which the answer and [`FromTenant::GiveBack`] repeat.
        question: u64,
        /// Number of bytes.
        bytes: u64,
    },
    /// A request to build a program. The answer is always yes and comes when there is a place.
    Build {
        /// Number of the question, which the answer and [`FromTenant::GiveBack`] repeat.
        question: u64,
    },
    /// Lasting bytes or a place for a build are given back.
    GiveBack {
        /// Number of the question that they were asked for by.
        question: u64,
    },
    /// Increments of the counters since the last such packet.
    Counted(Counted),
    /// Spans of tasks that are part of a trace, at most [`MAX_SPANS`].
    Spans(Vec<TenantSpan>),
}

/// Settings of one tenant process.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Setup {
    /// Name of the tenant.
    pub tenant: String,
    /// Id of the device on its node.
    pub device: String,
    /// The tenant's quota.
    pub quota: Quota,
    /// Limits of the bytes that clients may make the process hold.
    pub memory: Limits,
    /// Number of slots that the process's sessions share.
    pub slots: std::num::NonZeroU32,
    /// Ids of the process's tasks are greater than this.
    pub first_task: u64,
    /// Folder of this process alone.
    pub folder: PathBuf,
    /// Settings that all tenant processes share.
    pub common: Common,
}

/// Settings of all tenant processes of a manager.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Common {
    /// The devices of the runtime that are the board.
    pub devices: BoardDevices,
    /// Number of slots of the device, lent ones included.
    pub slots: std::num::NonZeroU32,
    /// The part of the board that a reconfiguration replaces.
    pub reconfigured_part: ReconfiguredPart,
    /// Time that a reconfiguration takes in the model.
    pub reconfiguration_time: Duration,
    /// Whether programs from source count as bitstreams.
    pub source_as_bitstream: bool,
    /// Folder of bitstreams.
    pub bitstreams: Option<PathBuf>,
    /// Most bytes of bitstreams that each process keeps.
    pub store_limit: u64,
    /// Whether the processes give up the manager's files, as builds do.
    pub confine: ConfineBuilds,
    /// Most programs that each process builds at a time, within the places of the manager.
    pub builds: usize,
    /// Whether the processes offer command rings.
    pub command_ring: CommandRing,
    /// Whether the manager sends spans of traces.
    pub records_traces: bool,
}

/// A demand in a packet.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub enum Wanted {
    /// No slot.
    Nothing,
    /// Any slot.
    AnySlot,
    /// A slot for each of these bitstreams.
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

impl ToTenant {
    /// The answer to a question. A reason that is too long for a packet is shortened.
    #[must_use]
    pub fn answer(question: u64, refused: Option<String>) -> Self {
        Self::Answer { question, refused: refused.map(|reason| shorten(reason, MAX_REASON_BYTES)) }
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
        let load = load.into_iter().map(|(slot, bitstream)| SlotLoad { slot: SlotIndex(slot), bitstream });
        Self {
            session: SessionId(session),
            task: TaskId(task),
            slots: slots.into_iter().map(SlotIndex).collect(),
            load: load.collect(),
        }
    }
}

/// The kind with this number in a packet.
#[must_use]
pub fn kind(number: Option<u64>) -> Option<Kind> {
    number.map(Kind)
}

#[cfg(test)]
mod tests {
    use super::control::MAX_PACKET_BYTES;
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

    #[test]
    fn the_largest_task_and_its_grant_fit_a_packet() {
        let slots = u32::try_from(MAX_BITSTREAMS).unwrap();
        let digests: Vec<Digest> = (0..MAX_BITSTREAMS).map(|_| Digest::from_bytes([0xff; 32])).collect();
        let submit = FromTenant::Submit {
            session: u64::MAX,
            task: u64::MAX,
            kind: Some(u64::MAX),
            demand: Wanted::Bitstreams(digests.clone()),
            lanes: Some(vec![u64::MAX; fpga_board::dispatch::MAX_LANES]),
            bytes: u64::MAX,
        };
        encode(&submit).unwrap();
        let indices = (0..slots).map(|slot| u32::MAX - slot);
        let granted = Granted {
            session: u64::MAX,
            task: u64::MAX,
            slots: indices.clone().collect(),
            load: indices.zip(digests).collect(),
        };
        encode(&ToTenant::Granted(granted)).unwrap();
    }

    #[test]
    fn a_refusal_fits_a_packet_however_long_its_reason_is() {
        let reason = format!("no board is left{}", "\u{1}".repeat(MAX_PACKET_BYTES));
        let encoded = encode(&ToTenant::answer(u64::MAX, Some(reason))).unwrap();
        let Ok(ToTenant::Answer { refused: Some(reason), .. }) = serde_json::from_slice(&encoded) else {
            panic!("another packet")
        };
        assert!(reason.starts_with("no board is left") && reason.contains("left out"), "{reason}");
    }
}
