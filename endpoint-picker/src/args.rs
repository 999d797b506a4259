//! Command line and wiring.

use crate::envoy_drain::{self, PodName};
use crate::envoy_endpoints::EndpointsFile;
use crate::external_metrics::{ExternalMetrics, Peers, watch_front_proxy};
use crate::function::{FunctionName, is_label};
use crate::metrics::Metrics;
use crate::node_streams::PickerReceiver;
use crate::picker::{Limits, Picker};
use crate::probes::{Audience, Probes};
use crate::routing::Routing;
use crate::server::Port;
use crate::service::{MAX_STREAMS, Service};
use crate::watch::{self, Scope};
use anyhow::{Context as _, Result, bail};
use clap::Parser;
use fpga_net::log::LogArgs;
use fpga_net::read_access::{ReadAccess, ReadRule};
use fpga_net::signals::Signals;
use fpga_net::tls::{HTTP_1, HTTP_2, KnownClients, Reload, ServerFiles, ServerTls};
use fpga_net::token_file::TokenFile;
use fpga_net::{duration, kube_config, ready_file};
use fpga_node_stream::server::options::StreamArgs;
use fpga_picker_api::READ_AUDIENCE;
use fpga_traces::args::TraceArgs;
use prometheus_client::registry::Registry;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::TcpListener;
use tokio::sync::watch::{Receiver, channel};
use tracing::info;

/// A body of 1 MiB, which is as much as Envoy buffers by default, and what is around it.
const DEFAULT_MESSAGE_BYTES: usize = (1 << 20) + (64 << 10);
/// Longest message that can be set.
const MAX_MESSAGE_BYTES: usize = 256 << 20;

const EXAMPLES: &str = "Examples:
  Beside an Envoy on the same machine, for all functions:
    fpga-endpoint-picker --kubeconfig ~/.kube/config --listen 127.0.0.1:9470
  For the InferencePool of one function, with TLS:
    fpga-endpoint-picker --function default/sobel --inference-pool sobel --listen '[::]:9470' --tls-cert /tls/tls.crt --tls-key /tls/tls.key
  With the states of boards as they change, and not by annotations only (fpga-collector --pickers):
    fpga-endpoint-picker --stream-listen '[::]:9464' --stream-tls-cert /tls/tls.crt --stream-tls-key /tls/tls.key \
      --stream-service-account kube-fpga/fpga-collector
  What a function is:
    kubectl label service sobel fpga-scheduling.io/function=sobel
    kubectl annotate service sobel fpga-scheduling.io/bitstreams=sobel fpga-scheduling.io/max-waiting=200";

