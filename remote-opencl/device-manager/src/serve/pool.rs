//! Flags of the slots that are lent to the pool.

mod address;

use crate::listen::{Address, Listener};
use crate::pool::PoolMetrics;
use crate::pool::broker_stream::Brokers;
use crate::pool::lender::Lending;
use address::PoolAddress;
use anyhow::{Context as _, bail};
use clap::Args;
use fpga_core::device::ReconfiguredPart;
use fpga_net::duration;
use fpga_net::tls::{ClientFiles, ServerTls};
use fpga_net::token_file::TokenFile;
use fpga_pool_api::limits::MAX_SLOTS;
use fpga_pool_api::manager::Board;
use fpga_pool_leases::lease::Endpoint;
use std::net::SocketAddr;
use std::num::NonZeroU32;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use tonic::transport::Uri;

/// The address of a manager that no client on another node can reach.
const NO_ADDRESS: &str = "-";

/// The machines whose clients can come to the port for leases.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Reach {
    /// Processes of this machine.
    ThisMachine,
    /// Other machines too.
    Others,
}

/// Flags of the slots that are lent to the pool.
#[derive(Debug, Args)]
#[command(
    next_help_heading = "Slots for jobs of the pool, for example: --pool-slots 2 --pool-broker http://fpga-pool:8090"
)]
pub(super) struct PoolArgs {
    /// Number of slots that are lent to the pool: the last ones of --slots. Sessions without a lease can't use them, and
    /// they don't count as capacity of the node. With --reconfiguration full it is 0 or 1.
    #[arg(long, env = "FPGA_POOL_SLOTS", value_name = "NUMBER", default_value = "0")]
    pool_slots: u32,

    /// Brokers of the pool, `http://HOST:PORT` or `https://HOST:PORT`; may be given several times. One is active at a
    /// time.
    #[arg(long, env = "FPGA_POOL_BROKER", value_name = "URL", value_delimiter = ',')]
    pool_broker: Vec<Uri>,

    /// File with the token that proves this manager to the brokers. It is read for each connection.
    #[arg(long, env = "FPGA_POOL_TOKEN_FILE", value_name = "FILE")]
    pool_token_file: Option<PathBuf>,

    /// Authorities (PEM) of brokers behind https.
    #[arg(long, env = "FPGA_POOL_CA", value_name = "FILE")]
    pool_ca: Option<PathBuf>,

    /// Listen on this TCP address for sessions with a lease, and for no others; of a range of ports on the first free one.
    /// TLS is by --tls-cert and --tls-key, or without them by a key that is made at the start: the broker tells clients the
    /// key. Clients show no certificate, since the lease proves them. Without TLS only with --insecure-tcp, at a loopback address.
    #[arg(long, env = "FPGA_POOL_LISTEN", value_name = "HOST:PORT[-LAST]")]
    pool_listen: Option<PoolAddress>,

    /// Where clients on other nodes reach --pool-listen, HOST:PORT [default: the address of --pool-listen].
    #[arg(long, env = "FPGA_POOL_ADDRESS", value_name = "HOST:PORT")]
    pool_address: Option<String>,

    /// Name of this manager's node, for brokers whose tokens name none.
    #[arg(long, env = "FPGA_NODE_NAME", value_name = "NAME", default_value = "localhost")]
    pool_node: String,

    /// The longest time that a step of a job takes. A job that is asked to give its slot up has so long, and a second
    /// more.
    #[arg(long, env = "FPGA_POOL_LONGEST_STEP", default_value = "30s", value_parser = duration::parse)]
    pool_longest_step: Duration,
}

/// The board whose slots are lent.
#[derive(Debug, Clone, Copy)]
pub(super) struct BoardNames<'l> {
    pub(super) id: &'l str,
    pub(super) kind: &'l str,
    pub(super) shell: &'l str,
}

