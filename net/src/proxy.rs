//! Proxies of the environment, as the programs of Kubernetes and of registries find them: by the rules of Go's package
//! `golang.org/x/net/http/httpproxy`.
//!
//! `HTTPS_PROXY` is for https and `HTTP_PROXY` for http, in capitals or not. `NO_PROXY` lists hosts that are asked
//! without a proxy. Loopback addresses never have one.

use http::Uri;
use ipnet::IpNet;
use std::net::IpAddr;

/// Port of a SOCKS proxy that names none.
const SOCKS_PORT: u16 = 1080;

/// The proxies of an environment.
#[derive(Debug, Clone, Default)]
pub struct Proxies {
    http: Option<Variable>,
    https: Option<Variable>,
    exceptions: Vec<Exception>,
}

/// A text that names no proxy.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{name} names no proxy: {reason}. Write for example {name}=http://proxy.example:3128")]
pub struct InvalidProxy {
    name: String,
    reason: String,
}

#[derive(Debug, Clone)]
struct Variable {
    name: &'static str,
    value: String,
}

/// An entry of `NO_PROXY`.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Exception {
    /// `*`.
    Everything,
    /// A range of addresses.
    Network(IpNet),
    /// An address, with a port or at all ports.
    Address(IpAddr, Option<String>),
    /// A name and the names below it, with a port or at all ports.
    Name(String, Option<String>),
    /// The names below a name, with a port or at all ports.
    NamesBelow(String, Option<String>),
}

impl Proxies {
    /// The proxies of this process's environment.
    #[must_use]
    pub fn from_env() -> Self {
        Self::from_variables(|name| std::env::var(name).ok())
    }

    /// The proxies of an environment with these variables.
    pub fn from_variables(variable: impl Fn(&str) -> Option<String>) -> Self {
        let first = |names: [&'static str; 2]| {
            let mut found =
                names.into_iter().filter_map(|name| Some(Variable { name, value: variable(name)? }));
            found.find(|variable| !variable.value.is_empty())
        };
        let exceptions = first(["NO_PROXY", "no_proxy"]).map(|variable| variable.value).unwrap_or_default();
        Self {
            http: first(["HTTP_PROXY", "http_proxy"]),
            https: first(["HTTPS_PROXY", "https_proxy"]),
            exceptions: exceptions.split(',').filter_map(Exception::parse).collect(),
        }
    }

    /// The proxy for an address; `None` if it is asked without one.
    ///
    /// # Errors
    /// The variable for such addresses names no proxy.
    pub fn proxy(&self, uri: &Uri) -> Result<Option<Uri>, InvalidProxy> {
        let (variable, standard_port) = match uri.scheme_str() {
            Some("https") => (&self.https, 443),
            Some("http") => (&self.http, 80),
            _ => return Ok(None),
        };
        let (Some(variable), Some(host)) = (variable, uri.host()) else { return Ok(None) };
        let port = uri.port_u16().unwrap_or(standard_port).to_string();
        let host = host.trim_start_matches('[').trim_end_matches(']').to_ascii_lowercase();
        let address = host.parse::<IpAddr>().ok().map(|address| address.to_canonical());
        let is_loopback = host == "localhost" || address.is_some_and(|address| address.is_loopback());
        if is_loopback || self.exceptions.iter().any(|exception| exception.is_for(&host, address, &port)) {
            return Ok(None);
        }
        parse(variable.name, &variable.value).map(Some)
    }
}

impl Exception {
    fn parse(text: &str) -> Option<Self> {
        let text = text.trim().to_ascii_lowercase();
        if text == "*" {
            return Some(Self::Everything);
        }
        if let Ok(network) = text.parse() {
            return Some(Self::Network(network));
        }
        let (host, port) = match text.strip_prefix('[').and_then(|text| text.split_once(']')) {
            Some((host, rest)) => (host, rest.strip_prefix(':')),
            // More than one colon is an address of IPv6.
            None => match text.split_once(':') {
                Some((host, port)) if !port.contains(':') => (host, Some(port)),
                _ => (text.as_str(), None),
            },
        };
        let port = port.filter(|port| !port.is_empty()).map(str::to_owned);
        if let Ok(address) = host.parse::<IpAddr>() {
            return Some(Self::Address(address.to_canonical(), port));
        }
        let below = host.strip_prefix('*').unwrap_or(host);
        match below.strip_prefix('.') {
            Some(_) => Some(Self::NamesBelow(below.to_owned(), port)),
            None => (!host.is_empty()).then(|| Self::Name(host.to_owned(), port)),
        }
    }