/// Chooses for each request of a function the replica whose board has the bitstream. Speaks Envoy's external processing
/// (the Gateway API Inference Extension's Endpoint Picker Protocol).
#[derive(Debug, Parser)]
#[command(version, after_help = EXAMPLES)]
#[command(mut_arg("log", |log| log.default_value("fpga_endpoint_picker=info,warn")))]
pub struct Args {
    /// Address for gateways (gRPC); port 0 takes a free one.
    #[arg(long, env = "FPGA_LISTEN", default_value = "127.0.0.1:9470")]
    listen: SocketAddr,
    /// Address for probes and metrics, plain HTTP; port 0 takes a free one.
    #[arg(long, env = "FPGA_METRICS_LISTEN", value_name = "ADDRESS")]
    metrics_listen: Option<SocketAddr>,
    /// Address for people and their tools, plain HTTP; port 0 takes a free one. It serves functions and the last picks
    /// of their requests (`kubectl fpga`), and all that --metrics-listen serves.
    #[arg(long, env = "FPGA_READ_LISTEN", value_name = "ADDRESS")]
    read_listen: Option<SocketAddr>,
    /// Who may read there. `token`: owners of a service account's token for the audience fpga-endpoint-picker-read who
    /// may get the pods of the namespace in question, or else of all namespaces. Needs the right to create tokenreviews
    /// and subjectaccessreviews. Probes need no token. `anyone`: everybody, for a trial.
    #[arg(long, env = "FPGA_READ_ACCESS", value_name = "RULE", default_value = "token")]
    read_access: ReadRule,
    /// File for the bound addresses, written when the ports are open: the gateways' first, then metrics:ADDRESS,
    /// read:ADDRESS, external-metrics:ADDRESS and stream:ADDRESS.
    #[arg(long, env = "FPGA_READY_FILE", value_name = "PATH")]
    ready_file: Option<PathBuf>,
    /// Path of the kubeconfig; by default KUBECONFIG, ~/.kube/config, or the service account of the pod.
    #[arg(long, env = "FPGA_KUBECONFIG", value_name = "PATH")]
    kubeconfig: Option<PathBuf>,
    /// Certificate (PEM, with its chain) of the gateways' port; a changed file applies to new connections.
    #[arg(long, env = "FPGA_TLS_CERT", value_name = "PATH", requires = "tls_key")]
    tls_cert: Option<PathBuf>,
    /// Private key of the certificate (PEM).
    #[arg(long, env = "FPGA_TLS_KEY", value_name = "PATH", requires = "tls_cert")]
    tls_key: Option<PathBuf>,
    /// The function of all requests, for a gateway with an InferencePool per function. Without it the path tells
    /// (/function/NAME or /function/NAME.NAMESPACE), or the host.
    #[arg(long, env = "FPGA_FUNCTION", value_name = "NAMESPACE/NAME")]
    function: Option<FunctionName>,
    /// The InferencePool of that function, in its namespace: the function's pods are called at the pool's first target port.
    #[arg(long, env = "FPGA_INFERENCE_POOL", value_name = "NAME", requires = "function", value_parser = pool)]
    inference_pool: Option<String>,
    /// Namespace of functions that requests name without one.
    #[arg(long, env = "FPGA_FUNCTION_NAMESPACE", default_value = "default", value_parser = namespace)]
    function_namespace: String,
    /// Take functions of --function-namespace only.
    #[arg(long, env = "FPGA_ONE_NAMESPACE")]
    one_namespace: bool,
    /// Domain below which hosts name functions, as NAME.NAMESPACE.DOMAIN.
    #[arg(long, env = "FPGA_DOMAIN", value_name = "DOMAIN")]
    domain: Option<String>,
    /// File for the endpoints of all functions, for an Envoy beside the picker (its cluster `functions`, EDS from a file).
    #[arg(long, env = "FPGA_ENVOY_ENDPOINTS", value_name = "PATH", conflicts_with = "function")]
    envoy_endpoints: Option<PathBuf>,
    /// Administration port of an Envoy in the same pod, which is told to drain when the pod is told to end.
    #[arg(long, env = "FPGA_ENVOY_ADMIN", value_name = "ADDRESS", requires = "pod")]
    envoy_admin: Option<SocketAddr>,
    /// The picker's own pod.
    #[arg(long, env = "FPGA_POD", value_name = "NAMESPACE/NAME")]
    pod: Option<PodName>,
    /// Most endpoints in an answer: the gateway tries them in order. Write 1 for a gateway that takes one only.
    #[arg(long, env = "FPGA_ENDPOINTS", value_name = "COUNT", default_value = "3", value_parser = clap::value_parser!(u8).range(1..=16))]
    endpoints: u8,
    /// Most requests of a function that may wait for a slot; more are answered with 429. A Service's annotation
    /// fpga-scheduling.io/max-waiting can lower the limit for its function.
    #[arg(long, env = "FPGA_MAX_WAITING", value_name = "COUNT", default_value_t = 1_000)]
    max_waiting: usize,
    /// Mean number of replicas of a function that the metric of recommended replicas hands out, by demand.
    #[arg(long, env = "FPGA_REPLICAS_PER_FUNCTION", value_name = "COUNT", default_value_t = 4.0)]
    replicas_per_function: f64,
    /// Address for the API external.metrics.k8s.io, over TLS; port 0 takes a free one. The API server asks there for an
    /// APIService, and autoscalers get the requests of functions. The API server alone is answered: the picker knows its
    /// certificate by the ConfigMap extension-apiserver-authentication in kube-system, which it must be allowed to watch.
    #[arg(
        long,
        env = "FPGA_EXTERNAL_METRICS_LISTEN",
        value_name = "ADDRESS",
        requires_all = ["external_metrics_tls_cert", "external_metrics_tls_key"]
    )]
    external_metrics_listen: Option<SocketAddr>,
    /// Certificate (PEM, with its chain) of that port; its name is SERVICE.NAMESPACE.svc, of the APIService's Service.
    #[arg(long, env = "FPGA_EXTERNAL_METRICS_TLS_CERT", value_name = "PATH")]
    external_metrics_tls_cert: Option<PathBuf>,
    /// Private key of that certificate (PEM).
    #[arg(long, env = "FPGA_EXTERNAL_METRICS_TLS_KEY", value_name = "PATH")]
    external_metrics_tls_key: Option<PathBuf>,
    /// The ports for people (--read-listen) of all pickers, this one among them, whose requests external metrics sum up; without it
    /// they are this picker's own.
    #[arg(long, env = "FPGA_PICKERS", value_name = "NAME:PORT", requires = "external_metrics_listen")]
    pickers: Option<Peers>,
    /// File with the token that the picker shows to the pickers of --pickers, for the audience
    /// fpga-endpoint-picker-read; read again each time.
    #[arg(long, env = "FPGA_PICKERS_TOKEN_FILE", value_name = "PATH", requires = "pickers")]
    pickers_token_file: Option<PathBuf>,
    /// Longest message of a gateway. One that buffers bodies sends a whole body as one message.
    #[arg(long, env = "FPGA_MAX_MESSAGE_BYTES", value_name = "BYTES", default_value_t = DEFAULT_MESSAGE_BYTES)]
    max_message_bytes: usize,
    /// Most requests in flight; gateways get an error for more.
    #[arg(long, env = "FPGA_MAX_STREAMS", value_name = "COUNT", default_value_t = MAX_STREAMS)]
    max_streams: usize,
    /// Time after SIGTERM in which requests are still answered while the picker says that it is not ready. SIGINT or a
    /// second signal ends it.
    #[arg(long, env = "FPGA_SHUTDOWN_DELAY", default_value = "5s", value_parser = duration::parse)]
    shutdown_delay: Duration,
    /// Time for requests in flight to end after the port has closed. A further signal ends it.
    #[arg(long, env = "FPGA_DRAIN_TIMEOUT", default_value = "30s", value_parser = duration::parse)]
    drain_timeout: Duration,
    #[command(flatten)]
    stream: StreamArgs,
    #[command(flatten)]
    traces: TraceArgs,
    #[command(flatten)]
    log: LogArgs,
}

