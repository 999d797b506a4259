//! etcd's data as an API server and its controllers leave it at their first start. A control plane that starts from it writes
//! none of this again: it takes half of the processor time.

use super::programs::{etcd_data, etcd_url};
use super::{ControlPlane, STOP};
use crate::testbed::http_client::HttpClient;
use crate::testbed::run_dir::RunDir;
use crate::testbed::wait;
use anyhow::{Context as _, Result, ensure};
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use fpga_test_kit::patience;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::Api;
use serde_json::json;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

/// Prefixes of the keys that depend on a control plane's addresses and certificates, or on the time. Each control plane
/// writes its own.
const OWN: [&str; 7] =
    ["configmaps", "events", "ipaddresses", "leases", "ranges", "servicecidrs", "services"];
/// etcd reads its log in pages of this size.
const PAGE: usize = 4096;

/// The folder with etcd's data.
#[derive(Debug)]
pub struct Seed {
    folder: PathBuf,
    /// A program of the control plane that made the data. The data of older programs is not used.
    program: PathBuf,
}

impl Seed {
    /// The seed of the control plane with this folder of programs. The folder's name changes with the arguments of the
    /// programs that have an effect on the data.
    pub fn beside(programs: &Path) -> Self {
        Self { folder: programs.with_file_name("seed-1"), program: programs.join("kube-apiserver") }
    }

    fn is_there(&self) -> bool {
        let modified = |path: &Path| std::fs::metadata(path).and_then(|file| file.modified()).ok();
        modified(&self.folder) > modified(&self.program)
    }

    /// Copies the data into a new run's folder, if there is any.
    pub fn copy_to(&self, run_dir: &RunDir) -> Result<()> {
        if !self.is_there() {
            return Ok(());
        }
        copy_data(&self.folder, &etcd_data(run_dir)).context("can't copy the control plane's first data")
    }

    /// Takes over the data of an etcd that has ended, unless another process has done so.
    fn keep(&self, data: &Path) -> Result<()> {
        let beside = self.folder.parent().context("the seed has no folder")?;
        let new = tempfile::Builder::new().prefix("seed-").tempdir_in(beside)?;
        copy_data(data, new.path())?;
        // There is none, or it is one of former programs.
        let _ = std::fs::remove_dir_all(&self.folder);
        match std::fs::rename(new.path(), &self.folder) {
            Err(error) if error.kind() == ErrorKind::DirectoryNotEmpty => Ok(()),
            result => Ok(result?),
        }
    }
}

impl ControlPlane {
    /// Makes later control planes start faster: keeps the data of one that has just started for the first time. Does nothing
    /// where this was done before.
    ///
    /// # Errors
    /// The control plane does not start or end, or its data can't be kept.
    pub async fn make_seed() -> Result<()> {
        let seed = Seed::beside(super::programs::Programs::find()?.folder());
        if seed.is_there() {
            return Ok(());
        }
        let plane = Self::start(&[]).await?;
        // Controllers write it last into a namespace.
        for namespace in ["default", "kube-system", "kube-public", "kube-node-lease"] {
            let maps: Api<ConfigMap> = Api::namespaced(plane.client.clone(), namespace);
            let furnished = async || Ok(maps.get_opt("kube-root-ca.crt").await?.map(drop));
            wait::until(&format!("the authority in {namespace}"), furnished).await?;
        }
        let (Some(manager), Some(server)) = (&plane.controller_manager, &plane.api_server) else {
            return Ok(());
        };
        manager.stop(STOP).await;
        server.process.stop(STOP).await;
        let url = format!("{}/v3/kv/deleterange", etcd_url(&plane.network));
        for kind in OWN {
            // The key after all that begin with the prefix: `0` follows `/`.
            let [key, end] = ["/", "0"].map(|end| BASE64_STANDARD.encode(format!("/registry/{kind}{end}")));
            let request = json!({ "key": key, "range_end": end }).to_string();
            let answer = HttpClient::new(patience()).post(&url, request).await?;
            ensure!(answer.status.is_success(), "etcd deletes no {kind}: {}", answer.text());
        }
        server.etcd.stop(STOP).await;
        seed.keep(&etcd_data(&plane.run_dir)).context("can't keep the control plane's first data")
    }
}

/// Copies the files of an etcd that has ended, without the space that etcd has reserved in its log.
fn copy_data(from: &Path, to: &Path) -> std::io::Result<()> {
    for folder in ["member/snap", "member/wal"] {
        std::fs::create_dir_all(to.join(folder))?;
        for entry in std::fs::read_dir(from.join(folder))? {
            let path = entry?.path();
            let Some(name) = path.file_name() else { continue };
            if path.extension().is_some_and(|extension| extension == "tmp") {
                continue;
            }
            let mut bytes = std::fs::read(&path)?;
            if path.extension().is_some_and(|extension| extension == "wal") {
                let used = bytes.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1);
                bytes.truncate(used.next_multiple_of(PAGE));
            }
            std::fs::write(to.join(folder).join(name), bytes)?;
        }
    }
    Ok(())
}
