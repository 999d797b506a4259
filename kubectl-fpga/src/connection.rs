//! Connections to the cluster and to the extender.

use crate::account::Account;
use crate::part::Part;
use crate::problem::Problem;
use clap::Args;
use fpga_net::kube_config;
use kube::{Client, Config};
use std::path::PathBuf;
use std::time::Duration;

/// Addresses and credentials of the cluster and of the extender.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Cluster")]
pub struct ConnectArgs {
    /// Path of the kubeconfig; by default KUBECONFIG, ~/.kube/config, or the service account of the pod.
    #[arg(long, env = "FPGA_KUBECONFIG", value_name = "PATH", global = true)]
    pub kubeconfig: Option<PathBuf>,
    /// Context of the kubeconfig.
    #[arg(long, env = "FPGA_CONTEXT", value_name = "NAME", global = true)]
    pub context: Option<String>,
    /// Namespace of the pod to explain, by default the context's; or of the Bitstream that `bitstream push` prints.
    #[arg(short, long, env = "FPGA_NAMESPACE", value_name = "NAME", global = true)]
    pub namespace: Option<String>,
    /// Addresses of the extender's replicas, for example http://127.0.0.1:9461; by default they are found by their
    /// Service.
    #[arg(long, env = "FPGA_EXTENDER", value_name = "URL", value_delimiter = ',', global = true)]
    pub extender: Vec<http::Uri>,
    /// Certificate authority of an extender with https, PEM.
    #[arg(long, env = "FPGA_EXTENDER_CA", value_name = "PATH", global = true)]
    pub extender_ca: Option<PathBuf>,
    /// Client certificate for an extender that requires one (mutual TLS), PEM.
    #[arg(long, env = "FPGA_EXTENDER_CERT", value_name = "PATH", global = true, requires = "extender_key")]
    pub extender_cert: Option<PathBuf>,
    /// Key of the client certificate, PEM.
    #[arg(long, env = "FPGA_EXTENDER_KEY", value_name = "PATH", global = true, requires = "extender_cert")]
    pub extender_key: Option<PathBuf>,
    /// Name in the extender's certificate, if it differs from the address, as behind a forwarded port.
    #[arg(long, env = "FPGA_EXTENDER_TLS_NAME", value_name = "NAME", global = true)]
    pub extender_tls_name: Option<String>,
    /// Namespace of the extender.
    #[arg(
        long,
        env = "FPGA_EXTENDER_NAMESPACE",
        value_name = "NAME",
        default_value = "kube-fpga",
        global = true
    )]
    pub extender_namespace: String,
    /// Service of the extender.
    #[arg(
        long,
        env = "FPGA_EXTENDER_SERVICE",
        value_name = "NAME",
        default_value = "fpga-scheduler-extender",
        global = true
    )]
    pub extender_service: String,
    /// Addresses of the endpoint picker's replicas, for example http://127.0.0.1:9471; by default they are found by their
    /// Service.
    #[arg(long, env = "FPGA_PICKER", value_name = "URL", value_delimiter = ',', global = true)]
    pub picker: Vec<http::Uri>,
    /// Namespace of the endpoint picker.
    #[arg(
        long,
        env = "FPGA_PICKER_NAMESPACE",
        value_name = "NAME",
        default_value = "kube-fpga",
        global = true
    )]
    pub picker_namespace: String,
    /// Service of the endpoint picker.
    #[arg(
        long,
        env = "FPGA_PICKER_SERVICE",
        value_name = "NAME",
        default_value = "fpga-endpoint-picker",
        global = true
    )]
    pub picker_service: String,
    /// Service account by whose tokens the extender and the endpoint picker know who reads [default: fpga-reader in their
    /// namespaces, which may read what belongs to all namespaces].
    #[arg(long, env = "FPGA_READER", value_name = "NAMESPACE/NAME", global = true)]
    pub reader: Option<Account>,
    /// Timeout of one request, in seconds.
    #[arg(long, env = "FPGA_TIMEOUT", value_name = "SECONDS", default_value_t = 10, global = true,
        value_parser = clap::value_parser!(u64).range(1..=600))]
    pub timeout: u64,
}