fn namespace(text: &str) -> Result<String, String> {
    match is_label(text) {
        true => Ok(text.to_owned()),
        false => Err("write the name of a namespace, for example `default`".to_owned()),
    }
}

fn pool(text: &str) -> Result<String, String> {
    match text.split('.').all(is_label) {
        true => Ok(text.to_owned()),
        false => Err("write the name of an InferencePool, for example `sobel`".to_owned()),
    }
}

impl Args {
    /// Runs the picker until a signal comes.
    ///
    /// # Errors
    /// Invalid arguments, or the system's error.
    pub fn run(self) -> Result<()> {
        self.log.init()?;
        tokio::runtime::Builder::new_multi_thread().enable_all().build()?.block_on(self.serve())
    }

    async fn serve(self) -> Result<()> {
        if !(1024..=MAX_MESSAGE_BYTES).contains(&self.max_message_bytes) {
            bail!(
                "--max-message-bytes {} can't be; write 1024 to {MAX_MESSAGE_BYTES}, for example {DEFAULT_MESSAGE_BYTES}",
                self.max_message_bytes
            );
        }
        if !(1.0..=1_000.0).contains(&self.replicas_per_function) {
            bail!("--replicas-per-function {} can't be; write 1 to 1000", self.replicas_per_function);
        }
        let mut signals = Signals::install().context("can't take signals")?;
        let config = kube_config::load(self.kubeconfig.as_deref(), None).await?;
        let client = kube::Client::try_from(config)?;
        let gateways = [&self.tls_cert, &self.tls_key];
        let tls = server_tls(gateways, HTTP_2, None, "--tls-cert or --tls-key")?;
        let (front_proxy, known_front_proxy) = channel(None);
        let external_tls = server_tls(
            [&self.external_metrics_tls_cert, &self.external_metrics_tls_key],
            HTTP_1,
            Some(known_front_proxy),
            "--external-metrics-tls-cert or --external-metrics-tls-key",
        )?;
        let listener = bind(self.listen, "--listen")?;
        let probes_listener = match self.metrics_listen {
            Some(address) => Some(bind(address, "--metrics-listen")?),
            None => None,
        };
        let read_listener = match self.read_listen {
            Some(address) => Some(bind(address, "--read-listen")?),
            None => None,
        };
        let external_listener = match self.external_metrics_listen {
            Some(address) => Some(bind(address, "--external-metrics-listen")?),
            None => None,
        };
        let mut addresses = vec![listener.local_addr()?.to_string()];
        for (name, listener) in [
            ("metrics", &probes_listener),
            ("read", &read_listener),
            ("external-metrics", &external_listener),
        ] {
            if let Some(listener) = listener {
                addresses.push(format!("{name}:{}", listener.local_addr()?));
            }
        }
        let stream_port = self.stream.open(&client).await?;
        if let Some(port) = &stream_port {
            addresses.push(format!("stream:{}", port.address()?));
        }
        let mut registry = Registry::default();
        let metrics = Metrics::register(&mut registry);
        let of_pod = self.pod.as_ref().map_or_else(Vec::new, |pod| {
            let (namespace, name) = pod.parts();
            vec![("k8s.namespace.name", namespace.to_owned()), ("k8s.pod.name", name.to_owned())]
        });
        let tracer = self.traces.tracer("fpga-endpoint-picker", of_pod)?;
        tracer.register(registry.sub_registry_with_prefix("fpga_picker"));
        let limits = Limits { endpoints: self.endpoints.into(), waiting: self.max_waiting };
        let picker = Picker::traced(limits, metrics, tracer);
        let routing = Routing {
            fixed: self.function.clone(),
            namespace: self.function_namespace.as_str().into(),
            domain: self.domain.as_deref().map(|domain| domain.trim_matches('.').to_ascii_lowercase().into()),
        };
        let endpoints_file = match &self.envoy_endpoints {
            Some(path) => {
                let file = EndpointsFile::create(path.clone(), Arc::clone(&routing.namespace));
                Some(file.with_context(|| format!("can't write --envoy-endpoints {}", path.display()))?)
            }
            None => None,
        };
        let endpoints_file = {
            let picker = Arc::clone(&picker);
            async move {
                match endpoints_file {
                    Some(file) => file.keep(picker).await,
                    None => std::future::pending().await,
                }
            }
        };
        info!(
            listen = %addresses.join(" "), tls = tls.is_some(), ?limits, ?routing,
            version = env!("CARGO_PKG_VERSION"), "Starting"
        );
        let service = Service::new(Arc::clone(&picker), routing, self.max_streams);
        let port = Port { listener, tls: tls.clone(), max_message_bytes: self.max_message_bytes };
        let scope = Scope {
            namespace: self.one_namespace.then(|| self.function_namespace.clone()),
            pool: self.function.clone().zip(self.inference_pool.clone()),
        };
        let drain = {
            let (client, pod, admin) = (client.clone(), self.pod.clone(), self.envoy_admin);
            async move {
                match (pod, admin) {
                    (Some(pod), Some(admin)) => envoy_drain::drain_with(client, pod, admin).await,
                    _ => std::future::pending().await,
                }
            }
        };
        let access =
            (self.read_access == ReadRule::Token).then(|| ReadAccess::new(client.clone(), READ_AUDIENCE));
        let external_client = client.clone();
        let watch = watch::run(client, scope, Arc::clone(&picker));
        let streams = {
            let receiver = Arc::new(PickerReceiver(Arc::clone(&picker)));
            async move {
                match stream_port {
                    Some(port) => port.serve(receiver).await,
                    None => std::future::pending().await,
                }
            }
        };
        let (stop, stopped) = channel(false);
        let until_stopped = |mut stopped: Receiver<bool>| async move {
            // An error means that the sender is gone, which is an end as well.
            let _ = stopped.wait_for(|stop| *stop).await;
        };
        let probes = Probes::new(Arc::clone(&picker), registry, self.replicas_per_function);
        let plain = |listener: Option<TcpListener>, audience| {
            let (probes, stopped) = (Arc::clone(&probes), stopped.clone());
            async move {
                if let Some(listener) = listener {
                    probes.serve(listener, audience, stopped).await;
                }
                std::future::pending::<()>().await;
            }
        };
        let (probing, reading) =
            (plain(probes_listener, Audience::Probes), plain(read_listener, Audience::People(access)));
        let token = self.pickers_token_file.as_deref().map(TokenFile::new);
        let peers = self.pickers.clone().map(|peers| peers.shown(token));
        let external = {
            let metrics = ExternalMetrics::new(Arc::clone(&picker), peers);
            let (tls, stopped) = (external_tls.clone(), stopped.clone());
            async move {
                if let (Some(listener), Some(tls)) = (external_listener, tls) {
                    tokio::select! {
                        () = metrics.serve(listener, tls, stopped) => {}
                        () = watch_front_proxy(external_client, front_proxy) => {}
                    }
                }
                std::future::pending::<()>().await;
            }
        };
        if let Some(path) = &self.ready_file {
            ready_file::write(path, &addresses).with_context(|| format!("can't write {}", path.display()))?;
        }
        let end = async {
            signals.until_ports_close(self.shutdown_delay, || picker.begin_to_end()).await;
            info!("Stopping");
            stop.send_replace(true);
            tokio::select! {
                () = tokio::time::sleep(self.drain_timeout) => {}
                _ = signals.next() => {}
            }
            info!("Requests in flight are no longer counted");
        };
        tokio::select! {
            served = port.serve(Arc::clone(&picker), service, until_stopped(stopped)) => Ok(served?),
            () = watch => bail!("a watch on the API server ended"),
            () = drain => bail!("Envoy is no longer told to drain"),
            () = endpoints_file => bail!("Envoy's endpoints are no longer written"),
            () = keep_certificates(tls.as_deref()) => bail!("the certificates are no longer read"),
            () = keep_certificates(external_tls.as_deref()) => bail!("the certificates are no longer read"),
            () = external => bail!("the port for external metrics ended"),
            ended = streams => {
                ended.context("the streams' listener failed")?;
                bail!("the streams' listener ended")
            }
            () = probing => bail!("the port for probes ended"),
            () = reading => bail!("the port for people ended"),
            () = end => Ok(()),
        }
    }
}

