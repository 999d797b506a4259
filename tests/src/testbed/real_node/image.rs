//! Container images from files, without a registry and without a container builder: an archive in the format of
//! `docker save`, which `ctr images import` reads.

use anyhow::{Context as _, Result, ensure};
use serde_json::json;
use sha2::{Digest as _, Sha256};
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs::File;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The user of images: no user of a system, and not root.
const USER: &str = "65532:65532";

/// An image with one layer.
#[derive(Debug, Clone)]
pub struct Image {
    name: String,
    entrypoint: String,
    /// Files of this machine by their paths in the image.
    files: BTreeMap<PathBuf, PathBuf>,
}

impl Image {
    /// An empty image called `name`, such as `localhost/pause:1`, that runs `entrypoint`.
    #[must_use]
    pub fn new(name: &str, entrypoint: &str) -> Self {
        Self { name: name.to_owned(), entrypoint: entrypoint.to_owned(), files: BTreeMap::new() }
    }

    /// Name of the image.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Adds a file of this machine.
    #[must_use]
    pub fn file(mut self, path: impl Into<PathBuf>, of_this_machine: impl Into<PathBuf>) -> Self {
        self.files.insert(path.into(), of_this_machine.into());
        self
    }

    /// Adds the shared libraries that a program or library of this machine needs, at their paths.
    ///
    /// # Errors
    /// A library is missing.
    pub fn libraries_of(mut self, program: &Path) -> Result<Self> {
        let output = Command::new("ldd").arg(program).output().context("can't start ldd")?;
        let text = String::from_utf8_lossy(&output.stdout);
        ensure!(output.status.success(), "ldd {} failed: {text}", program.display());
        ensure!(!text.contains("not found"), "{} lacks a library:\n{text}", program.display());
        for path in text.split_whitespace().filter(|word| word.starts_with('/')) {
            self.files.insert(path.into(), path.into());
        }
        Ok(self)
    }

    /// Writes the image as an archive.
    ///
    /// # Errors
    /// A file can't be read, or the archive can't be written.
    pub fn write(&self, archive: &Path) -> Result<()> {
        let layer = self.layer()?;
        let config = json!({
            "architecture": "amd64",
            "os": "linux",
            "config": {"Entrypoint": [self.entrypoint], "User": USER, "WorkingDir": "/"},
            "rootfs": {"type": "layers", "diff_ids": [format!("sha256:{}", hex_sha256(&layer))]},
        })
        .to_string();
        let manifest = json!([{"Config": "config.json", "RepoTags": [self.name], "Layers": ["layer.tar"]}]);
        let mut tar = tar::Builder::new(File::create(archive).context("can't make the archive")?);
        append(&mut tar, Path::new("manifest.json"), manifest.to_string().as_bytes(), 0o644)?;
        append(&mut tar, Path::new("config.json"), config.as_bytes(), 0o644)?;
        append(&mut tar, Path::new("layer.tar"), &layer, 0o644)?;
        tar.into_inner().context("can't end the archive")?.flush().context("can't write the archive")
    }

    fn layer(&self) -> Result<Vec<u8>> {
        let mut tar = tar::Builder::new(Vec::new());
        for (path, of_this_machine) in &self.files {
            let bytes = std::fs::read(of_this_machine)
                .with_context(|| format!("can't read {}", of_this_machine.display()))?;
            append(&mut tar, path.strip_prefix("/").unwrap_or(path), &bytes, 0o755)?;
        }
        tar.into_inner().context("can't end the layer")
    }
}

fn append<W: std::io::Write>(tar: &mut tar::Builder<W>, path: &Path, bytes: &[u8], mode: u32) -> Result<()> {
    let mut header = tar::Header::new_gnu();
    header.set_size(bytes.len() as u64);
    header.set_mode(mode);
    tar.append_data(&mut header, path, bytes).with_context(|| format!("can't add {}", path.display()))
}

fn hex_sha256(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().fold(String::new(), |mut text, byte| {
        // Writing to a string can't fail.
        let _ = write!(text, "{byte:02x}");
        text
    })
}
