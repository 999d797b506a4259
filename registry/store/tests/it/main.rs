//! Whoever sends bitstreams is contained: the error says what happened, no more is taken than declared, and what breaks
//! goes on where it broke.

#![allow(clippy::unwrap_used, clippy::panic, reason = "in a test a failure is a panic")]

mod tenants;

use fpga_artifacts::{Hosts, of_bytes};
use fpga_bitstream_store::{Asker, Owner, Source, Store, StoreOptions, Wanted};
use fpga_core::bitstream::Digest;
use proptest::prelude::*;
use std::collections::HashSet;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};
use tempfile::TempDir;

const LIMIT: u64 = 1 << 20;

/// What a request asks for.
struct Request {
    /// Number of this request, from 0.
    number: u32,
    path: String,
    /// First byte that is asked for.
    from: usize,
}

/// Starts a host that answers each request as `answer` says, on a connection of its own, 64 of them at most. Returns its
/// address.
fn host(answer: impl Fn(&Request, &mut TcpStream) + Send + 'static) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    std::thread::spawn(move || {
        for (number, stream) in (0..64).zip(listener.incoming()) {
            let mut stream = stream.unwrap();
            let mut lines = BufReader::new(stream.try_clone().unwrap()).lines().map_while(Result::ok);
            let path = lines.next().unwrap_or_default().split(' ').nth(1).unwrap_or_default().to_owned();
            let head: Vec<String> = lines.take_while(|line| !line.is_empty()).collect();
            let from = head.iter().find_map(|line| line.strip_prefix("range: bytes=")?.strip_suffix('-'));
            let from = from.map_or(0, |from| from.parse().unwrap());
            answer(&Request { number, path, from }, &mut stream);
        }
    });
    address
}

/// The owner of a namespace's Bitstream.
fn owner(namespace: &str) -> Owner {
    Owner::Own { namespace: namespace.to_owned(), uid: "1".to_owned() }
}

/// Writes as much as the reader takes.
fn write(stream: &mut TcpStream, bytes: &[u8]) {
    // A reader that has read enough closes the connection.
    let _ = stream.write_all(bytes);
}

fn head(status: &str, length: usize, headers: &str) -> Vec<u8> {
    format!("HTTP/1.1 {status}\r\nconnection: close\r\ncontent-length: {length}\r\n{headers}\r\n")
        .into_bytes()
}

/// The answer of a host that knows ranges: `bytes` from where the request wants them, `sent` of them.
fn part(stream: &mut TcpStream, bytes: &[u8], from: usize, sent: usize) {
    let rest = &bytes[from..];
    let head = match from {
        0 => head("200 OK", rest.len(), ""),
        _ => {
            let (last, all) = (bytes.len() - 1, bytes.len());
            head("206 Partial Content", rest.len(), &format!("content-range: bytes {from}-{last}/{all}\r\n"))
        }
    };
    write(stream, &head);
    write(stream, &rest[..sent.min(rest.len())]);
}

fn wanted(address: &str, bytes: &[u8]) -> Wanted {
    let source = Source::oci(&format!("{address}/team/sobel@{}", of_bytes(b"the manifest"))).unwrap();
    Wanted { digest: of_bytes(bytes), bytes: bytes.len() as u64, source, owner: Owner::Library }
}

fn options(folder: &Path, hosts: &[&str]) -> StoreOptions {
    let hosts = hosts.iter().map(|host| format!("http://{host}").parse().unwrap()).collect();
    StoreOptions {
        folder: folder.to_owned(),
        limit_bytes: LIMIT,
        hosts: Hosts::Listed(hosts),
        ca: None,
        credentials: None,
        timeout: Duration::from_secs(20),
    }
}

fn open(address: &str) -> (Arc<Store>, TempDir) {
    let folder = tempfile::tempdir().unwrap();
    (Store::open(options(folder.path(), &[address])).unwrap(), folder)
}

fn nothing(_: &Digest) -> bool {
    false
}

/// A pod of this namespace.
fn asker(namespace: &str) -> Asker {
    Asker { namespace: namespace.to_owned(), id: format!("a-pod-of-{namespace}") }
}

