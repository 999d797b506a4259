//! Which hosts are asked, and at which addresses.

use super::error::{RegistryError, printable};
use crate::reference;
use ::http::Uri;
use ::http::uri::Scheme;
use hyper_util::client::legacy::connect::dns::{GaiResolver, Name};
use std::fmt;
use std::future::Future;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::pin::Pin;
use std::str::FromStr;
use std::task::{Context, Poll};
use tower::Service;

/// Why a host is not asked whose address is private.
pub(super) const NOT_PUBLIC: &str = "its address is not public";
/// Port of https.
const HTTPS_PORT: u16 = 443;
/// Port of http.
const HTTP_PORT: u16 = 80;

/// Which hosts are asked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Hosts {
    /// Every host, at every address.
    Any,
    /// Every host that has a public address, at such an address. A host may send to another one of them.
    Public,
    /// These hosts, at every address. A host may send to another one of them.
    Listed(Vec<Host>),
}

/// A host that is listed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Host {
    /// Name or address, in lower case. `*.NAME` is every name below NAME.
    name: String,
    port: u16,
    plain_http: PlainHttp,
}

/// Whether a registry is asked without TLS.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PlainHttp {
    /// By http.
    Yes,
    /// By https.
    No,
}

/// The text is no [`Host`].
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "{0:?} is no host; write HOST or HOST:PORT, for example registry.example:5000, *.registry.example for all names below one, or http://HOST:PORT for one without TLS"
)]
pub struct InvalidHost(String);

/// Finds the addresses of names, without those that may not be asked.
#[derive(Clone)]
pub struct Resolver {
    gai: GaiResolver,
    addresses: Addresses,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Addresses {
    All,
    Public,
}

impl Hosts {
    /// Whether the registry of this name, with or without a port, is listed as one without TLS.
    #[must_use]
    pub fn plain_http(&self, registry: &str) -> PlainHttp {
        let is_plain = |host: &&Host| host.plain_http == PlainHttp::Yes && host.is(registry);
        match self {
            Self::Listed(hosts) if hosts.iter().any(|host| is_plain(&host)) => PlainHttp::Yes,
            Self::Listed(_) | Self::Any | Self::Public => PlainHttp::No,
        }
    }

    /// Refuses an address whose host may not be asked. The addresses of names are judged when they are known.
    pub(super) fn check(&self, uri: &Uri) -> Result<(), RegistryError> {
        let refuse = |reason| {
            let place = printable(&uri.authority().map(ToString::to_string).unwrap_or_default());
            Err(RegistryError::Forbidden { place, reason })
        };
        match self {
            Self::Any => Ok(()),
            Self::Public => match literal(uri) {
                Some(address) if !is_public(address) => refuse(NOT_PUBLIC),
                _ => Ok(()),
            },
            Self::Listed(hosts) if hosts.iter().any(|host| host.has(uri)) => Ok(()),
            Self::Listed(_) => refuse("it is not among the hosts that may be asked"),
        }
    }

    /// The resolver for these hosts.
    pub(super) fn resolver(&self) -> Resolver {
        let addresses = match self {
            Self::Any | Self::Listed(_) => Addresses::All,
            Self::Public => Addresses::Public,
        };
        Resolver { gai: GaiResolver::new(), addresses }
    }
}

impl Host {
    /// Whether `authority`, a host with or without a port, is this one.
    fn is(&self, authority: &str) -> bool {
        let scheme = match self.plain_http {
            PlainHttp::Yes => Scheme::HTTP,
            PlainHttp::No => Scheme::HTTPS,
        };
        let uri = Uri::builder().scheme(scheme).authority(authority).path_and_query("/").build();
        uri.is_ok_and(|uri| self.has(&uri))
    }

