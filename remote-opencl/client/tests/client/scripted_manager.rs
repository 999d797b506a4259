//! A device manager of a few lines, in the test's process: buffers are vectors, kernels do nothing, and it says what it
//! was sent. A real gRPC server on a real unix socket.

use fpga_protocol::v1::device_manager_server::{DeviceManager, DeviceManagerServer};
use fpga_protocol::v1::{self, call::Method, client_message, command::Operation, data::Form, server_message};
use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;
use tempfile::TempDir;
use tokio::sync::{Notify, mpsc};
use tokio_stream::wrappers::{UnboundedReceiverStream, UnixListenerStream};
use tonic::{Request, Response, Status, Streaming};

const OTHER_TRANSFER: u64 = 1 << 63;

/// A manager that runs until it is dropped or killed.
pub struct ScriptedManager {
    address: String,
    script: Arc<Script>,
    stop: Arc<Notify>,
    thread: Option<JoinHandle<()>>,
    _folder: TempDir,
}

/// What the manager is told, and what it saw.
#[derive(Default)]
pub struct Script {
    /// Take commands, but end none.
    pub hold: AtomicBool,
    /// Answer reads with transfers of this chunk size, whatever their length (0: inline where allowed).
    pub chunk_bytes: AtomicU64,
    /// Send this instead of completions.
    pub instead: Mutex<Option<v1::ServerMessage>>,
    /// Numbers of commands per flush, in order.
    pub flushes: Mutex<Vec<usize>>,
    /// All commands.
    pub commands: Mutex<Vec<v1::Command>>,
    /// Released objects, and whether a command that came later used them would be an error.
    pub released: Mutex<Vec<u64>>,
    /// Released events.
    pub released_events: Mutex<Vec<u64>>,
    /// Binaries that it has.
    pub binaries: Mutex<HashMap<Vec<u8>, Vec<u8>>>,
    /// With which code barriers fail; 0 where they don't.
    pub barriers_fail_with: AtomicI32,
    /// As a manager of before there were commands on rectangles.
    pub knows_no_rects: AtomicBool,
    changed: Notify,
}

