//! Addresses of device managers, as `FPGA_DEVICE_MANAGERS` lists them.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

/// Where a device manager listens.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum ManagerAddress {
    /// Path of a unix socket.
    Unix(PathBuf),
    /// `host:port` of a TCP listener.
    Tcp(String),
}

/// The text is not an address of a device manager.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{text}` is no device manager address: write unix:/path/to/socket or tcp://host:port")]
pub struct AddressError {
    text: String,
}

impl FromStr for ManagerAddress {
    type Err = AddressError;

    fn from_str(text: &str) -> Result<Self, AddressError> {
        let error = || AddressError { text: text.to_owned() };
        if let Some(path) = text.strip_prefix("unix:") {
            let path = path.strip_prefix("//").unwrap_or(path);
            if path.is_empty() {
                return Err(error());
            }
            return Ok(Self::Unix(path.into()));
        }
        let host_and_port = text.strip_prefix("tcp://").ok_or_else(error)?;
        let (host, port) = host_and_port.rsplit_once(':').ok_or_else(error)?;
        if host.is_empty() || port.parse::<u16>().is_err() {
            return Err(error());
        }
        Ok(Self::Tcp(host_and_port.to_owned()))
    }
}

impl fmt::Display for ManagerAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unix(path) => write!(f, "unix:{}", path.display()),
            Self::Tcp(host_and_port) => write!(f, "tcp://{host_and_port}"),
        }
    }
}

/// Parses a list of addresses, separated by commas; empty entries are skipped.
///
/// # Errors
/// [`AddressError`] for the first entry that is not an address.
pub(crate) fn parse_list(list: &str) -> Result<Vec<ManagerAddress>, AddressError> {
    list.split(',').map(str::trim).filter(|entry| !entry.is_empty()).map(str::parse).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_keeps_its_order() {
        let list = parse_list("unix:/run/fpga/dm0.sock, tcp://[::1]:9470,").unwrap();
        assert_eq!(
            list,
            [ManagerAddress::Unix("/run/fpga/dm0.sock".into()), ManagerAddress::Tcp("[::1]:9470".into())]
        );
        assert_eq!(list[1].to_string(), "tcp://[::1]:9470");
    }

    #[test]
    fn what_is_no_address_is_refused_with_advice() {
        for text in ["unix:", "http://x:1", "tcp://host", "tcp://:80", "tcp://host:99999", "/run/dm0.sock"] {
            let error = parse_list(text).unwrap_err().to_string();
            assert!(error.contains("unix:/path"), "{error}");
        }
    }
}
