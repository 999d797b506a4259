//! Where the brokers of the pool are, and who this process is to them.

use crate::error::Error;
use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

/// Environment variable with the addresses of the pool's brokers, separated by commas: `HOST:PORT`, or
/// `http://HOST:PORT`.
pub const BROKERS_VARIABLE: &str = "FPGA_POOL";
/// Environment variable with the path of the file that has the token for the brokers.
pub const TOKEN_FILE_VARIABLE: &str = "FPGA_POOL_TOKEN_FILE";
/// Environment variable with the name of the node on which the process runs [default: localhost, as for device managers].
pub const NODE_VARIABLE: &str = "FPGA_NODE_NAME";

/// Address of a broker.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Broker {
    host_and_port: String,
}

/// How a process uses the pool.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Config {
    /// The brokers, of which one is active: they are asked in this order until one answers.
    pub brokers: Vec<Broker>,
    /// The file of the token, which is read for each connection; without a file no token is shown.
    pub token_file: Option<PathBuf>,
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
        Ok(Self { brokers, token_file: None, node: None })
    }

    /// The configuration in [`BROKERS_VARIABLE`], [`TOKEN_FILE_VARIABLE`] and [`NODE_VARIABLE`].
    ///
    /// # Errors
    /// [`Error::Config`] if no broker is named, or an address is none.
    pub fn from_environment() -> Result<Self, Error> {
        let text = |variable| std::env::var(variable).ok().filter(|text: &String| !text.is_empty());
        let config = Self::of(&text(BROKERS_VARIABLE).unwrap_or_default())?;
        let token_file = std::env::var_os(TOKEN_FILE_VARIABLE).filter(|path| !path.is_empty());
        let node = text(NODE_VARIABLE).unwrap_or_else(|| "localhost".to_owned());
        Ok(Self { token_file: token_file.map(PathBuf::from), node: Some(node), ..config })
    }
}

impl Broker {
    /// The address as a URI.
    pub(crate) fn uri(&self) -> String {
        format!("http://{}", self.host_and_port)
    }
}

impl FromStr for Broker {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        let error = || {
            Error::Config(format!("`{text}` is no address of a broker; write HOST:PORT, or http://HOST:PORT"))
        };
        let host_and_port = text.strip_prefix("http://").unwrap_or(text).trim_end_matches('/');
        let (host, port) = host_and_port.rsplit_once(':').ok_or_else(error)?;
        let is_host = !host.is_empty() && host.bytes().all(|byte| byte.is_ascii_graphic() && byte != b'/');
        if !is_host || port.parse::<u16>().is_err() {
            return Err(error());
        }
        Ok(Self { host_and_port: host_and_port.to_owned() })
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
    }

    #[test]
    fn what_is_no_address_is_refused_with_advice() {
        for list in ["", "pool", "pool:99999", ":9480", "https://pool:1/x", "a b:1"] {
            let error = Config::of(list).unwrap_err().to_string();
            assert!(error.contains("HOST:PORT"), "{list}: {error}");
        }
    }
}
