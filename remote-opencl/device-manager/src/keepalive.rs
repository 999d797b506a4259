//! How a client is found to have gone without a word: no end of the stream comes when its machine lost power, or when
//! something on the way has stopped to forward.
//!
//! The kernel asks the other kernel, which tells of machines; HTTP/2 asks the client itself, which a proxy can't answer
//! for. Only over TCP: of a unix socket's other end the kernel always knows.

use hyper::server::conn::http2;
use nix::sys::socket::setsockopt;
use nix::sys::socket::sockopt::{KeepAlive, TcpKeepCount, TcpKeepIdle, TcpKeepInterval};
use std::io;
use std::net::TcpStream;
use std::time::Duration;

/// How often the kernel asks before it gives up.
const PROBES: u32 = 3;
/// Most seconds that the kernel takes.
const MOST_SECONDS: u32 = 32_767;

/// How long a client may be silent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Keepalive {
    /// Half of it: then it is asked, and has as long to answer.
    half: Option<Duration>,
}

impl Keepalive {
    /// A client that hasn't answered for this long counts as gone; zero: never.
    #[must_use]
    pub fn within(patience: Duration) -> Self {
        Self { half: Some(patience / 2).filter(|half| !half.is_zero()) }
    }

    /// Has the kernel ask. It counts in seconds, one at least.
    ///
    /// # Errors
    /// The system's.
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

    /// Has HTTP/2 ask.
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
        for (patience, idle, interval) in [
            (Duration::from_secs(60), 30, 10),
            (Duration::from_millis(200), 1, 1),
            (Duration::MAX, MOST_SECONDS, MOST_SECONDS),
        ] {
            let stream = connect();
            Keepalive::within(patience).ask_kernel(&stream).unwrap();
            assert!(getsockopt(&stream, KeepAlive).unwrap());
            assert_eq!(getsockopt(&stream, TcpKeepIdle).unwrap(), idle);
            assert_eq!(getsockopt(&stream, TcpKeepInterval).unwrap(), interval);
        }
        let stream = connect();
        Keepalive::within(Duration::ZERO).ask_kernel(&stream).unwrap();
        assert!(!getsockopt(&stream, KeepAlive).unwrap());
    }
}
