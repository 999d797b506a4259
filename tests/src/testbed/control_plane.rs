//! etcd, kube-apiserver and kube-controller-manager as child processes, with a kubeconfig for each identity.
//! kube-scheduler starts separately, because its extender must start before it.
//!
//! All are the pinned, unmodified programs that `hack/control-plane.sh` builds.

mod programs;
mod scheduler;
mod seed;
mod shared;
mod signing_key;

pub use scheduler::SchedulerConfig;
pub use shared::run_beside;

use super::identity::{Credential, Identity};
use super::network::Network;
use super::process::Process;
use super::run_dir::RunDir;
use super::wait;
use anyhow::{Context as _, Result};
use fpga_net::kube_config;
use k8s_openapi::api::core::v1::{Namespace, ServiceAccount};
use kube::{Api, Client};
use nix::sys::signal::Signal;
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Longest time that a program may take to end before it is killed.
const STOP: Duration = Duration::from_secs(10);

/// A running control plane. Dropping it without [`ControlPlane::stop`] kills its programs.
pub struct ControlPlane {
    // Fields are dropped in this order: an API server whose etcd is gone doesn't end.
    scheduler: Option<Process>,
    controller_manager: Option<Process>,
    /// `None` where another process has started it: [`ControlPlane::shared`].
    api_server: Option<ApiServer>,
    kubeconfigs: BTreeMap<Identity, PathBuf>,
    programs: programs::Programs,
    network: Network,
    run_dir: RunDir,
    client: Client,
}

struct ApiServer {
    process: Process,
    etcd: Process,
}

/// The identities beside those of nodes.
const IDENTITIES: [Identity; 8] = [
    Identity::Admin,
    Identity::Scheduler,
    Identity::ControllerManager,
    Identity::Extender,
    Identity::Collector,
    Identity::NodePlugin,
    Identity::Router,
    Identity::Registry,
];

/// The parts of a control plane that run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Extent {
    /// All programs.
    Whole,
    /// API server and etcd: no controller handles nodes and pods.
    ObjectsOnly,
}

impl ControlPlane {
    /// Starts all programs but the scheduler and waits until pods can be created. `nodes` are the names of the nodes
    /// that will join, which need identities.
    ///
    /// # Errors
    /// A program is missing or does not start.
    pub async fn start(nodes: &[&str]) -> Result<Self> {
        Self::start_as(Extent::Whole, nodes).await
    }

    /// Starts an API server for thousands of nodes and pods that exist as objects only. There are no controllers (a
    /// node stays as it was written, though no lease is renewed), no service accounts, and no limits on the rate of
    /// requests.
    ///
    /// # Errors
    /// A program is missing or does not start.
    pub async fn start_objects_only() -> Result<Self> {
        Self::start_as(Extent::ObjectsOnly, &[]).await
    }

    async fn start_as(extent: Extent, nodes: &[&str]) -> Result<Self> {
        let programs = programs::Programs::find()?;
        let network = Network::claim()?;
        let run_dir = RunDir::new()?;
        let credentials = IDENTITIES
            .into_iter()
            .chain(nodes.iter().map(|name| Identity::Node((*name).into())))
            .map(Credential::new)
            .collect::<Result<Vec<_>>>()?;

        seed::Seed::beside(programs.folder()).copy_to(&run_dir)?;
        let etcd = programs.start_etcd(&network, &run_dir)?;
        let api_server = programs.start_api_server(&network, &run_dir, &credentials, extent)?;
        let server = programs::api_server_url(&network);
        let certificate = programs::api_server_certificate(&run_dir);
        let mut kubeconfigs = BTreeMap::new();
        for credential in &credentials {
            let path = kubeconfig_in(run_dir.path(), &credential.identity);
            std::fs::write(&path, credential.kubeconfig(&server, &certificate))
                .context("can't write a kubeconfig")?;
            kubeconfigs.insert(credential.identity.clone(), path);
        }
        let admin = kubeconfigs.get(&Identity::Admin).context("there is no admin")?;
        let client = wait::until("kube-apiserver to answer", async || {
            etcd.check_running()?;
            api_server.check_running()?;
            let client = client_from(admin).await?;
            let request = http::Request::get("/readyz").body(Vec::new())?;
            client.request_text(request).await?;
            Ok(Some(client))
        })
        .await?;
        let controller_manager = match extent {
            Extent::Whole => {
                let manager =
                    kubeconfigs.get(&Identity::ControllerManager).context("there is no such identity")?;
                let process = programs.start_controller_manager(&network, &run_dir, manager)?;
                wait_for_accounts(&client, &process).await?;
                Some(process)
            }
            Extent::ObjectsOnly => {
                let namespaces: Api<Namespace> = Api::all(client.clone());
                wait::until("the default namespace", async || {
                    api_server.check_running()?;
                    Ok(namespaces.get_opt("default").await?)
                })
                .await?;
                None
            }
        };
        Ok(Self {
            scheduler: None,
            controller_manager,
            api_server: Some(ApiServer { process: api_server, etcd }),
            kubeconfigs,
            programs,
            network,
            run_dir,
            client,
        })
    }