impl PoolArgs {
    /// Number of lent slots; `None` if there are none.
    ///
    /// # Errors
    /// A flag is missing, or contradicts another one.
    pub(super) fn lent(
        &self,
        slots: NonZeroU32,
        reconfigured: ReconfiguredPart,
        board: BoardNames<'_>,
    ) -> anyhow::Result<Option<NonZeroU32>> {
        let Some(lent) = NonZeroU32::new(self.pool_slots) else {
            if !self.pool_broker.is_empty() || self.pool_listen.is_some() {
                bail!("--pool-broker and --pool-listen need lent slots: write --pool-slots too");
            }
            return Ok(None);
        };
        if lent > slots {
            bail!("--pool-slots {lent}: the board has {slots} slots (--slots)");
        }
        if lent.get() as usize > MAX_SLOTS {
            bail!("--pool-slots {lent}: at most {MAX_SLOTS} can be lent");
        }
        if reconfigured == ReconfiguredPart::Board && lent != slots {
            bail!(
                "--reconfiguration full: such a board is lent as a whole or not at all; write --pool-slots 0 or {slots}"
            );
        }
        if self.pool_broker.is_empty() {
            bail!("--pool-slots: name the brokers of the pool by --pool-broker");
        }
        if let Some(url) =
            self.pool_broker.iter().find(|url| url.host().is_none() || url.scheme_str().is_none())
        {
            bail!("--pool-broker {url}: write http://HOST:PORT or https://HOST:PORT");
        }
        if let Some(url) = self.pool_broker.iter().find(|url| url.scheme_str() == Some("https"))
            && self.pool_ca.is_none()
        {
            bail!("--pool-broker {url}: name the authorities of the brokers' certificates by --pool-ca");
        }
        if board.kind.is_empty() {
            bail!("--pool-slots: the pool must know the kind of the board; write --board");
        }
        Ok(Some(lent))
    }

    /// Binds --pool-listen, if it is given. The address has the port that the system chose.
    ///
    /// # Errors
    /// The address can't be bound.
    pub(super) fn bind(&self) -> anyhow::Result<Option<(Listener, SocketAddr)>> {
        let Some(address) = &self.pool_listen else { return Ok(None) };
        let listener =
            address.bind().with_context(|| format!("--pool-listen: cannot listen on {address}"))?;
        let bound = listener.local_addr()?;
        Ok(Some((Listener::Pool(listener), bound)))
    }

    /// The machines whose clients can come to `port`, or are told to by `--pool-address`.
    pub(super) fn reach(&self, port: SocketAddr) -> Reach {
        let told = self.pool_address.as_ref();
        let is_told_to_stay =
            told.is_none_or(|told| told.parse().is_ok_and(|told: SocketAddr| told.ip().is_loopback()));
        if port.ip().is_loopback() && is_told_to_stay { Reach::ThisMachine } else { Reach::Others }
    }

    /// What is lent, and where clients find the manager.
    pub(super) fn lending(
        &self,
        lent: NonZeroU32,
        of_board: NonZeroU32,
        (bound, port): (&[Address], Option<SocketAddr>),
        metrics: PoolMetrics,
    ) -> Lending {
        let port = port.map(|port| port.to_string());
        let socket = bound.iter().find_map(|address| match address {
            Address::Unix(path) => Some(path.display().to_string()),
            Address::Tcp(_) => None,
        });
        let address = self.pool_address.clone().or(port).unwrap_or_else(|| NO_ADDRESS.to_owned());
        // The key is that of each registration.
        let endpoint = Endpoint { address: address.into(), key: None, socket: socket.map(Into::into) };
        Lending { slots: lent, of_board, endpoint, longest_step: self.pool_longest_step, metrics }
    }

    /// The brokers, and what they are told of the board.
    ///
    /// # Errors
    /// The token file can't be read.
    pub(super) fn brokers(
        &self,
        board: BoardNames<'_>,
        listener_tls: Option<Arc<ServerTls>>,
    ) -> anyhow::Result<Brokers> {
        let token = self.pool_token_file.as_ref().map(TokenFile::new);
        if let Some(token) = &token {
            token.read().context("--pool-token-file")?;
        }
        let shell = (!board.shell.is_empty()).then(|| board.shell.into());
        Ok(Brokers {
            urls: self.pool_broker.clone(),
            token,
            tls: self.pool_ca.clone().map(|ca| ClientFiles { ca, identity: None }),
            board: Board {
                name: board.id.into(),
                kind: board.kind.into(),
                shell,
                node: self.pool_node.as_str().into(),
            },
            listener_tls,
        })
    }
}
