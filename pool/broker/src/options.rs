//! Flags of `fpga-pool serve`, and what follows from them alone.

use crate::identity::{Authenticator, ClientNamespaces, Reviewer, TokensFile};
use crate::policy_args::PolicyArgs;
use crate::tickets::TicketKey;
use anyhow::{Context as _, Result, bail};
use clap::builder::NonEmptyStringValueParser;
use fpga_net::duration;
use fpga_net::log::LogArgs;
use fpga_net::tls::{HTTP_2, Reload, ServerFiles, ServerTls};
use fpga_registry_api::{LibraryRules, OwnBitstreams};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use tracing::{info, warn};

pub(crate) const EXAMPLES: &str = "Examples:
  On one machine, for a trial:
    fpga-pool serve --library library.toml
  Without a cluster, for several machines:
    fpga-pool serve --library library.toml --tokens tokens.json --listen '[::]:9480' --tls-cert tls.crt --tls-key tls.key
  In a cluster, where another replica stands by:
    fpga-pool serve --audience fpga-pool --ticket-key-file /key/key --listen '[::]:9480' --tls-cert /tls/tls.crt \
      --tls-key /tls/tls.key";

/// Flags of `fpga-pool serve`.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES, mut_arg("log", |log| log.default_value("fpga_pool=info,warn")))]
pub struct ServeArgs {
    /// Address for device managers and clients (gRPC); port 0 takes a free one.
    #[arg(long, env = "FPGA_LISTEN", value_name = "ADDRESS", default_value = "127.0.0.1:9480")]
    pub(crate) listen: SocketAddr,
    /// Address for probes and metrics, plain HTTP; port 0 takes a free one.
    #[arg(long, env = "FPGA_METRICS_LISTEN", value_name = "ADDRESS", default_value = "127.0.0.1:9481")]
    pub(crate) metrics_listen: SocketAddr,
    /// File for the bound addresses, written when the ports are open: the first line is that of --listen, the second
    /// one metrics:ADDRESS.
    #[arg(long, env = "FPGA_READY_FILE", value_name = "PATH")]
    pub(crate) ready_file: Option<PathBuf>,
    /// Certificate (PEM, with its chain), read again when it changes.
    #[arg(long, env = "FPGA_TLS_CERT", value_name = "PATH", requires = "tls_key")]
    tls_cert: Option<PathBuf>,
    /// Private key of the certificate (PEM).
    #[arg(long, env = "FPGA_TLS_KEY", value_name = "PATH", requires = "tls_cert")]
    tls_key: Option<PathBuf>,
    /// Serve without TLS also beyond this machine, in a trusted network.
    #[arg(long, env = "FPGA_WITHOUT_TLS", conflicts_with = "tls_cert")]
    without_tls: bool,
    /// Tokens of managers, clients and operators (JSON), read again for each stream; for a pool without a cluster.
    #[arg(long, env = "FPGA_TOKENS", value_name = "PATH", conflicts_with = "audience")]
    tokens: Option<PathBuf>,
    /// Audience of the service account tokens by which managers and clients prove who they are. It makes the broker one
    /// of a cluster: Bitstream objects are its library, and a Lease says which replica is active.
    #[arg(
        long,
        env = "FPGA_AUDIENCE",
        value_name = "NAME",
        conflicts_with = "library",
        requires = "ticket_key_file"
    )]
    audience: Option<String>,
    /// Service account of the device managers.
    #[arg(
        long,
        env = "FPGA_MANAGER_ACCOUNT",
        value_name = "NAMESPACE/NAME",
        default_value = "kube-fpga/fpga-device-manager"
    )]
    manager_account: String,
    /// Service account whose tokens see the pool of all namespaces, for `kubectl fpga pool`.
    #[arg(
        long,
        env = "FPGA_OPERATOR_ACCOUNT",
        value_name = "NAMESPACE/NAME",
        default_value = "kube-fpga/fpga-pool-operator"
    )]
    operator_account: String,
    /// Namespaces whose pods may use the pool, separated by commas. Without it all namespaces may.
    #[arg(
        long,
        env = "FPGA_CLIENT_NAMESPACES",
        value_name = "NAMES",
        value_delimiter = ',',
        requires = "audience",
        value_parser = NonEmptyStringValueParser::new()
    )]
    client_namespaces: Vec<String>,
    /// Accelerators and their bitstreams (TOML), for a pool without a cluster.
    #[arg(long, env = "FPGA_LIBRARY", value_name = "PATH", required_unless_present = "audience")]
    pub(crate) library: Option<PathBuf>,
    /// Key of the tickets by which jobs keep their first arrival, the same for all replicas. Without it a key is made,
    /// and jobs lose their first arrival when the broker restarts.
    #[arg(long, env = "FPGA_TICKET_KEY_FILE", value_name = "PATH")]
    ticket_key_file: Option<PathBuf>,
    /// Path of the kubeconfig; by default KUBECONFIG, ~/.kube/config, or the service account of the pod.
    #[arg(long, env = "FPGA_KUBECONFIG", value_name = "PATH")]
    pub(crate) kubeconfig: Option<PathBuf>,
    /// Namespace of the Lease.
    #[arg(long, env = "FPGA_POD_NAMESPACE", value_name = "NAME", default_value = "kube-fpga")]
    pub(crate) namespace: String,
    /// Name of this replica in the Lease, different for each, for example the name of its pod.
    #[arg(long, env = "FPGA_POD_NAME", value_name = "NAME")]
    pub(crate) identity: Option<String>,
    /// Time after which another replica becomes active for one that has gone silent, in whole seconds.
    #[arg(long, env = "FPGA_LEASE_DURATION", default_value = "15s", value_parser = duration::parse)]
    pub(crate) lease_duration: Duration,
    /// Namespace whose Bitstreams all pods may name without writing the namespace, as for the extender.
    #[arg(long, env = "FPGA_LIBRARY_NAMESPACE", value_name = "NAME")]
    library_namespace: Option<String>,
    /// Which Bitstreams of other namespaces count: any, or those that the registry has accepted (condition Accepted).
    #[arg(long, env = "FPGA_OWN_BITSTREAMS", value_name = "RULE", default_value = "any")]
    own_bitstreams: OwnBitstreams,
    /// Most managers.
    #[arg(long, env = "FPGA_MAX_MANAGERS", value_name = "COUNT", default_value_t = 10_000)]
    pub(crate) max_managers: usize,
    #[command(flatten)]
    pub(crate) policy: PolicyArgs,
    #[command(flatten)]
    pub(crate) log: LogArgs,
}

