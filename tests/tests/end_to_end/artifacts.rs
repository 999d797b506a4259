//! `kubectl fpga bitstream` with a real registry: what is packed and sent is found again, applied as a Bitstream, and
//! known to be whole or not.

mod tokens;

use axum::Router;
use axum::http::header::AUTHORIZATION;
use axum::http::{HeaderMap, StatusCode, Uri};
use axum::response::IntoResponse;
use fpga_accelerators::{Accelerator, Interface};
use fpga_test_kit::{Authority, Server, TunnelProxy};
use fpga_tests::testbed::bitstreams;
use fpga_tests::testbed::control_plane::ControlPlane;
use fpga_tests::testbed::manifests::kubectl;
use fpga_tests::testbed::network::Network;
use fpga_tests::testbed::oci_registry::OciRegistry;
use fpga_tests::testbed::programs::built;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Output;
use tempfile::TempDir;

/// User `me` with the password `open sesame`, as `htpasswd -B` writes it.
const HTPASSWD: &str = "me:$2a$05$CI1WKX/3HhHlNOzcWoiQvu78BqKTV9d0DcdiJkeOGPFREt5hftfoG\n";

/// A registry on an address of its own, with its data in a folder, and a place to work in.
struct Site {
    folder: TempDir,
    network: Network,
    registry: Option<OciRegistry>,
    env: BTreeMap<&'static str, String>,
}

impl Site {
    /// Starts a registry that anybody may write to, without TLS.
    async fn start() -> Self {
        let mut site = Self::prepare();
        site.env.insert("FPGA_REGISTRY_PLAIN_HTTP", "true".to_owned());
        site.serve(json!({})).await;
        site
    }

    /// Starts a registry with TLS that asks for a user and a password.
    async fn start_closed() -> Self {
        let mut site = Self::prepare();
        let host = site.network.control_plane().to_string();
        let authority = Authority::new(site.folder.path(), "registry");
        let identity = authority.issue("registry", &[&host, "registry.example"]);
        let htpasswd = site.folder.path().join("htpasswd");
        std::fs::write(&htpasswd, HTPASSWD).unwrap();
        site.env.insert("FPGA_REGISTRY_CA", authority.ca.to_str().unwrap().to_owned());
        let tls = json!({ "certificate": identity.certificate, "key": identity.key });
        site.serve(
            json!({ "http": { "tls": tls }, "auth": { "htpasswd": { "realm": "test", "path": htpasswd } } }),
        )
        .await;
        site
    }

    fn prepare() -> Self {
        let folder = tempfile::tempdir().unwrap();
        for (file, bytes) in [("a10.bin", vec![10; 3_000_000]), ("s10.bin", b"for the other".to_vec())] {
            std::fs::write(folder.path().join(file), bytes).unwrap();
        }
        // What the caller has of its own must not matter.
        let env = BTreeMap::from([("HOME", folder.path().to_str().unwrap().to_owned())]);
        Self { folder, network: Network::claim().unwrap(), registry: None, env }
    }

    async fn serve(&mut self, settings: Value) {
        let registry = OciRegistry::start(&self.network, self.folder.path(), settings).await.unwrap();
        self.registry = Some(registry);
    }

    fn address(&self) -> String {
        self.registry.as_ref().unwrap().address()
    }

    fn reference(&self) -> String {
        format!("{}/team/sobel:1.0", self.address())
    }

    fn path(&self, name: &str) -> String {
        self.folder.path().join(name).to_str().unwrap().to_owned()
    }

    /// Runs `kubectl fpga bitstream` with these arguments.
    async fn bitstream(&self, arguments: &[&str]) -> Output {
        let mut command = tokio::process::Command::new(built("kubectl-fpga").unwrap());
        command.arg("bitstream").args(arguments).current_dir(self.folder.path());
        command.envs(&self.env).env_remove("DOCKER_CONFIG").env_remove("REGISTRY_AUTH_FILE");
        command.kill_on_drop(true).output().await.unwrap()
    }

    async fn succeeds(&self, arguments: &[&str]) -> String {
        let output = self.bitstream(arguments).await;
        assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    }

