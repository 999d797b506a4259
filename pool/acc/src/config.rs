//! Where the brokers of the pool are, and who this process is to them.

mod given;

pub use given::Given;

use crate::error::Error;
use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

/// Environment variable with the addresses of the pool's brokers, separated by commas: `HOST:PORT` or
/// `http://HOST:PORT`, and `https://HOST:PORT` for TLS.
pub const BROKERS_VARIABLE: &str = "FPGA_POOL";
/// Environment variable with the path of the file that has the token for the brokers.
pub const TOKEN_FILE_VARIABLE: &str = "FPGA_POOL_TOKEN_FILE";
/// Environment variable with the path of the authorities (PEM) of brokers behind `https://`.
pub const AUTHORITIES_VARIABLE: &str = "FPGA_POOL_CA";
/// Environment variable with the name of the node on which the process runs [default: localhost, as for device managers].
pub const NODE_VARIABLE: &str = "FPGA_NODE_NAME";

/// Address of a broker.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Broker {
    scheme: Scheme,
    host_and_port: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Scheme {
    Http,
    Https,
}

/// How a process uses the pool.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Config {
    /// The brokers, of which one is active: they are asked in this order until one answers.
    pub brokers: Vec<Broker>,
    /// The file of the token, which is read for each connection; without a file no token is shown.
    pub token_file: Option<PathBuf>,
    /// The file of the authorities of brokers behind `https://`, which is read for each connection.
    pub ca: Option<PathBuf>,
    /// The node on which the process runs. A slot of this node is reached through shared memory.
    pub node: Option<String>,
}

impl Config {
    /// A configuration without a token and a node.
    ///
    /// # Errors
    /// [`Error::Config`] for the first entry of the list that is no address, and for a list without an entry.
    pub fn of(brokers: &str) -> Result<Self, Error> {
        let entries = brokers.split(',').map(str::trim).filter(|entry| !entry.is_empty());
        let brokers: Vec<Broker> = entries.map(str::parse).collect::<Result<_, _>>()?;
        if brokers.is_empty() {
            return Err(Error::Config(format!(
                "no broker is named; set {BROKERS_VARIABLE} to its HOST:PORT, such as fpga-pool.fpga-system:9480"
            )));
        }
        Ok(Self { brokers, token_file: None, ca: None, node: None })
    }

    /// The configuration in [`BROKERS_VARIABLE`], [`TOKEN_FILE_VARIABLE`], [`AUTHORITIES_VARIABLE`] and [`NODE_VARIABLE`].
    ///
    /// # Errors
    /// [`Error::Config`] if no broker is named, an address is none, or brokers have TLS and no authority is named.
    pub fn from_environment() -> Result<Self, Error> {
        Given::default().or_environment()
    }
}

impl Broker {
    /// The address as a URI.
    pub(crate) fn uri(&self) -> String {
        let scheme = match self.scheme {
            Scheme::Http => "http",
            Scheme::Https => "https",
        };
        format!("{scheme}://{}", self.host_and_port)
    }
}

impl FromStr for Broker {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        let error = || {
            Error::Config(format!(
                "`{text}` is no address of a broker; write HOST:PORT, or https://HOST:PORT for TLS"
            ))
        };
        let (scheme, rest) = match text.strip_prefix("https://") {
            Some(rest) => (Scheme::Https, rest),
            None => (Scheme::Http, text.strip_prefix("http://").unwrap_or(text)),
        };
        let host_and_port = rest.trim_end_matches('/');
        let (host, port) = host_and_port.rsplit_once(':').ok_or_else(error)?;
        let is_host = !host.is_empty() && host.bytes().all(|byte| byte.is_ascii_graphic() && byte != b'/');
        if !is_host || port.parse::<u16>().is_err() {
            return Err(error());
        }
        Ok(Self { scheme, host_and_port: host_and_port.to_owned() })
    }
}

impl fmt::Display for Broker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.host_and_port)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_of_brokers_keeps_its_order() {
        let config = Config::of("pool-0.svc:9480, http://[::1]:9481/,").unwrap();
        let shown: Vec<String> = config.brokers.iter().map(Broker::to_string).collect();
        assert_eq!(shown, ["pool-0.svc:9480", "[::1]:9481"]);
        assert_eq!(config.brokers[1].uri(), "http://[::1]:9481");
        let tls = Config::of("https://pool.svc:9480/").unwrap();
        assert_eq!(tls.brokers[0].uri(), "https://pool.svc:9480");
    }

    #[test]
    fn what_is_no_address_is_refused_with_advice() {
        for list in ["", "pool", "pool:99999", ":9480", "https://pool:1/x", "a b:1"] {
            let error = Config::of(list).unwrap_err().to_string();
            assert!(error.contains("HOST:PORT"), "{list}: {error}");
        }
    }
}
