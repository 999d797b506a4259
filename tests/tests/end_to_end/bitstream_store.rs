//! The node's store of bitstreams with a real registry, which dies in the middle of a download and comes back.

use fpga_artifacts::{
    Artifact, Credentials, Hosts, Packed, PlainHttp, Reference, Registry, RegistryOptions, Variant, of_bytes,
    of_file,
};
use fpga_bitstream_store::{Asker, Owner, Source, Store, StoreOptions, Wanted};
use fpga_core::bitstream::Digest;
use fpga_test_kit::patience;
use fpga_tests::testbed::network::Network;
use fpga_tests::testbed::oci_registry::OciRegistry;
use fpga_tests::testbed::valve::Valve;
use fpga_tests::testbed::wait;
use serde_json::{Value, json};
use std::net::Ipv4Addr;
use std::sync::Arc;
use std::time::Duration;
use tempfile::TempDir;

const BYTES: usize = 24 << 20;
/// User `me` with the password `open sesame`, as `htpasswd -B` writes it.
const HTPASSWD: &str = "me:$2a$05$CI1WKX/3HhHlNOzcWoiQvu78BqKTV9d0DcdiJkeOGPFREt5hftfoG\n";

/// A registry with an artifact of one bitstream.
struct Site {
    folder: TempDir,
    registry: OciRegistry,
    content: Vec<u8>,
    /// The artifact by digest.
    reference: Reference,
    _network: Network,
}

impl Site {
    /// Starts a registry with these settings, to which the artifact is sent with these credentials.
    async fn start(settings: &Value, credentials: Vec<Credentials>) -> Self {
        let (folder, network) = (tempfile::tempdir().unwrap(), Network::claim().unwrap());
        std::fs::write(folder.path().join("htpasswd"), HTPASSWD).unwrap();
        let settings =
            serde_json::from_str(&settings.to_string().replace("FOLDER", folder.path().to_str().unwrap()))
                .unwrap();
        let registry = OciRegistry::start(&network, folder.path(), settings).await.unwrap();
        let content: Vec<u8> = (0..BYTES).map(|index| u8::try_from(index / 7 % 253).unwrap()).collect();
        let variant = Variant {
            vendor: "intel".to_owned(),
            board: "a10gx".to_owned(),
            shell: "1.2".to_owned(),
            region_size: 1,
            digest: of_bytes(&content),
            bytes: content.len() as u64,
            peak_requests_per_second: None,
        };
        let packed =
            Packed::new(&Artifact { name: "sobel".to_owned(), variants: vec![variant], interface: None })
                .unwrap();
        let options = RegistryOptions {
            plain_http: PlainHttp::Yes,
            ca: None,
            credentials,
            hosts: Hosts::Any,
            timeout: patience(),
        };
        let client = Registry::new(&registry.address(), options).unwrap();
        let manifest = &packed.manifest;
        client.push_bytes("team/sobel", &manifest.layers[0], &content).await.unwrap();
        client.push_bytes("team/sobel", &manifest.config, &packed.config_bytes).await.unwrap();
        let reference: Reference = format!("{}/team/sobel:1.0", registry.address()).parse().unwrap();
        client.push_manifest(&reference, &packed).await.unwrap();
        let reference = reference.with_digest(manifest.digest);
        Self { folder, registry, content, reference, _network: network }
    }

    /// A way to the registry on which half of the bitstream passes.
    async fn valve(&self) -> Valve {
        Valve::before(self.registry.address(), Ipv4Addr::LOCALHOST.into(), BYTES / 2).await.unwrap()
    }

    /// A store that may ask `host` only.
    fn store(&self, host: &str) -> Arc<Store> {
        let options = StoreOptions {
            folder: self.folder.path().join("store"),
            limit_bytes: 2 * BYTES as u64,
            hosts: Hosts::Listed(vec![format!("http://{host}").parse().unwrap()]),
            ca: None,
            credentials: Some(self.folder.path().join("config.json")),
            timeout: Duration::from_secs(20),
        };
        Store::open(options).unwrap()
    }

    /// The bitstream by way of `host`.
    fn wanted(&self, host: &str) -> Wanted {
        let place = self.reference.to_string().replace(&self.registry.address(), host);
        let (digest, bytes) = (of_bytes(&self.content), self.content.len() as u64);
        Wanted { digest, bytes, source: Source::oci(&place).unwrap(), owner: Owner::Library }
    }
}

fn nothing(_: &Digest) -> bool {
    false
}

fn asker() -> Asker {
    Asker { namespace: "shop".to_owned(), id: "cart".to_owned() }
}

