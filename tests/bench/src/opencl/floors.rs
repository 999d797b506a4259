//! The cost of the transports on this machine without our own logic: two threads that wake one another, a bidirectional
//! stream of tonic whose server answers every message, and a TCP socket on loopback that moves bytes to the other end and
//! back.

use super::super::report::Sorted;
use super::results::Floor;
use anyhow::{Context as _, Result};
use fpga_protocol::v1::device_manager_client::DeviceManagerClient;
use fpga_protocol::v1::device_manager_server::{DeviceManager, DeviceManagerServer};
use fpga_protocol::v1::{self, client_message, server_message};
use futures::stream::BoxStream;
use futures::{FutureExt as _, StreamExt as _};
use hyper_util::rt::TokioIo;
use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Instant;
use tokio::sync::{mpsc, oneshot};
use tokio_stream::wrappers::{ReceiverStream, UnixListenerStream};
use tonic::transport::server::TcpIncoming;
use tonic::transport::{Channel, Endpoint, Server};
use tonic::{Request, Response, Status, Streaming};

/// Number of round trips before the measured ones.
const WARM_UP: usize = 500;
/// Number of measured round trips.
const ROUND_TRIPS: usize = 5000;
/// Bytes that the raw socket moves in each direction.
const BULK: usize = 64 << 20;
/// Number of times that the raw socket moves them.
const BULK_ROUNDS: usize = 5;

/// The socket below tonic.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Socket {
    /// A unix socket.
    Unix,
    /// TCP on loopback.
    Tcp,
}

/// Answers each message with a completion, which is the traffic of a kernel launch.
struct Echo;

#[tonic::async_trait]
impl DeviceManager for Echo {
    type SessionStream = BoxStream<'static, Result<v1::ServerMessage, Status>>;

    async fn session(
        &self,
        request: Request<Streaming<v1::ClientMessage>>,
    ) -> Result<Response<Self::SessionStream>, Status> {
        let answers = request.into_inner().map(|message| message.map(|_| answer()));
        Ok(Response::new(answers.boxed()))
    }
}

fn answer() -> v1::ServerMessage {
    let moment = 1 << 40;
    let completion = v1::Completion {
        event: 1,
        queued_ns: moment,
        submitted_ns: moment,
        started_ns: moment,
        ended_ns: moment,
        ..v1::Completion::default()
    };
    let completions = v1::Completions { completions: vec![completion] };
    v1::ServerMessage { kind: Some(server_message::Kind::Completions(completions)) }
}

fn launch() -> v1::ClientMessage {
    let operation = v1::NdRange { kernel: 1, global: vec![1], local: vec![1], ..v1::NdRange::default() };
    let operation = Some(v1::command::Operation::NdRange(operation));
    let command = v1::Command { event: 1, queue: 1, operation, ..v1::Command::default() };
    let flush = v1::Flush { commands: vec![command] };
    v1::ClientMessage { kind: Some(client_message::Kind::Flush(flush)) }
}

/// Measures all, once.
///
/// # Errors
/// A socket fails.
pub fn measure() -> Result<Vec<Floor>> {
    let floor = |name: &str, times: &Sorted| {
        let [p50, p99] = [50, 99].map(|percent| vec![times.percentile(percent).as_secs_f64() * 1e6]);
        Floor { name: name.to_owned(), p50_us: p50, p99_us: p99 }
    };
    Ok(vec![
        floor("two threads wake one another", &wakes(ROUND_TRIPS)?),
        floor("bare tonic round trip, unix", &round_trips(Socket::Unix, ROUND_TRIPS)?),
        floor("bare tonic round trip, TCP", &round_trips(Socket::Tcp, ROUND_TRIPS)?),
        floor("64 MiB there and back over raw TCP", &raw_there_and_back(BULK, BULK_ROUNDS)?),
    ])
}

/// The times of `count` round trips of two threads that sleep until they are woken, which is a futex on Linux: the least
/// that a hop to another thread or process can take here.
fn wakes(count: usize) -> Result<Sorted> {
    let all = WARM_UP + count;
    // Odd: the other thread's turn.
    let turn = Arc::new(AtomicUsize::new(0));
    let wait_for = |turn: &AtomicUsize, value: usize| {
        while turn.load(Ordering::Acquire) != value {
            thread::park();
        }
    };
    let (own, turns) = (thread::current(), turn.clone());
    let other = thread::spawn(move || {
        for round in 0..all {
            wait_for(&turns, 2 * round + 1);
            turns.store(2 * round + 2, Ordering::Release);
            own.unpark();
        }
    });
    let mut samples = Vec::with_capacity(count);
    for round in 0..all {
        let begin = Instant::now();
        turn.store(2 * round + 1, Ordering::Release);
        other.thread().unpark();
        wait_for(&turn, 2 * round + 2);
        if round >= WARM_UP {
            samples.push(begin.elapsed());
        }
    }
    other.join().map_err(|_| anyhow::anyhow!("the other thread panicked"))?;
    Ok(Sorted::new(samples))
}

