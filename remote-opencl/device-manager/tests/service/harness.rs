//! A device manager as a child process, and a client that speaks the protocol by hand.

// By their paths, so that a benchmark can have this file, too.
#[path = "harness/board.rs"]
mod board;
#[path = "harness/manager.rs"]
mod manager;

pub use board::Board;
pub use manager::Manager;

use bytes::{BufMut as _, Bytes};
use fpga_protocol::limits::{MAX_CHUNK_BYTES, MAX_INLINE_BYTES, PROTOCOL_VERSION};
use fpga_protocol::v1::call::Method;
use fpga_protocol::v1::client_message::Kind;
use fpga_protocol::v1::command::Operation;
use fpga_protocol::v1::data::Form;
use fpga_protocol::v1::device_manager_client::DeviceManagerClient;
use fpga_protocol::v1::kernel_arg::Value;
use fpga_protocol::v1::server_message::Kind as ServerKind;
use fpga_protocol::v1::{self, ServerMessage};
use prost::Message as _;
use std::collections::HashMap;
use std::time::Duration;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::codec::{Codec, DecodeBuf, Decoder, EncodeBuf, Encoder};
use tonic::codegen::http::uri::PathAndQuery;
use tonic::transport::Channel;
use tonic::{Code, Status, Streaming};

pub const DEADLINE: Duration = Duration::from_secs(30);

/// A client without a library. Ids are counted up.
pub struct Client {
    to: mpsc::Sender<v1::ClientMessage>,
    from: Streaming<ServerMessage>,
    pub welcome: v1::Welcome,
    replies: HashMap<u64, v1::Reply>,
    completions: HashMap<u64, v1::Completion>,
    transfers: HashMap<u64, Vec<u8>>,
    last_id: u64,
}

/// What most tests begin with.
pub struct Ready {
    /// In order.
    pub queue: u64,
    pub kernel: u64,
    pub buffer: u64,
}

impl Client {
    pub async fn connect(manager: &Manager) -> Self {
        Self::over(manager.channel().await).await
    }

    pub async fn over(channel: Channel) -> Self {
        Self::with_token(channel, "").await
    }

    /// The status with which a session without a token is refused.
    pub async fn refused(channel: Channel) -> Status {
        Self::refused_with(channel, "").await
    }

    pub async fn refused_with(channel: Channel, token: &str) -> Status {
        Self::try_token(channel, token).await.unwrap_err()
    }

    pub async fn try_token(channel: Channel, token: &str) -> Result<(), Status> {
        let (to, mut from) = raw(channel).await;
        to.send(hello_with(PROTOCOL_VERSION, token)).await.unwrap();
        next(&mut from).await.map(|_| ())
    }

    /// Whether a session begins over this channel, which may have been closed already.
    pub async fn enters(channel: Channel) -> Result<(), ()> {
        let (to, mut from) = try_raw(channel).await.map_err(|_| ())?;
        to.send(hello(PROTOCOL_VERSION)).await.map_err(|_| ())?;
        next(&mut from).await.map(|_| ()).map_err(|_| ())
    }

    pub async fn with_token(channel: Channel, token: &str) -> Self {
        let (to, mut from) = raw(channel).await;
        to.send(hello_with(PROTOCOL_VERSION, token)).await.unwrap();
        let welcome = match next(&mut from).await.unwrap() {
            Some(ServerKind::Welcome(welcome)) => welcome,
            other => panic!("{other:?} is no Welcome"),
        };
        Self {
            to,
            from,
            welcome,
            replies: HashMap::new(),
            completions: HashMap::new(),
            transfers: HashMap::new(),
            last_id: 0,
        }
    }

    pub fn id(&mut self) -> u64 {
        self.last_id += 1;
        self.last_id
    }

    /// The latest one.
    pub fn last_id(&self) -> u64 {
        self.last_id
    }

    pub fn device(&self) -> u64 {
        self.welcome.platforms[0].devices[0].id
    }

    pub async fn send(&self, kind: Kind) {
        self.to.send(v1::ClientMessage { kind: Some(kind) }).await.unwrap();
    }

    pub async fn try_send(&self, kind: Kind) -> Result<(), ()> {
        self.to.send(v1::ClientMessage { kind: Some(kind) }).await.map_err(|_| ())
    }

    /// Takes what comes until nothing comes any more, or the session ends.
    pub async fn drain(&mut self) {
        const QUIET: Duration = Duration::from_millis(20);
        while let Ok(Ok(Some(_))) = tokio::time::timeout(QUIET, self.from.message()).await {}
    }

