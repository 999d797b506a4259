//! The port of a function's pods that takes requests.

use k8s_openapi::api::core::v1::ServicePort;
use k8s_openapi::api::discovery::v1::EndpointPort;

/// The protocols of requests, as `appProtocol` names them.
const HTTP: [&str; 4] = ["http", "http2", "kubernetes.io/h2c", "kubernetes.io/ws"];

/// A TCP port of an EndpointSlice.
#[derive(Debug, PartialEq, Eq)]
pub struct PortEntry {
    name: String,
    /// The pods' own.
    number: u16,
    protocol: Protocol,
}

/// What `appProtocol` says of a port.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Protocol {
    Unknown,
    Http,
    Other,
}

/// How well a port is known to be that of requests, the best last.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Certainty {
    /// By protocol and name.
    Guessed(Likely),
    /// The annotation names it.
    Named,
}

/// What protocol and name say of a port, the best last.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Likely {
    OtherProtocol,
    Metrics,
    /// Of unknown protocol.
    Unknown(NameOfPort),
    Http(NameOfPort),
}

/// What the name says of a port, the best last.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum NameOfPort {
    Any,
    /// `http-NAME` or `http2`, as service meshes have it.
    BeginsWithHttp,
    Http,
}

impl PortEntry {
    /// `None` for a port that is not TCP, or has no number.
    pub fn new(port: &EndpointPort) -> Option<Self> {
        if port.protocol.as_deref().is_some_and(|protocol| protocol != "TCP") {
            return None;
        }
        let protocol = match port.app_protocol.as_deref() {
            None | Some("") => Protocol::Unknown,
            Some(name) if HTTP.iter().any(|http| http.eq_ignore_ascii_case(name)) => Protocol::Http,
            Some(_) => Protocol::Other,
        };
        let name = port.name.clone().unwrap_or_default();
        Some(Self { name, number: u16::try_from(port.port?).ok()?, protocol })
    }

    fn likely(&self) -> Likely {
        let name = match self.name.as_str() {
            "http" => NameOfPort::Http,
            name if name.starts_with("http-") || name.starts_with("http2") => NameOfPort::BeginsWithHttp,
            _ => NameOfPort::Any,
        };
        match self.protocol {
            Protocol::Other => Likely::OtherProtocol,
            _ if self.name.contains("metrics") => Likely::Metrics,
            Protocol::Unknown => Likely::Unknown(name),
            Protocol::Http => Likely::Http(name),
        }
    }
}

/// The ports of a Service that its annotation may name, and the name that it has.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct PortChoice {
    annotation: Option<String>,
    /// Name of the Service's port whose own number the annotation is.
    name: Option<String>,
}

impl PortChoice {
    /// By the Service's annotation and ports.
    pub fn new(annotation: Option<&str>, ports: &[ServicePort]) -> Self {
        let Some(text) = annotation.map(str::trim) else { return Self::default() };
        let own = text.parse().ok().and_then(|number: i32| ports.iter().find(|port| port.port == number));
        let name = own.map(|port| port.name.clone().unwrap_or_default());
        Self { annotation: Some(text.to_owned()), name }
    }

    /// The number of the port, among those of an EndpointSlice. `None` if there is no such port.
    pub fn of(&self, ports: &[PortEntry]) -> Option<(Certainty, u16)> {
        let Some(text) = &self.annotation else {
            // Of equal ones it is the first.
            let best = ports.iter().rev().max_by_key(|port| port.likely())?;
            return Some((Certainty::Guessed(best.likely()), best.number));
        };
        let named = |name: &str| ports.iter().find(|port| port.name == name);
        let found = match &self.name {
            Some(name) => named(name),
            None => named(text).or_else(|| ports.iter().find(|port| port.number.to_string() == *text)),
        };
        found.map(|port| (Certainty::Named, port.number))
    }

    /// The annotation.
    pub fn annotation(&self) -> Option<&str> {
        self.annotation.as_deref()
    }
}
