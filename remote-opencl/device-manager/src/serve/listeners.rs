//! The manager's listeners: addresses, TLS, tokens, and keepalive.

use super::pool::Reach;
use crate::config::SharedMemory;
use crate::handshake::Access;
use crate::keepalive::Keepalive;
use crate::listen::{Address, Callers, Listener};
use crate::metrics_server::MetricsAddress;
use crate::signals::AtEnd;
use crate::tokens::Tokens;
use anyhow::{Context as _, bail};
use clap::Args;
use fpga_net::duration;
use fpga_net::ready_file;
use fpga_net::tls::{HTTP_2, Reload, ServerFiles, ServerTls};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use tracing::warn;

/// Flags of the listeners.
#[derive(Debug, Args)]
pub(super) struct ListenerArgs {
    /// Address to listen on: `unix:/PATH` or `tcp://HOST:PORT` (0: a free port); may be given several times.
    #[arg(long, env = "FPGA_LISTEN", value_delimiter = ',', default_value = "unix:/run/fpga/dm0.sock")]
    listen: Vec<Address>,

    /// Allow TCP without TLS: clients prove no identity, and isolation is off.
    #[arg(long, env = "FPGA_INSECURE_TCP", conflicts_with = "tls_cert")]
    insecure_tcp: bool,

    /// Certificate (chain, PEM) of the manager for TCP. This file, --tls-key and --tls-client-ca are read again
    /// when they change.
    #[arg(
        long,
        env = "FPGA_TLS_CERT",
        value_name = "FILE",
        requires = "tls_key",
        requires = "tls_client_ca"
    )]
    tls_cert: Option<PathBuf>,

    /// Private key (PEM) of --tls-cert.
    #[arg(long, env = "FPGA_TLS_KEY", value_name = "FILE", requires = "tls_cert")]
    tls_key: Option<PathBuf>,

    /// Authorities (PEM) that sign clients' certificates. The first DNS name of a client's certificate is its
    /// tenant: `cert:NAME`.
    #[arg(long, env = "FPGA_TLS_CLIENT_CA", value_name = "FILE", requires = "tls_cert")]
    tls_client_ca: Option<PathBuf>,

    /// Folder of tokens: for each tenant a file, named as the tenant, or a folder of files. Sessions must show one, and
    /// every user may then connect to unix sockets. Read again when it changes. Without it a client's tenant is its
    /// user id, as the kernel reports it.
    #[arg(long, env = "FPGA_TOKENS", value_name = "DIR")]
    tokens: Option<PathBuf>,

    /// Accept sessions without a token too: their tenant is the identity that the connection proves.
    #[arg(long, env = "FPGA_TOKENS_OPTIONAL", requires = "tokens")]
    tokens_optional: bool,

    /// How long a client over TCP may be silent before its session counts as lost. The manager asks after half of
    /// that time, and the client may take a second to answer; a program that a debugger holds does not answer. 0:
    /// for ever.
    #[arg(long, env = "FPGA_KEEPALIVE", default_value = "1m", value_parser = duration::parse)]
    keepalive: Duration,
}

impl ListenerArgs {
    /// TLS for TCP. TCP without TLS is an error unless --insecure-tcp is given.
    pub(super) fn tls(&self) -> anyhow::Result<Option<Arc<ServerTls>>> {
        if let Some(tcp) = self.listen.iter().find(|address| matches!(address, Address::Tcp(_)))
            && !self.insecure_tcp
            && self.tls_cert.is_none()
        {
            bail!(
                "{tcp} has no TLS: give --tls-cert, --tls-key and --tls-client-ca, or add --insecure-tcp if everyone \
                 who reaches it may use the device, isolation off"
            );
        }
        let (Some(certificate), Some(key), Some(client_ca)) =
            (self.tls_cert.clone(), self.tls_key.clone(), self.tls_client_ca.clone())
        else {
            return Ok(None);
        };
        let files = ServerFiles { certificate, key, client_ca: Some(client_ca) };
        let tls = ServerTls::new(files, HTTP_2);
        match tls.reload() {
            Reload::Failed(error) => Err(error).context("--tls-cert, --tls-key, --tls-client-ca"),
            _ => Ok(Some(Arc::new(tls))),
        }
    }

    /// TLS for the port of sessions with a lease: clients know the manager by its key, and show no certificate. Leases and
    /// keys of tenants never leave the machine in the clear, whatever --insecure-tcp says.
    pub(super) fn pool_tls(&self, reach: Reach) -> anyhow::Result<Option<Arc<ServerTls>>> {
        let (Some(certificate), Some(key)) = (self.tls_cert.clone(), self.tls_key.clone()) else {
            if self.insecure_tcp && reach == Reach::ThisMachine {
                return Ok(None);
            }
            let tls = ServerTls::with_own_key(HTTP_2).context("--pool-listen: no key can be made")?;
            return Ok(Some(Arc::new(tls)));
        };
        let tls = ServerTls::new(ServerFiles { certificate, key, client_ca: None }, HTTP_2);
        match tls.reload() {
            Reload::Failed(error) => Err(error).context("--tls-cert, --tls-key"),
            _ => Ok(Some(Arc::new(tls))),
        }
    }

    /// The credentials that sessions must show.
    pub(super) fn access(&self) -> anyhow::Result<Access> {
        Ok(match self.tokens.as_deref().map(Tokens::read).transpose().context("--tokens")? {
            None => Access::Connection,
            Some(tokens) if self.tokens_optional => Access::TokenOrConnection(tokens),
            Some(tokens) => Access::Token(tokens),
        })
    }

    /// How long clients may be silent.
    pub(super) fn keepalive(&self) -> Keepalive {
        Keepalive::within(self.keepalive)
    }

    /// Binds all addresses, and a side socket for each unix socket. The socket files are removed at the end.
    pub(super) fn bind(
        &self,
        shared_memory: SharedMemory,
        at_end: &AtEnd,
    ) -> anyhow::Result<(Vec<Listener>, Vec<Address>)> {
        let mut listeners = Vec::new();
        let mut all_bound = Vec::new();
        let everyone_shows_a_token = self.tokens.is_some() && !self.tokens_optional;
        let callers = if everyone_shows_a_token { Callers::Everyone } else { Callers::OwnerAndGroup };
        for address in &self.listen {
            let (listener, bound, file) = address.bind(callers)?;
            listeners.push(listener);
            all_bound.push(bound);
            if let Some(file) = file {
                at_end.add(file);
            }
            if shared_memory == SharedMemory::Off {
                continue;
            }
            match address.bind_side(callers) {
                Ok(Some((side, file))) => {
                    listeners.push(side);
                    at_end.add(file);
                }
                Ok(None) => {}
                // Clients then send all bytes in messages.
                Err(error) => warn!(%error, "No memory will be shared"),
            }
        }
        Ok((listeners, all_bound))
    }
}

/// Writes the addresses to the ready file, that of the metrics last.
pub(super) fn say_ready(
    path: &Path,
    bound: &[Address],
    metrics: Option<&MetricsAddress>,
) -> std::io::Result<()> {
    let metrics = metrics.map(|address| format!("metrics:{address}"));
    ready_file::write(path, bound.iter().map(Address::to_string).chain(metrics))
}