    /// A call that nobody waits for.
    pub async fn cast(&self, method: Method) {
        self.send(Kind::Call(v1::Call { id: 0, method: Some(method) })).await;
    }

    pub async fn call(&mut self, method: Method) -> v1::Reply {
        let id = self.id();
        self.send(Kind::Call(v1::Call { id, method: Some(method) })).await;
        loop {
            if let Some(reply) = self.replies.remove(&id) {
                return reply;
            }
            self.receive().await.unwrap();
        }
    }

    pub async fn flush(&self, commands: Vec<v1::Command>) {
        self.send(Kind::Flush(v1::Flush { commands })).await;
    }

    /// The completion of an event, with the data of a read.
    pub async fn completion(&mut self, event: u64) -> (v1::Completion, Vec<u8>) {
        self.try_completion(event).await.unwrap()
    }

    /// The same, or with what the session ended before.
    pub async fn try_completion(&mut self, event: u64) -> Result<(v1::Completion, Vec<u8>), Status> {
        loop {
            if let Some(mut completion) = self.completions.remove(&event) {
                let data = completion.data.take().map(|data| self.take(data)).unwrap_or_default();
                return Ok((completion, data));
            }
            if !self.receive().await? {
                return Err(Status::cancelled("the session has ended"));
            }
        }
    }

    pub async fn status(&mut self, event: u64) -> i32 {
        self.completion(event).await.0.status
    }

    /// Enqueues a command alone, and waits for its status.
    pub async fn run(&mut self, command: v1::Command) -> i32 {
        let event = command.event;
        self.flush(vec![command]).await;
        self.status(event).await
    }

    /// Whether the event has completed by now, going by what has arrived.
    pub fn has_completed(&self, event: u64) -> bool {
        self.completions.contains_key(&event)
    }

    /// Waits for the end of the stream.
    pub async fn end(mut self) -> Option<Status> {
        loop {
            match self.receive().await {
                Ok(true) => {}
                Ok(false) => return None,
                Err(status) => return Some(status),
            }
        }
    }

    async fn receive(&mut self) -> Result<bool, Status> {
        match next(&mut self.from).await? {
            None => return Ok(false),
            Some(ServerKind::Reply(reply)) => drop(self.replies.insert(reply.id, reply)),
            Some(ServerKind::Completions(all)) => {
                for completion in all.completions {
                    let again = self.completions.insert(completion.event, completion);
                    assert!(again.is_none(), "an event completes once");
                }
            }
            Some(ServerKind::Chunk(chunk)) => {
                let transfer = self.transfers.entry(chunk.transfer).or_default();
                assert_eq!(transfer.len() as u64, chunk.offset);
                transfer.extend_from_slice(&chunk.data);
            }
            Some(ServerKind::Ack(_)) => {}
            Some(ServerKind::Welcome(_)) => panic!("a second Welcome"),
        }
        Ok(true)
    }

    pub fn take(&mut self, data: v1::Data) -> Vec<u8> {
        match data.form.unwrap() {
            Form::Inline(bytes) => bytes.to_vec(),
            Form::Transfer(transfer) => {
                let bytes = self.transfers.remove(&transfer.id).unwrap();
                assert_eq!(bytes.len() as u64, transfer.length);
                bytes
            }
            Form::Segment(range) => panic!("{range:?} is for the other direction"),
        }
    }

    /// Data of a call as its message has it; chunks are sent before.
    pub async fn data(&mut self, bytes: Vec<u8>) -> v1::Data {
        let id = self.id() | 1 << 63;
        self.transfer(id, bytes).await
    }

    async fn transfer(&self, id: u64, bytes: Vec<u8>) -> v1::Data {
        let bytes = Bytes::from(bytes);
        if bytes.len() <= MAX_INLINE_BYTES {
            return v1::Data { form: Some(Form::Inline(bytes)) };
        }
        let length = bytes.len() as u64;
        for offset in (0..bytes.len()).step_by(MAX_CHUNK_BYTES) {
            let data = bytes.slice(offset..bytes.len().min(offset + MAX_CHUNK_BYTES));
            self.send(Kind::Chunk(v1::Chunk { transfer: id, length, offset: offset as u64, data })).await;
        }
        v1::Data { form: Some(Form::Transfer(v1::Transfer { id, length })) }
    }

    pub async fn context(&mut self) -> u64 {
        let (context, devices) = (self.id(), vec![self.device()]);
        let reply = self.call(Method::CreateContext(v1::CreateContext { context, devices })).await;
        assert_eq!(reply.status, 0);
        context
    }

