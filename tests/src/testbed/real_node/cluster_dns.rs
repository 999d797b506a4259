//! The DNS server of pods on real nodes: names of Services, with the addresses of their ready endpoints. So headless
//! Services are answered as CoreDNS does; other Services too, because no kube-proxy makes their own address lead anywhere.

use super::services::ReadyEndpoints;
use crate::testbed::control_plane::ControlPlane;
use anyhow::{Context as _, Result};
use nix::sys::socket::{
    AddressFamily, SockFlag, SockType, SockaddrIn, bind, setsockopt, socket, sockopt::IpFreebind,
};
use std::collections::BTreeSet;
use std::net::{Ipv4Addr, SocketAddrV4};
use std::os::fd::AsRawFd as _;
use tokio::net::UdpSocket;
use tokio::task::AbortHandle;

/// Domain of the cluster.
pub(super) const DOMAIN: &str = "cluster.local";
const PORT: u16 = 53;
/// Longest query over UDP.
const LONGEST: usize = 512;
const HEADER: usize = 12;
/// Longest label of a name. A length above it is a pointer, which no query needs.
const LONGEST_LABEL: usize = 63;
/// A pointer to the name in the question, which comes after the header.
const NAME_OF_QUESTION: [u8; 2] = [0b1100_0000, 12];
/// Type and class of an IPv4 address.
const ADDRESS: [u8; 4] = [0, 1, 0, 1];
/// Seconds for which an answer may be used again.
const TIME_TO_LIVE: u32 = 1;
const NO_SUCH_NAME: u8 = 3;

/// Answers queries until it is dropped.
#[derive(Debug)]
pub struct ClusterDns {
    answering: AbortHandle,
}

impl ClusterDns {
    /// Listens at the address that kubelets give to pods as their DNS server's. The nodes have it while they have pods.
    ///
    /// # Errors
    /// The address can't be listened at: the port is one of root's.
    pub fn start(plane: &ControlPlane, endpoints: ReadyEndpoints) -> Result<Self> {
        let address = SocketAddrV4::new(plane.network().node(0).pod_gateway(), PORT);
        let flags = SockFlag::SOCK_NONBLOCK | SockFlag::SOCK_CLOEXEC;
        let socket =
            socket(AddressFamily::Inet, SockType::Datagram, flags, None).context("can't make a socket")?;
        setsockopt(&socket, IpFreebind, &true)
            .context("can't listen at an address that no interface has yet")?;
        bind(socket.as_raw_fd(), &SockaddrIn::from(address))
            .with_context(|| format!("can't take the address {address}"))?;
        let socket = UdpSocket::from_std(socket.into()).context("can't set up the socket")?;
        Ok(Self { answering: tokio::spawn(answer_all(socket, endpoints)).abort_handle() })
    }
}

impl Drop for ClusterDns {
    fn drop(&mut self) {
        self.answering.abort();
    }
}

async fn answer_all(socket: UdpSocket, endpoints: ReadyEndpoints) {
    let mut query = [0; LONGEST];
    loop {
        // An error tells of an answer that was sent before; the client asks again.
        let Ok((length, client)) = socket.recv_from(&mut query).await else { continue };
        let addresses = |name: &str| match service_of(name) {
            Some((service, namespace)) => endpoints.addresses(namespace, service),
            None => BTreeSet::new(),
        };
        if let Some(answer) = query.get(..length).and_then(|query| answer(query, addresses)) {
            // The client asks again where the answer is lost.
            let _ = socket.send_to(&answer, client).await;
        }
    }
}

/// Service and namespace of the name `SERVICE.NAMESPACE.svc.cluster.local`.
fn service_of(name: &str) -> Option<(&str, &str)> {
    let name = name.strip_suffix(DOMAIN)?.strip_suffix(".svc.")?;
    name.split_once('.').filter(|(_, namespace)| !namespace.contains('.'))
}

/// The answer to a query (RFC 1035, section 4) for the addresses of a name; `None` where it is no query. A name without
/// addresses is one that does not exist.
fn answer(query: &[u8], addresses: impl Fn(&str) -> BTreeSet<Ipv4Addr>) -> Option<Vec<u8>> {
    let (header, rest) = query.split_at_checked(HEADER)?;
    let (mut labels, mut at) = (Vec::new(), 0);
    loop {
        let length = usize::from(*rest.get(at)?);
        at += 1;
        match length {
            0 => break,
            1..=LONGEST_LABEL => labels.push(str::from_utf8(rest.get(at..at + length)?).ok()?),
            _ => return None,
        }
        at += length;
    }
    let kind = rest.get(at..at + ADDRESS.len())?;
    let question = rest.get(..at + ADDRESS.len())?;
    let found = addresses(&labels.join(".").to_ascii_lowercase());
    let code = if found.is_empty() { NO_SUCH_NAME } else { 0 };
    let found = if kind == ADDRESS { found } else { BTreeSet::new() };

    let [id_high, id_low, flags, ..] = header else { return None };
    let recursion_desired = flags & 1;
    let mut answer = vec![*id_high, *id_low, 0b1000_0100 | recursion_desired, 0b1000_0000 | code, 0, 1, 0];
    answer.push(u8::try_from(found.len()).ok()?);
    answer.extend([0; 4]);
    answer.extend(question);
    for address in found {
        answer.extend(NAME_OF_QUESTION);
        answer.extend(ADDRESS);
        answer.extend(TIME_TO_LIVE.to_be_bytes());
        answer.extend([0, 4]);
        answer.extend(address.octets());
    }
    Some(answer)
}
