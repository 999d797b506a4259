//! The control socket between the manager and a tenant process: whole packets, a descriptor beside some of them; and the
//! frames of a session's link.
//!
//! Packets are JSON, which is read with bounds and without trust. Descriptors go down only, but for the one beside the
//! first packet that comes up, before any code of the tenant's runs.

use crate::command_ring::CommandRing;
use crate::confine::ConfineBuilds;
use crate::dispatcher::{Bitstreams, Demand, Grant, Kind, Load, OtherKernels, SessionId, SlotIndex, TaskId};
use crate::governor::Limits;
use crate::health::LaunchOutcome;
use crate::peer::Credentials;
use crate::quotas::Quota;
use fpga_core::bitstream::Digest;
use nix::cmsg_space;
use nix::errno::Errno;
use nix::sys::socket::{
    AddressFamily, ControlMessage, ControlMessageOwned, MsgFlags, SockFlag, SockType, recvmsg, sendmsg,
    socketpair,
};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use std::io::{self, IoSlice, IoSliceMut};
use std::os::fd::{AsRawFd as _, BorrowedFd, FromRawFd as _, OwnedFd, RawFd};
use std::path::PathBuf;
use std::time::Duration;

/// Longest packet.
const MAX_PACKET_BYTES: usize = 64 << 10;

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

/// One end of a control socket.
#[derive(Debug)]
pub struct Control(OwnedFd);

/// Whether a sender waits for room.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Room {
    /// Until there is some.
    Awaited,
    /// Not at all: an error where there is none.
    Now,
}

/// What came.
#[derive(Debug)]
pub enum Received<T> {
    /// A packet, and its descriptor.
    Packet(T, Option<OwnedFd>),
    /// Nothing within the socket's timeout.
    Nothing,
    /// The other end has gone.
    End,
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

/// A packet as it is sent.
///
/// # Errors
/// That it is too long.
pub fn encode(packet: &impl Serialize) -> io::Result<Vec<u8>> {
    let bytes = serde_json::to_vec(packet)?;
    if bytes.len() > MAX_PACKET_BYTES { Err(io::ErrorKind::InvalidInput.into()) } else { Ok(bytes) }
}

impl Control {
    /// This end and the other.
    ///
    /// # Errors
    /// The system's.
    pub fn pair() -> io::Result<(Self, OwnedFd)> {
        let kind = SockType::SeqPacket;
        let (ours, theirs) = socketpair(AddressFamily::Unix, kind, None, SockFlag::SOCK_CLOEXEC)?;
        Ok((Self(ours), theirs))
    }

    /// The end that a process was given.
    #[must_use]
    pub fn of(end: OwnedFd) -> Self {
        Self(end)
    }

    /// How long [`Self::receive`] waits.
    ///
    /// # Errors
    /// The system's.
    pub fn set_timeout(&self, timeout: Duration) -> io::Result<()> {
        let timeout = nix::sys::time::TimeVal::new(timeout.as_secs().try_into().unwrap_or(1), 0);
        Ok(nix::sys::socket::setsockopt(&self.0, nix::sys::socket::sockopt::ReceiveTimeout, &timeout)?)
    }

    /// Ends both directions, for both ends.
    pub fn hang_up(&self) {
        // Who has gone already hears nothing.
        let _ = nix::sys::socket::shutdown(self.0.as_raw_fd(), nix::sys::socket::Shutdown::Both);
    }

    /// Sends a packet whole.
    ///
    /// # Errors
    /// The system's; that it is too long; that there is no room now.
    pub fn send(&self, packet: &impl Serialize, fd: Option<BorrowedFd<'_>>, room: Room) -> io::Result<()> {
        self.send_encoded(&encode(packet)?, fd, room)
    }