impl ScriptedManager {
    pub fn start() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("dm.sock");
        let listener = std::os::unix::net::UnixListener::bind(&path).unwrap();
        listener.set_nonblocking(true).unwrap();
        let script = Arc::new(Script::default());
        let stop = Arc::new(Notify::new());
        let thread = std::thread::spawn({
            let (script, stop) = (Arc::clone(&script), Arc::clone(&stop));
            move || {
                let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
                runtime.block_on(async {
                    let incoming =
                        UnixListenerStream::new(tokio::net::UnixListener::from_std(listener).unwrap());
                    let server = tonic::transport::Server::builder()
                        .initial_stream_window_size(fpga_protocol::limits::WINDOW_BYTES)
                        .initial_connection_window_size(fpga_protocol::limits::WINDOW_BYTES)
                        .max_frame_size(fpga_protocol::limits::MAX_FRAME_BYTES)
                        .add_service(DeviceManagerServer::new(Service(script)))
                        .serve_with_incoming(incoming);
                    tokio::select! {
                        result = server => result.unwrap(),
                        () = stop.notified() => {}
                    }
                });
                // As a killed process: the sockets close with whatever is outstanding.
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

    /// Ends commands again.
    pub fn let_go(&self) {
        self.script.hold.store(false, Ordering::SeqCst);
        self.script.changed.notify_one();
    }

    /// Ends like a process that is killed, and returns when it has.
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

struct Service(Arc<Script>);

#[tonic::async_trait]
impl DeviceManager for Service {
    type SessionStream = UnboundedReceiverStream<Result<v1::ServerMessage, Status>>;

    async fn session(
        &self,
        request: Request<Streaming<v1::ClientMessage>>,
    ) -> Result<Response<Self::SessionStream>, Status> {
        let (out, receiver) = mpsc::unbounded_channel();
        let state = State { script: Arc::clone(&self.0), out, ..State::new() };
        tokio::spawn(state.run(request.into_inner()));
        Ok(Response::new(UnboundedReceiverStream::new(receiver)))
    }
}

struct State {
    script: Arc<Script>,
    out: mpsc::UnboundedSender<Result<v1::ServerMessage, Status>>,
    buffers: HashMap<u64, Vec<u8>>,
    subs: HashMap<u64, (u64, usize)>,
    uploads: HashMap<u64, Vec<u8>>,
    ended: HashMap<u64, i32>,
    waiting: Vec<v1::Command>,
    programs: HashMap<u64, HashSet<Vec<u8>>>,
}

impl State {
    fn new() -> Self {
        Self {
            script: Arc::default(),
            out: mpsc::unbounded_channel().0,
            buffers: HashMap::new(),
            subs: HashMap::new(),
            uploads: HashMap::new(),
            ended: HashMap::new(),
            waiting: Vec::new(),
            programs: HashMap::new(),
        }
    }

    async fn run(mut self, mut inbox: Streaming<v1::ClientMessage>) {
        let script = Arc::clone(&self.script);
        loop {
            tokio::select! {
                message = inbox.message() => match message {
                    Ok(Some(message)) => self.take(message.kind.unwrap()),
                    _ => return,
                },
                () = script.changed.notified() => {}
            }
            self.run_what_is_ready();
        }
    }

    fn send(&self, kind: server_message::Kind) {
        let _ = self.out.send(Ok(v1::ServerMessage { kind: Some(kind) }));
    }

    fn take(&mut self, kind: client_message::Kind) {
        match kind {
            client_message::Kind::Hello(hello) => {
                assert_eq!(hello.protocol_version, fpga_protocol::limits::PROTOCOL_VERSION);
                let buffer_rects = !self.script.knows_no_rects.load(Ordering::SeqCst);
                self.send(server_message::Kind::Welcome(v1::Welcome { buffer_rects, ..welcome() }));
            }
            client_message::Kind::Ack(_) => {}
            client_message::Kind::Call(call) => self.call(call),
            client_message::Kind::Flush(flush) => {
                self.script.flushes.lock().unwrap().push(flush.commands.len());
                self.script.commands.lock().unwrap().extend(flush.commands.iter().cloned());
                self.waiting.extend(flush.commands);
            }
            client_message::Kind::Chunk(chunk) => {
                let upload = self.uploads.entry(chunk.transfer).or_default();
                assert_eq!(upload.len() as u64, chunk.offset, "chunks in order");
                upload.extend_from_slice(&chunk.data);
            }
        }
    }

    fn call(&mut self, call: v1::Call) {
        let mut reply = v1::Reply { id: call.id, ..v1::Reply::default() };
        match call.method.unwrap() {
            Method::CreateBuffer(create) => {
                let content = match create.initial {
                    Some(data) => self.data(data),
                    None => vec![0; create.size as usize],
                };
                assert_eq!(content.len() as u64, create.size);
                self.buffers.insert(create.buffer, content);
            }
            Method::CreateSubBuffer(create) => {
                self.subs.insert(create.buffer, (create.parent, create.origin as usize));
            }
            Method::BuildProgram(build) => {
                let fails = build.options.contains("-fail");
                reply.status = if fails { -11 } else { 0 };
                let device = v1::DeviceBuild {
                    device: 1,
                    status: if fails { -2 } else { 0 },
                    log: "a log".into(),
                    binary_type: 4,
                    ..v1::DeviceBuild::default()
                };
                reply.result = Some(v1::reply::Result::Build(v1::BuildResult {
                    devices: vec![device],
                    kernels: if fails { Vec::new() } else { vec![kernel_info()] },
                }));
            }
            Method::CreateProgramWithBinary(create) => {
                let digests = create.binaries.into_iter().map(|it| it.digest.to_vec()).collect();
                self.programs.insert(create.program, digests);
                reply.result = Some(self.binaries_result(create.program));
            }
            Method::ProvideBinary(provide) => {
                let bytes = self.data(provide.data.unwrap());
                self.script.binaries.lock().unwrap().insert(provide.digest.to_vec(), bytes);
                reply.result = Some(self.binaries_result(provide.program));
            }
            Method::GetProgramBinaries(_) => {
                let bytes = vec![7u8; 100_000];
                let id = OTHER_TRANSFER | 1;
                self.send_chunks(id, &bytes, 30_000);
                let form = Form::Transfer(v1::Transfer { id, length: bytes.len() as u64 });
                reply.result = Some(v1::reply::Result::ProgramBinaries(v1::ProgramBinaries {
                    binaries: vec![v1::Data { form: Some(form) }],
                }));
            }
            Method::SetUserEvent(set) => {
                self.ended.insert(set.event, set.status);
            }
            Method::Release(release) => {
                self.script.released.lock().unwrap().extend(release.objects);
                self.script.released_events.lock().unwrap().extend(release.events);
            }
            _ => {}
        }
        if reply.id != 0 {
            self.send(server_message::Kind::Reply(reply));
        }
    }

    fn binaries_result(&self, program: u64) -> v1::reply::Result {
        let stored = self.script.binaries.lock().unwrap();
        let lacking = self.programs[&program].iter().filter(|digest| !stored.contains_key(*digest));
        let missing: Vec<_> = lacking.map(|digest| digest.clone().into()).collect();
        let binary_status = if missing.is_empty() { vec![0] } else { Vec::new() };
        v1::reply::Result::Binaries(v1::BinariesResult {
            binary_status,
            missing,
            ..v1::BinariesResult::default()
        })
    }

    fn data(&mut self, data: v1::Data) -> Vec<u8> {
        match data.form.unwrap() {
            Form::Inline(bytes) => bytes.to_vec(),
            Form::Transfer(transfer) => {
                let bytes = self.uploads.remove(&transfer.id).unwrap();
                assert_eq!(bytes.len() as u64, transfer.length, "all chunks before the reference");
                bytes
            }
            Form::Segment(range) => panic!("{range:?}, and no memory was offered"),
        }
    }

    fn send_chunks(&self, transfer: u64, bytes: &[u8], chunk_bytes: usize) {
        for (index, part) in bytes.chunks(chunk_bytes).enumerate() {
            self.send(server_message::Kind::Chunk(v1::Chunk {
                transfer,
                length: bytes.len() as u64,
                offset: (index * chunk_bytes) as u64,
                data: part.to_vec().into(),
            }));
        }
    }

    fn run_what_is_ready(&mut self) {
        if self.script.hold.load(Ordering::SeqCst) || self.waiting.is_empty() {
            return;
        }
        if let Some(message) = self.script.instead.lock().unwrap().clone() {
            let _ = self.out.send(Ok(message));
            return;
        }
        let mut completions = Vec::new();
        loop {
            let mut blocked = HashSet::new();
            let ready = self.waiting.iter().position(|command| {
                let ready = command.wait.iter().all(|event| self.ended.contains_key(event));
                // In-order queues: nothing overtakes what waits.
                if !ready {
                    blocked.insert(command.queue);
                }
                ready && !blocked.contains(&command.queue)
            });
            let Some(ready) = ready else { break };
            let command = self.waiting.remove(ready);
            let failed = command.wait.iter().any(|event| self.ended[event] < 0);
            let event = command.event;
            let refused = match command.operation {
                Some(Operation::Barrier(_)) => self.script.barriers_fail_with.load(Ordering::SeqCst),
                _ => 0,
            };
            let (status, data) = match (failed, refused) {
                (true, _) => (-14, None),
                (false, 0) => (0, self.execute(command)),
                (false, refused) => (refused, None),
            };
            self.ended.insert(event, status);
            completions.push(v1::Completion {
                event,
                status,
                queued_ns: 1_000,
                submitted_ns: 2_000,
                started_ns: 3_000,
                ended_ns: 3_500,
                data,
                // Nothing else makes a command fail for another one here.
                by_user_event: failed,
            });
        }
        if !completions.is_empty() {
            self.send(server_message::Kind::Completions(v1::Completions { completions }));
        }
    }

    fn execute(&mut self, command: v1::Command) -> Option<v1::Data> {
        match command.operation.unwrap() {
            Operation::WriteBuffer(write) => {
                let bytes = self.data(write.data.unwrap());
                self.bytes(write.buffer, write.offset, bytes.len() as u64).copy_from_slice(&bytes);
                None
            }
            Operation::ReadBuffer(read) => {
                let bytes = self.bytes(read.buffer, read.offset, read.size).to_vec();
                let chunk_bytes = self.script.chunk_bytes.load(Ordering::SeqCst) as usize;
                let inline = bytes.len() <= fpga_protocol::limits::MAX_INLINE_BYTES && chunk_bytes == 0;
                let form = if inline {
                    Form::Inline(bytes.into())
                } else {
                    let chunk_bytes = if chunk_bytes == 0 { 256 * 1024 } else { chunk_bytes };
                    self.send_chunks(command.event, &bytes, chunk_bytes);
                    Form::Transfer(v1::Transfer { id: command.event, length: bytes.len() as u64 })
                };
                Some(v1::Data { form: Some(form) })
            }
            Operation::CopyBuffer(copy) => {
                let bytes = self.bytes(copy.source, copy.source_offset, copy.size).to_vec();
                self.bytes(copy.target, copy.target_offset, copy.size).copy_from_slice(&bytes);
                None
            }
            Operation::FillBuffer(fill) => {
                for part in self.bytes(fill.buffer, fill.offset, fill.size).chunks_mut(fill.pattern.len()) {
                    part.copy_from_slice(&fill.pattern);
                }
                None
            }
            Operation::WriteBufferRect(write) => {
                let bytes = self.data(write.data.unwrap());
                let rows = rows(&write.layout.unwrap(), &write.region);
                for (at, row) in rows.into_iter().zip(bytes.chunks(write.region[0] as usize)) {
                    self.bytes(write.buffer, at, write.region[0]).copy_from_slice(row);
                }
                None
            }
            Operation::ReadBufferRect(read) => {
                let mut bytes = Vec::new();
                for at in rows(&read.layout.unwrap(), &read.region) {
                    bytes.extend_from_slice(self.bytes(read.buffer, at, read.region[0]));
                }
                let form = if bytes.len() <= fpga_protocol::limits::MAX_INLINE_BYTES {
                    Form::Inline(bytes.into())
                } else {
                    self.send_chunks(command.event, &bytes, 256 * 1024);
                    Form::Transfer(v1::Transfer { id: command.event, length: bytes.len() as u64 })
                };
                Some(v1::Data { form: Some(form) })
            }
            Operation::CopyBufferRect(copy) => {
                let from = rows(&copy.source_layout.unwrap(), &copy.region);
                let to = rows(&copy.target_layout.unwrap(), &copy.region);
                for (from, to) in from.into_iter().zip(to) {
                    let row = self.bytes(copy.source, from, copy.region[0]).to_vec();
                    self.bytes(copy.target, to, copy.region[0]).copy_from_slice(&row);
                }
                None
            }
            Operation::NdRange(_) | Operation::Marker(_) | Operation::Barrier(_) => None,
            other => panic!("this manager has no images: {other:?}"),
        }
    }

    fn bytes(&mut self, buffer: u64, offset: u64, size: u64) -> &mut [u8] {
        let (buffer, origin) = self.subs.get(&buffer).copied().unwrap_or((buffer, 0));
        let begin = origin + offset as usize;
        &mut self.buffers.get_mut(&buffer).unwrap()[begin..begin + size as usize]
    }
}

/// Where the rows of a rectangle begin.
fn rows(layout: &v1::RectLayout, region: &[u64]) -> Vec<u64> {
    let v1::RectLayout { origin, row_pitch, slice_pitch } = layout;
    let start = origin[0] + origin[1] * row_pitch + origin[2] * slice_pitch;
    let slice = |slice: u64| (0..region[1]).map(move |row| start + slice * slice_pitch + row * row_pitch);
    (0..region[2]).flat_map(slice).collect()
}

fn welcome() -> v1::Welcome {
    let info = |param, value: &[u8]| v1::Info { param, value: value.to_vec().into() };
    let device = v1::Device {
        id: 1,
        info: vec![
            info(fpga_client::cl::DEVICE_MEM_BASE_ADDR_ALIGN, &1024u32.to_le_bytes()),
            info(fpga_client::cl::DEVICE_MAX_MEM_ALLOC_SIZE, &(1u64 << 30).to_le_bytes()),
        ],
    };
    v1::Welcome {
        session: "scripted".into(),
        platforms: vec![v1::Platform { info: vec![info(0x0902, b"Scripted\0")], devices: vec![device] }],
        manager_ns: 500,
        // There is no side socket, as where only the manager's own socket is mounted: everything goes without.
        side_key: vec![1; 32].into(),
        buffers_in_segments: true,
        ..v1::Welcome::default()
    }
}

fn kernel_info() -> v1::KernelInfo {
    let arg = |address_qualifier, type_name: &str| v1::KernelArgInfo {
        address_qualifier,
        access_qualifier: fpga_client::cl::KERNEL_ARG_ACCESS_NONE,
        type_name: type_name.into(),
        type_qualifier: 0,
        name: "x".into(),
    };
    v1::KernelInfo {
        name: "k".into(),
        num_args: 2,
        attributes: String::new(),
        args: vec![
            arg(fpga_client::cl::KERNEL_ARG_ADDRESS_GLOBAL, "float*"),
            arg(fpga_client::cl::KERNEL_ARG_ADDRESS_PRIVATE, "int"),
        ],
        local_args: Vec::new(),
        work_groups: vec![v1::KernelWorkGroupInfo {
            device: 1,
            work_group_size: 64,
            compile_work_group_size: vec![0, 0, 0],
            ..v1::KernelWorkGroupInfo::default()
        }],
    }
}

/// Polls `condition` for a while; a test that waits for what happens elsewhere.
pub fn eventually(what: &str, condition: impl Fn() -> bool) {
    let deadline = std::time::Instant::now() + Duration::from_secs(10);
    while !condition() {
        assert!(std::time::Instant::now() < deadline, "never: {what}");
        std::thread::sleep(Duration::from_millis(1));
    }
}
