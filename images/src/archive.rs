//! Writes an archive of one image in the layout of the OCI (image-spec 1.1: `oci-layout`, `index.json`, `blobs/`). The
//! file `manifest.json`, which names the same blobs, is for `docker load`.

use crate::error::ImageError;
use crate::file_tree::FileTree;
use flate2::GzBuilder;
use ring::digest::{Context, SHA256};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs::File;
use std::io::{self, BufReader, BufWriter, Read, Seek as _, Write};
use std::path::Path;
use tar::{EntryType, Header};

/// Whether layers are compressed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Compression {
    /// Layers are plain tar files: larger, and written sooner.
    None,
    /// Layers are compressed by gzip.
    Gzip,
}

/// The size of an image in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Size {
    /// What the layers take on a node.
    pub unpacked: u64,
    /// What a registry keeps and a node fetches.
    pub packed: u64,
}

/// What was written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Written {
    /// The size of the image.
    pub size: Size,
    /// The digest by which a registry knows the image.
    pub digest: String,
}

/// What an archive has.
pub(crate) struct Contents<'i> {
    /// The whole name with registry and tag.
    pub(crate) name: String,
    pub(crate) architecture: &'static str,
    /// `config` of the image's configuration.
    pub(crate) config: Value,
    /// In RFC 3339; empty for no time.
    pub(crate) created: &'i str,
    /// Of the manifest.
    pub(crate) annotations: BTreeMap<String, String>,
    pub(crate) layers: &'i [FileTree],
}

/// A file of `blobs/sha256/`.
struct Blob {
    media_type: &'static str,
    digest: String,
    size: u64,
    content: Content,
}

enum Content {
    /// A file that has no name and is at its start.
    File(File),
    Bytes(Vec<u8>),
}

/// A layer, and the digest and size of what it is when it is unpacked.
struct Layer {
    blob: Blob,
    diff_id: String,
    unpacked: u64,
}

/// Writes the archive, which appears whole or not at all.
pub(crate) fn write(
    contents: &Contents<'_>,
    archive: &Path,
    compression: Compression,
) -> Result<Written, ImageError> {
    let failed = |source| ImageError::Write { path: archive.to_owned(), source };
    let folder = archive.parent().filter(|folder| *folder != Path::new("")).unwrap_or(Path::new("."));
    let layers = contents.layers.iter().map(|tree| layer(tree, folder, compression, &failed));
    let layers = layers.collect::<Result<Vec<_>, _>>()?;
    let size = Size {
        unpacked: layers.iter().map(|layer| layer.unpacked).sum(),
        packed: layers.iter().map(|layer| layer.blob.size).sum(),
    };
    let partial = tempfile::NamedTempFile::new_in(folder).map_err(failed)?;
    let digest = write_tar(contents, layers, partial.as_file()).map_err(failed)?;
    // The archive is no secret: it has the mode of files that are made by `File::create`.
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o644);
    partial.as_file().set_permissions(mode).map_err(failed)?;
    partial.persist(archive).map_err(|error| failed(error.error))?;
    Ok(Written { size, digest })
}

fn layer(
    tree: &FileTree,
    folder: &Path,
    compression: Compression,
    failed: &impl Fn(io::Error) -> ImageError,
) -> Result<Layer, ImageError> {
    let file = tempfile::tempfile_in(folder).map_err(failed)?;
    let mut packed = Digesting::new(BufWriter::new(file));
    let media_type;
    let (unpacked, diff_id) = match compression {
        Compression::None => {
            media_type = "application/vnd.oci.image.layer.v1.tar";
            let mut tar = Digesting::new(&mut packed);
            tree.write(&mut tar)?;
            (tar.size, tar.digest())
        }
        Compression::Gzip => {
            media_type = "application/vnd.oci.image.layer.v1.tar+gzip";
            // No name and no time.
            let gzip = GzBuilder::new().write(&mut packed, flate2::Compression::new(9));
            let mut tar = Digesting::new(gzip);
            tree.write(&mut tar)?;
            let (size, digest, gzip) = (tar.size, tar.context.clone(), tar.to);
            gzip.finish().map_err(failed)?;
            (size, hex(digest))
        }
    };
    let (size, digest) = (packed.size, packed.context);
    let mut file = packed.to.into_inner().map_err(|error| failed(error.into_error()))?;
    file.rewind().map_err(failed)?;
    let blob = Blob { media_type, digest: hex(digest), size, content: Content::File(file) };
    Ok(Layer { blob, diff_id, unpacked })
}

