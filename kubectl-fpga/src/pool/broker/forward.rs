//! A port of a pod, forwarded by `kubectl`, which starts this program.

use crate::connection::ConnectArgs;
use anyhow::{Context as _, Result, bail};
use http::Uri;
use std::process::Stdio;
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, BufReader, Take};
use tokio::process::{Child, ChildStdout, Command};
use tokio::time::timeout;

/// The broker's port.
const PORT: u16 = 9480;
/// Longest line that is read of what `kubectl` says.
const MAX_LINE_BYTES: u64 = 4096;

/// A forwarded port. Dropping it closes the port.
pub(super) struct Forward {
    port: u16,
    /// kubectl writes a line for each connection, and would end if nobody could read it.
    _said: BufReader<Take<ChildStdout>>,
    _kubectl: Child,
}

impl Forward {
    /// Forwards a free port of this machine to the broker's port of a pod.
    ///
    /// # Errors
    /// There is no `kubectl`, or the port is not forwarded in time.
    pub(super) async fn start(connect: &ConnectArgs, namespace: &str, pod: &str) -> Result<Self> {
        let mut command = Command::new("kubectl");
        if let Some(kubeconfig) = &connect.kubeconfig {
            command.arg("--kubeconfig").arg(kubeconfig);
        }
        if let Some(context) = &connect.context {
            command.arg("--context").arg(context);
        }
        command
            .args(["--namespace", namespace, "port-forward", "--address", "127.0.0.1"])
            .arg(format!("pod/{pod}"))
            .arg(format!(":{PORT}"))
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .kill_on_drop(true);
        let started = command.spawn();
        let mut kubectl = started.context(
            "kubectl, which forwards a port of the broker, can't be started; or give --broker URL",
        )?;
        let out = kubectl.stdout.take().context("kubectl has no output")?;
        let mut line = String::new();
        let mut said = BufReader::new(out.take(MAX_LINE_BYTES));
        timeout(connect.time(), said.read_line(&mut line))
            .await
            .context("kubectl port-forward says nothing")??;
        let Some(port) = port(&line) else {
            let mut why = String::new();
            if let Some(error) = kubectl.stderr.take() {
                // What was read says enough.
                let _ = timeout(connect.time(), error.take(MAX_LINE_BYTES).read_to_string(&mut why)).await;
            }
            bail!(
                "kubectl port-forward pod/{pod} failed: {}. It needs the right to create pods/portforward in {namespace}; \
                 or give --broker URL",
                why.trim()
            );
        };
        Ok(Self { port, _said: said, _kubectl: kubectl })
    }

    /// The address of the forwarded port.
    ///
    /// # Errors
    /// Never for a port.
    pub(super) fn url(&self) -> Result<Uri> {
        Ok(format!("https://127.0.0.1:{}", self.port).parse()?)
    }
}

/// The port in `Forwarding from 127.0.0.1:PORT -> 9480`.
fn port(line: &str) -> Option<u16> {
    let rest = line.split_once("127.0.0.1:")?.1;
    rest.split_whitespace().next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_port_is_the_one_that_kubectl_says() {
        assert_eq!(port("Forwarding from 127.0.0.1:34567 -> 9480\n"), Some(34567));
        assert_eq!(port(""), None);
        assert_eq!(port("error: unable to forward port\n"), None);
    }
}