    async fn fails(&self, arguments: &[&str]) -> String {
        let output = self.bitstream(arguments).await;
        assert!(!output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stdout));
        String::from_utf8(output.stderr).unwrap()
    }

    async fn pack(&self) -> String {
        let variant =
            |file: &str, board: &str| format!("--variant=file={file},vendor=intel,board={board},shell=1.2");
        let (a10, s10) = (variant("a10.bin", "a10gx"), variant("s10.bin", "s10"));
        self.succeeds(&["pack", "sobel", &a10, &format!("{s10},peak=1.5"), "--interface=fft"]).await
    }
}

/// The files below a folder.
fn files(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() { files(&path, found) } else { found.push(path) }
    }
}

#[tokio::test]
async fn a_packed_accelerator_goes_through_a_registry_and_becomes_a_bitstream() {
    let site = Site::start().await;
    let reference = site.reference();
    assert!(site.pack().await.contains("a10gx"));
    let object = site.succeeds(&["push", "sobel.oci", &reference, "--allowed-namespaces=all"]).await;

    let plane = ControlPlane::shared().await.unwrap();
    let namespace = plane.new_namespace("artifacts").await.unwrap();
    bitstreams::serve(&plane, &namespace).await.unwrap();
    std::fs::write(site.path("sobel.yaml"), &object).unwrap();
    let apply =
        ["-n", &namespace, "apply", "--server-side", "--validate=strict", "-f", &site.path("sobel.yaml")];
    assert!(kubectl(&plane, &apply).await.unwrap().contains("serverside-applied"));
    let get = ["-n", &namespace, "get", "bits", "sobel", "-o", "json"];
    let applied: Value = serde_json::from_str(&kubectl(&plane, &get).await.unwrap()).unwrap();
    plane.stop().await;

    // What the Bitstream names is what the registry has, under its digest.
    let source = applied["spec"]["variants"][0]["source"]["oci"].as_str().unwrap();
    assert!(source.starts_with(&format!("{}/team/sobel@sha256:", site.address())), "{source}");
    let inspected = site.succeeds(&["inspect", source, "-o", "json"]).await;
    let inspected: Value = serde_json::from_str(&inspected).unwrap();
    assert_eq!(source.rsplit_once('@').unwrap().1, inspected["digest"]);
    for (index, (board, bytes)) in [("a10gx", 3_000_000), ("s10", 13)].into_iter().enumerate() {
        let (variant, told) = (&applied["spec"]["variants"][index], &inspected["variants"][index]);
        assert_eq!((&variant["board"], &variant["bytes"]), (&json!(board), &json!(bytes)));
        assert_eq!((&variant["digest"], &variant["bytes"]), (&told["digest"], &told["bytes"]));
    }
    assert_eq!(applied["spec"]["variants"][1]["peakRequestsPerSecond"], json!(1.5));
    assert_eq!(applied["spec"]["allowedNamespaces"]["from"], "All");
    for interface in [&applied["spec"]["interface"], &inspected["interface"]] {
        let interface: Interface = serde_json::from_value(interface.clone()).unwrap();
        assert_eq!(interface, Accelerator::Fft.interface());
    }
    for artifact in ["sobel.oci", &reference, source] {
        let whole = site.succeeds(&["verify", artifact]).await;
        assert!(whole.contains("is whole") && whole.contains("3000013 bytes"), "{whole}");
    }
    // To send it again sends nothing anew.
    assert_eq!(site.succeeds(&["push", "sobel.oci", &reference, "--allowed-namespaces=all"]).await, object);
}

#[tokio::test]
async fn bytes_that_changed_in_the_registry_or_are_gone_are_found() {
    let site = Site::start().await;
    site.pack().await;
    site.succeeds(&["push", "sobel.oci", &site.reference()]).await;
    let mut stored = Vec::new();
    files(&site.folder.path().join("data"), &mut stored);
    let large = |path: &&PathBuf| std::fs::metadata(path).unwrap().len() == 3_000_000;
    let blob = stored.iter().find(large).unwrap();
    let mut bytes = std::fs::read(blob).unwrap();
    bytes[1_000_000] ^= 1;
    std::fs::write(blob, &bytes).unwrap();
    let error = site.fails(&["verify", &site.reference()]).await;
    assert!(error.contains("the registry has other bytes"), "{error}");
    // The registry still tells the old length of a blob that is shorter.
    std::fs::write(blob, &bytes[..2_000_000]).unwrap();
    let error = site.fails(&["verify", &site.reference()]).await;
    assert!(error.contains("ended after") || error.contains("other bytes"), "{error}");
    std::fs::remove_file(blob).unwrap();
    let error = site.fails(&["verify", &site.reference()]).await;
    assert!(error.contains("is not in the registry"), "{error}");
    site.succeeds(&["inspect", &site.reference()]).await;
}