/// Returns the digest of the manifest.
fn write_tar(contents: &Contents<'_>, layers: Vec<Layer>, to: impl Write) -> io::Result<String> {
    let diff_ids: Vec<String> = layers.iter().map(|layer| sha256(&layer.diff_id)).collect();
    let mut config = json!({
        "architecture": contents.architecture,
        "os": "linux",
        "config": contents.config,
        "rootfs": {"type": "layers", "diff_ids": diff_ids},
    });
    if !contents.created.is_empty() {
        config["created"] = contents.created.into();
    }
    let config = Blob::json("application/vnd.oci.image.config.v1+json", &config);
    let layers: Vec<Blob> = layers.into_iter().map(|layer| layer.blob).collect();
    let manifest_type = "application/vnd.oci.image.manifest.v1+json";
    let manifest = Blob::json(
        manifest_type,
        &json!({
            "schemaVersion": 2,
            "mediaType": manifest_type,
            "config": config.descriptor(),
            "layers": layers.iter().map(Blob::descriptor).collect::<Vec<_>>(),
            "annotations": contents.annotations,
        }),
    );
    let digest = sha256(&manifest.digest);
    let mut descriptor = manifest.descriptor();
    descriptor["platform"] = json!({"architecture": contents.architecture, "os": "linux"});
    let tag = contents.name.rsplit(':').next().unwrap_or_default();
    descriptor["annotations"] = json!({
        // The OCI has no place for a whole name: containerd and Docker write it here.
        "io.containerd.image.name": contents.name,
        "org.opencontainers.image.ref.name": tag,
    });
    let index = json!({
        "schemaVersion": 2,
        "mediaType": "application/vnd.oci.image.index.v1+json",
        "manifests": [descriptor],
    });
    let of_docker = json!([{
        "Config": config.path(),
        "RepoTags": [contents.name],
        "Layers": layers.iter().map(Blob::path).collect::<Vec<_>>(),
    }]);

    let mut tar = tar::Builder::new(BufWriter::new(to));
    let mut append = |path: &str, size: u64, content: &mut dyn Read| {
        let mut header = Header::new_gnu();
        header.set_entry_type(EntryType::Regular);
        header.set_mode(0o644);
        header.set_size(size);
        header.set_mtime(0);
        tar.append_data(&mut header, path, content)
    };
    for (path, value) in [
        ("oci-layout", json!({"imageLayoutVersion": "1.0.0"})),
        ("index.json", index),
        ("manifest.json", of_docker),
    ] {
        let text = value.to_string();
        append(path, text.len() as u64, &mut text.as_bytes())?;
    }
    let mut blobs: Vec<Blob> = layers.into_iter().chain([config, manifest]).collect();
    blobs.sort_by(|one, other| one.digest.cmp(&other.digest));
    // Two layers with the same files are one blob.
    blobs.dedup_by(|one, other| one.digest == other.digest);
    for blob in blobs {
        let path = blob.path();
        match blob.content {
            Content::File(file) => append(&path, blob.size, &mut BufReader::new(file))?,
            Content::Bytes(bytes) => append(&path, blob.size, &mut bytes.as_slice())?,
        }
    }
    tar.into_inner()?.flush()?;
    Ok(digest)
}

impl Blob {
    fn json(media_type: &'static str, value: &Value) -> Self {
        let bytes = value.to_string().into_bytes();
        let mut context = Context::new(&SHA256);
        context.update(&bytes);
        Self { media_type, digest: hex(context), size: bytes.len() as u64, content: Content::Bytes(bytes) }
    }

    fn path(&self) -> String {
        format!("blobs/sha256/{}", self.digest)
    }

    fn descriptor(&self) -> Value {
        json!({"mediaType": self.media_type, "digest": sha256(&self.digest), "size": self.size})
    }
}

/// Passes bytes on, and has their number and digest.
struct Digesting<W> {
    to: W,
    context: Context,
    size: u64,
}

impl<W: Write> Digesting<W> {
    fn new(to: W) -> Self {
        Self { to, context: Context::new(&SHA256), size: 0 }
    }

    fn digest(self) -> String {
        hex(self.context)
    }
}

impl<W: Write> Write for Digesting<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = self.to.write(bytes)?;
        self.context.update(bytes.get(..written).unwrap_or(bytes));
        self.size += written as u64;
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.to.flush()
    }
}

/// The digest of these bytes, as `sha256:HEX`.
#[must_use]
pub fn sha256_of(bytes: &[u8]) -> String {
    let mut context = Context::new(&SHA256);
    context.update(bytes);
    sha256(&hex(context))
}

fn sha256(digest: &str) -> String {
    format!("sha256:{digest}")
}

fn hex(context: Context) -> String {
    context.finish().as_ref().iter().fold(String::new(), |mut text, byte| {
        // Writing to a string can't fail.
        let _ = write!(text, "{byte:02x}");
        text
    })
}
