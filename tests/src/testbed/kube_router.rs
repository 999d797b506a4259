//! kube-router, which enforces NetworkPolicies, and connections out of pods, by which a test sees whom they let in.
//! `hack/kube-router.sh` builds it.

use super::control_plane::ControlPlane;
use super::identity::Identity;
use super::process::{Process, ProcessSpec};
use super::programs::repository;
use super::wait;
use anyhow::{Context as _, Result, ensure};
use k8s_openapi::api::core::v1::Pod;
use nix::sched::{CloneFlags, setns};
use std::fs::File;
use std::net::{IpAddr, SocketAddr, TcpStream};
use std::path::PathBuf;
use std::time::Duration;

/// Longest time that a connection may take that nobody keeps out.
const CONNECT: Duration = Duration::from_secs(5);
/// The interface of the default route in a network of a test's own.
const OWN_INTERFACE: &str = "nowhere";
/// The chain with the rules for packets that come for this machine, which kube-router makes first.
const CHAIN: &str = "KUBE-ROUTER-INPUT";

/// A running kube-router. Its rules are those of the network namespace, and go with it.
#[derive(Debug)]
pub struct KubeRouter {
    process: Process,
}

impl KubeRouter {
    /// Starts kube-router for the pods of a node, and waits until it has made rules.
    ///
    /// # Errors
    /// This program is in the network namespace of the machine, whose rules are not a test's to change; or kube-router
    /// is missing, or ends.
    pub async fn start(plane: &ControlPlane, node: &str) -> Result<Self> {
        ensure_own_network()?;
        let program = repository().join("build/kube-router/kube-router");
        ensure!(program.exists(), "{} is missing. Run `make kube-router` (once)", program.display());
        let log = plane.run_dir().path().join("logs/kube-router.log");
        let spec = ProcessSpec::new("kube-router", program, log)
            .args(["--run-firewall=true", "--run-router=false", "--run-service-proxy=false"])
            .args(["--run-loadbalancer=false", "--health-port=0", "--metrics-port=0"])
            .arg(format!("--service-cluster-ip-range={}", plane.network().service_subnet()))
            .arg(format!("--hostname-override={node}"))
            .arg("--kubeconfig")
            .arg(plane.kubeconfig(&Identity::Admin)?);
        let process = Process::start(&spec)?;
        wait::until("kube-router's first rules", async || {
            process.check_running()?;
            let rules = tokio::process::Command::new("iptables-save").output().await?;
            Ok(String::from_utf8_lossy(&rules.stdout).contains(CHAIN).then_some(()))
        })
        .await?;
        Ok(Self { process })
    }

    /// Fails with the end of the log if kube-router has ended.
    ///
    /// # Errors
    /// kube-router has ended.
    pub fn check_running(&self) -> Result<()> {
        self.process.check_running()
    }
}

/// Fails where rules for packets would be those of a machine in use: this is no network that `hack/own-network.sh` made.
fn ensure_own_network() -> Result<()> {
    let routes = std::fs::read_to_string("/proc/self/net/route").context("can't read the routes")?;
    let is_own = routes.lines().any(|route| {
        let mut columns = route.split_whitespace();
        columns.next() == Some(OWN_INTERFACE) && columns.next() == Some("00000000")
    });
    ensure!(is_own, "a test of NetworkPolicies needs a network of its own: make test-network-policies");
    Ok(())
}

/// The network of a pod, as its processes have it.
#[derive(Debug)]
pub struct PodNetwork {
    namespace: File,
    address: IpAddr,
}

impl PodNetwork {
    /// The network of a running pod of this machine.
    ///
    /// # Errors
    /// The pod has no address, or no process.
    pub fn of(pod: &Pod) -> Result<Self> {
        let address = pod.status.as_ref().and_then(|status| status.pod_ip.as_ref());
        let address = address.context("the pod has no address")?.parse().context("the pod's address")?;
        let uid = pod.metadata.uid.as_ref().context("the pod has no id")?;
        let process = process_in(&format!("/pod{uid}/")).context("no process is in the pod's cgroup")?;
        let namespace = File::open(process.join("ns/net")).context("can't open the pod's network")?;
        Ok(Self { namespace, address })
    }

    /// The pod's address.
    #[must_use]
    pub fn address(&self) -> IpAddr {
        self.address
    }

    /// Whether a connection from the pod to a listener is made. A policy refuses it, or lets nothing come back.
    ///
    /// # Errors
    /// The pod's network can't be entered.
    pub async fn reaches(&self, to: SocketAddr) -> Result<bool> {
        let namespace = self.namespace.try_clone()?;
        // Only this thread enters the namespace, and it ends with the answer.
        let (answer, answered) = tokio::sync::oneshot::channel();
        std::thread::Builder::new().name("in-a-pod".to_owned()).spawn(move || {
            let connect = || -> Result<bool> {
                setns(namespace, CloneFlags::CLONE_NEWNET).context("can't enter the pod's network")?;
                Ok(TcpStream::connect_timeout(&to, CONNECT).is_ok())
            };
            // Nobody waits any more where the test has failed.
            let _ = answer.send(connect());
        })?;
        answered.await.context("the thread in the pod ended")?
    }
}

/// A process whose cgroup has this in its path.
fn process_in(cgroup: &str) -> Option<PathBuf> {
    let processes = std::fs::read_dir("/proc").ok()?.flatten().map(|entry| entry.path());
    let is_in = |process: &PathBuf| {
        std::fs::read_to_string(process.join("cgroup")).is_ok_and(|cgroups| cgroups.contains(cgroup))
    };
    processes.into_iter().find(is_in)
}