#[tokio::test]
async fn a_registry_that_is_killed_is_told_and_what_it_stored_is_whole_when_it_is_back() {
    let mut site = Site::start().await;
    site.pack().await;
    site.succeeds(&["push", "sobel.oci", &site.reference()]).await;
    site.registry.as_mut().unwrap().kill().await;
    for arguments in [["verify", &site.reference()].as_slice(), &["push", "sobel.oci", &site.reference()]] {
        let error = site.fails(arguments).await;
        assert!(error.contains("can't be reached") && error.contains(&site.address()), "{error}");
    }
    site.registry.as_mut().unwrap().start_again().await.unwrap();
    site.succeeds(&["verify", &site.reference()]).await;
}

#[tokio::test]
async fn a_closed_registry_takes_the_user_of_the_environment_and_of_docker_login_and_nobody_else() {
    let mut site = Site::start_closed().await;
    site.pack().await;
    let reference = site.reference();
    let push = ["push", "sobel.oci", reference.as_str()];
    let refused = "takes no credentials of yours. Run `docker login";
    let error = site.fails(&push).await;
    assert!(error.contains(refused), "{error}");

    site.env.insert("FPGA_REGISTRY_USER", "me".to_owned());
    let error = site.fails(&push).await;
    assert!(error.contains("set FPGA_REGISTRY_PASSWORD"), "{error}");
    site.env.insert("FPGA_REGISTRY_PASSWORD", "wrong".to_owned());
    let error = site.fails(&push).await;
    assert!(error.contains(refused), "{error}");
    site.env.insert("FPGA_REGISTRY_PASSWORD", "open sesame".to_owned());
    site.succeeds(&push).await;

    site.env.remove("FPGA_REGISTRY_USER");
    let docker = site.folder.path().join(".docker");
    std::fs::create_dir(&docker).unwrap();
    // `me:open sesame` in base64.
    let config = json!({ "auths": { site.address(): { "auth": "bWU6b3BlbiBzZXNhbWU=" } } });
    std::fs::write(docker.join("config.json"), config.to_string()).unwrap();
    site.succeeds(&["verify", &reference]).await;

    // What `docker login` writes where a program keeps passwords.
    let program = site.folder.path().join("docker-credential-test");
    let answer = r#"{"Username": "me", "Secret": "open sesame"}"#;
    std::fs::write(&program, format!("#!/bin/sh\ntest \"$(cat)\" = {} && echo '{answer}'\n", site.address()))
        .unwrap();
    std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o755)).unwrap();
    site.env.insert("PATH", format!("{}:/usr/bin:/bin", site.folder.path().display()));
    let config = json!({ "auths": { site.address(): {} }, "credsStore": "test" });
    std::fs::write(docker.join("config.json"), config.to_string()).unwrap();
    site.succeeds(&["verify", &reference]).await;

    // By way of a proxy, which looks up the name.
    let tunnels = TunnelProxy::http(&site.address());
    let config = json!({ "auths": { "registry.example": { "auth": "bWU6b3BlbiBzZXNhbWU=" } } });
    std::fs::write(docker.join("config.json"), config.to_string()).unwrap();
    site.env.insert("HTTPS_PROXY", tunnels.address().to_owned());
    site.succeeds(&["verify", "registry.example/team/sobel:1.0"]).await;
    assert!(tunnels.asked()[0].starts_with("CONNECT registry.example:443 "), "{:?}", tunnels.asked());

    site.env.remove("HTTPS_PROXY");
    site.env.remove("FPGA_REGISTRY_CA");
    let error = site.fails(&["inspect", &reference]).await;
    assert!(error.contains("can't be reached") && error.contains("ertificate"), "{error}");
}

