//! A small device manager in the test's process: buffers are vectors, kernels do nothing, and it records its
//! messages. It is a real gRPC server on a real unix socket.

mod description;
mod execution;
mod session;

use fpga_protocol::segments::{SIDE_SUFFIX, TAKEN};
use fpga_protocol::v1;
use fpga_protocol::v1::device_manager_server::{DeviceManager, DeviceManagerServer};
use fpga_test_kit::patience;
use session::State;
use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;
use tempfile::TempDir;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::UnixListener;
use tokio::sync::{Notify, mpsc};
use tokio_stream::wrappers::{UnboundedReceiverStream, UnixListenerStream};
use tonic::{Request, Response, Status, Streaming};

/// Key of every session on the channel for descriptors.
const SIDE_KEY: &[u8] = &[9; 16];

/// A manager that runs until it is dropped or killed.
pub struct ScriptedManager {
    address: String,
    script: Arc<Script>,
    stop: Arc<Notify>,
    thread: Option<JoinHandle<()>>,
    _folder: TempDir,
}

/// Settings of the manager, and records of what it received.
#[derive(Default)]
pub struct Script {
    /// Whether commands are accepted but not ended.
    pub hold: AtomicBool,
    /// Size of the chunks in which reads are answered; 0: inline where allowed.
    pub chunk_bytes: AtomicU64,
    /// A message to send instead of completions.
    pub instead: Mutex<Option<v1::ServerMessage>>,
    /// Number of commands of each flush, in order.
    pub flushes: Mutex<Vec<usize>>,
    /// All received commands.
    pub commands: Mutex<Vec<v1::Command>>,
    /// All received calls.
    pub calls: Mutex<Vec<v1::Call>>,
    /// Ids of released objects.
    pub released: Mutex<Vec<u64>>,
    /// Released events.
    pub released_events: Mutex<Vec<u64>>,
    /// Binaries that the manager has, by digest.
    pub binaries: Mutex<HashMap<Vec<u8>, Vec<u8>>>,
    /// The code with which barriers fail; 0 if they don't.
    pub barriers_fail_with: AtomicI32,
    /// Whether the manager lacks commands on rectangles, as managers before version 0.2 do.
    pub knows_no_rects: AtomicBool,
    /// Whether the manager takes no unwatched commands, as managers before version 0.2.
    pub knows_no_unwatched: AtomicBool,
    /// Whether the manager records traces. Managers before version 0.2 don't.
    pub records_traces: AtomicBool,
    /// How requests for a command ring are answered, if the manager offers one.
    pub ring: Mutex<Option<RingAnswer>>,
    /// Number of sessions that are open.
    pub sessions: AtomicUsize,
    /// The lease that the manager knows.
    pub lease: Mutex<Vec<u8>>,
    /// The Hello of the latest session.
    pub hello: Mutex<v1::Hello>,
    wants_yield: AtomicBool,
    changed: Notify,
}

/// An answer to the request for a command ring.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RingAnswer {
    /// There is no memory for a ring.
    NoMemory,
    /// Another Welcome.
    Nonsense,
}

impl ScriptedManager {
    pub fn start() -> Self {
        Self::start_with(None)
    }

    /// Starts a manager that pings its clients this often.
    pub fn start_with(ping: Option<Duration>) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("dm.sock");
        let listener = std::os::unix::net::UnixListener::bind(&path).unwrap();
        listener.set_nonblocking(true).unwrap();
        let mut side = path.clone().into_os_string();
        side.push(SIDE_SUFFIX);
        let script = Arc::new(Script::default());
        let stop = Arc::new(Notify::new());
        let thread = std::thread::spawn({
            let (script, stop) = (Arc::clone(&script), Arc::clone(&stop));
            move || {
                let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
                runtime.block_on(async {
                    tokio::spawn(take_keys(UnixListener::bind(side).unwrap()));
                    let incoming = UnixListenerStream::new(UnixListener::from_std(listener).unwrap());
                    let server = tonic::transport::Server::builder()
                        .initial_stream_window_size(fpga_protocol::limits::WINDOW_BYTES)
                        .initial_connection_window_size(fpga_protocol::limits::WINDOW_BYTES)
                        .max_frame_size(fpga_protocol::limits::MAX_FRAME_BYTES)
                        .http2_keepalive_interval(ping)
                        .http2_keepalive_timeout(Some(patience()))
                        .add_service(DeviceManagerServer::new(Service(script)))
                        .serve_with_incoming(incoming);
                    tokio::select! {
                        result = server => result.unwrap(),
                        () = stop.notified() => {}
                    }
                });
                // Sockets close with commands outstanding, as when a process is killed.
                runtime.shutdown_background();
            }
        });
        let address = format!("unix:{}", path.display());
        Self { address, script, stop, thread: Some(thread), _folder: folder }
    }

    pub fn address(&self) -> &str {
        &self.address
    }

    pub fn script(&self) -> &Script {
        &self.script
    }

    /// Lets commands end again.
    pub fn let_go(&self) {
        self.script.hold.store(false, Ordering::SeqCst);
        self.script.changed.notify_one();
    }

    /// Asks the holder of the lease to give it up.
    pub fn recall(&self) {
        self.script.wants_yield.store(true, Ordering::SeqCst);
        self.script.changed.notify_one();
    }

    /// Ends like a killed process, and returns when all sockets are closed.
    pub fn kill(&mut self) {
        self.stop.notify_one();
        if let Some(thread) = self.thread.take() {
            thread.join().unwrap();
        }
    }
}

impl Drop for ScriptedManager {
    fn drop(&mut self) {
        self.kill();
    }
}

/// Takes the keys of sessions on the channel for descriptors, of which the manager sends none.
async fn take_keys(listener: UnixListener) {
    let mut channels = Vec::new();
    loop {
        let (mut channel, _) = listener.accept().await.unwrap();
        channel.read_exact(&mut SIDE_KEY.to_vec()).await.unwrap();
        channel.write_u8(TAKEN).await.unwrap();
        channels.push(channel);
    }
}

struct Service(Arc<Script>);

#[tonic::async_trait]
impl DeviceManager for Service {
    type SessionStream = UnboundedReceiverStream<Result<v1::ServerMessage, Status>>;

    async fn session(
        &self,
        request: Request<Streaming<v1::ClientMessage>>,
    ) -> Result<Response<Self::SessionStream>, Status> {
        let (out, receiver) = mpsc::unbounded_channel();
        let state = State::new(Arc::clone(&self.0), out);
        tokio::spawn(state.run(request.into_inner()));
        Ok(Response::new(UnboundedReceiverStream::new(receiver)))
    }
}