    /// Starts kube-scheduler with this configuration, after stopping the running one.
    ///
    /// # Errors
    /// kube-scheduler does not start, or refuses the configuration; the error has the end of its log.
    pub async fn start_scheduler(&mut self, config: &SchedulerConfig) -> Result<()> {
        self.stop_scheduler().await;
        let kubeconfig = self.kubeconfig(&Identity::Scheduler)?.to_owned();
        let process = self.programs.start_scheduler(&self.network, &self.run_dir, &kubeconfig, config)?;
        let address = (self.network.control_plane(), programs::SCHEDULER_PORT);
        wait::until("kube-scheduler to listen", async || {
            process.check_running()?;
            Ok(tokio::net::TcpStream::connect(address).await.ok())
        })
        .await?;
        self.scheduler = Some(process);
        Ok(())
    }

    /// Stops kube-scheduler if it runs.
    pub async fn stop_scheduler(&mut self) {
        if let Some(scheduler) = self.scheduler.take() {
            scheduler.stop(STOP).await;
        }
    }

    /// The controllers, for tests in which they count behind; none where the control plane has objects only.
    #[must_use]
    pub fn controllers(&self) -> Option<&Process> {
        self.controller_manager.as_ref()
    }

    /// Stops the API server, so that it answers nobody and connections stay open, as where it is out of reach.
    pub fn stop_answering(&self) {
        self.signal_api_server(Signal::SIGSTOP);
    }

    /// Lets the API server go on after [`Self::stop_answering`].
    pub fn answer_again(&self) {
        self.signal_api_server(Signal::SIGCONT);
    }

    fn signal_api_server(&self, signal: Signal) {
        if let Some(server) = &self.api_server {
            server.process.signal(signal);
        }
    }

    /// A client with all rights.
    #[must_use]
    pub fn client(&self) -> &Client {
        &self.client
    }

    /// A client with the rights of `identity`.
    ///
    /// # Errors
    /// The control plane has no such identity.
    pub async fn client_of(&self, identity: &Identity) -> Result<Client> {
        client_from(self.kubeconfig(identity)?).await
    }

    /// The kubeconfig file of `identity`.
    ///
    /// # Errors
    /// The control plane has no such identity.
    pub fn kubeconfig(&self, identity: &Identity) -> Result<&Path> {
        let path = self.kubeconfigs.get(identity);
        Ok(path.with_context(|| {
            format!("the test bed has no identity {identity:?}; name its nodes at the start")
        })?)
    }

    /// The loopback network of this test bed. The API server has an address in it unless the control plane is shared.
    #[must_use]
    pub fn network(&self) -> &Network {
        &self.network
    }

    /// Where the API server listens.
    #[must_use]
    pub fn api_server(&self) -> SocketAddr {
        (self.network.control_plane(), programs::API_SERVER_PORT).into()
    }

    /// The folder of this run's files.
    #[must_use]
    pub fn run_dir(&self) -> &RunDir {
        &self.run_dir
    }

    /// Path of the `kubectl` with the same version.
    #[must_use]
    pub fn kubectl(&self) -> PathBuf {
        self.programs.kubectl()
    }

    /// kube-scheduler's log so far.
    #[must_use]
    pub fn scheduler_log(&self) -> String {
        std::fs::read_to_string(self.run_dir.log("kube-scheduler")).unwrap_or_default()
    }

    /// Fails with the end of the log if one of the programs has ended.
    ///
    /// # Errors
    /// A program has ended.
    pub fn check_running(&self) -> Result<()> {
        let server = self.api_server.iter().flat_map(|server| [&server.etcd, &server.process]);
        server.chain(&self.controller_manager).chain(&self.scheduler).try_for_each(Process::check_running)
    }

    /// Ends all programs. Nothing of their data is needed later, so they are killed: kube-apiserver takes a second to end.
    pub async fn stop(self) {
        let servers = self.api_server.iter().flat_map(|server| [&server.process, &server.etcd]);
        let programs = self.scheduler.iter().chain(&self.controller_manager).chain(servers);
        futures::future::join_all(programs.map(Process::kill)).await;
    }
}

async fn wait_for_accounts(client: &Client, controller_manager: &Process) -> Result<()> {
    let accounts: Api<ServiceAccount> = Api::namespaced(client.clone(), "default");
    wait::until("kube-controller-manager to make the default service account", async || {
        controller_manager.check_running()?;
        Ok(accounts.get_opt("default").await?.map(drop))
    })
    .await
}

/// The path of an identity's kubeconfig in the folder of a control plane.
fn kubeconfig_in(run_dir: &Path, identity: &Identity) -> PathBuf {
    run_dir.join(format!("{}.kubeconfig", identity.file_name()))
}

async fn client_from(kubeconfig: &Path) -> Result<Client> {
    Ok(Client::try_from(kube_config::load(Some(kubeconfig), None).await?)?)
}
