//! The bounds, as friendly, slow and numerous peers meet them.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

use axum::Router;
use axum::extract::Extension;
use axum::routing::get;
use fpga_net::http::{Limits, Peer, Port, Refusal, Server};
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream, UnixListener, UnixStream};
use tokio::sync::{Notify, watch};
use tokio::task::JoinHandle;

const DEADLINE: Duration = Duration::from_secs(20);
const LIMITS: Limits = Limits {
    connections: 4,
    buffer_bytes: 64 * 1024,
    head: Duration::from_millis(300),
    idle: Duration::from_secs(10),
    drain: Duration::from_secs(10),
};
const GET: &[u8] = b"GET / HTTP/1.1\r\nHost: x\r\n\r\n";
const SLOW: &[u8] = b"GET /slow HTTP/1.1\r\nHost: x\r\n\r\n";

struct Bed {
    address: SocketAddr,
    server: Server,
    refusals: Arc<Mutex<Vec<Refusal>>>,
    slow: Slow,
    stop: watch::Sender<bool>,
    task: JoinHandle<()>,
}

/// A handler that waits until the test releases it.
#[derive(Clone, Default)]
struct Slow {
    begun: Arc<Notify>,
    release: Arc<Notify>,
}

fn router(slow: Slow) -> Router {
    let who = async |Extension(peer): Extension<Peer>| match peer {
        Peer::Tcp { .. } => "tcp".to_owned(),
        Peer::Unix { uid, gid } => format!("unix {uid} {gid}"),
    };
    let slow = async move || {
        slow.begun.notify_one();
        slow.release.notified().await;
        "slow"
    };
    Router::new().route("/", get(who)).route("/slow", get(slow))
}

impl Bed {
    async fn start(limits: Limits) -> Self {
        let refusals: Arc<Mutex<Vec<Refusal>>> = Arc::default();
        let told = Arc::clone(&refusals);
        let server = Server::new(limits, move |refusal| told.lock().unwrap().push(refusal));
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let slow = Slow::default();
        let (stop, stopped) = watch::channel(false);
        let routes = router(slow.clone());
        let serving = server.clone();
        let task =
            tokio::spawn(async move { serving.serve(Port::Tcp(listener, None), routes, stopped).await });
        Self { address, server, refusals, slow, stop, task }
    }

    async fn connect(&self) -> TcpStream {
        TcpStream::connect(self.address).await.unwrap()
    }

    fn refused(&self, refusal: Refusal) -> usize {
        self.refusals.lock().unwrap().iter().filter(|told| **told == refusal).count()
    }

