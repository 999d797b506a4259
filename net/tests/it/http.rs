//! The bounds on connections, for friendly, slow and numerous peers. The clock stands still except where a test moves it.

use axum::Router;
use axum::extract::Extension;
use axum::routing::get;
use fpga_net::http::{Limits, Peer, Port, Refusal, Server};
use fpga_test_kit::{on_paused_clock, until_async};
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpSocket, TcpStream, UnixListener, UnixStream};
use tokio::sync::{Notify, watch};
use tokio::task::JoinHandle;
use tokio::time::advance;

const LIMITS: Limits = Limits {
    connections: 4,
    buffer_bytes: 64 * 1024,
    head: Duration::from_millis(300),
    idle: Duration::from_secs(10),
    drain: Duration::from_secs(10),
};
const MOMENT: Duration = Duration::from_millis(1);
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

    /// A connection from 127.0.0.2.
    async fn connect_from_other_address(&self) -> TcpStream {
        let socket = TcpSocket::new_v4().unwrap();
        socket.bind("127.0.0.2:0".parse().unwrap()).unwrap();
        socket.connect(self.address).await.unwrap()
    }

    /// A connection on which the server has answered a request. So it has accepted all connections before this one.
    async fn friend(&self) -> TcpStream {
        let mut friend = self.connect().await;
        ask(&mut friend).await;
        friend
    }

    /// A connection with a request in progress.
    async fn worker(&self) -> TcpStream {
        let mut worker = self.connect().await;
        self.begin_work(&mut worker).await;
        worker
    }

    async fn begin_work(&self, stream: &mut TcpStream) {
        stream.write_all(SLOW).await.unwrap();
        self.slow.begun.notified().await;
    }

    /// A new connection from 127.0.0.1 that the server closes: so far it has closed `times` ones like this.
    async fn refused_newcomer(&self, times: usize) {
        closed(&mut self.connect().await).await;
        self.until_refused(Refusal::Full, times).await;
    }

    /// Tells the server to stop, and waits until it takes no new connection.
    async fn stop(&self) {
        self.stop.send_replace(true);
        until_async("an end of the listener", async || TcpStream::connect(self.address).await.is_err()).await;
    }

    fn refused(&self, refusal: Refusal) -> usize {
        self.refusals.lock().unwrap().iter().filter(|told| **told == refusal).count()
    }

    async fn until_refused(&self, refusal: Refusal, times: usize) {
        until_async(format!("{times} times {refusal:?}"), async || {
            if self.refused(refusal) >= times { Ok(()) } else { Err(format!("{:?}", self.refusals)) }
        })
        .await;
    }
}

/// Sends a request and reads the answer.
async fn ask(stream: &mut TcpStream) {
    stream.write_all(GET).await.unwrap();
    answer(stream, "tcp").await;
}

/// Reads until the last word of the body is there.
async fn answer(stream: &mut (impl AsyncRead + Unpin), word: &str) {
    let mut text = Vec::new();
    while !String::from_utf8_lossy(&text).ends_with(word) {
        assert!(stream.read_buf(&mut text).await.unwrap() > 0, "{}", String::from_utf8_lossy(&text));
    }
}

/// Waits until the server has closed the connection.
async fn closed(stream: &mut TcpStream) {
    // A connection reset is an end as well.
    let _ = stream.read_to_end(&mut Vec::new()).await;
}

/// A test on the paused clock.
macro_rules! test {
    ($name:ident, $body:block) => {
        #[tokio::test]
        async fn $name() {
            on_paused_clock(async $body).await;
        }
    };
}

test!(a_head_that_trickles_is_cut_off_and_delays_no_other_connection, {
    let bed = Bed::start(LIMITS).await;
    let mut attackers = [bed.connect().await, bed.connect().await, bed.connect().await];
    let mut friend = bed.friend().await;
    for byte in &GET[..10] {
        for attacker in &mut attackers {
            attacker.write_all(&[*byte]).await.unwrap();
        }
        assert_eq!(bed.refused(Refusal::TooSlow), 0);
        ask(&mut friend).await;
        advance((LIMITS.head - MOMENT) / 10).await;
    }
    ask(&mut friend).await;
    assert_eq!(bed.refused(Refusal::TooSlow), 0);
    advance(MOMENT * 2).await;
    bed.until_refused(Refusal::TooSlow, 3).await;
    for mut attacker in attackers {
        closed(&mut attacker).await;
    }
    ask(&mut friend).await;
});

