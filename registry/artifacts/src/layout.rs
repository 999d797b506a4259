//! A folder that has an artifact: the image layout of the OCI, which `oras`, `skopeo` and `crane` read too.

use crate::artifact::{Artifact, MAX_BITSTREAM_BYTES};
use crate::manifest::{
    ARTIFACT_TYPE, Descriptor, InvalidManifest, MANIFEST_TYPE, MAX_CONFIG_BYTES, MAX_MANIFEST_BYTES,
    Manifest, Packed,
};
use crate::sha256::{of_bytes, of_file};
use fpga_core::bitstream::Digest;
use serde::Deserialize;
use serde_json::json;
use std::fs::File;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};

/// Longest index, in bytes.
const MAX_INDEX_BYTES: u64 = 64 * 1024;

/// A folder with one artifact.
#[derive(Debug, Clone)]
pub struct Layout {
    folder: PathBuf,
    packed: Packed,
}

/// The reason why a folder can't be read or written.
#[derive(Debug, thiserror::Error)]
pub enum LayoutError {
    /// A file can't be read or written.
    #[error("{path}: {source}")]
    Io {
        /// The file.
        path: PathBuf,
        /// The system's error.
        #[source]
        source: io::Error,
    },
    /// The folder exists.
    #[error("{0} exists; remove it, or write another folder")]
    Exists(PathBuf),
    /// The folder is not what `pack` writes.
    #[error("{folder} is no folder of `kubectl fpga bitstream pack`: {reason}")]
    Form {
        /// The folder.
        folder: PathBuf,
        /// What the folder lacks, or has in another form.
        reason: String,
    },
    /// The manifest or the configuration is wrong.
    #[error("{folder}: {source}")]
    Manifest {
        /// The folder.
        folder: PathBuf,
        /// The fault of the manifest or the configuration.
        #[source]
        source: InvalidManifest,
    },
    /// A file has other bytes than the manifest says.
    #[error(
        "{path} has {found_bytes} bytes with the digest {found}; {expected_bytes} bytes with {expected} are expected"
    )]
    Content {
        /// The file.
        path: PathBuf,
        /// Digest of the file.
        found: Digest,
        /// Length of the file.
        found_bytes: u64,
        /// Digest that it must have.
        expected: Digest,
        /// Length that it must have.
        expected_bytes: u64,
    },
}

