//! The address of a metrics server: TCP, or a unix socket for a program on the same node.

use std::fmt;
use std::fs;
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::os::unix::net::UnixListener;
use std::path::PathBuf;
use std::str::FromStr;

/// An address in the syntax of `--metrics-listen`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum MetricsAddress {
    /// `ADDRESS:PORT`
    Tcp(SocketAddr),
    /// `unix:/PATH`
    Unix(PathBuf),
}

/// The text is not a [`MetricsAddress`].
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is no address for metrics; write `[::]:9462` or `unix:/PATH/TO.sock`")]
pub struct InvalidMetricsAddress(String);

/// A bound socket, in blocking mode.
#[derive(Debug)]
pub(super) enum MetricsListener {
    Tcp(TcpListener),
    Unix(UnixListener),
}

impl MetricsAddress {
    /// Binds the address. Also returns the address with the port that the system chose if the port was 0. A socket
    /// file that a killed process left is replaced.
    pub(super) fn bind(&self) -> io::Result<(MetricsListener, Self)> {
        match self {
            Self::Tcp(address) => {
                let listener = fpga_net::listen::bind_blocking(*address)?;
                listener.set_nonblocking(true)?;
                let bound = Self::Tcp(listener.local_addr()?);
                Ok((MetricsListener::Tcp(listener), bound))
            }
            Self::Unix(path) => {
                match fs::remove_file(path) {
                    Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                    _ => {}
                }
                let listener = UnixListener::bind(path)?;
                listener.set_nonblocking(true)?;
                Ok((MetricsListener::Unix(listener), self.clone()))
            }
        }
    }
}

impl FromStr for MetricsAddress {
    type Err = InvalidMetricsAddress;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text.strip_prefix("unix:") {
            Some(path) if path.starts_with('/') => Ok(Self::Unix(path.into())),
            Some(_) => Err(InvalidMetricsAddress(text.to_owned())),
            None => text.parse().map(Self::Tcp).map_err(|_| InvalidMetricsAddress(text.to_owned())),
        }
    }
}

impl fmt::Display for MetricsAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp(address) => address.fmt(f),
            Self::Unix(path) => write!(f, "unix:{}", path.display()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_tcp_or_a_path() {
        for text in ["127.0.0.1:9462", "[::1]:0", "unix:/run/fpga/metrics.sock"] {
            assert_eq!(text.parse::<MetricsAddress>().unwrap().to_string(), text);
        }
        for text in ["9462", "unix:metrics.sock", "localhost"] {
            let error = text.parse::<MetricsAddress>().unwrap_err().to_string();
            assert!(error.contains("`unix:/PATH/TO.sock`"), "{error}");
        }
    }
}