/// The times of `count` round trips on a bare bidirectional stream; client and server run on one thread each.
///
/// # Errors
/// A socket fails.
fn round_trips(socket: Socket, count: usize) -> Result<Sorted> {
    let folder = tempfile::tempdir()?;
    let path = folder.path().join("echo.sock");
    let tcp = TcpListener::bind("127.0.0.1:0")?;
    let address = tcp.local_addr()?;
    let (stop, stopped) = oneshot::channel::<()>();
    let listen_at = (socket == Socket::Unix).then(|| path.clone());
    let unix = listen_at.map(std::os::unix::net::UnixListener::bind).transpose()?;
    let server = thread::spawn(move || -> Result<()> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        runtime.block_on(async {
            let service = Server::builder().add_service(DeviceManagerServer::new(Echo));
            let stopped = stopped.map(|_| ());
            match unix {
                Some(listener) => {
                    listener.set_nonblocking(true)?;
                    let listener = UnixListenerStream::new(tokio::net::UnixListener::from_std(listener)?);
                    service.serve_with_incoming_shutdown(listener, stopped).await?;
                }
                None => {
                    tcp.set_nonblocking(true)?;
                    let listener = TcpIncoming::from(tokio::net::TcpListener::from_std(tcp)?);
                    service.serve_with_incoming_shutdown(listener.with_nodelay(Some(true)), stopped).await?;
                }
            }
            Ok(())
        })
    });
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let samples = runtime.block_on(async {
        let channel = match socket {
            Socket::Unix => connect_unix(path).await?,
            Socket::Tcp => Endpoint::from_shared(format!("http://{address}"))?.connect().await?,
        };
        times(channel, count).await
    });
    // Dropping the runtime closes the client's connection.
    drop(runtime);
    drop(stop);
    server.join().map_err(|_| anyhow::anyhow!("the echo server panicked"))??;
    samples
}

async fn connect_unix(path: PathBuf) -> Result<Channel> {
    let connect = tower::service_fn(move |_: tonic::transport::Uri| {
        let path = path.clone();
        async move { tokio::net::UnixStream::connect(path).await.map(TokioIo::new) }
    });
    Ok(Endpoint::from_static("http://echo").connect_with_connector(connect).await?)
}

async fn times(channel: Channel, count: usize) -> Result<Sorted> {
    let (to, messages) = mpsc::channel(1);
    let mut from =
        DeviceManagerClient::new(channel).session(ReceiverStream::new(messages)).await?.into_inner();
    let mut samples = Vec::with_capacity(count);
    for round in 0..WARM_UP + count {
        let begin = Instant::now();
        to.send(launch()).await.context("the echo server is gone")?;
        from.message().await?.context("the echo server has ended")?;
        if round >= WARM_UP {
            samples.push(begin.elapsed());
        }
    }
    Ok(Sorted::new(samples))
}

/// The times that a raw TCP socket on loopback takes to move `bytes` to another thread and as many back, over
/// `rounds`. The program `bandwidth` does the same with a buffer.
///
/// # Errors
/// A socket fails.
fn raw_there_and_back(bytes: usize, rounds: usize) -> Result<Sorted> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let address = listener.local_addr()?;
    let server = thread::spawn(move || -> std::io::Result<()> {
        let (mut stream, _) = listener.accept()?;
        stream.set_nodelay(true)?;
        let mut buffer = vec![0; bytes];
        for _ in 0..rounds {
            stream.read_exact(&mut buffer)?;
            stream.write_all(&buffer)?;
        }
        Ok(())
    });
    let mut stream = TcpStream::connect(address)?;
    stream.set_nodelay(true)?;
    let (from, mut into) = (vec![7; bytes], vec![0; bytes]);
    let mut samples = Vec::with_capacity(rounds);
    for _ in 0..rounds {
        let begin = Instant::now();
        stream.write_all(&from)?;
        stream.read_exact(&mut into)?;
        samples.push(begin.elapsed());
    }
    server.join().map_err(|_| anyhow::anyhow!("the other end panicked"))??;
    Ok(Sorted::new(samples))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn threads_wake_one_another() {
        let times = wakes(100).unwrap();
        assert_eq!(times.len(), 100);
        assert!(times.percentile(50) > Duration::ZERO);
    }

    #[test]
    fn both_sockets_answer() {
        for socket in [Socket::Unix, Socket::Tcp] {
            let times = round_trips(socket, 20).unwrap();
            assert_eq!(times.len(), 20);
            assert!(times.percentile(50) > Duration::ZERO);
        }
        assert!(raw_there_and_back(1 << 16, 3).unwrap().percentile(50) > Duration::ZERO);
    }
}
