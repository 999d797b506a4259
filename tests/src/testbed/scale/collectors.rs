//! Real collectors for nodes that exist as objects only: one process each, which gets events over HTTP as from a
//! device runtime.

use super::ScaleBed;
use super::nodes::{VENDOR, name};
use crate::testbed::http_client::HttpClient;
use crate::testbed::identity::Identity;
use crate::testbed::process::{Process, ProcessSpec};
use crate::testbed::programs;
use anyhow::{Context as _, Result, ensure};
use fpga_core::bitstream::Digest;
pub use fpga_core::device::Health;
use fpga_core::device::{DeviceStatus, LoadedBitstream};
use fpga_core::node_state::PluginReport;
use fpga_test_kit::patience;
use futures::{StreamExt as _, TryStreamExt as _};
use k8s_openapi::jiff::Timestamp;
use serde_json::json;
use std::net::Ipv4Addr;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

const PORT: u16 = 9460;
/// Number of addresses that differ only in their last byte.
const PER_NETWORK: usize = 250;
/// Number of processes that start at the same time.
const AT_ONCE: usize = 16;

/// Collectors, one for each node; killed when dropped.
#[derive(Debug)]
pub struct Collectors {
    /// The collectors in the order of the nodes.
    pub all: Vec<Collector>,
    /// The checkpoints, in memory where possible: a thousand nodes would wait for each other's writes to one disk.
    _checkpoints: tempfile::TempDir,
}

/// A collector and its node.
#[derive(Debug)]
pub struct Collector {
    /// Name of the node.
    pub node: String,
    url: String,
    process: Process,
    http: HttpClient,
    tasks: AtomicU64,
}

impl Collectors {
    /// Starts the collectors of the first `count` nodes. If there are `extenders`, the collectors stream to them.
    ///
    /// # Errors
    /// A collector does not become ready.
    pub async fn start(bed: &ScaleBed, count: usize, extenders: &[String], args: &[&str]) -> Result<Self> {
        let memory = Path::new("/dev/shm");
        let root = if memory.is_dir() { memory } else { bed.plane().run_dir().path() };
        let checkpoints = tempfile::Builder::new()
            .prefix("fpga-checkpoints-")
            .tempdir_in(root)
            .context("can't make a folder for checkpoints")?;
        let mut streams = Vec::new();
        if !extenders.is_empty() {
            let token = bed.token_file().display().to_string();
            streams =
                vec!["--extenders".to_owned(), extenders.join(","), "--stream-token-file".to_owned(), token];
            streams.push("--stream-without-tls".to_owned());
        }
        let http = HttpClient::new(patience());
        let start = |index: usize| {
            let (http, streams, checkpoints) = (http.clone(), &streams, checkpoints.path());
            async move {
                let node = name(index);
                let address = format!("{}:{PORT}", address(bed, index));
                let log = bed.plane().run_dir().log(&format!("collector-{node}"));
                let spec =
                    ProcessSpec::new(format!("collector of {node}"), programs::built("fpga-collector")?, log)
                        .args(programs::collector_args(&node, &address, &checkpoints.join(&node)))
                        // Boards report once. The collector's own tests have boards that fall silent.
                        .args(["--device-timeout", "1h"])
                        .arg("--kubeconfig")
                        .arg(bed.plane().kubeconfig(&Identity::Admin)?)
                        .args(streams)
                        .args(args);
                let process = Process::start(&spec)?;
                let url = format!("http://{address}");
                process.wait_ready(&http, &format!("{url}/readyz"), patience()).await?;
                anyhow::Ok(Collector { node, url, process, http, tasks: AtomicU64::new(0) })
            }
        };
        let all = futures::stream::iter((0..count).map(start)).buffered(AT_ONCE).try_collect().await?;
        Ok(Self { all, _checkpoints: checkpoints })
    }

    /// Reports a healthy board to each collector.
    ///
    /// # Errors
    /// A collector refuses it.
    pub async fn have_boards(&self) -> Result<()> {
        futures::stream::iter(self.all.iter().map(Ok))
            .try_for_each_concurrent(AT_ONCE, |collector| collector.board("a10", Health::Healthy))
            .await
    }

    /// Kills all collectors at once.
    pub async fn kill(self) {
        futures::future::join_all(self.all.iter().map(|collector| collector.process.kill())).await;
    }
}

fn address(bed: &ScaleBed, index: usize) -> Ipv4Addr {
    let [a, b, ..] = bed.plane().network().control_plane().octets();
    // With more than about 60,000 nodes two collectors would get the same address, and the second one would not
    // start.
    let part = |number: usize| u8::try_from(number).unwrap_or(u8::MAX);
    Ipv4Addr::new(a, b, part(1 + index / PER_NETWORK), part(1 + index % PER_NETWORK))
}

impl Collector {
    /// Reports this board as the only device of the node.
    ///
    /// # Errors
    /// The collector refuses it.
    pub async fn board(&self, board: &str, health: Health) -> Result<()> {
        self.board_with(board, health, &[]).await
    }

    /// Like [`Self::board`], with the names of the bitstreams in its slots.
    ///
    /// # Errors
    /// The collector refuses it.
    pub async fn board_with(&self, board: &str, health: Health, loaded: &[&str]) -> Result<()> {
        self.device("dm0", board, health, loaded).await
    }

    /// Reports a device of the node with this id.
    ///
    /// # Errors
    /// The collector refuses it.
    pub async fn device(&self, id: &str, board: &str, health: Health, loaded: &[&str]) -> Result<()> {
        // All bitstreams have the same digest, because no test asks by digest.
        let bitstream = |name: &&str| {
            anyhow::Ok(LoadedBitstream { id: name.parse()?, digest: Digest::from_bytes([7; 32]) })
        };
        let device = DeviceStatus {
            board: board.to_owned(),
            loaded: loaded.iter().map(bitstream).collect::<Result<_>>()?,
            health,
            ..DeviceStatus::new(id, VENDOR, 4)
        };
        let device = serde_json::to_vec(&device)?;
        let answer = self.http.put(&format!("{}/v1/devices/{id}", self.url), device).await?;
        ensure!(answer.status.is_success(), "{} refused its board: {}", self.node, answer.text());
        Ok(())
    }

    /// Reports a node plugin with these boards.
    ///
    /// # Errors
    /// The collector refuses it.
    pub async fn plugin(&self, report: &PluginReport) -> Result<()> {
        let answer = self.http.put(&format!("{}/v1/plugin", self.url), serde_json::to_vec(report)?).await?;
        ensure!(answer.status.is_success(), "{} refused a node plugin: {}", self.node, answer.text());
        Ok(())
    }

    /// Reports a task that ends now and held a slot for `duration`.
    ///
    /// # Errors
    /// The collector refuses it.
    pub async fn end_task(&self, duration: Duration) -> Result<()> {
        let millis = u64::try_from(duration.as_millis()).unwrap_or(u64::MAX);
        let event = json!({
            "timestamp_ms": Timestamp::now().as_millisecond(), "duration_ms": millis, "reconfiguration_ms": 0,
            "bitstream_identifier": "sobel", "device": "dm0",
            "reporter": 1, "seq": self.tasks.fetch_add(1, Ordering::Relaxed) + 1,
        });
        let answer = self.http.post(&format!("{}/v1/events", self.url), event.to_string()).await?;
        ensure!(answer.status.is_success(), "{} refused an event: {}", self.node, answer.text());
        Ok(())
    }
}