/// A host that has the files of a registry's folder, and takes nobody's login.
fn storage(data: PathBuf) -> Server {
    let router = Router::new().fallback(async move |uri: Uri, headers: HeaderMap| {
        if headers.contains_key(AUTHORIZATION) {
            return StatusCode::BAD_REQUEST.into_response();
        }
        std::fs::read(data.join(uri.path().trim_start_matches('/')))
            .map_or_else(|_| StatusCode::NOT_FOUND.into_response(), IntoResponse::into_response)
    });
    Server::tcp("127.0.0.1:0", router)
}

#[tokio::test]
async fn a_closed_registry_that_keeps_blobs_elsewhere_takes_an_artifact_again_and_gives_it() {
    let mut site = Site::prepare();
    let storage = storage(site.folder.path().join("data"));
    let htpasswd = site.path("htpasswd");
    std::fs::write(&htpasswd, HTPASSWD).unwrap();
    for (name, value) in [
        ("FPGA_REGISTRY_PLAIN_HTTP", "true"),
        ("FPGA_REGISTRY_USER", "me"),
        ("FPGA_REGISTRY_PASSWORD", "open sesame"),
    ] {
        site.env.insert(name, value.to_owned());
    }
    let redirect =
        json!({ "name": "redirect", "options": { "baseurl": format!("http://{}", storage.address()) } });
    site.serve(json!({
        "auth": { "htpasswd": { "realm": "test", "path": htpasswd } },
        "middleware": { "storage": [redirect] },
        // The place of an upload is a path.
        "http": { "relativeurls": true },
    }))
    .await;
    site.pack().await;
    let reference = site.reference();
    for _ in ["sends the blobs", "finds them at the other host"] {
        site.succeeds(&["push", "sobel.oci", &reference]).await;
    }
    let registry = site.registry.as_ref().unwrap();
    assert_eq!(registry.requests("\"PUT /v2/team/sobel/blobs/"), 3, "each blob is sent once");
    assert!(registry.requests("\" 307 ") >= 3);
    assert!(site.succeeds(&["verify", &reference]).await.contains("is whole"));
}

#[tokio::test]
async fn what_no_artifact_can_be_made_of_is_refused_with_what_to_write() {
    let site = Site::start().await;
    std::fs::write(site.path("sobel.cl"), "kernel void sobel() {}").unwrap();
    std::fs::write(site.path("empty.bin"), "").unwrap();
    let of = |file: &str| format!("--variant=file={file},vendor=intel,board=a10gx,shell=1.2");
    for (name, variants, told) in [
        ("sobel", vec![of("sobel.cl")], "is OpenCL C, which no board loads. Build it for the board first"),
        ("sobel", vec![of("empty.bin")], "a bitstream has 0 bytes"),
        ("sobel", vec![of("none.bin")], "none.bin can't be read"),
        ("So_bel", vec![of("a10.bin")], "write lower-case letters"),
        ("sobel", vec![of("a10.bin"), of("s10.bin")], "write one of them"),
        (
            "sobel",
            vec!["--variant=file=a10.bin,board=a10gx".to_owned()],
            "vendor is missing; write file=FILE",
        ),
        ("sobel", vec![], "--variant <KEY=VALUE,…>"),
    ] {
        let arguments: Vec<&str> =
            ["pack", name].into_iter().chain(variants.iter().map(String::as_str)).collect();
        let error = site.fails(&arguments).await;
        assert!(error.contains(told), "{variants:?}: {error}");
    }
    assert!(!Path::new(&site.path("sobel.oci")).exists());
    site.pack().await;
    let error = site.fails(&["push", "sobel.oci", "Sobel:1.0"]).await;
    assert!(error.contains("write REGISTRY/REPOSITORY:TAG"), "{error}");
    let error = site.fails(&["inspect", &site.reference()]).await;
    assert!(error.contains("is not in the registry"), "{error}");
    std::fs::write(site.path("sobel.oci/index.json"), "{}").unwrap();
    let error = site.fails(&["push", "sobel.oci", &site.reference()]).await;
    assert!(error.contains("is no folder of `kubectl fpga bitstream pack`"), "{error}");
}