#[tokio::test(flavor = "multi_thread")]
async fn waiting_callers_share_a_download_that_goes_on_after_the_registry_was_killed_in_its_middle() {
    let mut site = Site::start(&json!({}), Vec::new()).await;
    let valve = site.valve().await;
    let host = valve.address().to_string();
    let (store, wanted) = (site.store(&host), site.wanted(&host));
    let gets: Vec<_> = (0..2)
        .map(|_| {
            let (store, wanted) = (Arc::clone(&store), wanted.clone());
            tokio::spawn(async move { store.get(&wanted, &asker(), nothing).await })
        })
        .collect();
    wait::until("a part of the bitstream to come", async || {
        Ok(store.come(&wanted).is_some_and(|come| come > BYTES as u64 / 4).then_some(()))
    })
    .await
    .unwrap();
    site.registry.kill().await;
    // The store learns of the break from the open valve, and then tries for some seconds only.
    site.registry.start_again().await.unwrap();
    valve.open();
    for get in gets {
        let path = get.await.unwrap().unwrap();
        assert_eq!(of_file(&path, 1 << 30).unwrap(), (wanted.digest, BYTES as u64));
    }
    let figures = store.figures();
    assert_eq!((figures.downloads, figures.failures), (1, 0));
    assert_eq!(figures.fetched_bytes, BYTES as u64, "no byte came twice");
    // The registry writes a line when it has served a request.
    wait::until("the registry to have been asked for the rest only", async || {
        Ok((site.registry.requests("\" 206 ") > 0).then_some(()))
    })
    .await
    .unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_registry_that_stays_away_is_told_and_the_next_caller_goes_on_where_it_broke() {
    let mut site = Site::start(&json!({}), Vec::new()).await;
    let valve = site.valve().await;
    let host = valve.address().to_string();
    let (store, wanted) = (site.store(&host), site.wanted(&host));
    let get = {
        let (store, wanted) = (Arc::clone(&store), wanted.clone());
        tokio::spawn(async move { store.get(&wanted, &asker(), nothing).await })
    };
    wait::until("a part of the bitstream to come", async || {
        Ok(store.come(&wanted).is_some_and(|come| come > BYTES as u64 / 4).then_some(()))
    })
    .await
    .unwrap();
    site.registry.kill().await;
    valve.open();
    let error = get.await.unwrap().unwrap_err().to_string();
    assert!(error.contains("can't be reached") || error.contains("ended after"), "{error}");
    let come = store.figures().bytes;
    assert!(come > BYTES as u64 / 4, "what has come stays: {come}");

    // Another process, as after an update of the node plugin.
    drop(store);
    site.registry.start_again().await.unwrap();
    let store = site.store(&host);
    let path = store.get(&wanted, &asker(), nothing).await.unwrap();
    assert_eq!(of_file(&path, 1 << 30).unwrap(), (wanted.digest, BYTES as u64));
    assert_eq!(store.figures().fetched_bytes, BYTES as u64 - come);
}

#[tokio::test(flavor = "multi_thread")]
async fn bytes_that_changed_in_the_registry_are_refused() {
    let site = Site::start(&json!({}), Vec::new()).await;
    let hex = of_bytes(&site.content).to_string().replace("sha256:", "");
    let blob =
        site.registry.data().join("docker/registry/v2/blobs/sha256").join(&hex[..2]).join(&hex).join("data");
    let mut changed = site.content.clone();
    changed[1_000_000] ^= 1;
    std::fs::write(&blob, &changed).unwrap();
    let host = site.registry.address();
    let (store, wanted) = (site.store(&host), site.wanted(&host));
    let error = store.get(&wanted, &asker(), nothing).await.unwrap_err().to_string();
    assert!(error.contains("the source has other bytes"), "{error}");
    assert_eq!((store.figures().files, store.figures().bytes, store.figures().failures), (0, 0, 1));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_closed_registry_takes_the_login_of_the_pull_secret() {
    let login = Credentials::password("me", "open sesame");
    let auth = json!({ "auth": { "htpasswd": { "realm": "test", "path": "FOLDER/htpasswd" } } });
    let site = Site::start(&auth, vec![login]).await;
    let host = site.registry.address();
    let (store, wanted) = (site.store(&host), site.wanted(&host));
    let error = store.get(&wanted, &asker(), nothing).await.unwrap_err().to_string();
    assert!(error.contains("wants a login. The pull Secret has none that it takes"), "{error}");
    // `me:open sesame` in base64. The Secret is read anew for each download.
    // An old password for this repository alone is tried before.
    let old = json!({ "username": "me", "password": "old" });
    let config =
        json!({ "auths": { &host: { "auth": "bWU6b3BlbiBzZXNhbWU=" }, format!("{host}/team"): old } });
    std::fs::write(site.folder.path().join("config.json"), config.to_string()).unwrap();
    let store = site.store(&host);
    let own =
        Wanted { owner: Owner::Own { namespace: "evil".to_owned(), uid: "1".to_owned() }, ..wanted.clone() };
    for _ in ["before the library has fetched it", "after"] {
        let error = store.get(&own, &asker(), nothing).await.unwrap_err().to_string();
        assert!(error.contains("the pull Secret serves the library alone"), "{error}");
        store.get(&wanted, &asker(), nothing).await.unwrap();
    }
}