/// The error of a store that is sent what `answer` says.
async fn refused(bytes: &[u8], answer: impl Fn(&Request, &mut TcpStream) + Send + 'static) -> String {
    let address = host(answer);
    let (store, folder) = open(&address);
    let error = store.get(&wanted(&address, bytes), &asker("shop"), nothing).await.unwrap_err().to_string();
    let left: Vec<_> = std::fs::read_dir(folder.path().join("partial")).unwrap().collect();
    assert!(left.is_empty(), "{left:?} after {error}");
    assert_eq!(std::fs::read_dir(folder.path().join("sha256")).unwrap().count(), 0, "{error}");
    assert_eq!((store.figures().failures, store.figures().bytes), (1, 0));
    error
}

/// Bytes that differ from place to place.
fn bytes(length: usize) -> Vec<u8> {
    (0..length).map(|index| u8::try_from(index * 7 % 251).unwrap()).collect()
}

#[tokio::test]
async fn many_callers_share_one_download_and_later_ones_take_the_file() {
    let content = bytes(200_000);
    let requests = Arc::new(AtomicU32::new(0));
    let (sent, counted) = (content.clone(), Arc::clone(&requests));
    let address = host(move |request, stream| {
        counted.fetch_add(1, Ordering::Relaxed);
        part(stream, &sent, request.from, usize::MAX);
    });
    let (store, folder) = open(&address);
    let wanted = wanted(&address, &content);
    let gets: Vec<_> = (0..10)
        .map(|_| {
            let (store, wanted) = (Arc::clone(&store), wanted.clone());
            tokio::spawn(async move { store.get(&wanted, &asker("shop"), nothing).await })
        })
        .collect();
    for get in gets {
        assert_eq!(std::fs::read(get.await.unwrap().unwrap()).unwrap(), content);
    }
    store.get(&wanted, &asker("shop"), nothing).await.unwrap();
    assert_eq!(requests.load(Ordering::Relaxed), 1);
    let figures = store.figures();
    assert_eq!((figures.downloads, figures.fetched_bytes, figures.files), (1, 200_000, 1));

    // A store that starts again has the file, and looks whether it is still whole.
    drop(store);
    let store = Store::open(options(folder.path(), &[&address])).unwrap();
    let path = store.get(&wanted, &asker("shop"), nothing).await.unwrap();
    assert_eq!(requests.load(Ordering::Relaxed), 1);
    std::fs::write(&path, b"what a broken disk has").unwrap();
    let store = Store::open(options(folder.path(), &[&address])).unwrap();
    assert_eq!(std::fs::read(store.get(&wanted, &asker("shop"), nothing).await.unwrap()).unwrap(), content);
    assert_eq!(requests.load(Ordering::Relaxed), 2);
}

#[tokio::test]
async fn a_download_that_breaks_goes_on_where_it_broke_also_in_another_process() {
    let content = bytes(300_000);
    let sent = content.clone();
    let address = host(move |request, stream| match request.number {
        0 => part(stream, &sent, request.from, 100_000),
        // A host that is starting.
        1 => write(stream, &head("503 Service Unavailable", 0, "")),
        _ => {
            assert!(request.from > 0, "what has come is not asked for again");
            part(stream, &sent, request.from, 120_000);
        }
    });
    let (store, _folder) = open(&address);
    let path = store.get(&wanted(&address, &content), &asker("shop"), nothing).await.unwrap();
    assert_eq!(std::fs::read(path).unwrap(), content);
    assert_eq!(store.figures().fetched_bytes, 300_000);

    // The first process ended in the middle of a download.
    let sent = content.clone();
    let address = host(move |request, stream| {
        assert_eq!(request.from, 100_000);
        part(stream, &sent, request.from, usize::MAX);
    });
    let folder = tempfile::tempdir().unwrap();
    let wanted = wanted(&address, &content);
    drop(Store::open(options(folder.path(), &[&address])).unwrap());
    let key =
        of_bytes(format!("{} {} {} {}", wanted.digest, wanted.bytes, wanted.source, wanted.owner).as_bytes());
    let key = key.to_string().replace("sha256:", "");
    std::fs::write(folder.path().join("partial").join(key), &content[..100_000]).unwrap();
    let store = Store::open(options(folder.path(), &[&address])).unwrap();
    assert_eq!(store.figures().bytes, 100_000, "what has come counts");
    let path = store.get(&wanted, &asker("shop"), nothing).await.unwrap();
    assert_eq!(std::fs::read(path).unwrap(), content);
    assert_eq!((store.figures().fetched_bytes, store.figures().bytes), (200_000, 300_000));
}

