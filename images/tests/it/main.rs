//! Reads archives as a container runtime does, and holds them against the files that they were made of.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "in a test a failure is a panic")]

mod provenance;

use flate2::read::GzDecoder;
use fpga_images::{Compression, FileTree, Image, ImageError};
use ring::digest::{SHA256, digest};
use serde_json::Value;
use std::collections::BTreeMap;
use std::io::Read as _;
use std::path::{Path, PathBuf};

/// A program that every system has, and that is small.
fn program() -> PathBuf {
    Path::new("/bin/sh").canonicalize().unwrap()
}

fn mk_image() -> Image {
    let below = FileTree::new()
        .folder("/tmp", 0o1777)
        .text("/etc/nsswitch.conf", "hosts: files dns\n")
        .libraries_of(&program())
        .unwrap();
    let above = FileTree::new().file("/usr/local/bin/service", program());
    Image::new("kube-fpga/service:7", "/usr/local/bin/service")
        .user("0:0")
        .label("org.opencontainers.image.version", "0.1.0")
        .variable("BOARD", "a10")
        .layer(below)
        .layer(above)
}

fn write(image: &Image, compression: Compression) -> Vec<u8> {
    let folder = tempfile::tempdir().unwrap();
    let archive = folder.path().join("image.tar");
    image.write(&archive, compression).unwrap();
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1, "nothing lies beside the archive");
    std::fs::read(archive).unwrap()
}

/// The files of an archive by their paths.
fn files(archive: &[u8]) -> BTreeMap<String, Vec<u8>> {
    let mut tar = tar::Archive::new(archive);
    let entries = tar.entries().unwrap().map(|entry| {
        let mut entry = entry.unwrap();
        let mut content = Vec::new();
        entry.read_to_end(&mut content).unwrap();
        (entry.path().unwrap().display().to_string(), content)
    });
    entries.collect()
}

/// The blob of a descriptor, after its digest and size were checked.
fn blob<'f>(files: &'f BTreeMap<String, Vec<u8>>, descriptor: &Value) -> &'f [u8] {
    let name = descriptor["digest"].as_str().unwrap();
    let bytes = &files[&format!("blobs/{}", name.replace(':', "/"))];
    assert_eq!(sha256(bytes), name);
    assert_eq!(descriptor["size"], bytes.len());
    bytes
}

fn sha256(bytes: &[u8]) -> String {
    let hex: String = digest(&SHA256, bytes).as_ref().iter().map(|byte| format!("{byte:02x}")).collect();
    format!("sha256:{hex}")
}

fn json(bytes: &[u8]) -> Value {
    serde_json::from_slice(bytes).unwrap()
}

/// Kind, mode, owner, time and link target of an entry.
type Facts = (char, u32, u64, u64, String);

/// The entries of a layer with their paths, in their order.
fn entries(layer: &[u8]) -> Vec<(String, Facts)> {
    let mut tar = tar::Archive::new(layer);
    let entries = tar.entries().unwrap().map(|entry| {
        let entry = entry.unwrap();
        let header = entry.header();
        let kind = char::from(header.entry_type().as_byte());
        let target = entry.link_name().unwrap().map(|target| target.display().to_string());
        let facts = (
            kind,
            header.mode().unwrap(),
            header.uid().unwrap(),
            header.mtime().unwrap(),
            target.unwrap_or_default(),
        );
        (entry.path().unwrap().display().to_string().trim_end_matches('/').to_owned(), facts)
    });
    entries.collect()
}

