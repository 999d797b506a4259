//! Detects clients that have gone without closing their stream, as when a machine loses power or a device on
//! the way stops forwarding.
//!
//! The kernel probes the other kernel, which detects dead machines. HTTP/2 pings the client itself, which a
//! proxy cannot answer. Both apply to TCP only: the kernel always knows the state of a unix socket's other
//! end.

use hyper::server::conn::http2;
use nix::sys::socket::setsockopt;
use nix::sys::socket::sockopt::{KeepAlive, TcpKeepCount, TcpKeepIdle, TcpKeepInterval};
use std::io;
use std::net::TcpStream;
use std::time::Duration;

/// Number of unanswered probes after which the kernel gives up.
const PROBES: u32 = 3;
/// Interval of pings to clients that may hold a lent slot: a client counts as silent after 5 s.
const LEASE_INTERVAL: Duration = Duration::from_millis(1500);
/// Time for an answer where nothing follows from its lack.
const LONGEST: Duration = Duration::from_secs(365 * 24 * 3600);
/// Most seconds that the kernel accepts.
const MOST_SECONDS: u32 = 32_767;

/// How long a client may be silent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Keepalive {
    /// Half of that time: after it the client is probed, and has as long again to answer.
    half: Option<Duration>,
}

impl Keepalive {
    /// A client that has not answered for `timeout` counts as gone; zero turns this off.
    #[must_use]
    pub fn within(timeout: Duration) -> Self {
        Self { half: Some(timeout / 2).filter(|half| !half.is_zero()) }
    }

    /// Makes the kernel probe the other end. The kernel counts in seconds, at least one.
    ///
    /// # Errors
    /// The socket refuses an option.
    pub fn ask_kernel(self, stream: &TcpStream) -> io::Result<()> {
        let Some(half) = self.half else { return Ok(()) };
        let seconds =
            |time: Duration| u32::try_from(time.as_secs()).unwrap_or(u32::MAX).clamp(1, MOST_SECONDS);
        setsockopt(stream, KeepAlive, &true)?;
        setsockopt(stream, TcpKeepIdle, &seconds(half))?;
        setsockopt(stream, TcpKeepInterval, &seconds(half / PROBES))?;
        setsockopt(stream, TcpKeepCount, &PROBES)?;
        Ok(())
    }

    /// Silent clients are not detected.
    #[must_use]
    pub fn off() -> Self {
        Self { half: None }
    }

    /// Makes HTTP/2 ping a client that may hold a lent slot, so often that a living client is never silent for the
    /// lease protocol. An answer that does not come ends the connection only after the time of this keepalive; the
    /// protocol ends the lease before.
    pub fn ask_leaseholder<E>(self, builder: &mut http2::Builder<E>) {
        let timeout = self.half.map_or(LONGEST, |half| half.saturating_mul(2));
        builder.keep_alive_interval(LEASE_INTERVAL).keep_alive_timeout(timeout);
    }

    /// Makes HTTP/2 ping the client.
    pub fn ask_client<E>(self, builder: &mut http2::Builder<E>) {
        if let Some(half) = self.half {
            builder.keep_alive_interval(half).keep_alive_timeout(half);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nix::sys::socket::getsockopt;
    use std::net::TcpListener;

    #[test]
    fn the_kernel_asks_for_half_of_the_time_and_never_where_there_is_none() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let connect = || TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        for (timeout, idle, interval) in [
            (Duration::from_secs(60), 30, 10),
            (Duration::from_millis(200), 1, 1),
            (Duration::MAX, MOST_SECONDS, MOST_SECONDS),
        ] {
            let stream = connect();
            Keepalive::within(timeout).ask_kernel(&stream).unwrap();
            assert!(getsockopt(&stream, KeepAlive).unwrap());
            assert_eq!(getsockopt(&stream, TcpKeepIdle).unwrap(), idle);
            assert_eq!(getsockopt(&stream, TcpKeepInterval).unwrap(), interval);
        }
        let stream = connect();
        Keepalive::within(Duration::ZERO).ask_kernel(&stream).unwrap();
        assert!(!getsockopt(&stream, KeepAlive).unwrap());
    }
}