impl Layout {
    /// Writes `packed` and its bitstreams, the files of `files` by their digests, into the new folder `folder`, which
    /// appears whole or not at all.
    ///
    /// # Errors
    /// The folder exists, a file can't be read or written, or has changed since its digest was taken.
    pub fn write(folder: &Path, packed: Packed, files: &[(Digest, PathBuf)]) -> Result<Self, LayoutError> {
        if folder.exists() {
            return Err(LayoutError::Exists(folder.to_owned()));
        }
        let parent = folder.parent().filter(|parent| *parent != Path::new("")).unwrap_or(Path::new("."));
        let partial =
            tempfile::Builder::new().prefix(".bitstream-").tempdir_in(parent).map_err(at(parent))?;
        let new = Self { folder: partial.path().to_owned(), packed };
        let blobs = partial.path().join("blobs/sha256");
        std::fs::create_dir_all(&blobs).map_err(at(&blobs))?;
        let manifest = &new.packed.manifest;
        let index = json!({
            "schemaVersion": 2,
            "mediaType": "application/vnd.oci.image.index.v1+json",
            "manifests": [{
                "mediaType": MANIFEST_TYPE,
                "digest": manifest.digest,
                "size": new.packed.manifest_bytes.len(),
                "artifactType": ARTIFACT_TYPE,
            }],
        });
        let write = |path: PathBuf, bytes: &[u8]| std::fs::write(&path, bytes).map_err(at(&path));
        write(partial.path().join("oci-layout"), br#"{"imageLayoutVersion":"1.0.0"}"#)?;
        write(partial.path().join("index.json"), index.to_string().as_bytes())?;
        write(new.blob(&manifest.digest), &new.packed.manifest_bytes)?;
        write(new.blob(&manifest.config.digest), &new.packed.config_bytes)?;
        for (digest, file) in files {
            std::fs::copy(file, new.blob(digest)).map_err(at(file))?;
        }
        new.verify()?;
        let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
        std::fs::set_permissions(partial.path(), mode).map_err(at(partial.path()))?;
        std::fs::rename(partial.path(), folder).map_err(at(folder))?;
        Ok(Self { folder: folder.to_owned(), ..new })
    }

    /// Reads manifest and configuration. The bitstreams are not looked at.
    ///
    /// # Errors
    /// The folder is no layout, or has no bitstream artifact, or more than one.
    pub fn open(folder: &Path) -> Result<Self, LayoutError> {
        #[derive(Deserialize)]
        struct Index {
            manifests: Vec<Descriptor>,
        }
        let form = |reason: String| LayoutError::Form { folder: folder.to_owned(), reason };
        let index = read(&folder.join("index.json"), MAX_INDEX_BYTES)?;
        let index: Index =
            serde_json::from_slice(&index).map_err(|error| form(format!("index.json: {error}")))?;
        let [descriptor] = index.manifests.as_slice() else {
            return Err(form(format!("it has {} artifacts instead of one", index.manifests.len())));
        };
        let blob = |digest: &Digest| blob_in(folder, digest);
        let manifest_bytes = read(&blob(&descriptor.digest), MAX_MANIFEST_BYTES)?;
        if of_bytes(&manifest_bytes) != descriptor.digest {
            return Err(form("the manifest has another digest than index.json says".to_owned()));
        }
        let wrong = |source| LayoutError::Manifest { folder: folder.to_owned(), source };
        let manifest = Manifest::parse(&manifest_bytes).map_err(wrong)?;
        let config_bytes = read(&blob(&manifest.config.digest), MAX_CONFIG_BYTES)?;
        let artifact = manifest.artifact(&config_bytes).map_err(wrong)?;
        let packed = Packed { manifest, manifest_bytes, config_bytes, artifact };
        Ok(Self { folder: folder.to_owned(), packed })
    }

    /// Reads all bitstreams, and compares their lengths and digests with the manifest.
    ///
    /// # Errors
    /// A file is missing or has other bytes.
    pub fn verify(&self) -> Result<(), LayoutError> {
        for layer in &self.packed.manifest.layers {
            let path = self.blob(&layer.digest);
            let (found, found_bytes) = of_file(&path, MAX_BITSTREAM_BYTES).map_err(at(&path))?;
            if (found, found_bytes) != (layer.digest, layer.size) {
                let (expected, expected_bytes) = (layer.digest, layer.size);
                return Err(LayoutError::Content { path, found, found_bytes, expected, expected_bytes });
            }
        }
        Ok(())
    }

    /// The artifact's form.
    #[must_use]
    pub fn packed(&self) -> &Packed {
        &self.packed
    }

    /// What the artifact has.
    #[must_use]
    pub fn artifact(&self) -> &Artifact {
        &self.packed.artifact
    }

    /// The file of a blob.
    #[must_use]
    pub fn blob(&self, digest: &Digest) -> PathBuf {
        blob_in(&self.folder, digest)
    }
}

fn blob_in(folder: &Path, digest: &Digest) -> PathBuf {
    // The text of a digest is `sha256:` and hexadecimal digits, so it can't leave the folder.
    folder.join("blobs/sha256").join(digest.to_string().trim_start_matches("sha256:"))
}

fn at(path: &Path) -> impl FnOnce(io::Error) -> LayoutError {
    let path = path.to_owned();
    move |source| LayoutError::Io { path, source }
}

fn read(path: &Path, limit: u64) -> Result<Vec<u8>, LayoutError> {
    let mut bytes = Vec::new();
    let file = File::open(path).map_err(at(path))?;
    file.take(limit + 1).read_to_end(&mut bytes).map_err(at(path))?;
    if bytes.len() as u64 > limit {
        return Err(at(path)(io::Error::new(
            io::ErrorKind::FileTooLarge,
            format!("more than {limit} bytes"),
        )));
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::artifact::tests::artifact;

    fn written(folder: &Path) -> (Layout, PathBuf) {
        let file = folder.join("sobel.aocx");
        std::fs::write(&file, b"one").unwrap();
        let packed = Packed::new(&artifact(&[b"one"])).unwrap();
        let files = [(of_bytes(b"one"), file)];
        let target = folder.join("sobel.oci");
        (Layout::write(&target, packed, &files).unwrap(), target)
    }

    #[test]
    fn what_is_written_is_read_again_and_an_existing_folder_is_left_alone() {
        let folder = tempfile::tempdir().unwrap();
        let (layout, target) = written(folder.path());
        let again = Layout::open(&target).unwrap();
        assert_eq!(again.packed(), layout.packed());
        again.verify().unwrap();
        let error = Layout::write(&target, layout.packed().clone(), &[]).unwrap_err().to_string();
        assert!(error.contains("exists; remove it"), "{error}");
    }

    #[test]
    fn a_changed_bitstream_and_a_missing_one_are_found() {
        let folder = tempfile::tempdir().unwrap();
        let (layout, target) = written(folder.path());
        let bitstream = layout.blob(&of_bytes(b"one"));
        std::fs::write(&bitstream, b"two").unwrap();
        let error = Layout::open(&target).unwrap().verify().unwrap_err();
        assert!(matches!(error, LayoutError::Content { .. }), "{error}");
        std::fs::remove_file(&bitstream).unwrap();
        assert!(layout.verify().is_err());
        // A bitstream that is missing at first leaves nothing behind.
        let other = folder.path().join("other.oci");
        assert!(Layout::write(&other, layout.packed().clone(), &[]).is_err() && !other.exists());
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 2);
    }

    #[test]
    fn an_index_with_a_lie_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let (_, target) = written(folder.path());
        let index = target.join("index.json");
        let text = std::fs::read_to_string(&index).unwrap();
        for (text, reason) in [
            (String::new(), "index.json"),
            (r#"{"manifests": []}"#.to_owned(), "it has 0 artifacts"),
            (text.replace("sha256:", "sha256:../"), "sha256:"),
            (" ".repeat(70_000), "more than 65536 bytes"),
        ] {
            std::fs::write(&index, text).unwrap();
            let error = Layout::open(&target).unwrap_err().to_string();
            assert!(error.contains(reason), "{error}");
        }
    }
}