test!(a_mute_connection_is_cut_off_and_one_that_rests_between_requests_is_not, {
    let bed = Bed::start(LIMITS).await;
    let mut mute = bed.connect().await;
    let mut friend = bed.friend().await;
    advance(LIMITS.head + MOMENT).await;
    closed(&mut mute).await;
    bed.until_refused(Refusal::TooSlow, 1).await;
    // The connection was idle for longer than a head may take.
    ask(&mut friend).await;
    assert_eq!(bed.refused(Refusal::TooSlow), 1);
    let bed = Bed::start(Limits { idle: LIMITS.head, ..LIMITS }).await;
    let mut friend = bed.friend().await;
    advance(LIMITS.head + MOMENT).await;
    closed(&mut friend).await;
    assert_eq!(bed.refused(Refusal::TooSlow), 0, "a long rest is no offence");
});

test!(many_connections_keep_nobody_out_but_requests_in_progress_stay, {
    let bed = Bed::start(LIMITS).await;
    let mut idle = Vec::new();
    for _ in 0..20 {
        idle.push(bed.connect().await);
    }
    let _friend = bed.friend().await;
    bed.until_refused(Refusal::Evicted, 17).await;
    // All places have requests in progress: a newcomer is refused, and the requests are answered.
    let mut workers = Vec::new();
    for _ in 0..LIMITS.connections {
        workers.push(bed.worker().await);
    }
    let mut newcomer = bed.connect().await;
    closed(&mut newcomer).await;
    bed.until_refused(Refusal::Full, 1).await;
    for mut worker in workers {
        bed.slow.release.notify_one();
        answer(&mut worker, "slow").await;
    }
});

test!(an_address_with_all_places_makes_room_for_another_address_also_with_requests_in_progress, {
    let bed = Bed::start(LIMITS).await;
    let mut hogs = Vec::new();
    for _ in 0..LIMITS.connections {
        hogs.push(bed.worker().await);
    }
    let mut other = bed.connect_from_other_address().await;
    ask(&mut other).await;
    closed(&mut hogs.remove(0)).await;
    assert_eq!(bed.refused(Refusal::Evicted), 1);
    // The other address keeps its place, at rest as well as at work.
    bed.refused_newcomer(1).await;
    ask(&mut other).await;
    bed.begin_work(&mut other).await;
    bed.refused_newcomer(2).await;
    // With equal shares no address takes a place from another one.
    let mut second = bed.connect_from_other_address().await;
    bed.begin_work(&mut second).await;
    closed(&mut hogs.remove(0)).await;
    bed.refused_newcomer(3).await;
    closed(&mut bed.connect_from_other_address().await).await;
    bed.until_refused(Refusal::Full, 4).await;
    assert_eq!(bed.refused(Refusal::Evicted), 2);
    for worker in hogs.iter_mut().chain([&mut other, &mut second]) {
        bed.slow.release.notify_one();
        answer(worker, "slow").await;
    }
});

test!(at_the_end_requests_in_progress_are_finished_and_idle_connections_closed, {
    let bed = Bed::start(LIMITS).await;
    let mut idle = bed.friend().await;
    let mut busy = bed.worker().await;
    bed.stop().await;
    closed(&mut idle).await;
    assert!(!bed.task.is_finished());
    bed.slow.release.notify_one();
    answer(&mut busy, "slow").await;
    bed.task.await.unwrap();
});

test!(an_end_does_not_wait_for_ever, {
    let bed = Bed::start(LIMITS).await;
    let mut busy = bed.worker().await;
    bed.stop().await;
    advance(LIMITS.drain - MOMENT).await;
    assert!(!bed.task.is_finished());
    advance(MOMENT * 2).await;
    bed.task.await.unwrap();
    closed(&mut busy).await;
});

test!(bytes_that_are_no_http_are_counted_and_a_unix_peer_is_known_by_user_and_group, {
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
    stream.read_to_string(&mut text).await.unwrap();
    assert!(text.contains(&format!("unix {own} ")), "{text}");
    stop.send_replace(true);
    task.await.unwrap();
    assert!(!path.exists());
});
