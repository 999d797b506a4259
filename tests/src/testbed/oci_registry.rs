//! A real registry of OCI artifacts (Distribution) on an address of the test bed, with its data in a folder. A test can
//! kill it and start it again.

use super::network::Network;
use super::process::{Process, ProcessSpec};
use super::programs::repository;
use super::wait;
use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};
use std::net::{Ipv4Addr, TcpStream};
use std::path::{Path, PathBuf};

/// Port of the registry.
const PORT: u16 = 5000;

/// A registry.
#[derive(Debug)]
pub struct OciRegistry {
    folder: PathBuf,
    host: Ipv4Addr,
    settings: Value,
    process: Option<Process>,
}

impl OciRegistry {
    /// Starts a registry on the address of the control plane of `network`, with its files in `folder`. `settings` go
    /// before the usual ones: without TLS, and anybody may write.
    ///
    /// # Errors
    /// The program is missing or does not listen in time.
    pub async fn start(network: &Network, folder: &Path, settings: Value) -> Result<Self> {
        Self::start_at(network.control_plane(), folder, settings).await
    }

    /// Like [`Self::start`], on this address.
    ///
    /// # Errors
    /// As [`Self::start`].
    pub async fn start_at(host: Ipv4Addr, folder: &Path, settings: Value) -> Result<Self> {
        let mut registry = Self { folder: folder.to_owned(), host, settings, process: None };
        registry.start_again().await?;
        Ok(registry)
    }

    /// Starts the registry with the data that it had.
    ///
    /// # Errors
    /// The program is missing or does not listen in time.
    pub async fn start_again(&mut self) -> Result<()> {
        let mut config = json!({
            "version": "0.1",
            "log": { "level": "warn", "accesslog": { "disabled": false } },
            "storage": { "filesystem": { "rootdirectory": self.data() } },
            "http": { "addr": self.address() },
        });
        for (key, value) in self.settings.as_object().into_iter().flatten() {
            match (config.get_mut(key).and_then(Value::as_object_mut), value.as_object()) {
                (Some(old), Some(new)) => old.extend(new.clone()),
                _ => config[key] = value.clone(),
            }
        }
        let path = self.folder.join("registry.yml");
        std::fs::write(&path, config.to_string()).context("can't write the registry's configuration")?;
        let program = repository().join("build/registry/registry");
        ensure!(program.exists(), "{} is missing. Run `make registry` (once)", program.display());
        let spec = ProcessSpec::new("registry", program, self.log()).arg("serve").arg(path);
        let process = Process::start(&spec)?;
        wait::until("the registry to listen", async || {
            process.check_running()?;
            Ok(TcpStream::connect(self.address()).is_ok().then_some(()))
        })
        .await?;
        self.process = Some(process);
        Ok(())
    }

    /// Kills the registry, as a crash would.
    pub async fn kill(&mut self) {
        if let Some(process) = self.process.take() {
            process.kill().await;
        }
    }

    /// Host and port.
    #[must_use]
    pub fn address(&self) -> String {
        format!("{}:{PORT}", self.host)
    }

    /// The folder with the registry's data.
    #[must_use]
    pub fn data(&self) -> PathBuf {
        self.folder.join("data")
    }

    /// The file with the bytes of this digest (`sha256:HEX`).
    #[must_use]
    pub fn blob(&self, digest: &str) -> PathBuf {
        let hex = digest.trim_start_matches("sha256:");
        let start = hex.get(..2).unwrap_or_default();
        self.data().join(format!("docker/registry/v2/blobs/sha256/{start}/{hex}/data"))
    }

    /// Number of requests so far whose line in the access log has this text.
    #[must_use]
    pub fn requests(&self, text: &str) -> usize {
        let log = std::fs::read_to_string(self.log()).unwrap_or_default();
        log.lines().filter(|line| line.contains("HTTP/1.1\"") && line.contains(text)).count()
    }

    fn log(&self) -> PathBuf {
        self.folder.join("registry.log")
    }
}