/// A connection to a cluster.
#[derive(Clone)]
pub struct Cluster {
    /// Client of the API server.
    pub client: Client,
    /// Address of the API server, for messages.
    pub server: String,
    /// Namespace of `--namespace`, or else of the context.
    pub namespace: String,
}

impl ConnectArgs {
    /// Connects to the configured cluster.
    ///
    /// # Errors
    /// [`Problem::NotConfigured`] if no cluster is configured, [`Problem::Kubeconfig`] if it is in a wrong way.
    pub async fn cluster(&self) -> Result<Cluster, Problem> {
        self.cluster_with(self.time()).await
    }

    /// Connects to the configured cluster, for watches: an answer may be silent for `silence`.
    ///
    /// # Errors
    /// [`Problem::NotConfigured`] if no cluster is configured, [`Problem::Kubeconfig`] if it is in a wrong way.
    pub async fn watched_cluster(&self, silence: Duration) -> Result<Cluster, Problem> {
        self.cluster_with(self.time().max(silence)).await
    }

    // Nothing is asked again behind the user's back: who waits should hear at once that a part is away.
    async fn cluster_with(&self, silence: Duration) -> Result<Cluster, Problem> {
        let config = kube_config::load(self.kubeconfig.as_deref(), self.context.as_deref()).await;
        let mut config = config.map_err(|error| Problem::of_kubeconfig(&error))?;
        config.connect_timeout = Some(self.time());
        config.read_timeout = Some(silence);
        config.default_retry = false;
        let mut server = config.cluster_url.to_string();
        if let Some(proxy) = config.proxy_url.as_ref().and_then(http::Uri::host) {
            server = format!("{server} (by way of the proxy {proxy})");
        }
        let namespace = self.namespace.clone().unwrap_or_else(|| config.default_namespace.clone());
        let plugin = config.auth_info.exec.clone();
        let client = Client::try_from(config).map_err(|error| Problem::of_client(&error, plugin.as_ref()))?;
        Ok(Cluster { client, server, namespace })
    }

    /// The addresses that are given for a part; none if it is to be found by its Service.
    #[must_use]
    pub fn given(&self, part: Part) -> &[http::Uri] {
        match part {
            Part::Extender => &self.extender,
            Part::Picker => &self.picker,
        }
    }

    /// Namespace and name of the Service of a part.
    #[must_use]
    pub fn service(&self, part: Part) -> (&str, &str) {
        match part {
            Part::Extender => (&self.extender_namespace, &self.extender_service),
            Part::Picker => (&self.picker_namespace, &self.picker_service),
        }
    }

    /// A client of the replica of a part at `url`.
    ///
    /// # Errors
    /// [`Problem::Url`] if the address or the certificates can't be used.
    pub fn replica(&self, part: Part, url: &http::Uri) -> Result<Client, Problem> {
        let mut config = Config::new(url.clone());
        config.root_cert_file.clone_from(&self.extender_ca);
        config.tls_server_name.clone_from(&self.extender_tls_name);
        let text = |path: &Option<PathBuf>| path.as_ref().map(|path| path.to_string_lossy().into_owned());
        config.auth_info.client_certificate = text(&self.extender_cert);
        config.auth_info.client_key = text(&self.extender_key);
        config.connect_timeout = Some(self.time());
        config.read_timeout = Some(self.time());
        config.default_retry = false;
        Client::try_from(config).map_err(|error| Problem::Url {
            part,
            url: url.to_string(),
            error: error.to_string(),
        })
    }

    /// Timeout of one request.
    #[must_use]
    pub fn time(&self) -> Duration {
        Duration::from_secs(self.timeout)
    }
}