    async fn until_refused(&self, refusal: Refusal, times: usize) {
        let begin = Instant::now();
        while self.refused(refusal) < times {
            assert!(begin.elapsed() < DEADLINE, "{refusal:?}: {:?}", self.refusals);
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }
}

/// Reads until the last word of the body is there.
async fn answer(stream: &mut (impl tokio::io::AsyncRead + Unpin), word: &str) -> String {
    let mut text = Vec::new();
    let reading = async {
        while !String::from_utf8_lossy(&text).ends_with(word) {
            assert!(stream.read_buf(&mut text).await.unwrap() > 0, "{}", String::from_utf8_lossy(&text));
        }
    };
    tokio::time::timeout(DEADLINE, reading).await.unwrap();
    String::from_utf8(text).unwrap()
}

/// Waits until the server has closed the connection.
async fn closed(stream: &mut TcpStream) {
    let mut rest = Vec::new();
    // A connection reset is an end as well.
    let _ = tokio::time::timeout(DEADLINE, stream.read_to_end(&mut rest)).await.unwrap();
}

#[tokio::test]
async fn a_head_that_trickles_is_cut_off_and_holds_nobody_up() {
    let bed = Bed::start(LIMITS).await;
    let begin = Instant::now();
    let mut attackers = Vec::new();
    for _ in 0..3 {
        let mut stream = bed.connect().await;
        attackers.push(tokio::spawn(async move {
            // One byte at a time, without end.
            for byte in GET.iter().take(20).cycle() {
                if stream.write_all(&[*byte]).await.is_err() {
                    break;
                }
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        }));
    }
    let mut friend = bed.connect().await;
    for _ in 0..5 {
        friend.write_all(GET).await.unwrap();
        answer(&mut friend, "tcp").await;
    }
    bed.until_refused(Refusal::TooSlow, 3).await;
    assert!(begin.elapsed() >= LIMITS.head, "{:?}", begin.elapsed());
    for attacker in attackers {
        tokio::time::timeout(DEADLINE, attacker).await.unwrap().unwrap();
    }
}

#[tokio::test]
async fn who_says_nothing_at_all_is_cut_off_and_who_rests_between_requests_is_not() {
    let bed = Bed::start(LIMITS).await;
    let mut friend = bed.connect().await;
    friend.write_all(GET).await.unwrap();
    answer(&mut friend, "tcp").await;
    let mut mute = bed.connect().await;
    closed(&mut mute).await;
    bed.until_refused(Refusal::TooSlow, 1).await;
    // The connection was idle for longer than a head may take.
    friend.write_all(GET).await.unwrap();
    answer(&mut friend, "tcp").await;
    assert_eq!(bed.refused(Refusal::TooSlow), 1);
    let bed = Bed::start(Limits { idle: LIMITS.head, ..LIMITS }).await;
    let mut friend = bed.connect().await;
    friend.write_all(GET).await.unwrap();
    answer(&mut friend, "tcp").await;
    closed(&mut friend).await;
    assert_eq!(bed.refused(Refusal::TooSlow), 0, "a long rest is no offence");
}

#[tokio::test]
async fn many_connections_keep_nobody_out_but_requests_in_progress_stay() {
    let bed = Bed::start(Limits { head: DEADLINE, ..LIMITS }).await;
    let mut idle = Vec::new();
    for _ in 0..20 {
        idle.push(bed.connect().await);
    }
    let mut friend = bed.connect().await;
    friend.write_all(GET).await.unwrap();
    answer(&mut friend, "tcp").await;
    bed.until_refused(Refusal::Evicted, 17).await;
    // All places have requests in progress: a newcomer is refused, and the requests are answered.
    let mut workers = Vec::new();
    for _ in 0..LIMITS.connections {
        let mut stream = bed.connect().await;
        stream.write_all(SLOW).await.unwrap();
        bed.slow.begun.notified().await;
        workers.push(stream);
    }
    let mut newcomer = bed.connect().await;
    closed(&mut newcomer).await;
    bed.until_refused(Refusal::Full, 1).await;
    for mut worker in workers {
        bed.slow.release.notify_one();
        answer(&mut worker, "slow").await;
    }
}

#[tokio::test]
async fn at_the_end_requests_in_progress_are_finished_and_idle_connections_closed() {
    let bed = Bed::start(LIMITS).await;
    let mut idle = bed.connect().await;
    idle.write_all(GET).await.unwrap();
    answer(&mut idle, "tcp").await;
    let mut busy = bed.connect().await;
    busy.write_all(SLOW).await.unwrap();
    bed.slow.begun.notified().await;
    bed.stop.send_replace(true);
    closed(&mut idle).await;
    assert!(TcpStream::connect(bed.address).await.is_err(), "nobody new is let in");
    assert!(!bed.task.is_finished());
    bed.slow.release.notify_one();
    answer(&mut busy, "slow").await;
    tokio::time::timeout(DEADLINE, bed.task).await.unwrap().unwrap();
}

#[tokio::test]
async fn an_end_does_not_wait_for_ever() {
    let bed = Bed::start(Limits { drain: Duration::from_millis(100), ..LIMITS }).await;
    let mut busy = bed.connect().await;
    busy.write_all(SLOW).await.unwrap();
    bed.slow.begun.notified().await;
    bed.stop.send_replace(true);
    tokio::time::timeout(DEADLINE, bed.task).await.unwrap().unwrap();
    closed(&mut busy).await;
}

#[tokio::test]
async fn what_is_no_http_is_counted_and_a_unix_peer_is_known_by_user_and_group() {
    let bed = Bed::start(LIMITS).await;
    let mut nonsense = bed.connect().await;
    nonsense.write_all(b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\r\n\r\n").await.unwrap();
    closed(&mut nonsense).await;
    bed.until_refused(Refusal::Malformed, 1).await;

    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("socket");
    let port = Port::Unix(UnixListener::bind(&path).unwrap(), path.clone());
    let (stop, stopped) = watch::channel(false);
    let (server, routes) = (bed.server.clone(), router(Slow::default()));
    let task = tokio::spawn(async move { server.serve(port, routes, stopped).await });
    let mut stream = UnixStream::connect(&path).await.unwrap();
    let own = std::fs::metadata(dir.path()).map(|meta| std::os::unix::fs::MetadataExt::uid(&meta)).unwrap();
    stream.write_all(b"GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").await.unwrap();
    let mut text = String::new();
    tokio::time::timeout(DEADLINE, stream.read_to_string(&mut text)).await.unwrap().unwrap();
    assert!(text.contains(&format!("unix {own} ")), "{text}");
    stop.send_replace(true);
    tokio::time::timeout(DEADLINE, task).await.unwrap().unwrap();
    assert!(!path.exists());
}
