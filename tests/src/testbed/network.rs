//! A loopback network for one test bed: 127.N.0.0/16. All addresses of 127/8 belong to this machine, so each program,
//! node and pod has its own address and can use the usual port, and no other program can take a port between its
//! choice and its use.

use anyhow::{Context as _, Result};
use std::net::{Ipv4Addr, TcpListener};

/// Port that is bound to claim a network.
const CLAIM_PORT: u16 = 29999;

/// Most test beds on a machine: 127.10 to 127.249.
const NETWORKS: u32 = 240;

/// The network of a test bed, released when dropped.
#[derive(Debug)]
pub struct Network {
    octet: u8,
    /// The listener that claims the network. The kernel releases the port when the program ends.
    _claim: TcpListener,
}

impl Network {
    /// Claims a free network.
    ///
    /// # Errors
    /// All networks are claimed.
    pub fn claim() -> Result<Self> {
        // Processes start their search at different networks, so that the network of a process that ended a moment
        // ago is not used again at once.
        let start = std::process::id() % NETWORKS;
        (0..NETWORKS)
            .filter_map(|step| u8::try_from(10 + (start + step) % NETWORKS).ok())
            .find_map(|octet| {
                let claim = TcpListener::bind((Ipv4Addr::new(127, octet, 255, 254), CLAIM_PORT)).ok()?;
                Some(Self { octet, _claim: claim })
            })
            .context(
                "no free loopback network (127.N.0.0/16): are there 240 test beds, or is port 29999 refused?",
            )
    }

    /// Address of the control plane.
    #[must_use]
    pub fn control_plane(&self) -> Ipv4Addr {
        Ipv4Addr::new(127, self.octet, 0, 1)
    }

    /// A port for a program that listens at 127.0.0.1 only. No other test bed takes the port, and the kernel chooses higher ones.
    #[must_use]
    pub fn port_of_localhost(&self) -> u16 {
        20_000 + u16::from(self.octet)
    }

    /// Addresses of services: 10.N.0.0/24.
    #[must_use]
    pub fn service_subnet(&self) -> String {
        format!("10.{}.0.0/24", self.octet)
    }

    /// Address of the service `kubernetes`, the first of the services.
    #[must_use]
    pub fn kubernetes_service(&self) -> Ipv4Addr {
        self.node(0).pod_gateway()
    }

    /// The addresses of the node with this index (from 0): its own and those of its pods.
    #[must_use]
    pub fn node(&self, index: u8) -> NodeNetwork {
        NodeNetwork { octets: [127, self.octet, index.saturating_add(1)] }
    }
}

/// The part of a test bed's network that belongs to a node: 127.N.M.0/24.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NodeNetwork {
    octets: [u8; 3],
}

impl NodeNetwork {
    /// Address of the node itself.
    #[must_use]
    pub fn host(&self) -> Ipv4Addr {
        self.address(1)
    }

    /// Addresses for pods.
    pub fn pods(self) -> impl Iterator<Item = Ipv4Addr> {
        (10..=250).map(move |last| self.address(last))
    }

    /// The first and the last address of the pods of a real node, whose interfaces can't have loopback addresses.
    #[must_use]
    pub fn pod_range(&self) -> [Ipv4Addr; 2] {
        let [_, b, c] = self.octets;
        [1, 254].map(|last| Ipv4Addr::new(10, b, c, last))
    }

    /// The network of the pods of all real nodes of the test bed: 10.N.0.0/16.
    #[must_use]
    pub fn pods_of_all_nodes(&self) -> String {
        let [_, b, _] = self.octets;
        format!("10.{b}.0.0/16")
    }

    /// Address of the node in the network of its pods, and the only one that they reach beside those of pods: that of
    /// the service `kubernetes`, and of the DNS server.
    #[must_use]
    pub fn pod_gateway(&self) -> Ipv4Addr {
        let [_, b, _] = self.octets;
        Ipv4Addr::new(10, b, 0, 1)
    }

    fn address(&self, last: u8) -> Ipv4Addr {
        let [a, b, c] = self.octets;
        Ipv4Addr::new(a, b, c, last)
    }
}
