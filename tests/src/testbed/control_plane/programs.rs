//! Paths of the control plane's programs, and their arguments.

use super::Extent;
use super::scheduler::SchedulerConfig;
use super::signing_key::SigningKey;
use crate::testbed::identity::Credential;
use crate::testbed::network::Network;
use crate::testbed::process::{Process, ProcessSpec};
use crate::testbed::programs::control_plane;
use crate::testbed::run_dir::RunDir;
use anyhow::{Context as _, Result, bail};
use fpga_test_kit::Authority;
use std::path::{Path, PathBuf};

const ETCD_PORT: u16 = 2379;
const ETCD_PEER_PORT: u16 = 2380;
pub const API_SERVER_PORT: u16 = 6443;
const CONTROLLER_MANAGER_PORT: u16 = 10257;
/// Port of kube-scheduler for health and metrics.
pub const SCHEDULER_PORT: u16 = 10259;

/// The folder with the control plane's programs.
#[derive(Debug)]
pub struct Programs {
    dir: PathBuf,
}

/// The API server's URL.
pub fn api_server_url(network: &Network) -> String {
    format!("https://{}:{API_SERVER_PORT}", network.control_plane())
}

/// The URL at which etcd takes requests.
pub fn etcd_url(network: &Network) -> String {
    format!("http://{}:{ETCD_PORT}", network.control_plane())
}

/// Path of etcd's data.
pub fn etcd_data(run_dir: &RunDir) -> PathBuf {
    run_dir.path().join("etcd")
}

/// Path of the certificate that the API server generates for itself.
pub fn api_server_certificate(run_dir: &RunDir) -> PathBuf {
    run_dir.path().join("apiserver-certs/apiserver.crt")
}

/// Arguments by which the API server shows extensions of its API a certificate, as in every cluster.
fn front_proxy(run_dir: &RunDir) -> [String; 7] {
    let name = "front-proxy-client";
    let authority = Authority::new(run_dir.path(), "front-proxy");
    let shown = authority.issue_as(name, name);
    [
        format!("--requestheader-client-ca-file={}", authority.ca.display()),
        format!("--requestheader-allowed-names={name}"),
        "--requestheader-username-headers=X-Remote-User".to_owned(),
        "--requestheader-group-headers=X-Remote-Group".to_owned(),
        "--requestheader-extra-headers-prefix=X-Remote-Extra-".to_owned(),
        format!("--proxy-client-cert-file={}", shown.certificate.display()),
        format!("--proxy-client-key-file={}", shown.key.display()),
    ]
}

impl Programs {
    /// Finds the servers that `hack/control-plane.sh servers` built. The demo calls no kubectl, which may be missing.
    pub fn find() -> Result<Self> {
        let dir = control_plane();
        for name in ["etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler"] {
            if !dir.join(name).exists() {
                bail!("{} is missing. Run `make control-plane` (6 minutes, once)", dir.join(name).display());
            }
        }
        Ok(Self { dir })
    }

    pub fn kubectl(&self) -> PathBuf {
        self.dir.join("kubectl")
    }

    /// The folder of the programs.
    pub fn folder(&self) -> &Path {
        &self.dir
    }

    fn spec(&self, name: &str, run_dir: &RunDir) -> ProcessSpec {
        ProcessSpec::new(name, self.dir.join(name), run_dir.log(name))
    }

    pub fn start_etcd(&self, network: &Network, run_dir: &RunDir) -> Result<Process> {
        let ip = network.control_plane();
        let client = etcd_url(network);
        let peer = format!("http://{ip}:{ETCD_PEER_PORT}");
        let spec = self
            .spec("etcd", run_dir)
            .arg(format!("--data-dir={}", etcd_data(run_dir).display()))
            .args([format!("--listen-client-urls={client}"), format!("--advertise-client-urls={client}")])
            .args([format!("--listen-peer-urls={peer}"), format!("--initial-advertise-peer-urls={peer}")])
            .args(["--name=testbed".to_owned(), format!("--initial-cluster=testbed={peer}")])
            .args(["--unsafe-no-fsync", "--log-level=warn"]);
        Process::start(&spec)
    }

