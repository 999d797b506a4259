//! The collector's address and the limits of the reporter, each with a default that suits a board.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

/// Address of the collector. Text form: `http://host:port` or `unix:/path`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Endpoint {
    /// TCP, as `host:port`.
    Tcp(String),
    /// A unix socket, by absolute path.
    Unix(PathBuf),
}

/// The text is not an [`Endpoint`].
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum InvalidEndpoint {
    /// The text has neither of the two forms.
    #[error("{0:?} is no collector endpoint; write `http://HOST:PORT` or `unix:/ABSOLUTE/PATH`")]
    Form(String),
    /// The URL has more than a host and a port.
    #[error("{0:?} has a path; write only `http://HOST:PORT`")]
    Path(String),
    /// The port is missing or is not a number.
    #[error("{0:?} has no port; write `http://HOST:PORT`, for example `http://127.0.0.1:9460`")]
    Port(String),
}

/// Settings of a [`crate::Reporter`]. [`Config::new`] has the defaults.
#[derive(Debug, Clone)]
pub struct Config {
    /// Address of the collector.
    pub endpoint: Endpoint,
    /// File with the token that the collector requires (its `--token-file`), read at each use. The token is sent over
    /// TCP only; over a unix socket the collector knows the peer by its user.
    pub token_file: Option<PathBuf>,
    /// Maximum number of events in the queue; at least 1. Further events are merged.
    pub queue_capacity: usize,
    /// Maximum number of events in one request; at least 1.
    pub batch_events: usize,
    /// Time for which events are gathered before they are sent. It bounds the requests per second.
    pub gather: Duration,
    /// Time for which the background thread sleeps if it had nothing to send. Events don't wake it, since that would
    /// cost the accelerated path some 15 µs. It bounds the delay of an event after a pause.
    pub idle: Duration,
    /// Interval at which unchanged device statuses are sent again. With the defaults of reporter and collector, a
    /// device counts as unhealthy after three of these without a status.
    pub device_interval: Duration,
    /// First pause after a failure; pauses double, with jitter, up to `backoff_max`.
    pub backoff_min: Duration,
    /// Maximum pause after a failure.
    pub backoff_max: Duration,
    /// Maximum time for a request; after it the connection is closed.
    pub request_timeout: Duration,
}

impl Config {
    /// The defaults, for the collector at `endpoint`.
    #[must_use]
    pub const fn new(endpoint: Endpoint) -> Self {
        Self {
            endpoint,
            token_file: None,
            queue_capacity: 4096,
            batch_events: 256,
            gather: Duration::from_millis(20),
            idle: Duration::from_millis(100),
            device_interval: Duration::from_secs(15),
            backoff_min: Duration::from_millis(50),
            backoff_max: Duration::from_secs(2),
            request_timeout: Duration::from_secs(10),
        }
    }
}

impl Endpoint {
    /// The value of the `Host` header.
    pub(crate) fn host(&self) -> &str {
        match self {
            Self::Tcp(address) => address,
            Self::Unix(_) => "localhost",
        }
    }
}

impl FromStr for Endpoint {
    type Err = InvalidEndpoint;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        if let Some(path) = text.strip_prefix("unix:") {
            return if path.starts_with('/') {
                Ok(Self::Unix(path.into()))
            } else {
                Err(InvalidEndpoint::Form(text.to_owned()))
            };
        }
        let Some(address) = text.strip_prefix("http://") else {
            return Err(InvalidEndpoint::Form(text.to_owned()));
        };
        let address = address.strip_suffix('/').unwrap_or(address);
        if address.contains(['/', '?', '#', '@']) || address.contains(char::is_whitespace) {
            return Err(InvalidEndpoint::Path(text.to_owned()));
        }
        match address.rsplit_once(':') {
            Some((host, port)) if !host.is_empty() && port.parse::<u16>().is_ok_and(|port| port != 0) => {
                Ok(Self::Tcp(address.to_owned()))
            }
            _ => Err(InvalidEndpoint::Port(text.to_owned())),
        }
    }
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp(address) => write!(f, "http://{address}"),
            Self::Unix(path) => write!(f, "unix:{}", path.display()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn endpoints_survive_a_round_trip_through_text() {
        for text in ["http://127.0.0.1:9460", "http://[::1]:80", "unix:/run/fpga/collector.sock"] {
            assert_eq!(text.parse::<Endpoint>().unwrap().to_string(), text);
        }
    }

    #[test]
    fn what_is_no_endpoint_is_refused_with_what_to_write() {
        for text in [
            "",
            "127.0.0.1:1",
            "https://h:1",
            "unix:relative",
            "http://h",
            "http://:1",
            "http://h:0",
            "http://h:1/v1",
        ] {
            let error = text.parse::<Endpoint>().unwrap_err().to_string();
            assert!(error.contains("write"), "{error}");
        }
    }
}