    fn is_for(&self, host: &str, address: Option<IpAddr>, port: &str) -> bool {
        let is_port = |wanted: &Option<String>| wanted.as_ref().is_none_or(|wanted| wanted == port);
        match (self, address) {
            (Self::Everything, _) => true,
            (Self::Network(network), Some(address)) => network.contains(&address),
            (Self::Address(listed, wanted), Some(address)) => *listed == address && is_port(wanted),
            (Self::Name(name, wanted), None) => {
                let below = host.strip_suffix(name.as_str());
                is_port(wanted) && below.is_some_and(|below| below.is_empty() || below.ends_with('.'))
            }
            (Self::NamesBelow(suffix, wanted), None) => is_port(wanted) && host.ends_with(suffix.as_str()),
            (Self::Network(_) | Self::Address(..), None)
            | (Self::Name(..) | Self::NamesBelow(..), Some(_)) => false,
        }
    }
}

/// The address of a proxy: `http://`, `https://` or `socks5://`, with a port where there is no standard one. `name` is
/// where it is written, for the error.
///
/// # Errors
/// The text is no address of a proxy.
pub fn parse(name: &str, text: &str) -> Result<Uri, InvalidProxy> {
    // The text may have a password.
    let invalid = |reason: &str| InvalidProxy { name: name.to_owned(), reason: reason.to_owned() };
    let with_scheme = if text.contains("://") { text.to_owned() } else { format!("http://{text}") };
    let uri: Uri = with_scheme.parse().map_err(|error| invalid(&format!("{error}")))?;
    let authority = uri.authority().filter(|authority| !authority.host().is_empty());
    let authority = authority.ok_or_else(|| invalid("it has no host"))?;
    let (scheme, authority) = match uri.scheme_str() {
        Some(scheme @ ("http" | "https")) => (scheme, authority.to_string()),
        Some("socks5" | "socks5h") if authority.as_str().contains('@') => {
            return Err(invalid("SOCKS proxies with a user are not supported"));
        }
        Some("socks5" | "socks5h") => {
            let port = authority.port_u16().unwrap_or(SOCKS_PORT);
            ("socks5", format!("{}:{port}", authority.host()))
        }
        _ => return Err(invalid("it is none of http, https and socks5")),
    };
    let uri = Uri::builder().scheme(scheme).authority(authority).path_and_query("/").build();
    uri.map_err(|error| invalid(&format!("{error}")))
}

