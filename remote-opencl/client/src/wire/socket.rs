//! The sockets to a manager. They never raise SIGPIPE, and a forked child closes its copies.

use crate::base::closed_in_children::ClosedInChildren;
use crate::wire::address::ManagerAddress;
use crate::wire::keepalive::notice_silent_death;
use std::io;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use tokio::net::{TcpStream, UnixStream};

pub(crate) type Socket = fpga_net::socket::Socket<ClosedInChildren>;

/// This process's end of the socket with which a manager and this process wake each other.
pub(crate) type Doorbell = fpga_net::doorbell::Doorbell<ClosedInChildren>;

/// Connects to a manager; `resolved` are the addresses of a TCP manager.
pub(crate) async fn connect(address: &ManagerAddress, resolved: &[SocketAddr]) -> io::Result<Socket> {
    Socket::new(match address {
        ManagerAddress::Unix(path) => OwnedFd::from(UnixStream::connect(path).await?.into_std()?),
        ManagerAddress::Tcp(_) => {
            let stream = TcpStream::connect(resolved).await?;
            // Commands are small and their answers awaited, so Nagle's algorithm must not delay them.
            stream.set_nodelay(true)?;
            notice_silent_death(&stream)?;
            OwnedFd::from(stream.into_std()?)
        }
    })
}
