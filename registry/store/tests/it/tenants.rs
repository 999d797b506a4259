//! Downloads for one tenant delay no other tenant, and end with the last pod that wants them.

use super::{asker, bytes, host, nothing, options, owner, part, wanted};
use fpga_artifacts::of_bytes;
use fpga_bitstream_store::{Asker, Source, Store, StoreError, Wanted};
use fpga_test_kit::{patience, until_async};
use std::io::{Read as _, Write as _};
use std::net::TcpListener;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use tokio::task::JoinHandle;

/// A host that takes requests, sends the first `sent` bytes of each answer, and then nothing until the reader leaves. Says
/// at each request that it came, and at its end that the reader has left.
fn slow_host(content: Vec<u8>, sent: usize) -> (String, Receiver<&'static str>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let (said, hears): (Sender<&'static str>, _) = channel();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let (mut stream, content, said) = (stream.unwrap(), content.clone(), said.clone());
            std::thread::spawn(move || {
                let mut head = [0; 4096];
                let _ = stream.read(&mut head);
                part(&mut stream, &content, 0, sent);
                let _ = stream.flush();
                // The test may have ended.
                let _ = said.send("asked");
                while stream.read(&mut head).is_ok_and(|read| read > 0) {}
                let _ = said.send("left");
            });
        }
    });
    (address, hears)
}

/// Waits for `count` such messages of a host.
async fn hear(hears: Receiver<&'static str>, message: &'static str, count: usize) -> Receiver<&'static str> {
    let hear = move || {
        let mut left = count;
        while left > 0 {
            left -= usize::from(hears.recv_timeout(patience()).unwrap() == message);
        }
        hears
    };
    tokio::task::spawn_blocking(hear).await.unwrap()
}

/// Starts to fetch as this pod.
fn get(store: &Arc<Store>, wanted: Wanted, asker: Asker) -> JoinHandle<Result<PathBuf, StoreError>> {
    let store = Arc::clone(store);
    tokio::spawn(async move { store.get(&wanted, &asker, nothing).await })
}

/// Number `number` of the bitstreams of a namespace with this many bytes at the host.
fn numbered(address: &str, namespace: &str, number: u32, bytes: u64) -> Wanted {
    let source = Source::oci(&format!("{address}/team/x@{}", of_bytes(b"the manifest"))).unwrap();
    let digest = of_bytes(format!("{namespace} {number}").as_bytes());
    Wanted { digest, bytes, source, owner: owner(namespace) }
}

fn own(wanted: Wanted, namespace: &str) -> Wanted {
    Wanted { owner: owner(namespace), ..wanted }
}

#[tokio::test]
async fn a_pod_that_names_many_slow_sources_delays_no_pod_of_another_namespace() {
    let content = bytes(1000);
    let (slow, hears) = slow_host(vec![7; 100], 0);
    let sent = content.clone();
    let fast = host(move |request, stream| part(stream, &sent, request.from, usize::MAX));
    let folder = tempfile::tempdir().unwrap();
    let store = Store::open(options(folder.path(), &[&slow, &fast])).unwrap();
    let stuck: Vec<_> =
        (0..40).map(|n| get(&store, numbered(&slow, "evil", n, 100), asker("evil"))).collect();
    let _hears = hear(hears, "asked", 4).await;
    let shop = own(wanted(&fast, &content), "shop");
    let path = tokio::time::timeout(patience(), get(&store, shop, asker("shop"))).await.unwrap();
    assert_eq!(std::fs::read(path.unwrap().unwrap()).unwrap(), content);
    // The same namespace has turns left for another host, too.
    let evil = own(wanted(&fast, &content), "evil");
    tokio::time::timeout(patience(), get(&store, evil, asker("evil"))).await.unwrap().unwrap().unwrap();
    stuck.iter().for_each(JoinHandle::abort);
}

#[tokio::test]
async fn downloads_that_wait_for_their_turn_take_no_room() {
    // Together the slow ones declare far more than the store's mebibyte.
    let (slow, hears) = slow_host(vec![7; 100_000], 0);
    let content = bytes(400_000);
    let sent = content.clone();
    let fast = host(move |request, stream| part(stream, &sent, request.from, usize::MAX));
    let folder = tempfile::tempdir().unwrap();
    let store = Store::open(options(folder.path(), &[&slow, &fast])).unwrap();
    let stuck: Vec<_> =
        (0..40).map(|n| get(&store, numbered(&slow, "evil", n, 100_000), asker("evil"))).collect();
    let _hears = hear(hears, "asked", 4).await;
    let shop = own(wanted(&fast, &content), "shop");
    let path = tokio::time::timeout(patience(), get(&store, shop, asker("shop"))).await.unwrap();
    assert_eq!(std::fs::read(path.unwrap().unwrap()).unwrap(), content);
    stuck.iter().for_each(JoinHandle::abort);
}

#[tokio::test]
async fn a_download_ends_with_the_last_pod_that_wants_it_and_keeps_what_has_come() {
    let content = bytes(200_000);
    let (slow, hears) = slow_host(content.clone(), 120_000);
    let folder = tempfile::tempdir().unwrap();
    let store = Store::open(options(folder.path(), &[&slow])).unwrap();
    let bitstream = wanted(&slow, &content);
    let first = get(&store, bitstream.clone(), asker("shop"));
    let second = get(&store, bitstream.clone(), asker("mill"));
    let hears = hear(hears, "asked", 1).await;
    until_async("the bytes to come", async || store.come(&bitstream) == Some(120_000)).await;

    // The kubelet stops waiting, and tries again later: the download goes on for the pod.
    first.abort();
    store.retain(&asker("shop").id, |_| false);
    assert_eq!(store.come(&bitstream), Some(120_000));
    store.retain(&asker("mill").id, |still| *still == bitstream);
    assert_eq!(store.come(&bitstream), Some(120_000));
    store.retain(&asker("mill").id, |_| false);
    let error = tokio::time::timeout(patience(), second).await.unwrap().unwrap().unwrap_err();
    assert!(matches!(error, StoreError::Cancelled(digest) if digest == bitstream.digest), "{error}");
    let _hears = hear(hears, "left", 1).await;
    let figures = store.figures();
    assert_eq!((figures.failures, figures.bytes, store.come(&bitstream)), (0, 120_000, None));

    // A pod that comes later gets it all the same.
    let asked = get(&store, bitstream.clone(), asker("shop"));
    until_async("the bytes to come", async || store.come(&bitstream) == Some(120_000)).await;
    asked.abort();
}

#[tokio::test]
async fn each_namespace_has_turns_of_its_own_at_the_same_host() {
    let (slow, hears) = slow_host(vec![7; 100], 0);
    let folder = tempfile::tempdir().unwrap();
    let store = Store::open(options(folder.path(), &[&slow])).unwrap();
    let stuck: Vec<_> =
        (0..5).map(|n| get(&store, numbered(&slow, "shop", n, 100), asker(&format!("{n}")))).collect();
    // Each pod is of a namespace of its own, so all of them run.
    let hears = hear(hears, "asked", 5).await;
    for number in 0..5 {
        store.retain(&asker(&format!("{number}")).id, |_| false);
    }
    let _hears = hear(hears, "left", 5).await;
    for get in stuck {
        let error = tokio::time::timeout(patience(), get).await.unwrap().unwrap().unwrap_err();
        assert!(matches!(error, StoreError::Cancelled(_)), "{error}");
    }
}
