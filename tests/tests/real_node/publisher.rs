//! Somebody who publishes bitstreams as the documents say: a folder, our programs, and a registry.

use fpga_test_kit::Authority;
use fpga_tests::testbed::cluster::Runtime;
use fpga_tests::testbed::control_plane::ControlPlane;
use fpga_tests::testbed::manifests::kubectl;
use fpga_tests::testbed::network::Network;
use fpga_tests::testbed::oci_registry::OciRegistry;
use fpga_tests::testbed::programs::{built, repository};
use fpga_tests::testbed::wait;
use serde_json::{Value, json};
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use tempfile::TempDir;
use tokio::process::Command;

/// The namespace whose Bitstreams all pods may name.
pub const LIBRARY: &str = "library";

/// A registry, and the folder in which somebody works.
pub struct Publisher {
    pub folder: TempDir,
    pub registry: OciRegistry,
    transport: Transport,
}

/// How the registry is asked.
enum Transport {
    /// By plain HTTP, on an own network or that of others.
    Plain { _network: Option<Network> },
    /// By TLS with a certificate of this authority.
    Tls { ca: PathBuf },
}

/// What is published: files for kinds of boards, with further arguments of `push`.
pub struct Release<'a> {
    pub accelerator: &'a str,
    pub tag: &'a str,
    pub vendor: &'a str,
    /// Each file in the folder with the kind of boards that it is for.
    pub files: &'a [(&'a str, &'a str)],
    pub arguments: &'a [&'a str],
}

impl Publisher {
    /// A registry without TLS.
    pub async fn start() -> Self {
        let (folder, network) = (tempfile::tempdir().unwrap(), Network::claim().unwrap());
        let registry = OciRegistry::start(&network, folder.path(), json!({})).await.unwrap();
        Self { folder, registry, transport: Transport::Plain { _network: Some(network) } }
    }

    /// The same on `host`.
    pub async fn start_at(host: Ipv4Addr) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let registry = OciRegistry::start_at(host, folder.path(), json!({})).await.unwrap();
        Self { folder, registry, transport: Transport::Plain { _network: None } }
    }

    /// A registry on `host`, with a certificate of an authority that nobody knows.
    pub async fn start_with_tls(host: Ipv4Addr, authority: &Authority) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let identity = authority.issue("registry", &[&host.to_string()]);
        let tls = json!({"http": {"tls": {"certificate": identity.certificate, "key": identity.key}}});
        let registry = OciRegistry::start_at(host, folder.path(), tls).await.unwrap();
        Self { folder, registry, transport: Transport::Tls { ca: authority.ca.clone() } }
    }

    /// A program that runs in the folder.
    pub fn command(&self, program: &Path) -> Command {
        let mut command = Command::new(program);
        command
            .current_dir(self.folder.path())
            .env("HOME", self.folder.path())
            .env("FPGA_INTEL_OPENCL", repository().join("build/intel-opencl/lib"))
            .env_remove("DOCKER_CONFIG")
            .env_remove("REGISTRY_AUTH_FILE")
            .kill_on_drop(true);
        match &self.transport {
            Transport::Plain { .. } => command.env("FPGA_REGISTRY_PLAIN_HTTP", "true"),
            Transport::Tls { ca } => command.env("FPGA_REGISTRY_CA", ca),
        };
        command
    }

    /// Runs a program of ours in the folder; returns what it prints.
    async fn run(&self, program: &str, arguments: &[&str]) -> String {
        let output = self.command(&built(program).unwrap()).args(arguments).output().await.unwrap();
        assert!(
            output.status.success(),
            "{program} {arguments:?}: {}",
            String::from_utf8_lossy(&output.stderr)
        );
        String::from_utf8(output.stdout).unwrap()
    }

    /// Builds a function of tests/functions into a file, with these options of the compiler.
    pub async fn build(&self, runtime: Runtime, function: &str, file: &str, options: &str) {
        let source = repository().join(format!("tests/functions/{function}.cl"));
        let (runtime, source) = (runtime.to_string(), source.to_str().unwrap());
        let build = ["build-bitstream", "--runtime", &runtime, "--options", options, "-o", file, source];
        self.run("fpga-device-manager", &build).await;
    }

    /// Packs the files and sends them; returns the Bitstream.
    pub async fn publish(&self, release: &Release<'_>) -> Value {
        let Release { accelerator, tag, vendor, files, arguments } = release;
        let packed = format!("{accelerator}.oci");
        let _ = std::fs::remove_dir_all(self.folder.path().join(&packed));
        let variants: Vec<String> = files
            .iter()
            .map(|(file, kind)| format!("--variant=file={file},vendor={vendor},board={kind},shell=1.0"))
            .collect();
        let pack = ["bitstream", "pack", accelerator].into_iter();
        let pack: Vec<&str> = pack.chain(variants.iter().map(String::as_str)).collect();
        self.run("kubectl-fpga", &pack).await;
        let reference = format!("{}/team/{accelerator}:{tag}", self.registry.address());
        let push = ["bitstream", "push", &packed, &reference];
        let object = self.run("kubectl-fpga", &[push.as_slice(), arguments].concat()).await;
        serde_saphyr::from_str(&object).unwrap()
    }

    /// Applies a Bitstream.
    pub async fn apply(&self, plane: &ControlPlane, bitstream: &Value) {
        let path = self.folder.path().join("bitstream.json");
        std::fs::write(&path, bitstream.to_string()).unwrap();
        let apply = ["apply", "--server-side", "-f", path.to_str().unwrap()];
        wait::until("the API server to take the Bitstream", async || {
            kubectl(plane, &apply).await.map(|_| Some(()))
        })
        .await
        .unwrap();
    }
}
