//! The control socket: each packet is sent and received whole, some with a descriptor.

use nix::cmsg_space;
use nix::errno::Errno;
use nix::sys::socket::{
    AddressFamily, ControlMessage, ControlMessageOwned, MsgFlags, SockFlag, SockType, recvmsg, sendmsg,
    socketpair,
};
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::io::{self, IoSlice, IoSliceMut};
use std::os::fd::{AsRawFd as _, BorrowedFd, FromRawFd as _, OwnedFd, RawFd};
use std::time::Duration;

/// Longest packet, in bytes.
pub const MAX_PACKET_BYTES: usize = 64 << 10;

/// One end of a control socket.
#[derive(Debug)]
pub struct Control(OwnedFd);

/// Whether a sender waits for room in the socket.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Room {
    /// Wait until there is room.
    Awaited,
    /// Fail at once if there is no room.
    Now,
}

/// The result of receiving.
#[derive(Debug)]
pub enum Received<T> {
    /// A packet, and the descriptor that came with it.
    Packet(T, Option<OwnedFd>),
    /// No packet came within the socket's timeout.
    Nothing,
    /// The other end is closed.
    End,
}

/// Encodes a packet.
///
/// # Errors
/// The packet is too long.
pub fn encode(packet: &impl Serialize) -> io::Result<Vec<u8>> {
    let bytes = serde_json::to_vec(packet)?;
    if bytes.len() > MAX_PACKET_BYTES {
        let reason = format!("the packet has {} bytes, and the longest {MAX_PACKET_BYTES}", bytes.len());
        return Err(io::Error::new(io::ErrorKind::InvalidInput, reason));
    }
    Ok(bytes)
}

impl Control {
    /// A connected pair: this end, and the one for the other process.
    ///
    /// # Errors
    /// The sockets can't be made.
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

    /// Sets how long [`Self::receive`] waits.
    ///
    /// # Errors
    /// The socket refuses the timeout.
    pub fn set_timeout(&self, timeout: Duration) -> io::Result<()> {
        let timeout = nix::sys::time::TimeVal::new(
            timeout.as_secs().try_into().unwrap_or(i64::MAX),
            timeout.subsec_micros().into(),
        );
        Ok(nix::sys::socket::setsockopt(&self.0, nix::sys::socket::sockopt::ReceiveTimeout, &timeout)?)
    }

    /// Ends both directions, for both ends.
    pub fn hang_up(&self) {
        // An error means that the other end has already gone.
        let _ = nix::sys::socket::shutdown(self.0.as_raw_fd(), nix::sys::socket::Shutdown::Both);
    }

    /// Sends a packet whole.
    ///
    /// # Errors
    /// The socket's error; the packet is too long; or, with [`Room::Now`], there is no room.
    pub fn send(&self, packet: &impl Serialize, fd: Option<BorrowedFd<'_>>, room: Room) -> io::Result<()> {
        self.send_encoded(&encode(packet)?, fd, room)
    }

    /// Sends a packet that [`encode`] made, whole.
    ///
    /// # Errors
    /// The socket's error, or, with [`Room::Now`], no room.
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

    /// Receives the next packet and its descriptor.
    ///
    /// # Errors
    /// The socket's error, or the bytes are not a packet.
    pub fn receive_with_descriptor<T: DeserializeOwned>(&self) -> io::Result<Received<T>> {
        let mut beside = cmsg_space!(RawFd);
        self.take(Some(beside.as_mut_slice()))
    }

    /// Receives the next packet; the system drops a descriptor that came with it.
    ///
    /// # Errors
    /// The socket's error, or the bytes are not a packet.
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
                    // SAFETY: the system has just made these descriptors for this process, and nothing else
                    // owns them.
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
    use crate::isolation::packets::{FromTenant, ToTenant};
    use fpga_board::dispatch::{Grant, TaskId};
    use fpga_board::slots::{SessionId, SlotIndex, SlotLoad};
    use fpga_core::bitstream::Digest;

    #[test]
    fn packets_and_descriptors_arrive_whole_and_the_end_is_told() {
        let (one, two) = Control::pair().unwrap();
        let two = Control::of(two);
        let digest = Digest::from_bytes([7; 32]);
        let grant = Grant {
            session: SessionId(3),
            task: TaskId(1 << 40 | 5),
            slots: vec![SlotIndex(1)],
            load: vec![SlotLoad { slot: SlotIndex(1), bitstream: digest }],
        };
        let file = tempfile::tempfile().unwrap();
        one.send(&ToTenant::Granted((&grant).into()), None, Room::Now).unwrap();
        one.send(&ToTenant::FdChannel { session: 3 }, Some(std::os::fd::AsFd::as_fd(&file)), Room::Now)
            .unwrap();
        let Received::Packet(ToTenant::Granted(granted), None) = two.receive_with_descriptor().unwrap()
        else {
            panic!("another packet");
        };
        assert_eq!(Grant::from(granted), grant);
        let Received::Packet(ToTenant::FdChannel { session: 3 }, Some(_)) =
            two.receive_with_descriptor().unwrap()
        else {
            panic!("another packet");
        };
        one.hang_up();
        assert!(matches!(two.receive::<ToTenant>().unwrap(), Received::End));
    }

    #[test]
    fn what_is_no_packet_is_an_error_and_a_descriptor_is_dropped() {
        let (one, two) = Control::pair().unwrap();
        let two = Control::of(two);
        two.send(&"no packet", None, Room::Now).unwrap();
        assert!(one.receive::<FromTenant>().is_err());
        let file = tempfile::tempfile().unwrap();
        let finished = FromTenant::Finished { task: 1, launches: None };
        two.send(&finished, Some(std::os::fd::AsFd::as_fd(&file)), Room::Now).unwrap();
        assert!(matches!(
            one.receive::<FromTenant>().unwrap(),
            Received::Packet(FromTenant::Finished { task: 1, .. }, None)
        ));
    }
}
