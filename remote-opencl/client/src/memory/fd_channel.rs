//! The fd channel: a unix socket beside the gRPC connection, over which the manager passes descriptors, since gRPC
//! can't.
#![allow(unsafe_code)]

use crate::base::closed_in_children::ClosedInChildren;
use fpga_net::descriptor::Beside as _;
use fpga_protocol::segments::{SIDE_SUFFIX, TAKEN, VARIABLE};
use nix::cmsg_space;
use nix::sys::socket::{ControlMessageOwned, MsgFlags, recvmsg, sendmsg};
use std::io::{self, IoSlice, IoSliceMut};
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::path::Path;
use tokio::io::AsyncReadExt;
use tokio::net::UnixStream;

/// A connected channel, whose key the manager has accepted.
#[derive(Debug)]
pub(crate) struct FdChannel {
    // Unregistered before the descriptor is closed, since fields are dropped in this order.
    _closed_in_children: ClosedInChildren,
    fd: OwnedFd,
}

/// Whether the environment allows shared memory.
pub(crate) fn is_enabled() -> bool {
    std::env::var_os(VARIABLE).is_none_or(|value| value != "off")
}

impl FdChannel {
    /// Connects to the channel of the manager at `manager` and sends the session's key.
    pub(crate) async fn connect(manager: &Path, key: &[u8]) -> io::Result<Self> {
        let mut path = manager.as_os_str().to_owned();
        path.push(SIDE_SUFFIX);
        let mut stream = UnixStream::connect(path).await?;
        // `write` could raise SIGPIPE in the process. A new socket has room for the key.
        let sent = sendmsg::<()>(
            stream.as_raw_fd(),
            &[IoSlice::new(key)],
            &[],
            MsgFlags::MSG_NOSIGNAL | MsgFlags::MSG_DONTWAIT,
            None,
        )?;
        if sent != key.len() || stream.read_u8().await? != TAKEN {
            return Err(io::Error::other("the manager doesn't take the key"));
        }
        let fd = OwnedFd::from(stream.into_std()?);
        Ok(Self { _closed_in_children: ClosedInChildren::of(fd.as_fd()), fd })
    }

    /// The descriptor of a segment whose reply has come; the descriptor came before the reply.
    pub(super) fn receive(&self, segment: u64) -> io::Result<OwnedFd> {
        self.take::<1>(segment).map(|[fd]| fd)
    }

    /// The descriptors of memory and bell of the command ring that `call` requested, after the reply to `call`.
    pub(crate) fn receive_ring(&self, call: u64) -> io::Result<(OwnedFd, OwnedFd)> {
        self.take::<2>(call).map(|[memory, bell]| (memory, bell))
    }

    fn take<const N: usize>(&self, expected: u64) -> io::Result<[OwnedFd; N]> {
        let mut id = [0; 8];
        let mut bytes = [IoSliceMut::new(&mut id)];
        let mut control = cmsg_space!([RawFd; N]);
        let flags = MsgFlags::MSG_CMSG_CLOEXEC | MsgFlags::MSG_DONTWAIT;
        let message = recvmsg::<()>(self.fd.as_raw_fd(), &mut bytes, Some(&mut control), flags)?;
        let received = message.bytes;
        let mut fds = Vec::new();
        for message in message.cmsgs()? {
            if let ControlMessageOwned::ScmRights(passed) = message {
                // SAFETY: the kernel has just made these descriptors for this process, and nothing else owns them.
                fds.extend(passed.into_iter().map(|fd| unsafe { OwnedFd::from_raw_fd(fd) }));
            }
        }
        match fds.try_into() {
            Ok(fds) if received == id.len() && u64::from_le_bytes(id) == expected => Ok(fds),
            _ => Err(io::Error::other("something else came over the fd channel")),
        }
    }
}