    pub fn start_api_server(
        &self,
        network: &Network,
        run_dir: &RunDir,
        credentials: &[Credential],
        extent: Extent,
    ) -> Result<Process> {
        let ip = network.control_plane();
        let key = SigningKey::write(run_dir.path())?;
        let tokens = run_dir.path().join("tokens.csv");
        let lines: String = credentials.iter().map(Credential::token_file_line).collect();
        std::fs::write(&tokens, lines).context("can't write the tokens")?;
        let certificates = api_server_certificate(run_dir);
        let certificates = certificates.parent().context("the certificate has no folder")?;
        let spec = self
            .spec("kube-apiserver", run_dir)
            .arg(format!("--etcd-servers={}", etcd_url(network)))
            .args([format!("--bind-address={ip}"), format!("--secure-port={API_SERVER_PORT}")])
            // A loopback address can't be an endpoint of the service `kubernetes`; real nodes' pods reach it by
            // `real_node::KubernetesService`.
            .args([format!("--advertise-address={ip}"), "--endpoint-reconciler-type=none".to_owned()])
            .arg(format!("--cert-dir={}", certificates.display()))
            .arg(format!("--service-account-key-file={}", key.public.display()))
            .arg(format!("--service-account-signing-key-file={}", key.private.display()))
            .arg("--service-account-issuer=https://kubernetes.default.svc")
            .arg(format!("--token-auth-file={}", tokens.display()))
            .args(front_proxy(run_dir))
            .arg("--authorization-mode=Node,RBAC")
            .arg(format!("--service-cluster-ip-range={}", network.service_subnet()));
        let spec = match extent {
            Extent::Whole => spec,
            Extent::ObjectsOnly => spec
                .arg("--disable-admission-plugins=ServiceAccount,TaintNodesByCondition")
                .args(["--enable-priority-and-fairness=false", "--delete-collection-workers=20"])
                .args(["--max-requests-inflight=10000", "--max-mutating-requests-inflight=5000"]),
        };
        Process::start(&spec)
    }

    pub fn start_controller_manager(
        &self,
        network: &Network,
        run_dir: &RunDir,
        kubeconfig: &Path,
    ) -> Result<Process> {
        let spec = self
            .spec("kube-controller-manager", run_dir)
            .arg(format!("--kubeconfig={}", kubeconfig.display()))
            .args([
                format!("--bind-address={}", network.control_plane()),
                format!("--secure-port={CONTROLLER_MANAGER_PORT}"),
                format!("--cert-dir={}", run_dir.path().join("manager-certs").display()),
            ])
            .args(["--leader-elect=false", "--use-service-account-credentials=true"])
            // Pods get it as the authority of the API server.
            .arg(format!("--root-ca-file={}", api_server_certificate(run_dir).display()))
            .args(["--kube-api-qps=200", "--kube-api-burst=400"])
            // Autoscalers look every 15 s by default: tests wait for them.
            .arg("--horizontal-pod-autoscaler-sync-period=5s");
        Process::start(&spec)
    }

    pub fn start_scheduler(
        &self,
        network: &Network,
        run_dir: &RunDir,
        kubeconfig: &Path,
        config: &SchedulerConfig,
    ) -> Result<Process> {
        let file = run_dir.path().join("scheduler-config.yaml");
        std::fs::write(&file, config.text(kubeconfig)?)
            .context("can't write the scheduler's configuration")?;
        let spec = self
            .spec("kube-scheduler", run_dir)
            .arg(format!("--config={}", file.display()))
            .args([
                format!("--bind-address={}", network.control_plane()),
                format!("--secure-port={SCHEDULER_PORT}"),
                format!("--cert-dir={}", run_dir.path().join("scheduler-certs").display()),
            ])
            .arg(format!("--v={}", config.verbosity()));
        Process::start(&spec)
    }
}