    pub async fn queue(&mut self, context: u64, properties: u64) -> u64 {
        let (queue, device) = (self.id(), self.device());
        self.cast(Method::CreateQueue(v1::CreateQueue { queue, context, device, properties })).await;
        queue
    }

    pub async fn buffer(&mut self, context: u64, size: u64) -> u64 {
        let buffer = self.id();
        self.cast(Method::CreateBuffer(v1::CreateBuffer {
            buffer,
            context,
            flags: 1,
            size,
            initial: None,
            storage: None,
        }))
        .await;
        buffer
    }

    pub async fn source(&mut self, context: u64, source: &str) -> u64 {
        let program = self.id();
        let source = Bytes::copy_from_slice(source.as_bytes());
        self.cast(Method::CreateProgramWithSource(v1::CreateProgramWithSource { program, context, source }))
            .await;
        program
    }

    pub async fn build(&mut self, program: u64) -> (i32, v1::BuildResult) {
        let options = String::new();
        let reply = self
            .call(Method::BuildProgram(v1::BuildProgram {
                program,
                devices: Vec::new(),
                options,
                includes: None,
            }))
            .await;
        match reply.result {
            Some(v1::reply::Result::Build(build)) => (reply.status, build),
            other => panic!("{other:?} is no result of a build"),
        }
    }

    pub async fn binary(&mut self, program: u64) -> Vec<u8> {
        let reply = self.call(Method::GetProgramBinaries(v1::GetProgramBinaries { program })).await;
        match reply.result {
            Some(v1::reply::Result::ProgramBinaries(mut all)) => {
                let data = all.binaries.remove(0);
                self.take(data)
            }
            other => panic!("{other:?} has no binaries"),
        }
    }

    /// A built program from a binary; how many were missing.
    pub async fn program_from(&mut self, context: u64, binary: &[u8]) -> (u64, usize) {
        let (program, missing) = self.unbuilt_program_from(context, binary).await;
        assert_eq!(self.build(program).await.0, 0);
        (program, missing)
    }

    pub async fn unbuilt_program_from(&mut self, context: u64, binary: &[u8]) -> (u64, usize) {
        let program = self.id();
        let digest = Bytes::copy_from_slice(digest_of(binary).as_bytes());
        let binaries = vec![v1::BinaryRef {
            device: self.device(),
            digest: digest.clone(),
            length: binary.len() as u64,
        }];
        let create = v1::CreateProgramWithBinary { program, context, binaries };
        let reply = self.call(Method::CreateProgramWithBinary(create)).await;
        let missing = binaries_result(&reply).missing.len();
        if missing > 0 {
            let data = Some(self.data(binary.to_vec()).await);
            let reply = self.call(Method::ProvideBinary(v1::ProvideBinary { program, digest, data })).await;
            assert_eq!((reply.status, binaries_result(&reply).binary_status.as_slice()), (0, [0].as_slice()));
        }
        (program, missing)
    }

    pub async fn kernel(&mut self, program: u64, name: &str) -> u64 {
        let kernel = self.id();
        let reply = self
            .call(Method::CreateKernel(v1::CreateKernel { kernel, program, name: name.to_owned() }))
            .await;
        assert_eq!(reply.status, 0);
        kernel
    }

    /// A kernel of a source, a queue and a buffer of so many bytes.
    pub async fn ready(&mut self, source: &str, kernel: &str, bytes: u64) -> Ready {
        let context = self.context().await;
        let queue = self.queue(context, 0).await;
        let program = self.source(context, source).await;
        assert_eq!(self.build(program).await.0, 0);
        let kernel = self.kernel(program, kernel).await;
        let buffer = self.buffer(context, bytes).await;
        Ready { queue, kernel, buffer }
    }

    pub async fn user_event(&mut self, context: u64) -> u64 {
        let event = self.id();
        self.cast(Method::CreateUserEvent(v1::CreateUserEvent { event, context })).await;
        event
    }

    pub async fn set(&mut self, event: u64, status: i32) -> i32 {
        self.call(Method::SetUserEvent(v1::SetUserEvent { event, status })).await.status
    }

    pub fn command(&mut self, queue: u64, operation: Operation) -> v1::Command {
        v1::Command { event: self.id(), queue, wait: Vec::new(), operation: Some(operation) }
    }

    pub async fn write(&mut self, queue: u64, buffer: u64, bytes: Vec<u8>) -> v1::Command {
        let event = self.id();
        let data = Some(self.transfer(event, bytes).await);
        let write = v1::WriteBuffer { buffer, offset: 0, data };
        v1::Command { event, queue, wait: Vec::new(), operation: Some(Operation::WriteBuffer(write)) }
    }

