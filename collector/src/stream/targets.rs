//! The addresses of the replicas that are streamed to: listed one by one, or looked up by a DNS name.

use fpga_node_stream::client::Address;
use std::str::FromStr;
use std::{fmt, io};
use tonic::transport::Uri;

/// Maximum number of replicas of one target, and of the targets of one flag. The chart allows 99.
pub const MAX_REPLICAS: usize = 128;

/// One value of `--extenders` or `--pickers`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Target {
    /// One replica.
    Url(Uri),
    /// All addresses of a DNS name, as a headless Service has them.
    Dns {
        name: String,
        /// The port of every replica.
        port: u16,
    },
}

/// The replicas of a target.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Found {
    /// The replicas that get a stream, at most [`MAX_REPLICAS`].
    pub replicas: Vec<Address>,
    /// Number of replicas beyond [`MAX_REPLICAS`], which get no stream.
    pub left_out: usize,
}

/// Transport to the replicas.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Transport {
    Plain,
    Tls,
}

/// The text is not a [`Target`].
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "{0:?} is no replica; write https://HOST:PORT (or http://) for one replica, or dns:NAME:PORT for all of a headless Service"
)]
pub struct InvalidTarget(String);

impl Target {
    /// Whether the target can be reached by `transport`.
    pub fn can_speak(&self, transport: Transport) -> bool {
        match self {
            Self::Url(uri) => (uri.scheme_str() == Some("https")) == (transport == Transport::Tls),
            Self::Dns { .. } => true,
        }
    }

    /// The addresses of the target's replicas.
    ///
    /// # Errors
    /// The name can't be looked up. Then it is unknown which replicas are gone.
    pub async fn resolve(&self, transport: Transport) -> io::Result<Found> {
        let (name, port) = match self {
            Self::Url(uri) => return Ok(Found { replicas: vec![Address::from(uri.clone())], left_out: 0 }),
            Self::Dns { name, port } => (name, *port),
        };
        let addresses = tokio::net::lookup_host((name.as_str(), port)).await?;
        let (scheme, certified) = match transport {
            Transport::Plain => ("http", None),
            Transport::Tls => ("https", Some(name)),
        };
        let replica = |address| {
            let uri = format!("{scheme}://{address}").parse().ok()?;
            Some(Address { uri, name: certified.cloned() })
        };
        Ok(Found::first_of(addresses.filter_map(replica).collect()))
    }
}

impl Found {
    /// The first replicas in the order of their addresses, each once.
    fn first_of(mut replicas: Vec<Address>) -> Self {
        replicas.sort_by_key(ToString::to_string);
        replicas.dedup();
        let left_out = replicas.len().saturating_sub(MAX_REPLICAS);
        replicas.truncate(MAX_REPLICAS);
        Self { replicas, left_out }
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Url(uri) => write!(f, "{uri}"),
            Self::Dns { name, port } => write!(f, "dns:{name}:{port}"),
        }
    }
}

impl FromStr for Target {
    type Err = InvalidTarget;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let invalid = || InvalidTarget(text.to_owned());
        if let Some(rest) = text.strip_prefix("dns:") {
            let (name, port) = rest.rsplit_once(':').ok_or_else(invalid)?;
            let port = port.parse().ok().filter(|port| *port != 0).ok_or_else(invalid)?;
            let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '.' | '_');
            if name.is_empty() || name.len() > 253 || !name.chars().all(plain) {
                return Err(invalid());
            }
            return Ok(Self::Dns { name: name.to_owned(), port });
        }
        let uri: Uri = text.parse().map_err(|_| invalid())?;
        let bare = matches!(uri.path(), "" | "/") && uri.query().is_none();
        let known = matches!(uri.scheme_str(), Some("http" | "https"));
        if known && uri.host().is_some() && uri.port_u16().is_some() && bare {
            Ok(Self::Url(uri))
        } else {
            Err(invalid())
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests {
    use super::*;

    #[test]
    fn a_replica_or_a_name_for_all_of_them_is_understood() {
        assert!(matches!("http://127.0.0.1:9463".parse(), Ok(Target::Url(_))));
        assert!(matches!("http://[::1]:9463/".parse(), Ok(Target::Url(_))));
        let tls: Target = "https://extender:9463".parse().unwrap();
        assert!(tls.can_speak(Transport::Tls) && !tls.can_speak(Transport::Plain));
        let dns: Target = "dns:fpga-scheduler-extender.kube-fpga.svc:9463".parse().unwrap();
        assert_eq!(dns, Target::Dns { name: "fpga-scheduler-extender.kube-fpga.svc".to_owned(), port: 9463 });
    }

    #[test]
    fn anything_else_is_refused_with_what_to_write() {
        for text in
            ["", "a:1", "http://a", "http://a:1/path", "ftp://a:1", "dns:a", "dns::1", "dns:a:0", "dns:a/b:1"]
        {
            let error = text.parse::<Target>().unwrap_err().to_string();
            assert!(error.contains("https://HOST:PORT") && error.contains("dns:NAME:PORT"), "{error}");
        }
    }

    #[test]
    fn replicas_beyond_the_limit_are_counted() {
        let address =
            |replica: usize| Address::from(format!("http://10.0.0.{replica}:1").parse::<Uri>().unwrap());
        let found = Found::first_of((0..99).map(address).collect());
        assert_eq!((found.replicas.len(), found.left_out), (99, 0), "the chart allows 99 replicas");
        let found = Found::first_of((0..MAX_REPLICAS + 3).chain([0]).map(address).collect());
        assert_eq!((found.replicas.len(), found.left_out), (MAX_REPLICAS, 3));
    }

    #[tokio::test]
    async fn each_replica_is_found_once() {
        let resolve = async |text: &str, transport| {
            text.parse::<Target>().unwrap().resolve(transport).await.unwrap().replicas
        };
        let texts = |found: &[Address]| found.iter().map(ToString::to_string).collect::<Vec<_>>();
        let found = resolve("http://127.0.0.1:1", Transport::Plain).await;
        assert_eq!(texts(&found), ["http://127.0.0.1:1/"]);
        let found = resolve("dns:127.0.0.1:2", Transport::Plain).await;
        assert_eq!(texts(&found), ["http://127.0.0.1:2/"]);
        let found = resolve("dns:localhost:2", Transport::Tls).await;
        let of_all = |address: &Address| address.name.as_deref() == Some("localhost");
        assert!(!found.is_empty() && found.iter().all(of_all), "{found:?}");
        assert!(found.iter().all(|address| address.uri.scheme_str() == Some("https")));
    }
}