#[tokio::test]
async fn a_host_without_ranges_and_a_part_that_was_wrong_are_read_from_the_beginning() {
    let content = bytes(100_000);
    let sent = content.clone();
    let address = host(move |request, stream| {
        write(stream, &head("200 OK", sent.len(), ""));
        write(stream, if request.number == 0 { &sent[..50_000] } else { &sent });
    });
    let (store, _folder) = open(&address);
    let path = store.get(&wanted(&address, &content), &asker("shop"), nothing).await.unwrap();
    assert_eq!(std::fs::read(path).unwrap(), content);

    let sent = content.clone();
    let address = host(move |request, stream| match request.number {
        0 => {
            let mut wrong = sent.clone();
            wrong[10] ^= 1;
            part(stream, &wrong, 0, 50_000);
        }
        _ => part(stream, &sent, request.from, usize::MAX),
    });
    let (store, _folder) = open(&address);
    let path = store.get(&wanted(&address, &content), &asker("shop"), nothing).await.unwrap();
    assert_eq!(std::fs::read(path).unwrap(), content);
    assert_eq!(store.figures().fetched_bytes, 200_000);
}

#[tokio::test]
async fn other_bytes_and_more_bytes_than_declared_are_refused_and_leave_nothing() {
    let content = bytes(50_000);
    let mut other = content.clone();
    other[49_999] ^= 1;
    let error = refused(&content, move |_, stream| part(stream, &other, 0, usize::MAX)).await;
    assert!(error.contains("the source has other bytes: their digest is sha256:"), "{error}");

    let longer = bytes(50_001);
    let error = refused(&content, move |_, stream| part(stream, &longer, 0, usize::MAX)).await;
    assert!(error.contains("more than 50000 bytes"), "{error}");

    let error = refused(&content, |_, stream| {
        write(stream, b"HTTP/1.1 200 OK\r\n\r\n");
        while stream.write_all(&[7; 4096]).is_ok() {}
    })
    .await;
    assert!(error.contains("more than 50000 bytes"), "{error}");

    let error = refused(&content, |_, stream| write(stream, &head("404 Not Found", 0, ""))).await;
    assert!(error.ends_with("is not there"), "{error}");
    let error = refused(&content, |_, stream| {
        write(stream, &head("206 Partial Content", 5, "content-range: bytes 7-11/12\r\n"));
    })
    .await;
    assert!(error.contains("another range of bytes: \"bytes 7-11/12\""), "{error}");
}