    pub fn read(&mut self, queue: u64, buffer: u64, size: u64) -> v1::Command {
        self.command(queue, Operation::ReadBuffer(v1::ReadBuffer { buffer, offset: 0, size, into: None }))
    }

    pub fn launch(&mut self, queue: u64, kernel: u64, args: Vec<Value>, global: u64) -> v1::Command {
        let args =
            (0..).zip(args).map(|(index, value)| v1::KernelArg { index, value: Some(value) }).collect();
        let range = v1::NdRange { kernel, args, offset: vec![], global: vec![global], local: vec![] };
        self.command(queue, Operation::NdRange(range))
    }
}

pub fn after(mut command: v1::Command, wait: &[u64]) -> v1::Command {
    command.wait = wait.to_vec();
    command
}

pub fn digest_of(bytes: &[u8]) -> fpga_core::bitstream::Digest {
    fpga_device_manager::store::digest_of(bytes)
}

pub fn binaries_result(reply: &v1::Reply) -> &v1::BinariesResult {
    match &reply.result {
        Some(v1::reply::Result::Binaries(result)) => result,
        other => panic!("{other:?} is no result of binaries"),
    }
}

pub fn hello(protocol_version: u32) -> v1::ClientMessage {
    hello_with(protocol_version, "")
}

pub fn hello_with(protocol_version: u32, token: &str) -> v1::ClientMessage {
    let (client_name, token) = ("test".to_owned(), token.to_owned());
    let hello = v1::Hello { protocol_version, client_name, token, ..v1::Hello::default() };
    v1::ClientMessage { kind: Some(Kind::Hello(hello)) }
}

/// Both ends of a stream on which nothing was said.
pub async fn raw(channel: Channel) -> (mpsc::Sender<v1::ClientMessage>, Streaming<ServerMessage>) {
    try_raw(channel).await.unwrap()
}

/// As [`raw`], for messages that were encoded by hand.
pub async fn raw_bytes(channel: Channel) -> (mpsc::Sender<Bytes>, Streaming<ServerMessage>) {
    try_raw_bytes(channel).await.unwrap()
}

/// As [`raw_bytes`], where there may be no stream.
pub async fn try_raw_bytes(
    channel: Channel,
) -> Result<(mpsc::Sender<Bytes>, Streaming<ServerMessage>), Status> {
    let (to, stream) = mpsc::channel(16);
    let mut client = tonic::client::Grpc::new(channel);
    client.ready().await.map_err(|error| Status::unavailable(error.to_string()))?;
    let path = PathAndQuery::from_static("/fpga.remote.v1.DeviceManager/Session");
    let request = tonic::Request::new(ReceiverStream::new(stream));
    Ok((to, client.streaming(request, path, Encoded).await?.into_inner()))
}

/// Sends bytes as they are.
struct Encoded;

impl Codec for Encoded {
    type Encode = Bytes;
    type Decode = ServerMessage;
    type Encoder = Self;
    type Decoder = Self;

    fn encoder(&mut self) -> Self {
        Self
    }

    fn decoder(&mut self) -> Self {
        Self
    }
}

impl Encoder for Encoded {
    type Item = Bytes;
    type Error = Status;

    fn encode(&mut self, message: Bytes, out: &mut EncodeBuf<'_>) -> Result<(), Status> {
        out.put(message);
        Ok(())
    }
}

impl Decoder for Encoded {
    type Item = ServerMessage;
    type Error = Status;

    fn decode(&mut self, bytes: &mut DecodeBuf<'_>) -> Result<Option<ServerMessage>, Status> {
        Ok(Some(ServerMessage::decode(bytes).unwrap()))
    }
}

async fn try_raw(
    channel: Channel,
) -> Result<(mpsc::Sender<v1::ClientMessage>, Streaming<ServerMessage>), Status> {
    let (to, stream) = mpsc::channel(16);
    let mut client = DeviceManagerClient::new(channel).max_decoding_message_size(8 << 20);
    let from = client.session(ReceiverStream::new(stream)).await?.into_inner();
    Ok((to, from))
}

pub async fn next(from: &mut Streaming<ServerMessage>) -> Result<Option<ServerKind>, Status> {
    let message = tokio::time::timeout(DEADLINE, from.message()).await;
    let message = message.map_err(|_| Status::new(Code::DeadlineExceeded, "nothing came"))??;
    Ok(message.map(|message| message.kind.unwrap()))
}
