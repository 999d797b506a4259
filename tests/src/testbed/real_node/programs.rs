//! Paths of the programs of a real node, and what a machine lacks that can't have nodes.

use crate::testbed::programs::repository;
use anyhow::{Context as _, Result, bail};
use std::path::{Path, PathBuf};

/// Folders where distributions put the CNI plugins.
const CNI_FOLDERS: [&str; 3] = ["/usr/lib/cni", "/opt/cni/bin", "/usr/libexec/cni"];
/// Folders of system programs that may be missing in `PATH`.
const SYSTEM_FOLDERS: &str = "/usr/local/sbin:/usr/sbin:/sbin";

/// The programs that `hack/node.sh` built or installed.
#[derive(Debug)]
pub struct Programs {
    dir: PathBuf,
    cni: PathBuf,
}

impl Programs {
    /// Finds the programs.
    ///
    /// # Errors
    /// This machine can't have nodes; the error names all that is missing.
    pub fn find() -> Result<Self> {
        let dir = repository().join("build/node/bin");
        let mut missing = Vec::new();
        if !nix::unistd::geteuid().is_root() {
            missing.push("root: run as root, or in a virtual machine".to_owned());
        }
        for name in ["kubelet", "containerd", "ctr", "containerd-shim-runc-v2"] {
            if !dir.join(name).exists() {
                missing.push(format!("{}: run `make node`", dir.join(name).display()));
            }
        }
        for name in ["runc", "nsenter", "unshare", "mount"] {
            if which(name).is_none() {
                missing
                    .push(format!("{name}: run `make node`, or install it by your distribution's packages"));
            }
        }
        let cni = CNI_FOLDERS.iter().map(Path::new).find(|folder| folder.join("ptp").exists());
        if cni.is_none() {
            missing.push("the CNI plugin ptp: run `make node`, or install the CNI plugins".to_owned());
        }
        match cni {
            Some(cni) if missing.is_empty() => Ok(Self { dir, cni: cni.to_owned() }),
            _ => bail!("this machine can't have real nodes; missing:\n  {}", missing.join("\n  ")),
        }
    }

    pub fn kubelet(&self) -> PathBuf {
        self.dir.join("kubelet")
    }

    pub fn containerd(&self) -> PathBuf {
        self.dir.join("containerd")
    }

    pub fn ctr(&self) -> PathBuf {
        self.dir.join("ctr")
    }

    /// The folder with the CNI plugins.
    pub fn cni(&self) -> &Path {
        &self.cni
    }

    /// The `PATH` with which containerd finds its shim and runc, and the kubelet its tools.
    ///
    /// # Errors
    /// The path of the repository is not UTF-8.
    pub fn path(&self) -> Result<String> {
        let dir = self.dir.to_str().context("the path of the repository is not UTF-8")?;
        Ok(format!("{dir}:{}:{SYSTEM_FOLDERS}", std::env::var("PATH").unwrap_or_default()))
    }
}

/// The path of a program in `PATH` or the system's folders.
fn which(name: &str) -> Option<PathBuf> {
    let path = format!("{}:{SYSTEM_FOLDERS}", std::env::var("PATH").unwrap_or_default());
    std::env::split_paths(&path).map(|folder| folder.join(name)).find(|path| path.exists())
}