impl ServeArgs {
    /// Whether the broker is one of a cluster.
    pub(crate) fn is_in_cluster(&self) -> bool {
        self.audience.is_some()
    }

    /// How Bitstream objects become the library of a broker in a cluster.
    pub(crate) fn library_rules(&self) -> LibraryRules {
        LibraryRules { shared: self.library_namespace.clone(), own: self.own_bitstreams }
    }

    pub(crate) fn validate(&self) -> Result<()> {
        let is_local = self.listen.ip().is_loopback();
        if self.tls_cert.is_none() && !self.without_tls && !is_local {
            bail!(
                "--listen {} takes tokens: write --tls-cert PATH --tls-key PATH, or --without-tls where nobody can \
                 listen in",
                self.listen
            );
        }
        if self.tokens.is_none() && self.audience.is_none() && !is_local {
            bail!(
                "--listen {} would believe anyone who reaches the port: write --audience NAME in a cluster, or \
                 --tokens PATH",
                self.listen
            );
        }
        let whole_seconds = self.lease_duration.subsec_nanos() == 0;
        if !whole_seconds || !(3..=3_600).contains(&self.lease_duration.as_secs()) {
            bail!("--lease-duration {:?} can't be; write whole seconds from 3s to 1h", self.lease_duration);
        }
        for (flag, account) in
            [("--manager-account", &self.manager_account), ("--operator-account", &self.operator_account)]
        {
            if !account.contains('/') {
                bail!("{flag} {account:?} can't be; write NAMESPACE/NAME");
            }
        }
        Ok(())
    }

    pub(crate) fn tls(&self) -> Option<Arc<ServerTls>> {
        let (certificate, key) = (self.tls_cert.clone()?, self.tls_key.clone()?);
        let tls = ServerTls::new(ServerFiles { certificate, key, client_ca: None }, HTTP_2);
        match tls.reload() {
            Reload::Failed(error) => warn!(%error, "The certificate can't be used yet"),
            _ => info!("The certificate is loaded"),
        }
        Some(Arc::new(tls))
    }

    pub(crate) fn authenticator(&self, client: Option<kube::Client>) -> Result<Authenticator> {
        Ok(match (&self.tokens, &self.audience, client) {
            (_, Some(audience), Some(client)) => {
                let clients = ClientNamespaces::from_list(&self.client_namespaces);
                let (managers, operators) = (&self.manager_account, &self.operator_account);
                let reviewer = Reviewer::new(client, audience.clone(), managers, operators, clients);
                Authenticator::Review(Box::new(reviewer))
            }
            (Some(path), ..) => Authenticator::Tokens(TokensFile::open(path).context("--tokens")?),
            _ => Authenticator::Open,
        })
    }

    pub(crate) fn ticket_key(&self) -> Result<TicketKey> {
        match &self.ticket_key_file {
            Some(path) => TicketKey::read(path).context("--ticket-key-file"),
            None => Ok(TicketKey::generate()?),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Debug, Parser)]
    struct Program {
        #[command(flatten)]
        serve: ServeArgs,
    }

    fn parse(args: &[&str]) -> Result<ServeArgs> {
        let all = ["fpga-pool"].into_iter().chain(args.iter().copied());
        Ok(Program::try_parse_from(all)?.serve)
    }

    #[test]
    fn the_defaults_are_valid() {
        assert!(parse(&["--library", "x"]).unwrap().policy.settings().is_ok());
    }

    #[test]
    fn bad_values_are_refused_with_what_to_write() {
        for (args, hint) in [
            (["--listen", "0.0.0.0:1", "--tokens", "x"].as_slice(), "--tls-cert"),
            (&["--listen", "0.0.0.0:1", "--without-tls"], "--audience NAME"),
            (&["--lease-duration", "2s"], "3s to 1h"),
            (&["--manager-account", "x"], "NAMESPACE/NAME"),
            (&["--operator-account", "x"], "--operator-account"),
            (&["--margin", "1.5"], "margin"),
            (&["--goal-period", "1ms"], "100ms or more"),
        ] {
            let args = parse(&[args, &["--library", "x"]].concat()).unwrap();
            let checked = args.validate().and_then(|()| args.policy.settings().map(drop));
            let error = format!("{:#}", checked.unwrap_err());
            assert!(error.contains(hint), "{error}");
        }
        for (args, hint) in [
            ([].as_slice(), "--library"),
            (&["--audience", "x"], "--ticket-key-file"),
            (&["--library", "x", "--client-namespaces", "shop"], "--audience"),
            (&["--client-namespaces", "shop,"], "--client-namespaces"),
            (&["--library", "x", "--goal-policy", "luck"], "edf"),
        ] {
            let error = parse(args).unwrap_err().to_string();
            assert!(error.contains(hint), "{error}");
        }
    }
}