/// The address with the standard port of http if it has none, which makers of tunnels do not know.
#[must_use]
pub fn with_port(uri: Uri) -> Uri {
    match (uri.scheme_str(), uri.host(), uri.port(), uri.path_and_query()) {
        (Some("http"), Some(host), None, Some(path)) => {
            format!("http://{host}:80{path}").parse().unwrap_or(uri)
        }
        _ => uri,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn proxies(variables: &[(&'static str, &'static str)]) -> Proxies {
        Proxies::from_variables(|name| {
            variables.iter().find(|(found, _)| *found == name).map(|(_, value)| (*value).to_owned())
        })
    }

    fn proxy(variables: &[(&'static str, &'static str)], uri: &str) -> Option<String> {
        proxies(variables).proxy(&uri.parse().unwrap()).unwrap().map(|proxy| proxy.to_string())
    }

    #[test]
    fn the_scheme_chooses_the_variable_and_capitals_come_first() {
        let all = [
            ("HTTP_PROXY", "http://plain.example"),
            ("HTTPS_PROXY", "proxy.example:3128"),
            ("https_proxy", "http://small.example"),
        ];
        assert_eq!(proxy(&all, "https://k8s.example:6443").unwrap(), "http://proxy.example:3128/");
        assert_eq!(proxy(&all, "http://k8s.example").unwrap(), "http://plain.example/");
        let empty = [("HTTPS_PROXY", ""), ("https_proxy", "https://small.example")];
        assert_eq!(proxy(&empty, "https://k8s.example").unwrap(), "https://small.example/");
        assert_eq!(proxy(&empty, "http://k8s.example"), None);
        assert_eq!(proxy(&[("ALL_PROXY", "http://proxy.example")], "https://k8s.example"), None);
        for local in ["https://localhost:6443", "https://127.1.2.3", "https://[::1]:6443"] {
            assert_eq!(proxy(&all, local), None, "{local}");
        }
    }

    #[test]
    fn no_proxy_lists_names_suffixes_addresses_ranges_and_ports() {
        for (list, uri, is_direct) in [
            ("", "https://k8s.example", false),
            ("*", "https://k8s.example", true),
            ("a.example, *", "https://10.0.0.1", true),
            (",, k8s.example ,", "https://k8s.example:6443", true),
            ("k8s.example", "https://api.k8s.example", true),
            ("k8s.example", "https://K8S.Example", true),
            ("K8S.example", "https://k8s.example", true),
            ("k8s.example", "https://myk8s.example", false),
            (".k8s.example", "https://api.k8s.example", true),
            (".k8s.example", "https://k8s.example", false),
            ("*.k8s.example", "https://api.k8s.example", true),
            ("*.k8s.example", "https://k8s.example", false),
            ("k8s.example:6443", "https://k8s.example:6443", true),
            ("k8s.example:6443", "https://k8s.example", false),
            ("k8s.example:443", "https://k8s.example", true),
            (".example:443", "https://k8s.example", true),
            ("10.0.0.0/8", "https://10.96.0.1", true),
            ("10.0.0.0/8", "https://11.0.0.1", false),
            ("10.1.2.3/8", "https://10.96.0.1", true),
            ("10.0.0.1", "https://10.0.0.1:6443", true),
            ("10.0.0.1:443", "https://10.0.0.1:6443", false),
            ("10.0.0.1:6443", "https://10.0.0.1:6443", true),
            ("0.0.0.1", "https://10.0.0.1", false),
            ("fd00::/8", "https://[fd00::7]:6443", true),
            ("fd00::7", "https://[fd00::7]:6443", true),
            ("[fd00::7]", "https://[fd00::7]:6443", true),
            ("[fd00::7]:443", "https://[fd00::7]:6443", false),
            ("10.0.0.0/40", "https://10.0.0.1", false),
            ("*:443", "https://k8s.example", false),
            ("https://k8s.example", "https://k8s.example", false),
            (":443", "https://k8s.example", false),
        ] {
            for name in ["NO_PROXY", "no_proxy"] {
                let variables = [("HTTPS_PROXY", "http://proxy.example"), (name, list)];
                let variables = variables.map(|(name, value)| (name, value));
                assert_eq!(proxy(&variables, uri).is_none(), is_direct, "{list:?} for {uri}");
            }
        }
    }

    #[test]
    fn a_tunnel_has_a_port() {
        for (uri, with) in [
            ("http://k8s.example/a?b", "http://k8s.example:80/a?b"),
            ("http://k8s.example:8001/", "http://k8s.example:8001/"),
            ("https://k8s.example/", "https://k8s.example/"),
        ] {
            assert_eq!(with_port(uri.parse().unwrap()).to_string(), with);
        }
    }

    #[test]
    fn a_proxy_has_a_known_scheme_and_a_host() {
        for (text, found) in [
            ("proxy.example", "http://proxy.example/"),
            ("http://me:secret@proxy.example:3128/path", "http://me:secret@proxy.example:3128/"),
            ("https://proxy.example", "https://proxy.example/"),
            ("socks5://proxy.example", "socks5://proxy.example:1080/"),
            ("socks5h://[fd00::7]:1081", "socks5://[fd00::7]:1081/"),
        ] {
            assert_eq!(parse("HTTPS_PROXY", text).unwrap().to_string(), found);
        }
        for text in
            ["ftp://proxy.example", "http://", "http://a b", "socks5://me:secret@proxy.example", "://"]
        {
            let error = parse("HTTPS_PROXY", text).unwrap_err().to_string();
            assert!(error.contains("HTTPS_PROXY names no proxy") && !error.contains("secret"), "{error}");
        }
        // A proxy that is not asked is not judged.
        let variables = [("HTTPS_PROXY", "ftp://proxy.example"), ("NO_PROXY", "k8s.example")];
        assert_eq!(proxy(&variables, "https://k8s.example"), None);
    }
}
