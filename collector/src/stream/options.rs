//! The settings of the streams.

use super::targets::{MAX_REPLICAS, Target, Transport};
use anyhow::bail;
use fpga_net::tls::ClientFiles;
use fpga_net::token_file::TokenFile;
use fpga_node_stream::access::Access;
use fpga_node_stream::client::Credentials;
use std::path::PathBuf;
use std::sync::Arc;

/// The replicas to stream to, and the credentials for them.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Streams to the extender and the endpoint picker")]
pub struct StreamArgs {
    /// Replicas of the extender that get changes at once, beside the annotation: https://HOST:PORT, or dns:NAME:PORT
    /// for all addresses of a headless Service, whose certificates must have that name. May be repeated; in the
    /// environment a comma-separated list.
    #[arg(long, env = "FPGA_EXTENDERS", value_name = "REPLICA", value_delimiter = ',')]
    pub extenders: Vec<Target>,
    /// Replicas of the endpoint picker that get the same, written in the same way. They are shown the same certificate, and
    /// trusted by the same authorities.
    #[arg(long, env = "FPGA_PICKERS", value_name = "REPLICA", value_delimiter = ',')]
    pub pickers: Vec<Target>,
    /// Authorities (PEM) that the replicas' certificates must be issued by; read again for every stream.
    #[arg(long, env = "FPGA_STREAM_CA", value_name = "PATH")]
    pub stream_ca: Option<PathBuf>,
    /// Certificate (PEM) to show, with the node's name among its DNS names, if a replica requires one.
    #[arg(long, env = "FPGA_STREAM_CERT", value_name = "PATH", requires_all = ["stream_ca", "stream_key"])]
    pub stream_cert: Option<PathBuf>,
    /// Private key (PEM) of the --stream-cert.
    #[arg(long, env = "FPGA_STREAM_KEY", value_name = "PATH", requires = "stream_cert")]
    pub stream_key: Option<PathBuf>,
    /// Connect without TLS, to http://HOST:PORT or dns:NAME:PORT: for a trusted network, or a trial on one machine.
    #[arg(long, env = "FPGA_STREAM_WITHOUT_TLS", conflicts_with = "stream_ca")]
    pub stream_without_tls: bool,
    /// File with the token that the replicas require: that of the pod's service account, or a shared one; read again
    /// for every stream.
    #[arg(long, env = "FPGA_STREAM_TOKEN_FILE", value_name = "PATH")]
    pub stream_token_file: Option<PathBuf>,
    /// File with the token for --pickers, whose audience differs from the extenders', so that a picker can't show it to an
    /// extender [default: --stream-token-file].
    #[arg(long, env = "FPGA_PICKER_TOKEN_FILE", value_name = "PATH", requires = "stream_token_file")]
    pub picker_token_file: Option<PathBuf>,
    /// Show no token: for a trial with replicas that require none.
    #[arg(long, env = "FPGA_STREAM_WITHOUT_TOKEN", conflicts_with = "stream_token_file")]
    pub stream_without_token: bool,
    /// UID of the node object, which identifies the node in streams. Only with --no-publish; otherwise the API server
    /// has it.
    #[arg(long, env = "FPGA_NODE_UID", value_name = "UID", requires = "no_publish")]
    pub node_uid: Option<String>,
}

/// The checked settings.
#[derive(Debug)]
pub struct Streaming {
    /// The replicas, each with the credentials for it and the trusted authorities.
    pub targets: Vec<(Target, Arc<Credentials>)>,
}

impl StreamArgs {
    /// Checks the settings; `None` if no replicas are set.
    ///
    /// # Errors
    /// A setting is missing, or two contradict each other.
    pub fn check(&self, no_publish: bool) -> anyhow::Result<Option<Streaming>> {
        if self.extenders.is_empty() && self.pickers.is_empty() {
            return Ok(None);
        }
        for (flag, targets) in [("--extenders", &self.extenders), ("--pickers", &self.pickers)] {
            if targets.len() > MAX_REPLICAS {
                bail!(
                    "{flag} names more than {MAX_REPLICAS} replicas; a headless Service finds them: write dns:NAME:PORT"
                );
            }
        }
        if no_publish && self.node_uid.is_none() {
            bail!(
                "--extenders and --pickers with --no-publish need --node-uid: kubectl get node NODE -o jsonpath='{{.metadata.uid}}'"
            );
        }
        let access = match &self.stream_token_file {
            Some(path) => Access::Token(TokenFile::new(path)),
            None if self.stream_without_token || self.stream_cert.is_some() => Access::Open,
            None => bail!(
                "--extenders and --pickers need --stream-token-file PATH or --stream-cert PATH, or --stream-without-token if the replicas want nothing"
            ),
        };
        let tls = self.tls()?;
        let for_pickers = match &self.picker_token_file {
            Some(path) => Access::Token(TokenFile::new(path)),
            None => access.clone(),
        };
        // The files may be created later, as with Secrets that are mounted optionally.
        let extenders = Arc::new(Credentials { access, tls: tls.clone() });
        let pickers = Arc::new(Credentials { access: for_pickers, tls });
        let with = |targets: &[Target], credentials: &Arc<Credentials>| -> Vec<_> {
            targets.iter().map(|target| (target.clone(), Arc::clone(credentials))).collect()
        };
        let targets = [with(&self.extenders, &extenders), with(&self.pickers, &pickers)].concat();
        Ok(Some(Streaming { targets }))
    }

    fn targets(&self) -> impl Iterator<Item = &Target> {
        self.extenders.iter().chain(&self.pickers)
    }

    fn tls(&self) -> anyhow::Result<Option<ClientFiles>> {
        let transport = if self.stream_without_tls { Transport::Plain } else { Transport::Tls };
        if let Some(target) = self.targets().find(|target| !target.can_speak(transport)) {
            match transport {
                Transport::Tls => {
                    bail!("{target} is without TLS: write https://, or --stream-without-tls as well")
                }
                Transport::Plain => {
                    bail!("{target} and --stream-without-tls contradict each other; leave one out")
                }
            }
        }
        match (&self.stream_ca, transport) {
            (_, Transport::Plain) => Ok(None),
            (Some(ca), Transport::Tls) => {
                let identity = self.stream_cert.clone().zip(self.stream_key.clone());
                Ok(Some(ClientFiles { ca: ca.clone(), identity }))
            }
            (None, Transport::Tls) => bail!(
                "--extenders and --pickers need --stream-ca PATH to know the replicas by, or --stream-without-tls where nobody can listen in"
            ),
        }
    }
}