    /// Whether the address is at this host.
    fn has(&self, uri: &Uri) -> bool {
        let (scheme, standard) = match self.plain_http {
            PlainHttp::Yes => (Scheme::HTTP, HTTP_PORT),
            PlainHttp::No => (Scheme::HTTPS, HTTPS_PORT),
        };
        uri.scheme() == Some(&scheme)
            && uri.host().is_some_and(|host| self.is_named(host))
            && uri.port_u16().unwrap_or(standard) == self.port
    }
}

impl Host {
    /// Whether a host of a URL has this name.
    fn is_named(&self, host: &str) -> bool {
        let host = host.to_ascii_lowercase();
        match self.name.strip_prefix('*') {
            // With its dot, so that `*.example` is no `notexample`.
            Some(below) => host.len() > below.len() && host.ends_with(below),
            None => host == self.name,
        }
    }
}

impl FromStr for Host {
    type Err = InvalidHost;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let invalid = || InvalidHost(text.to_owned());
        let (plain_http, rest, standard) = match text.strip_prefix("http://") {
            Some(rest) => (PlainHttp::Yes, rest, HTTP_PORT),
            None => (PlainHttp::No, text.strip_prefix("https://").unwrap_or(text), HTTPS_PORT),
        };
        // An address of IPv6 stands in brackets, which URLs keep as part of the host.
        let after_host = rest.rfind(']').map_or(0, |end| end + 1);
        let (name, port) = match rest[after_host..].find(':') {
            None => (rest, standard),
            Some(colon) => {
                let (name, port) = rest.split_at(after_host + colon);
                (name, port[1..].parse().map_err(|_| invalid())?)
            }
        };
        if !is_host(name) || port == 0 {
            return Err(invalid());
        }
        let name = name.to_ascii_lowercase();
        // As a Bitstream names it.
        Ok(Self { name: reference::host(&name).to_owned(), port, plain_http })
    }
}

/// Whether the text is a name, `*.` and a name, or an address.
fn is_host(text: &str) -> bool {
    if let Some(address) = text.strip_prefix('[').and_then(|text| text.strip_suffix(']')) {
        return address.parse::<Ipv6Addr>().is_ok();
    }
    let name = text.strip_prefix("*.").unwrap_or(text);
    let is_inner = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-');
    !name.is_empty() && !name.starts_with('.') && name.chars().all(is_inner)
}

impl fmt::Display for Host {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scheme = if self.plain_http == PlainHttp::Yes { "http://" } else { "" };
        write!(f, "{scheme}{}:{}", self.name, self.port)
    }
}

impl Service<Name> for Resolver {
    type Response = std::vec::IntoIter<SocketAddr>;
    type Error = io::Error;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Self::Error>> + Send>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        self.gai.poll_ready(context)
    }

    fn call(&mut self, name: Name) -> Self::Future {
        let (found, addresses) = (self.gai.call(name), self.addresses);
        Box::pin(async move {
            let mut found: Vec<SocketAddr> = found.await?.collect();
            if addresses == Addresses::Public {
                found.retain(|address| is_public(address.ip()));
                if found.is_empty() {
                    return Err(io::Error::new(io::ErrorKind::PermissionDenied, NOT_PUBLIC));
                }
            }
            Ok(found.into_iter())
        })
    }
}

/// The address that is written instead of a name.
fn literal(uri: &Uri) -> Option<IpAddr> {
    let host = uri.host()?;
    host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host).parse().ok()
}

/// Whether everybody on the Internet reaches the same machine by this address (the registries of special-purpose
/// addresses of IANA).
fn is_public(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => is_public_v4(address),
        IpAddr::V6(address) => is_public_v6(address),
    }
}

fn is_public_v4(address: Ipv4Addr) -> bool {
    let [a, b, c, _] = address.octets();
    !matches!(
        (a, b, c),
        (0 | 10 | 127 | 224..=255, ..)
            | (100, 64..=127, _)
            | (169, 254, _)
            | (172, 16..=31, _)
            | (192, 168, _)
            | (198, 18 | 19, _)
            | (192, 0, 0 | 2)
            | (192, 88, 99)
            | (198, 51, 100)
            | (203, 0, 113)
    )
}