/// TLS by a certificate and its key, which `flags` name; `None` without them. With `clients` for these alone.
fn server_tls(
    [certificate, key]: [&Option<PathBuf>; 2],
    protocol: &'static [u8],
    clients: Option<Receiver<Option<KnownClients>>>,
    flags: &str,
) -> Result<Option<Arc<ServerTls>>> {
    let (Some(certificate), Some(key)) = (certificate, key) else { return Ok(None) };
    let files = ServerFiles { certificate: certificate.clone(), key: key.clone(), client_ca: None };
    let tls = ServerTls::new(files, protocol);
    if let Reload::Failed(error) = tls.reload() {
        bail!("{flags} is no good: {error}");
    }
    Ok(Some(Arc::new(match clients {
        Some(clients) => tls.for_clients(clients),
        None => tls,
    })))
}

/// Reads changed certificates again. Never returns.
async fn keep_certificates(tls: Option<&ServerTls>) {
    match tls {
        Some(tls) => tls.keep(|_| {}).await,
        None => std::future::pending().await,
    }
}

fn bind(address: SocketAddr, flag: &str) -> Result<TcpListener> {
    let listener = fpga_net::listen::bind(address);
    listener.with_context(|| format!("can't listen on {address}; choose another address with {flag}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory as _;

    #[test]
    fn the_command_line_is_consistent() {
        Args::command().debug_assert();
    }

    #[test]
    fn bad_values_are_refused_with_what_to_write() {
        for (args, hint) in [
            (["--function", "sobel"], "default/sobel"),
            (["--function-namespace", "A"], "`default`"),
            (["--inference-pool", "a/b"], "`sobel`"),
            (["--endpoints", "0"], "1..=16"),
        ] {
            let error = Args::try_parse_from(["x", args[0], args[1]]).unwrap_err().to_string();
            assert!(error.contains(hint), "{error}");
        }
    }
}
