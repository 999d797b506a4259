//! One control plane for many processes: `fpga-with-control-plane COMMAND` starts it, and tests that only use the API
//! work in namespaces of their own.

use super::programs::Programs;
use super::{ControlPlane, IDENTITIES, client_from, kubeconfig_in};
use crate::testbed::identity::Identity;
use crate::testbed::network::Network;
use crate::testbed::run_dir::RunDir;
use anyhow::{Context as _, Result};
use k8s_openapi::api::core::v1::{Namespace, ServiceAccount};
use kube::Api;
use kube::api::PostParams;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::json;
use std::ffi::OsString;
use std::os::unix::process::ExitStatusExt as _;
use std::path::Path;
use std::sync::atomic::{AtomicU32, Ordering};
use tokio::signal::unix::{SignalKind, signal};

/// The variable with the folder of the control plane that processes share.
const VARIABLE: &str = "FPGA_TEST_CONTROL_PLANE";

impl ControlPlane {
    /// The control plane of `fpga-with-control-plane`, or one of its own where there is none. It has no scheduler. What many
    /// tests apply to the whole cluster must be the same in all of them; names of anything else come from
    /// [`Self::unique`].
    ///
    /// # Errors
    /// The control plane does not answer, or an own one does not start.
    pub async fn shared() -> Result<Self> {
        let Some(folder) = std::env::var_os(VARIABLE) else { return Self::start(&[]).await };
        let folder = Path::new(&folder);
        let client = client_from(&kubeconfig_in(folder, &Identity::Admin)).await;
        Ok(Self {
            scheduler: None,
            controller_manager: None,
            api_server: None,
            kubeconfigs: IDENTITIES
                .map(|identity| (identity.clone(), kubeconfig_in(folder, &identity)))
                .into(),
            programs: Programs::find()?,
            network: Network::claim()?,
            run_dir: RunDir::new()?,
            client: client.with_context(|| format!("{VARIABLE} is {}", folder.display()))?,
        })
    }

    /// A name that no other test has: `PREFIX-PID-COUNT`.
    #[must_use]
    pub fn unique(&self, prefix: &str) -> String {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        format!("{prefix}-{}-{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed))
    }

    /// Creates a namespace with a unique name, and waits until pods can be created in it.
    ///
    /// # Errors
    /// The API server refuses it.
    pub async fn new_namespace(&self, prefix: &str) -> Result<String> {
        let name = self.unique(prefix);
        let namespaces: Api<Namespace> = Api::all(self.client.clone());
        let namespace = serde_json::from_value(json!({"metadata": {"name": name}}))?;
        namespaces.create(&PostParams::default(), &namespace).await?;
        let accounts: Api<ServiceAccount> = Api::namespaced(self.client.clone(), &name);
        let account = async || Ok(accounts.get_opt("default").await?.map(drop));
        crate::testbed::wait::until("the namespace's service account", account).await?;
        Ok(name)
    }
}

/// Runs a command beside a control plane that its tests share, and returns its exit status. SIGTERM goes to the command; the
/// control plane ends after the command.
///
/// # Errors
/// The control plane or the command does not start.
pub async fn run_beside(command: &[OsString]) -> Result<u8> {
    let (program, arguments) =
        command.split_first().context("write fpga-with-control-plane COMMAND ARGUMENT ...")?;
    ControlPlane::make_seed().await?;
    let plane = ControlPlane::start(&[]).await?;
    let mut terminate = signal(SignalKind::terminate())?;
    // A terminal sends SIGINT to the command as well.
    let mut interrupt = signal(SignalKind::interrupt())?;
    let mut child = tokio::process::Command::new(program)
        .args(arguments)
        .env(VARIABLE, plane.run_dir().path())
        .spawn()
        .with_context(|| format!("can't start {}", program.display()))?;
    let status = loop {
        tokio::select! {
            status = child.wait() => break status?,
            _ = interrupt.recv() => {}
            _ = terminate.recv() => {
                if let Some(pid) = child.id().and_then(|id| i32::try_from(id).ok()) {
                    kill(Pid::from_raw(pid), Signal::SIGTERM)?;
                }
            }
        }
    };
    plane.check_running()?;
    plane.stop().await;
    // As shells do.
    let code = status.code().or_else(|| status.signal().map(|signal| 128 + signal));
    Ok(code.and_then(|code| u8::try_from(code).ok()).unwrap_or(u8::MAX))
}
