//! The sockets to a manager: the process never gets a SIGPIPE by them, and a forked child closes its copies.

use crate::address::ManagerAddress;
use crate::fork::ClosedInChildren;
use crate::keepalive::notice_silent_death;
use std::io;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use tokio::net::{TcpStream, UnixStream};

/// A connected socket.
pub(crate) type Socket = fpga_net::socket::Socket<ClosedInChildren>;

/// Our end of a socket by which a manager and this process wake each other.
pub(crate) type Doorbell = fpga_net::doorbell::Doorbell<ClosedInChildren>;

/// Connects; `resolved` are the addresses of a TCP manager.
pub(crate) async fn connect(address: &ManagerAddress, resolved: &[SocketAddr]) -> io::Result<Socket> {
    Socket::new(match address {
        ManagerAddress::Unix(path) => OwnedFd::from(UnixStream::connect(path).await?.into_std()?),
        ManagerAddress::Tcp(_) => {
            let stream = TcpStream::connect(resolved).await?;
            // A command is small and somebody waits for its answer: never held back for more.
            stream.set_nodelay(true)?;
            notice_silent_death(&stream)?;
            OwnedFd::from(stream.into_std()?)
        }
    })
}
