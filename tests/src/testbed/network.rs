//! A loopback network for one test bed: 127.N.0.0/16. All of 127/8 is this machine, so every program, node and pod gets
//! an address of its own and the usual port, and nothing can take a port between its choice and its use.

use anyhow::{Context as _, Result};
use std::net::{Ipv4Addr, TcpListener};

/// Where the claim on a network is held.
const CLAIM_PORT: u16 = 29999;

/// How many test beds a machine can have: 127.10 to 127.249.
const NETWORKS: u32 = 240;

/// The network of one test bed; released when dropped.
#[derive(Debug)]
pub struct Network {
    octet: u8,
    /// Held open: who binds it owns the network, and the kernel gives it back when the program ends.
    _claim: TcpListener,
}

impl Network {
    /// Takes a network that nobody has.
    ///
    /// # Errors
    /// All are taken.
    pub fn claim() -> Result<Self> {
        // Start somewhere else in each process, so that one that died a moment ago is not met again.
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

    /// The address of the control plane.
    #[must_use]
    pub fn control_plane(&self) -> Ipv4Addr {
        Ipv4Addr::new(127, self.octet, 0, 1)
    }

    /// The addresses of a node (counted from 0): its own, and those of its pods.
    #[must_use]
    pub fn node(&self, index: u8) -> NodeNetwork {
        NodeNetwork { octets: [127, self.octet, index.saturating_add(1)] }
    }
}

/// The part of a test bed's network that a node has: 127.N.M.0/24.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NodeNetwork {
    octets: [u8; 3],
}

impl NodeNetwork {
    /// The node itself.
    #[must_use]
    pub fn host(&self) -> Ipv4Addr {
        self.address(1)
    }

    /// The addresses for pods.
    pub fn pods(self) -> impl Iterator<Item = Ipv4Addr> {
        (10..=250).map(move |last| self.address(last))
    }

    fn address(&self, last: u8) -> Ipv4Addr {
        let [a, b, c] = self.octets;
        Ipv4Addr::new(a, b, c, last)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_networks_at_a_time_differ() {
        let (one, other) = (Network::claim().unwrap(), Network::claim().unwrap());
        assert_ne!(one.control_plane(), other.control_plane());
        assert_ne!(one.node(0).host(), one.node(1).host());
        assert!(one.node(0).pods().all(|pod| pod != one.node(0).host()));
    }
}