#[test]
fn the_index_leads_to_the_layers_by_digests_that_hold() {
    let files = files(&write(&mk_image(), Compression::Gzip));
    assert_eq!(json(&files["oci-layout"])["imageLayoutVersion"], "1.0.0");
    let index = json(&files["index.json"]);
    let descriptor = &index["manifests"][0];
    assert_eq!(descriptor["annotations"]["io.containerd.image.name"], "docker.io/kube-fpga/service:7");
    assert_eq!(descriptor["annotations"]["org.opencontainers.image.ref.name"], "7");
    let manifest = json(blob(&files, descriptor));
    let config = json(blob(&files, &manifest["config"]));
    assert_eq!(config["config"]["Entrypoint"][0], "/usr/local/bin/service");
    assert_eq!(config["config"]["User"], "0:0");
    assert_eq!(config["config"]["Labels"]["org.opencontainers.image.version"], "0.1.0");
    assert_eq!(config["config"]["Env"].as_array().unwrap().last().unwrap(), "BOARD=a10");
    assert_eq!(config["architecture"], descriptor["platform"]["architecture"]);
    let layers = manifest["layers"].as_array().unwrap();
    assert_eq!(layers.len(), 2);
    for (layer, diff_id) in layers.iter().zip(config["rootfs"]["diff_ids"].as_array().unwrap()) {
        let mut unpacked = Vec::new();
        GzDecoder::new(blob(&files, layer)).read_to_end(&mut unpacked).unwrap();
        assert_eq!(sha256(&unpacked), diff_id.as_str().unwrap());
    }
    // What `docker load` reads names the same blobs.
    let of_docker = json(&files["manifest.json"]);
    assert_eq!(of_docker[0]["RepoTags"][0], "docker.io/kube-fpga/service:7");
    for path in of_docker[0]["Layers"].as_array().unwrap().iter().chain([&of_docker[0]["Config"]]) {
        assert!(files.contains_key(path.as_str().unwrap()), "{path}");
    }
}

#[test]
fn the_same_files_give_the_same_archive() {
    for compression in [Compression::None, Compression::Gzip] {
        assert!(write(&mk_image(), compression) == write(&mk_image(), compression), "{compression:?}");
    }
}

#[test]
fn a_layer_has_its_folders_first_all_files_are_roots_and_have_no_time() {
    let files = files(&write(&mk_image(), Compression::None));
    let manifest = json(blob(&files, &json(&files["index.json"])["manifests"][0]));
    let below = entries(blob(&files, &manifest["layers"][0]));
    let paths: Vec<&String> = below.iter().map(|(path, _)| path).collect();
    assert!(paths.is_sorted(), "{paths:?}");
    let below: BTreeMap<_, _> = below.iter().cloned().collect();
    assert_eq!(below["tmp"], ('5', 0o1777, 0, 0, String::new()));
    assert_eq!(below["etc"], ('5', 0o755, 0, 0, String::new()));
    assert_eq!(below["etc/nsswitch.conf"], ('0', 0o644, 0, 0, String::new()));
    // The dynamic loader lies where programs look for it.
    assert_eq!(below["lib64"], ('2', 0o777, 0, 0, "usr/lib64".to_owned()));
    let loader = below.iter().find(|(path, _)| path.starts_with("usr/lib") && path.contains("/ld-linux"));
    assert_eq!(loader.unwrap().1.1, 0o755);
    let above: BTreeMap<_, _> = entries(blob(&files, &manifest["layers"][1])).into_iter().collect();
    assert_eq!(above["usr/local/bin/service"], ('0', 0o755, 0, 0, String::new()));
    assert!(!above.contains_key("tmp"), "each layer has its own files only");
}

#[test]
fn an_image_without_its_entrypoint_or_with_a_missing_file_is_refused_and_leaves_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let archive = folder.path().join("image.tar");
    let empty = Image::new("localhost/empty:1", "/service");
    let refused = empty.write(&archive, Compression::None).unwrap_err();
    assert!(matches!(&refused, ImageError::NoEntrypoint { entrypoint, .. } if entrypoint == "/service"));
    let image = mk_image().file("/etc/missing", "/does/not/exist");
    let refused = image.write(&archive, Compression::Gzip).unwrap_err();
    assert!(matches!(&refused, ImageError::Read { path, .. } if path == Path::new("/does/not/exist")));
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
}
