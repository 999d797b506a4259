//! Functions and their replicas, as the API server tells them.

use fpga_core::bitstream::BitstreamId;
use fpga_core::node_state::{DigestPrefix, RecentBitstream};
use std::fmt;
use std::hash::BuildHasher as _;
use std::net::{IpAddr, SocketAddr};
use std::str::FromStr;
use std::sync::{Arc, LazyLock};

/// Label of a Service that is a function; its value is the function's name, or empty for the Service's own name.
pub const FUNCTION_LABEL: &str = "fpga-scheduling.io/function";

/// Annotation of a function's Service: the most requests that may wait for a slot, at most the router's own limit
/// (`--max-waiting`).
pub const MAX_WAITING_ANNOTATION: &str = "fpga-scheduling.io/max-waiting";
/// Annotation of a function's Service: the port that takes requests, by its name, its number, or the number in pods. Without
/// it: ports whose `appProtocol` is HTTP before others, of these `http` before `http-NAME`, and ports of metrics last.
pub const PORT_ANNOTATION: &str = "fpga-scheduling.io/port";

/// A function: its namespace and its name there. Text form: `NAMESPACE/NAME`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FunctionName {
    /// Namespace of the Service.
    pub namespace: Arc<str>,
    /// Name of the function.
    pub name: Arc<str>,
}

/// The text is not a [`FunctionName`].
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is no function; write NAMESPACE/NAME, for example `default/sobel`")]
pub struct InvalidFunctionName(String);

/// A board of the cluster.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BoardName {
    /// Name of the node.
    pub node: Arc<str>,
    /// Id of the board on its node.
    pub device: Arc<str>,
}

/// A replica of a function.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Replica {
    /// Address and port of its HTTP server.
    pub address: SocketAddr,
    /// All addresses of the pod. A gateway may name the replica by any of these, and by a port of its own.
    pub hosts: Vec<IpAddr>,
    /// UID of the pod. A new pod may have the address of an old one.
    pub pod: Option<Arc<str>>,
    /// Name of the pod's node.
    pub node: Option<Arc<str>>,
    /// The boards of that node that the pod was given, each once.
    pub boards: Vec<Arc<str>>,
    /// Whether the pod asks for a board by its labels or annotations. Such a pod without `boards` is on the node's only board, and
    /// so is an endpoint that names no pod.
    pub asks_for_board: bool,
}

impl Replica {
    /// Whether a gateway means this replica by `address`.
    #[must_use]
    pub fn is_at(&self, address: SocketAddr) -> bool {
        self.address == address || self.hosts.contains(&address.ip())
    }
}

/// A function and its replicas that take requests.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Function {
    /// The bitstream that its requests use, the first of several; `None` if nobody says.
    pub bitstream: Option<BitstreamId>,
    /// Most requests that may wait for a slot; the picker's own limit if absent or larger.
    pub max_waiting: Option<usize>,
    /// The replicas that are ready.
    pub replicas: Vec<Replica>,
}

/// A bitstream as a number. Equal bitstreams have equal numbers within this process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BitstreamKey(u64);

/// Seeded per process: names come from pods' authors, who must not be able to make two names equal.
static HASHER: LazyLock<foldhash::quality::RandomState> = LazyLock::new(Default::default);

impl BitstreamKey {
    /// The bitstream in a slot of which the state does not say what it is.
    pub const LEFT_OUT: Self = Self(0);

    /// The key of an identifier.
    #[must_use]
    pub fn of(id: &BitstreamId) -> Self {
        match id {
            BitstreamId::Name(name) => Self::named(name),
            BitstreamId::Digest(digest) => Self::digested(&digest.into()),
        }
    }

    /// The key of a bitstream in a state. A bitstream with a name and a digest has the key of the digest if functions
    /// ask for it by the digest.
    #[must_use]
    pub fn of_recent(bitstream: &RecentBitstream, asked: impl Fn(Self) -> bool) -> Self {
        let by_digest = bitstream.digest.as_ref().map(Self::digested);
        let by_name = bitstream.name.as_deref().map(Self::named);
        match (by_digest, by_name) {
            (Some(by_digest), Some(_)) if asked(by_digest) => by_digest,
            (_, Some(by_name)) => by_name,
            (Some(by_digest), None) => by_digest,
            (None, None) => Self::LEFT_OUT,
        }
    }

    fn named(name: &str) -> Self {
        Self(HASHER.hash_one(name).max(1))
    }

    fn digested(digest: &DigestPrefix) -> Self {
        Self(HASHER.hash_one(digest).max(1))
    }
}

impl FunctionName {
    /// The function `name` of `namespace`.
    #[must_use]
    pub fn new(namespace: &str, name: &str) -> Self {
        Self { namespace: namespace.into(), name: name.into() }
    }
}

impl fmt::Display for FunctionName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}

impl FromStr for FunctionName {
    type Err = InvalidFunctionName;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text.split_once('/') {
            Some((namespace, name)) if is_label(namespace) && is_label(name) => {
                Ok(Self::new(namespace, name))
            }
            _ => Err(InvalidFunctionName(text.to_owned())),
        }
    }
}

/// Whether `text` can be the name of a namespace or of a function: a DNS label, as Kubernetes has it.
#[must_use]
pub fn is_label(text: &str) -> bool {
    let plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    let edges = [text.bytes().next(), text.bytes().last()];
    text.len() <= 63
        && edges.into_iter().all(|byte| byte.is_some_and(plain))
        && text.bytes().all(|byte| plain(byte) || byte == b'-')
}

#[cfg(test)]
mod tests {
    use super::*;
    use fpga_core::units::Millis;

    #[test]
    fn a_name_is_a_namespace_and_a_label() {
        assert_eq!("default/sobel".parse(), Ok(FunctionName::new("default", "sobel")));
        for text in ["", "sobel", "/sobel", "default/", "default/so/bel", "default/-a", "Default/a", "a/b.c"]
        {
            let error = text.parse::<FunctionName>().unwrap_err().to_string();
            assert!(error.contains("default/sobel"), "{error}");
        }
    }

    #[test]
    fn a_bitstream_is_the_same_by_name_and_by_the_digest_that_functions_ask_for() {
        let digest = fpga_core::bitstream::Digest::from_bytes([7; 32]);
        let by_digest = BitstreamKey::of(&BitstreamId::Digest(digest));
        let by_name = BitstreamKey::of(&BitstreamId::Name("sobel".to_owned()));
        let recent = |name: Option<&str>, digest: Option<DigestPrefix>| RecentBitstream {
            name: name.map(str::to_owned),
            digest,
            last_used_ago: Millis::ZERO,
        };
        let both = recent(Some("sobel"), Some((&digest).into()));
        assert_eq!(BitstreamKey::of_recent(&both, |_| false), by_name);
        assert_eq!(BitstreamKey::of_recent(&both, |asked| asked == by_digest), by_digest);
        assert_eq!(BitstreamKey::of_recent(&recent(None, Some((&digest).into())), |_| false), by_digest);
        assert_ne!(by_name, by_digest);
    }
}
