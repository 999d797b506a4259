//! Where an image's files are from: what scanners, people who verify, and people who build again find.

use super::{blob, files, json, sha256};
use flate2::read::GzDecoder;
use flate2::write::ZlibEncoder;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::io::{Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use tempfile::TempDir;

const EPOCH: &str = "2026-01-31T12:00:00Z";
const REVISION: &str = "0123456789012345678901234567890123456789";

/// A folder as `make dist` fills it, with a program of this machine in the place of ours.
struct Dist {
    folder: TempDir,
}

impl Dist {
    fn new() -> Self {
        let dist = Self { folder: TempDir::new().unwrap() };
        dist.program("fpga-collector", "/bin/true");
        dist
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Adds a copy of a program or library that names its crates, as those of `cargo auditable` do.
    fn program(&self, name: &str, of_this_machine: &str) {
        let crates = json!({"packages": [
            {"name": "fpga-collector", "version": "0.1.0", "source": "local", "root": true},
            {"name": "serde", "version": "1.0.200", "source": "crates.io"},
            {"name": "cc", "version": "1.0.0", "source": "crates.io", "kind": "build"},
        ]});
        let mut packed = ZlibEncoder::new(Vec::new(), flate2::Compression::default());
        packed.write_all(crates.to_string().as_bytes()).unwrap();
        let section = self.path("section");
        std::fs::write(&section, packed.finish().unwrap()).unwrap();
        let section = format!(".dep-v0={}", section.display());
        let copied = Command::new("objcopy")
            .args(["--add-section", &section])
            .args([Path::new(of_this_machine).canonicalize().unwrap(), self.path(name)])
            .output();
        let copied = copied.expect("objcopy is missing; on Debian: apt-get install binutils");
        assert!(copied.status.success(), "{copied:?}");
    }

    /// Runs `fpga-images`, and returns what it did and wrote.
    fn images(&self, image: &str) -> (Output, BTreeMap<String, Vec<u8>>) {
        let out = TempDir::new().unwrap();
        let output = Command::new(env!("CARGO_BIN_EXE_fpga-images"))
            .args([image, "--created", EPOCH, "--revision", REVISION])
            .args([Path::new("--from"), self.folder.path(), Path::new("--out"), out.path()])
            .output()
            .unwrap();
        let written = std::fs::read_dir(out.path()).unwrap().map(|file| {
            let path = file.unwrap().path();
            (path.file_name().unwrap().to_string_lossy().into_owned(), std::fs::read(path).unwrap())
        });
        (output, written.collect())
    }

    /// What `fpga-images` wrote of the collector's image.
    fn collector(&self) -> BTreeMap<String, Vec<u8>> {
        let (output, written) = self.images("fpga-collector");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        written
    }
}

/// The manifest of an archive.
fn manifest(archive: &[u8]) -> Value {
    let files = files(archive);
    json(blob(&files, &json(&files["index.json"])["manifests"][0]))
}

/// The files of a layer by their paths.
fn files_of_layer(archive: &[u8], layer: usize) -> BTreeMap<String, Vec<u8>> {
    let files_of_archive = files(archive);
    let mut tar = Vec::new();
    GzDecoder::new(blob(&files_of_archive, &manifest(archive)["layers"][layer]))
        .read_to_end(&mut tar)
        .unwrap();
    files(&tar)
}

fn dpkg(format: &str, package: &str) -> String {
    let output =
        Command::new("dpkg-query").args(["--show", "--showformat", format, package]).output().unwrap();
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn the_layer_with_debians_files_has_their_packages_in_dpkgs_database_and_the_distribution() {
    let layer = files_of_layer(&Dist::new().collector()["fpga-collector.tar"], 0);
    for package in ["libc6", "coreutils"] {
        let status = String::from_utf8_lossy(&layer[&format!("var/lib/dpkg/status.d/{package}")]);
        let version = format!("Version: {}", dpkg("${Version}", package));
        for line in [&format!("Package: {package}"), "Status: install ok installed", &version] {
            assert!(status.lines().any(|found| found == line), "{status}\nhas no {line}");
        }
    }
    let checksums = String::from_utf8_lossy(&layer["var/lib/dpkg/status.d/coreutils.md5sums"]);
    assert!(checksums.contains("bin/chown\n"), "{checksums}");
    let release = String::from_utf8_lossy(&layer["etc/os-release"]);
    assert!(release.contains("VERSION_ID="), "{release}");
    assert!(layer.contains_key("usr/share/doc/libc6/copyright"));
}

#[test]
fn the_bill_of_materials_names_packages_and_crates_and_the_manifest_has_its_digest() {
    let written = Dist::new().collector();
    let bill = &written["fpga-collector.cdx.json"];
    let annotations = &manifest(&written["fpga-collector.tar"])["annotations"];
    assert_eq!(annotations["fpga-scheduling.io/sbom"], sha256(bill));
    let bill = json(bill);
    assert_eq!((&bill["bomFormat"], &bill["metadata"]["timestamp"]), (&"CycloneDX".into(), &EPOCH.into()));
    let of = |name: &str| {
        bill["components"].as_array().unwrap().iter().find(|component| component["name"] == name).cloned()
    };
    let libc = of("libc6").unwrap();
    assert_eq!(libc["version"], dpkg("${Version}", "libc6"));
    assert!(libc["purl"].as_str().unwrap().starts_with("pkg:deb/debian/libc6@"), "{libc}");
    assert_eq!(of("serde").unwrap()["purl"], "pkg:cargo/serde@1.0.200");
    assert_eq!(of("fpga-collector").unwrap()["version"], "0.1.0");
    assert_eq!(of("cc"), None, "what only a build needs is in no image");
}

#[test]
fn the_manifest_says_from_which_sources_the_image_is() {
    let archive = &Dist::new().collector()["fpga-collector.tar"];
    let annotations = &manifest(archive)["annotations"];
    for (key, expected) in [
        ("source", env!("CARGO_PKG_REPOSITORY")),
        ("revision", REVISION),
        ("version", env!("CARGO_PKG_VERSION")),
        ("licenses", env!("CARGO_PKG_LICENSE")),
        ("created", EPOCH),
    ] {
        assert_eq!(annotations[format!("org.opencontainers.image.{key}")], expected, "{key}");
    }
    let files = files(archive);
    assert_eq!(json(blob(&files, &manifest(archive)["config"]))["created"], EPOCH);
}

#[test]
fn two_builds_of_the_same_programs_give_the_same_files_and_their_checksums_hold() {
    let (one, two) = (Dist::new().collector(), Dist::new().collector());
    assert_eq!(
        one.keys().collect::<Vec<_>>(),
        ["SHA256SUMS", "fpga-collector.cdx.json", "fpga-collector.tar"]
    );
    assert!(one == two, "the folders alone differ");
    let expected = ["fpga-collector.cdx.json", "fpga-collector.tar"]
        .map(|name| format!("{}  {name}\n", sha256(&one[name]).trim_start_matches("sha256:")));
    assert_eq!(String::from_utf8_lossy(&one["SHA256SUMS"]), expected.concat());
}

#[test]
fn a_program_that_does_not_name_its_crates_is_refused_with_what_to_do() {
    let dist = Dist::new();
    std::fs::copy(Path::new("/bin/true").canonicalize().unwrap(), dist.path("fpga-collector")).unwrap();
    let (output, _) = dist.images("fpga-collector");
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success() && error.contains("make dist") && error.contains("crates"), "{error}");
}

#[test]
fn a_node_plugins_image_trusts_the_authorities_of_its_package_and_not_those_of_the_machine() {
    let dist = Dist::new();
    dist.program("fpga-node-plugin", "/bin/true");
    for name in ["libfpga_opencl_icd.so", "libOpenCL.so.1", "libfpga_opencl_layer.so"] {
        // A library that needs no new symbol.
        dist.program(name, &format!("/usr/lib/{}-linux-gnu/libdl.so.2", std::env::consts::ARCH));
    }
    let (output, written) = dist.images("fpga-node-plugin");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let layer = files_of_layer(&written["fpga-node-plugin.tar"], 0);
    assert!(layer.contains_key("var/lib/dpkg/status.d/ca-certificates"));
    let bundle = String::from_utf8(layer["etc/ssl/certs/ca-certificates.crt"].clone()).unwrap();
    let of_package = dpkg("${db-fsys:Files}", "ca-certificates");
    let of_package = of_package.lines().filter(|path| path.contains("/mozilla/")).count();
    assert_eq!(bundle.matches("BEGIN CERTIFICATE").count(), of_package);
}

/// Whether a name of an image has a digest that a registry could have.
fn has_digest(image: &str) -> bool {
    let digest = image.split_once("@sha256:").map(|(_, digest)| digest);
    digest.is_some_and(|digest| digest.len() == 64 && digest.chars().all(|digit| digit.is_ascii_hexdigit()))
}

#[test]
fn images_of_others_are_named_by_digest() {
    let manifests = Path::new(env!("CARGO_MANIFEST_DIR")).join("../manifests");
    let read = |path: &str| std::fs::read_to_string(manifests.join(path)).unwrap();
    let dockerfile = read("image/Dockerfile");
    let base = dockerfile.lines().find_map(|line| line.strip_prefix("ARG BASE=")).unwrap();
    assert!(has_digest(base), "{base}");
    let stages = dockerfile.lines().filter_map(|line| line.strip_prefix("FROM "));
    for stage in stages.filter(|stage| !stage.starts_with("${BASE}")) {
        let name = stage.split(' ').next().unwrap();
        assert!(dockerfile.contains(&format!(" AS {name}\n")), "{stage} is neither the base nor a stage");
    }
    let values = read("chart/values.yaml");
    let envoy = values
        .lines()
        .find_map(|line| line.trim().strip_prefix("image: ").filter(|name| name.contains("/envoy:")));
    assert!(has_digest(envoy.unwrap()), "{envoy:?}");
}