    /// Sends a packet that [`encode`] made, whole.
    ///
    /// # Errors
    /// The system's; that there is no room now.
    pub fn send_encoded(&self, bytes: &[u8], fd: Option<BorrowedFd<'_>>, room: Room) -> io::Result<()> {
        let fds: Vec<RawFd> = fd.iter().map(|fd| fd.as_raw_fd()).collect();
        let rights = [ControlMessage::ScmRights(&fds)];
        let beside: &[ControlMessage<'_>] = if fds.is_empty() { &[] } else { &rights };
        let mut flags = MsgFlags::MSG_NOSIGNAL;
        if room == Room::Now {
            flags |= MsgFlags::MSG_DONTWAIT;
        }
        loop {
            match sendmsg::<()>(self.0.as_raw_fd(), &[IoSlice::new(bytes)], beside, flags, None) {
                Ok(_) => return Ok(()),
                Err(Errno::EINTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// The next packet with what came beside it: for a tenant process.
    ///
    /// # Errors
    /// The system's; that it is no packet.
    pub fn receive_with_descriptor<T: DeserializeOwned>(&self) -> io::Result<Received<T>> {
        let mut beside = cmsg_space!(RawFd);
        self.take(Some(beside.as_mut_slice()))
    }

    /// The next packet; the system drops descriptors that came beside it.
    ///
    /// # Errors
    /// The system's; that it is no packet.
    pub fn receive<T: DeserializeOwned>(&self) -> io::Result<Received<T>> {
        self.take(None)
    }

    fn take<T: DeserializeOwned>(&self, beside: Option<&mut [u8]>) -> io::Result<Received<T>> {
        let mut bytes = vec![0; MAX_PACKET_BYTES];
        let mut slices = [IoSliceMut::new(&mut bytes)];
        let received =
            match recvmsg::<()>(self.0.as_raw_fd(), &mut slices, beside, MsgFlags::MSG_CMSG_CLOEXEC) {
                Ok(received) => received,
                Err(Errno::EAGAIN | Errno::EINTR) => return Ok(Received::Nothing),
                Err(Errno::ECONNRESET) => return Ok(Received::End),
                Err(error) => return Err(error.into()),
            };
        let mut fds = Vec::new();
        if let Ok(messages) = received.cmsgs() {
            for message in messages {
                if let ControlMessageOwned::ScmRights(raw) = message {
                    // SAFETY: the system has just made these descriptors for this process; nobody else has them.
                    fds.extend(raw.into_iter().map(|fd| unsafe { OwnedFd::from_raw_fd(fd) }));
                }
            }
        }
        if received.flags.contains(MsgFlags::MSG_TRUNC) {
            return Err(io::ErrorKind::InvalidData.into());
        }
        let length = received.bytes;
        if length == 0 {
            return Ok(Received::End);
        }
        let packet = serde_json::from_slice(bytes.get(..length).unwrap_or_default())?;
        Ok(Received::Packet(packet, fds.into_iter().next()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packets_and_descriptors_arrive_whole_and_the_end_is_told() {
        let (one, two) = Control::pair().unwrap();
        let two = Control::of(two);
        let digest = Digest::from_bytes([7; 32]);
        let grant = Grant {
            session: SessionId(3),
            task: TaskId(1 << 40 | 5),
            slots: vec![SlotIndex(1)],
            load: vec![Load { slot: SlotIndex(1), bitstream: digest }],
        };
        let file = tempfile::tempfile().unwrap();
        one.send(&Down::Granted((&grant).into()), None, Room::Now).unwrap();
        one.send(&Down::Side { session: 3 }, Some(std::os::fd::AsFd::as_fd(&file)), Room::Now).unwrap();
        let Received::Packet(Down::Granted(granted), None) = two.receive_with_descriptor().unwrap() else {
            panic!("another packet");
        };
        assert_eq!(Grant::from(granted), grant);
        let Received::Packet(Down::Side { session: 3 }, Some(_)) = two.receive_with_descriptor().unwrap()
        else {
            panic!("another packet");
        };
        one.hang_up();
        assert!(matches!(two.receive::<Down>().unwrap(), Received::End));
    }

    #[test]
    fn what_is_no_packet_is_an_error_and_a_descriptor_is_dropped() {
        let (one, two) = Control::pair().unwrap();
        let two = Control::of(two);
        two.send(&"no packet", None, Room::Now).unwrap();
        assert!(one.receive::<Up>().is_err());
        let file = tempfile::tempfile().unwrap();
        let finished = Up::Finished { task: 1, launches: None };
        two.send(&finished, Some(std::os::fd::AsFd::as_fd(&file)), Room::Now).unwrap();
        assert!(matches!(one.receive::<Up>().unwrap(), Received::Packet(Up::Finished { task: 1, .. }, None)));
    }

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
