//! Ports that take callers of both address families.
//!
//! `[::]` is every address of the machine, of IPv6 and of IPv4, whatever `net.ipv6.bindv6only` says. On a kernel without
//! IPv6 (`ipv6.disable=1`) it is every address of IPv4.

use socket2::{Domain, Protocol, Socket, Type};
use std::io;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};

/// Connections that the kernel keeps until they are accepted, as for listeners of tokio.
const BACKLOG: i32 = 1024;

/// Binds a listener in blocking mode.
///
/// # Errors
/// The system's error if the address can't be bound.
pub fn bind_blocking(address: SocketAddr) -> io::Result<TcpListener> {
    bind_with(address, |domain| Socket::new(domain, Type::STREAM, Some(Protocol::TCP)))
}

/// Binds a listener of the runtime that the caller is in.
///
/// # Errors
/// The system's error if the address can't be bound.
#[cfg(feature = "service")]
pub fn bind(address: SocketAddr) -> io::Result<tokio::net::TcpListener> {
    let listener = bind_blocking(address)?;
    listener.set_nonblocking(true)?;
    tokio::net::TcpListener::from_std(listener)
}

fn bind_with(address: SocketAddr, socket: impl Fn(Domain) -> io::Result<Socket>) -> io::Result<TcpListener> {
    let is_any = address.is_ipv6() && address.ip().is_unspecified();
    let (socket, address) = match socket(Domain::for_address(address)) {
        Err(error) if is_any && error.raw_os_error() == Some(libc::EAFNOSUPPORT) => {
            (socket(Domain::IPV4)?, (Ipv4Addr::UNSPECIFIED, address.port()).into())
        }
        made => (made?, address),
    };
    if is_any && address.is_ipv6() {
        socket.set_only_v6(false)?;
    }
    socket.set_reuse_address(true)?;
    socket.bind(&address.into())?;
    socket.listen(BACKLOG)?;
    Ok(socket.into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{Ipv6Addr, TcpStream};

    const ANY: SocketAddr = SocketAddr::new(std::net::IpAddr::V6(Ipv6Addr::UNSPECIFIED), 0);

    fn answers(listener: &TcpListener, host: &str) -> bool {
        let port = listener.local_addr().unwrap().port();
        TcpStream::connect((host, port)).is_ok()
    }

    #[test]
    fn any_address_takes_callers_of_both_families() {
        let listener = bind_blocking(ANY).unwrap();
        assert!(answers(&listener, "127.0.0.1") && answers(&listener, "::1"));
    }

    #[test]
    fn any_address_is_that_of_ipv4_on_a_kernel_without_ipv6() {
        let without = |domain| match domain {
            Domain::IPV6 => Err(io::Error::from_raw_os_error(libc::EAFNOSUPPORT)),
            domain => Socket::new(domain, Type::STREAM, None),
        };
        let listener = bind_with(ANY, without).unwrap();
        assert!(listener.local_addr().unwrap().is_ipv4() && answers(&listener, "127.0.0.1"));
        // A certain address of IPv6 is not replaced.
        assert!(bind_with("[::1]:0".parse().unwrap(), without).is_err());
    }

    #[test]
    fn other_addresses_are_bound_as_they_are() {
        for host in ["127.0.0.1", "::1"] {
            let listener = bind_blocking(SocketAddr::new(host.parse().unwrap(), 0)).unwrap();
            assert_eq!(listener.local_addr().unwrap().ip().to_string(), host);
        }
        let taken = bind_blocking("127.0.0.1:0".parse().unwrap()).unwrap();
        let error = bind_blocking(taken.local_addr().unwrap()).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::AddrInUse);
    }
}
