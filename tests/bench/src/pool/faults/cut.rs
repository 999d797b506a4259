//! Connections that are cut, in a network of the run's own.

use anyhow::{Context as _, Result, bail, ensure};
use std::ffi::OsString;
use std::net::SocketAddr;
use std::process::Stdio;
use std::time::Duration;
use tokio::process::Command;

/// Says that the program is in a network of its own: nobody else's connections can be cut there.
const OWN_NETWORK: &str = "FPGA_BENCH_OWN_NETWORK";

/// Where the program runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Network {
    /// In the network of its caller.
    OfCaller,
    /// In a network namespace of its own.
    Own,
}

/// Says where the program runs, and brings the loopback interface of its own network up, where packets can be dropped.
pub(super) fn enter_own_network() -> Result<Network> {
    if std::env::var_os(OWN_NETWORK).is_none() {
        return Ok(Network::OfCaller);
    }
    let status = std::process::Command::new("ip").args(["link", "set", "lo", "up"]).status();
    ensure!(
        status.context("`ip` of iproute2 is missing")?.success(),
        "the loopback interface can't be set up"
    );
    let mut iptables = std::process::Command::new("iptables");
    let status = iptables.args(["-w", "-S", "INPUT"]).stdout(Stdio::null()).status();
    ensure!(
        status.context("`iptables` is missing; on Debian: apt-get install iptables")?.success(),
        "iptables can't read the rules of the run's own network"
    );
    Ok(Network::Own)
}

/// Runs this program again, with its arguments, in a network of its own.
pub(super) async fn run_again_in_own_network() -> Result<()> {
    let own = std::env::current_exe().context("this program's own path is unknown")?;
    let args: Vec<OsString> = std::env::args_os().skip(1).collect();
    // A user who is not root gets a namespace of users, too, in which this program may change its network.
    let as_user = if nix::unistd::geteuid().is_root() { &[][..] } else { &["--user", "--map-root-user"] };
    let mut command = Command::new("unshare");
    command.args(as_user).args(["--net", "--"]).arg(own).args(args).env(OWN_NETWORK, "1");
    let status = command.status().await.context("`unshare` of util-linux is missing")?;
    if !status.success() {
        bail!("the run in a network of its own failed ({status})");
    }
    Ok(())
}

/// A cut of all connections of an address: no packet reaches it, and none comes from it.
#[derive(Debug)]
pub(super) struct Cut(SocketAddr);

impl Cut {
    pub fn of(address: SocketAddr) -> Self {
        Self(address)
    }

    /// Cuts for a while.
    pub async fn lasts(&self, time: Duration) -> Result<()> {
        self.change("-I").await?;
        tokio::time::sleep(time).await;
        self.change("-D").await
    }

    async fn change(&self, how: &str) -> Result<()> {
        let (address, port) = (self.0.ip().to_string(), self.0.port().to_string());
        for (host, of_port) in [("-d", "--dport"), ("-s", "--sport")] {
            let rule = [how, "INPUT", "-p", "tcp", host, &address, of_port, &port, "-j", "DROP"];
            let status = Command::new("iptables").arg("-w").args(rule).status().await;
            ensure!(status.context("`iptables` can't be started")?.success(), "iptables {rule:?} failed");
        }
        Ok(())
    }
}
