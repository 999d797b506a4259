//! The address of the port for sessions with a lease: one port, or the first free one of a range, since several managers
//! of a pod share its address.

use std::fmt;
use std::io;
use std::net::TcpListener;
use std::ops::RangeInclusive;
use std::str::FromStr;

/// A host and its ports, in the order in which they are tried.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct PoolAddress {
    host: String,
    ports: RangeInclusive<u16>,
}

/// The text is not a [`PoolAddress`].
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is no address; write HOST:PORT, or HOST:FIRST-LAST for the first free port of a range")]
pub(super) struct InvalidPoolAddress(String);

impl PoolAddress {
    /// Binds the first port that is free.
    ///
    /// # Errors
    /// The error of the last port.
    pub(super) fn bind(&self) -> io::Result<TcpListener> {
        let mut error = io::Error::from(io::ErrorKind::AddrInUse);
        for port in self.ports.clone() {
            match TcpListener::bind((self.host.as_str(), port)) {
                Ok(listener) => return Ok(listener),
                Err(failed) => error = failed,
            }
        }
        Err(error)
    }
}

impl FromStr for PoolAddress {
    type Err = InvalidPoolAddress;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let parse = || {
            let (host, ports) = text.rsplit_once(':')?;
            let host = host.trim_start_matches('[').trim_end_matches(']');
            let (first, last) = ports.split_once('-').unwrap_or((ports, ports));
            let ports = first.parse().ok()?..=last.parse().ok()?;
            (!host.is_empty() && !ports.is_empty()).then(|| Self { host: host.to_owned(), ports })
        };
        parse().ok_or_else(|| InvalidPoolAddress(text.to_owned()))
    }
}

impl fmt::Display for PoolAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (first, last) = (self.ports.start(), self.ports.end());
        if self.host.contains(':') {
            write!(f, "[{}]:{first}", self.host)
        } else {
            write!(f, "{}:{first}", self.host)
        }?;
        if first == last { Ok(()) } else { write!(f, "-{last}") }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn managers_of_one_pod_take_the_ports_of_a_range_in_turn() {
        let taken = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = taken.local_addr().unwrap().port();
        let last = port.saturating_add(20);
        let address: PoolAddress = format!("127.0.0.1:{port}-{last}").parse().unwrap();
        let bound = address.bind().unwrap().local_addr().unwrap().port();
        assert!(bound > port && bound <= last, "{bound}");
        let only: PoolAddress = format!("127.0.0.1:{port}").parse().unwrap();
        assert_eq!(only.bind().unwrap_err().kind(), io::ErrorKind::AddrInUse);
    }

    #[test]
    fn an_address_names_a_host_and_ports() {
        for text in ["0.0.0.0:9482-9497", "node.example:0"] {
            assert_eq!(text.parse::<PoolAddress>().unwrap().to_string(), text);
        }
        // The chart writes an address of a pod without brackets, since the kubelet sets it in.
        for text in ["[fd00::1]:5-9", "fd00::1:5-9"] {
            let address = text.parse::<PoolAddress>().unwrap();
            assert_eq!((address.host.as_str(), address.to_string().as_str()), ("fd00::1", "[fd00::1]:5-9"));
        }
        for text in ["", "9482", ":9482", "a:", "a:9-8", "a:1-2-3", "a:70000"] {
            assert!(text.parse::<PoolAddress>().unwrap_err().to_string().contains("HOST:PORT"), "{text}");
        }
    }
}
