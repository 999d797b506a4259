//! An image: layers of files, and what a runtime must know of them.

use crate::archive::{self, Compression, Contents, Written, sha256_of};
use crate::debian;
use crate::elf;
use crate::error::ImageError;
use crate::file_tree::{FileTree, is_elf};
use crate::sbom::{self, Materials};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// Prefix of the labels that are annotations of the manifest, too.
const OCI: &str = "org.opencontainers.image.";
/// Annotation of the manifest: the digest of the bill of materials.
const SBOM_ANNOTATION: &str = "fpga-scheduling.io/sbom";

/// The user of images: no user of a system, and not root.
const USER: &str = "65532:65532";

/// An image.
#[derive(Debug, Clone)]
pub struct Image {
    name: String,
    entrypoint: String,
    user: String,
    labels: BTreeMap<String, String>,
    /// When the image was made, in RFC 3339; empty for no time.
    created: String,
    /// Variables of the environment beside `PATH`.
    variables: BTreeMap<String, String>,
    /// From below.
    layers: Vec<FileTree>,
}

impl Image {
    /// An image called `name`, such as `localhost/pause:1`, that runs `entrypoint` as a user who is not root.
    #[must_use]
    pub fn new(name: &str, entrypoint: &str) -> Self {
        Self {
            name: name.to_owned(),
            entrypoint: entrypoint.to_owned(),
            user: USER.to_owned(),
            labels: BTreeMap::new(),
            created: String::new(),
            variables: BTreeMap::new(),
            layers: Vec::new(),
        }
    }

    /// Name of the image, as pods have it.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Gives the image another name, for one that is made of another.
    #[must_use]
    pub fn renamed(mut self, name: &str) -> Self {
        name.clone_into(&mut self.name);
        self
    }

    /// Sets a variable of the environment of the image's program.
    #[must_use]
    pub fn variable(mut self, name: &str, value: &str) -> Self {
        self.variables.insert(name.to_owned(), value.to_owned());
        self
    }

    /// Sets the user, such as `65532:65532`.
    #[must_use]
    pub fn user(mut self, user: &str) -> Self {
        user.clone_into(&mut self.user);
        self
    }

    /// Adds a label, such as `org.opencontainers.image.version`.
    #[must_use]
    pub fn label(mut self, key: &str, value: &str) -> Self {
        self.labels.insert(key.to_owned(), value.to_owned());
        self
    }

    /// Sets the time at which the image was made, as `2026-01-31T12:00:00Z`: that of its sources, if the same sources are
    /// to give the same image.
    #[must_use]
    pub fn created(mut self, time: &str) -> Self {
        time.clone_into(&mut self.created);
        self
    }

    /// Adds a layer above the others. What changes seldom lies below, since nodes keep the layers that they have.
    #[must_use]
    pub fn layer(mut self, layer: FileTree) -> Self {
        self.layers.push(layer);
        self
    }

    /// Adds a file of this machine to the topmost layer.
    #[must_use]
    pub fn file(mut self, path: impl AsRef<Path>, of_this_machine: impl Into<PathBuf>) -> Self {
        let top = self.layers.pop().unwrap_or_default();
        self.layer(top.file(path, of_this_machine))
    }

    /// Adds the shared libraries that a program or library of this machine needs to the topmost layer.
    ///
    /// # Errors
    /// The file can't be read, or a library is missing.
    pub fn libraries_of(mut self, program: &Path) -> Result<Self, ImageError> {
        let top = self.layers.pop().unwrap_or_default();
        Ok(self.layer(top.libraries_of(program)?))
    }

    /// Writes the image as an archive in the layout of the OCI, with the file that `docker load` reads besides.
    ///
    /// # Errors
    /// A file can't be read, the entrypoint is missing, or the archive can't be written.
    pub fn write(&self, archive: &Path, compression: Compression) -> Result<Written, ImageError> {
        let program = self.layers.iter().rev().find_map(|layer| layer.source(Path::new(&self.entrypoint)));
        let program = program.ok_or_else(|| ImageError::NoEntrypoint {
            image: self.name.clone(),
            entrypoint: self.entrypoint.clone(),
        })?;
        let contents = Contents {
            name: qualified(&self.name),
            architecture: elf::architecture(program)?,
            config: self.config(),
            created: &self.created,
            annotations: self.annotations()?,
            layers: &self.layers,
        };
        archive::write(&contents, archive, compression)
    }

    /// The bill of materials, CycloneDX in JSON. The manifest has its digest.
    ///
    /// # Errors
    /// A file can't be read.
    pub fn bill(&self) -> Result<String, ImageError> {
        let mut materials = Materials::default();
        for layer in &self.layers {
            materials.packages.extend(layer.packages().iter().cloned());
            // dpkg's list names the packages of Debian's files.
            let ours = layer.sources().filter(|_| layer.packages().is_empty());
            for path in ours {
                if is_elf(path)? {
                    materials.crates.extend(elf::crates(path)?.unwrap_or_default());
                }
            }
        }
        materials.distribution = debian::distribution().filter(|_| !materials.packages.is_empty());
        let bill = sbom::bill(&self.name, &self.created, &materials);
        Ok(format!("{bill:#}\n"))
    }

    fn annotations(&self) -> Result<BTreeMap<String, String>, ImageError> {
        let labels = self.labels.iter().filter(|(key, _)| key.starts_with(OCI));
        let mut annotations: BTreeMap<_, _> =
            labels.map(|(key, value)| (key.clone(), value.clone())).collect();
        if !self.created.is_empty() {
            annotations.insert(format!("{OCI}created"), self.created.clone());
        }
        annotations.insert(SBOM_ANNOTATION.to_owned(), sha256_of(self.bill()?.as_bytes()));
        Ok(annotations)
    }

    fn config(&self) -> Value {
        let mut variables = vec!["PATH=/usr/local/bin:/usr/bin:/bin".to_owned()];
        variables.extend(self.variables.iter().map(|(name, value)| format!("{name}={value}")));
        json!({
            "Entrypoint": [self.entrypoint],
            "User": self.user,
            "WorkingDir": "/",
            "Env": variables,
            "Labels": self.labels,
        })
    }
}

/// The whole name of an image: kubelets and containerd look for `x/y:1` under `docker.io/x/y:1`.
fn qualified(name: &str) -> String {
    match name.split_once('/') {
        Some((host, _)) if host.contains(['.', ':']) || host == "localhost" => name.to_owned(),
        Some(_) => format!("docker.io/{name}"),
        None => format!("docker.io/library/{name}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_without_a_registry_is_one_of_docker_hub() {
        assert_eq!(qualified("localhost/pause:1"), "localhost/pause:1");
        assert_eq!(qualified("registry.k8s.io/kube-scheduler:v1"), "registry.k8s.io/kube-scheduler:v1");
        assert_eq!(qualified("kube-fpga/fpga-collector:1"), "docker.io/kube-fpga/fpga-collector:1");
        assert_eq!(qualified("sobel:1"), "docker.io/library/sobel:1");
    }
}