fn is_public_v6(address: Ipv6Addr) -> bool {
    // Only 2000::/3 is given out; what maps to IPv4 or tunnels it (::ffff:0:0/96, 64:ff9b::/96, Teredo, 6to4) is not
    // asked by way of IPv6.
    match address.segments() {
        [0x2001, 0..=0x1ff | 0xdb8, ..] | [0x2002, ..] | [0x3fff, 0..=0xfff, ..] => false,
        [first, ..] => first & 0xe000 == 0x2000,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn uri(text: &str) -> Uri {
        text.parse().unwrap()
    }

    #[test]
    fn no_address_of_a_machine_network_or_cloud_is_public() {
        for private in [
            "0.0.0.0",
            "10.1.2.3",
            "100.64.0.1",
            "100.127.255.255",
            "127.0.0.1",
            "169.254.169.254",
            "172.16.0.1",
            "172.31.255.255",
            "192.0.0.8",
            "192.0.2.1",
            "192.88.99.1",
            "192.168.1.1",
            "198.18.0.1",
            "198.19.0.1",
            "198.51.100.1",
            "203.0.113.1",
            "224.0.0.1",
            "240.0.0.1",
            "255.255.255.255",
            "::",
            "::1",
            "::ffff:169.254.169.254",
            "64:ff9b::a9fe:a9fe",
            "fe80::1",
            "fc00::1",
            "fd00:ec2::254",
            "ff02::1",
            "2001::1",
            "2001:db8::1",
            "2002:a9fe:a9fe::1",
            "3fff::1",
        ] {
            assert!(!is_public(private.parse().unwrap()), "{private}");
        }
        for public in [
            "1.1.1.1",
            "100.63.0.1",
            "100.128.0.1",
            "172.15.0.1",
            "172.32.0.1",
            "192.1.0.1",
            "2606:4700::1",
            "2001:4860:4860::8888",
        ] {
            assert!(is_public(public.parse().unwrap()), "{public}");
        }
    }

    #[test]
    fn of_listed_hosts_scheme_name_and_port_count() {
        let hosts = [
            "registry.example",
            "Mirror.example:5000",
            "http://10.0.0.7:5000",
            "*.CDN.example",
            "http://[fd00::7]:5000",
            "Docker.io",
        ];
        let hosts = Hosts::Listed(hosts.iter().map(|host| host.parse().unwrap()).collect());
        for (place, may) in [
            ("https://registry.example/v2/", true),
            ("https://registry.example:443/v2/", true),
            ("https://REGISTRY.example/v2/", true),
            ("https://registry.example:5000/v2/", false),
            ("http://registry.example/v2/", false),
            ("https://mirror.example:5000/v2/", true),
            ("https://mirror.example/v2/", false),
            ("http://10.0.0.7:5000/v2/", true),
            ("https://10.0.0.7:5000/v2/", false),
            ("https://169.254.169.254/latest/", false),
            ("https://eu.cdn.example/v2/", true),
            ("https://a.eu.CDN.example/v2/", true),
            ("https://cdn.example/v2/", false),
            ("https://notcdn.example/v2/", false),
            ("https://cdn.example.evil/v2/", false),
            ("http://[fd00::7]:5000/v2/", true),
            ("http://[fd00::8]:5000/v2/", false),
            ("https://registry-1.docker.io/v2/", true),
            ("https://auth.docker.io/token", false),
        ] {
            assert_eq!(hosts.check(&uri(place)).is_ok(), may, "{place}");
        }
        assert_eq!(hosts.plain_http("10.0.0.7:5000"), PlainHttp::Yes);
        assert_eq!(hosts.plain_http("registry.example"), PlainHttp::No);
        let refused = Hosts::Public.check(&uri("https://169.254.169.254/latest/")).unwrap_err().to_string();
        assert_eq!(refused, "169.254.169.254 is not asked: its address is not public");
        assert!(Hosts::Public.check(&uri("https://[::1]/")).is_err());
        assert!(Hosts::Public.check(&uri("https://registry.example/")).is_ok());
    }

    #[tokio::test]
    async fn a_name_whose_addresses_are_all_private_is_not_found() {
        let found = Hosts::Public.resolver().call("localhost".parse().unwrap()).await;
        assert_eq!(found.unwrap_err().to_string(), NOT_PUBLIC);
        let found = Hosts::Any.resolver().call("localhost".parse().unwrap()).await.unwrap();
        assert!(found.count() > 0);
    }

    #[test]
    fn what_is_no_host_is_refused_with_what_to_write() {
        for text in [
            "",
            "a b",
            "host:0",
            "host:x",
            "ftp://host",
            "user@host",
            "host/path",
            "http://",
            "*",
            "*.",
            "a.*",
            "*.*.b",
            "..a",
            "[x]",
            "fd00::7",
        ] {
            let error = text.parse::<Host>().unwrap_err().to_string();
            assert!(error.contains("write HOST or HOST:PORT"), "{error}");
        }
        for text in ["http://registry:5000", "*.cdn.example:443", "[fd00::7]:443"] {
            assert_eq!(text.parse::<Host>().unwrap().to_string(), text);
        }
    }
}