#[tokio::test]
async fn a_drip_is_left_after_the_time_although_bytes_come() {
    let content = bytes(500_000);
    let address = host(|_, stream| {
        write(stream, &head("200 OK", 500_000, ""));
        for _ in 0..1000 {
            if stream.write_all(&[7]).is_err() {
                return;
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    });
    let folder = tempfile::tempdir().unwrap();
    let timeout = Duration::from_millis(300);
    let store = Store::open(StoreOptions { timeout, ..options(folder.path(), &[&address]) }).unwrap();
    let wanted = wanted(&address, &content);
    let (getting, begin) = ((Arc::clone(&store), wanted.clone()), Instant::now());
    let get = tokio::spawn(async move { getting.0.get(&getting.1, &asker("shop"), nothing).await });
    // The first byte comes at once, and the host goes on; each try ends all the same.
    let error = tokio::time::timeout(Duration::from_secs(60), get).await.unwrap().unwrap().unwrap_err();
    assert!(error.to_string().contains("sends nothing, or too slowly, for 0.3 s"), "{error}");
    assert!(begin.elapsed() >= timeout);
}

#[tokio::test]
async fn only_listed_or_public_hosts_are_asked_wherever_a_host_sends() {
    let content = bytes(10);
    for place in [
        "http://169.254.169.254/latest/meta-data/",
        "https://169.254.169.254/",
        "https://127.0.0.1/",
        "file:///etc/passwd",
    ] {
        let location = format!("location: {place}\r\n");
        let error = refused(&content, move |_, stream| {
            write(stream, &head("307 Temporary Redirect", 0, &location));
        })
        .await;
        assert!(error.contains("--bitstream-hosts"), "{place}: {error}");
    }
    // Who gives tokens is another host as well.
    let error = refused(&content, |_, stream| {
        let challenge = "www-authenticate: Bearer realm=\"https://169.254.169.254/token\",service=\"s\"\r\n";
        write(stream, &head("401 Unauthorized", 0, challenge));
    })
    .await;
    assert!(error.contains("169.254.169.254 is not asked"), "{error}");

    let asked = Arc::new(AtomicU32::new(0));
    let counted = Arc::clone(&asked);
    let address = host(move |_, _| {
        counted.fetch_add(1, Ordering::Relaxed);
    });
    let folder = tempfile::tempdir().unwrap();
    for hosts in [Hosts::Public, Hosts::Listed(vec!["registry.example".parse().unwrap()])] {
        let store = Store::open(StoreOptions { hosts, ..options(folder.path(), &[]) }).unwrap();
        for place in [address.clone(), address.replace("127.0.0.1", "localhost")] {
            let source = Source::https(&format!("https://{place}/sobel")).unwrap();
            let wanted = Wanted { source, ..wanted(&address, &content) };
            let error = store.get(&wanted, &asker("shop"), nothing).await.unwrap_err().to_string();
            assert!(error.contains("not public") || error.contains("not among the hosts"), "{error}");
        }
    }
    assert_eq!(asked.load(Ordering::Relaxed), 0);
}

#[tokio::test]
async fn a_digest_opens_nothing_that_another_owner_has() {
    let content = b"secret of the shop".to_vec();
    let (sent, asked) = (content.clone(), Arc::new(AtomicU32::new(0)));
    let counted = Arc::clone(&asked);
    let address = host(move |request, stream| {
        counted.fetch_add(1, Ordering::Relaxed);
        match request.path.contains("team/sobel") {
            true => part(stream, &sent, request.from, usize::MAX),
            false => write(stream, &head("404 Not Found", 0, "")),
        }
    });
    let (store, folder) = open(&address);
    let of = |namespace: &str| Wanted { owner: owner(namespace), ..wanted(&address, &content) };
    let shop = of("shop");
    let path = store.get(&shop, &asker("shop"), nothing).await.unwrap();

    // A place that does not have the bytes, and a size that is not theirs.
    let elsewhere = Source::oci(&format!("{address}/evil/any@{}", of_bytes(b"the manifest"))).unwrap();
    let small = Wanted { bytes: 1, ..of("evil") };
    for evil in [Wanted { source: elsewhere, ..of("evil") }, small] {
        assert!(store.get(&evil, &asker("shop"), nothing).await.is_err(), "{evil:?}");
        assert_eq!(std::fs::read(&path).unwrap(), content, "the file of others stays");
    }

    // A source that refuses costs the node no reading of the file.
    let comparisons = store.figures().comparisons;
    for number in 0..10 {
        let source = Source::oci(&format!("{address}/evil/{number}@{}", of_bytes(b"the manifest"))).unwrap();
        let evil = Wanted { source, ..of("evil") };
        assert!(store.get(&evil, &asker("shop"), nothing).await.is_err());
    }
    assert_eq!(store.figures().comparisons, comparisons);

    // An owner whose source has the bytes gets them, after one download.
    for owner in ["mill", "mill", "shop"] {
        assert_eq!(store.get(&of(owner), &asker("shop"), nothing).await.unwrap(), path);
    }
    let before = asked.load(Ordering::Relaxed);
    drop(store);
    let store = Store::open(options(folder.path(), &[&address])).unwrap();
    for owner in ["mill", "shop"] {
        assert_eq!(store.get(&of(owner), &asker("shop"), nothing).await.unwrap(), path);
    }
    assert_eq!(asked.load(Ordering::Relaxed), before, "a store that starts again knows who has delivered");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    /// Each owner asks at places, some of which have the bytes. An owner gets the bytes if one of the owner's places has
    /// delivered them. Files of other owners on the node make no difference.
    #[test]
    fn bytes_go_to_whoever_can_fetch_them_and_to_nobody_else(
        asks in prop::collection::vec((0..3_u8, 0..2_usize, 0..3_u8), 1..12),
        places in prop::collection::vec(any::<u8>(), 3),
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let contents = [b"one".to_vec(), b"another".to_vec()];
        // Bit B of a place: it has the content B.
        let has = |place: u8, content: usize| places[usize::from(place)] >> content & 1 == 1;
        let has_all: Vec<[bool; 2]> = (0..3).map(|place| [has(place, 0), has(place, 1)]).collect();
        let sent = contents.clone();
        let address = host(move |request, stream| {
            let place = request.path.split('/').find_map(|part| part.strip_prefix("place")?.parse::<usize>().ok());
            let content = (0..2).find(|at| request.path.ends_with(&of_bytes(&sent[*at]).to_string()));
            match place.zip(content) {
                Some((place, content)) if has_all[place][content] => {
                    part(stream, &sent[content], request.from, usize::MAX);
                }
                _ => write(stream, &head("404 Not Found", 0, "")),
            }
        });
        runtime.block_on(async {
            let (store, _folder) = open(&address);
            let mut delivered = HashSet::new();
            for (owner, content, place) in asks {
                let source = format!("{address}/place{place}/x@{}", of_bytes(b"the manifest"));
                let owner = match owner {
                    0 => Owner::Library,
                    other => self::owner(&format!("team-{other}")),
                };
                let bytes = &contents[content];
                let asked = Wanted {
                    digest: of_bytes(bytes),
                    bytes: bytes.len() as u64,
                    source: Source::oci(&source).unwrap(),
                    owner,
                };
                let got = store.get(&asked, &asker("shop"), nothing).await;
                let may = has(place, content) || delivered.contains(&(asked.owner.clone(), content));
                assert_eq!(got.is_ok(), may, "{asked:?}: {got:?}");
                if let Ok(path) = got {
                    delivered.insert((asked.owner.clone(), content));
                    assert_eq!(std::fs::read(path).unwrap(), *bytes);
                }
            }
        });
    }
}

#[tokio::test]
async fn the_least_recently_used_goes_never_what_is_in_use_and_a_full_store_says_so() {
    let contents: Vec<Vec<u8>> = (0_u8..4).map(|number| vec![number; 400_000]).collect();
    let sent = contents.clone();
    let address = host(move |request, stream| {
        let content = sent.iter().find(|content| request.path.ends_with(&of_bytes(content).to_string()));
        part(stream, content.unwrap(), request.from, usize::MAX);
    });
    let (store, folder) = open(&address);
    let wanted: Vec<Wanted> = contents.iter().map(|content| wanted(&address, content)).collect();
    let is_there = |index: usize| {
        let name = wanted[index].digest.to_string().replace("sha256:", "");
        folder.path().join("sha256").join(name).exists()
    };
    store.get(&wanted[0], &asker("shop"), nothing).await.unwrap();
    store.get(&wanted[1], &asker("shop"), nothing).await.unwrap();
    store.get(&wanted[0], &asker("shop"), nothing).await.unwrap();
    store.get(&wanted[2], &asker("shop"), nothing).await.unwrap();
    assert_eq!([0, 1, 2].map(is_there), [true, false, true]);
    let (first, third) = (wanted[0].digest, wanted[2].digest);
    let in_use = move |digest: &Digest| [first, third].contains(digest);
    let error = store.get(&wanted[3], &asker("shop"), in_use).await.unwrap_err().to_string();
    let expected = "400000 bytes are wanted, and of 1048576 bytes 800000 are on boards, in use by pods";
    assert!(error.contains(expected), "{error}");
    assert_eq!([0, 1, 2, 3].map(is_there), [true, false, true, false]);
    // As soon as one of them is free, there is room.
    store.get(&wanted[3], &asker("shop"), move |digest| *digest == third).await.unwrap();
    assert_eq!([0, 1, 2, 3].map(is_there), [false, false, true, true]);
    assert_eq!((store.figures().evictions, store.figures().bytes), (2, 800_000));
}

#[tokio::test]
async fn a_host_that_falls_silent_hinders_nobody_who_has_another_place_for_the_same_bytes() {
    let content = bytes(1000);
    let (sent, silent) = (content.clone(), host(|_, stream| drop(stream.read(&mut [0; 1]))));
    let address = host(move |request, stream| part(stream, &sent, request.from, usize::MAX));
    let folder = tempfile::tempdir().unwrap();
    let store = Store::open(options(folder.path(), &[&silent, &address])).unwrap();
    let (waiting, stuck) = (Arc::clone(&store), wanted(&silent, &content));
    let stuck = tokio::spawn(async move { waiting.get(&stuck, &asker("shop"), nothing).await });
    tokio::task::yield_now().await;
    let path = store.get(&wanted(&address, &content), &asker("shop"), nothing).await.unwrap();
    assert_eq!(std::fs::read(path).unwrap(), content);
    stuck.abort();
}
