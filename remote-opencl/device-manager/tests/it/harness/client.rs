//! A client's session: its messages, and the manager's answers.

use super::Manager;
use super::wire::{hello, hello_with, next, raw, try_raw};
use bytes::Bytes;
use fpga_protocol::limits::{MAX_CHUNK_BYTES, MAX_INLINE_BYTES, PROTOCOL_VERSION};
use fpga_protocol::v1::call::Method;
use fpga_protocol::v1::client_message::Kind;
use fpga_protocol::v1::data::Form;
use fpga_protocol::v1::server_message::Kind as ServerKind;
use fpga_protocol::v1::{self, ServerMessage};
use std::collections::HashMap;
use std::time::Duration;
use tokio::sync::mpsc;
use tonic::transport::Channel;
use tonic::{Status, Streaming};

/// A client without a library. Ids count up.
pub struct Client {
    to: mpsc::Sender<v1::ClientMessage>,
    from: Streaming<ServerMessage>,
    pub welcome: v1::Welcome,
    replies: HashMap<u64, v1::Reply>,
    completions: HashMap<u64, v1::Completion>,
    transfers: HashMap<u64, Vec<u8>>,
    last_id: u64,
    /// Whether the manager has asked for the slot of the session's lease.
    pub yields: bool,
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
        Self::begin(channel, hello_with(PROTOCOL_VERSION, token)).await.unwrap()
    }

    /// Like [`Self::with_token`], or the status with which the session is refused.
    pub async fn try_with_token(channel: Channel, token: &str) -> Result<Self, Status> {
        Self::begin(channel, hello_with(PROTOCOL_VERSION, token)).await
    }

    /// A session with a lease.
    pub async fn with_lease(channel: Channel, lease: u128) -> Result<Self, Status> {
        let lease = Bytes::copy_from_slice(&lease.to_be_bytes());
        let hello = v1::Hello { protocol_version: PROTOCOL_VERSION, lease, ..v1::Hello::default() };
        Self::begin(channel, v1::ClientMessage { kind: Some(Kind::Hello(hello)) }).await
    }

    /// A session that begins with this message.
    pub async fn begin(channel: Channel, hello: v1::ClientMessage) -> Result<Self, Status> {
        let (to, mut from) = try_raw(channel).await?;
        to.send(hello).await.map_err(|_| Status::unavailable("the stream has ended"))?;
        let welcome = match next(&mut from).await? {
            Some(ServerKind::Welcome(welcome)) => welcome,
            other => panic!("{other:?} is no Welcome"),
        };
        Ok(Self {
            to,
            from,
            welcome,
            replies: HashMap::new(),
            completions: HashMap::new(),
            transfers: HashMap::new(),
            last_id: 0,
            yields: false,
        })
    }

    /// Waits until the manager asks for the slot of the session's lease.
    pub async fn is_to_yield(&mut self) {
        while !self.yields {
            assert!(self.receive().await.unwrap(), "the session goes on");
        }
    }

    pub fn id(&mut self) -> u64 {
        self.last_id += 1;
        self.last_id
    }

    /// The id that was given last.
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

    /// Receives messages until none arrives for 20 ms or the session ends.
    pub async fn drain(&mut self) {
        const QUIET: Duration = Duration::from_millis(20);
        while let Ok(Ok(Some(_))) = tokio::time::timeout(QUIET, self.from.message()).await {}
    }

    /// Sends a call without waiting for a reply.
    pub async fn cast(&self, method: Method) {
        self.send(Kind::Call(v1::Call { id: 0, method: Some(method), trace: None })).await;
    }

    pub async fn call(&mut self, method: Method) -> v1::Reply {
        let id = self.id();
        self.send(Kind::Call(v1::Call { id, method: Some(method), trace: None })).await;
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

    /// Like [`Self::completion`], or the status with which the session ended before.
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

    /// Whether the event's completion has been received.
    pub fn has_completed(&self, event: u64) -> bool {
        self.completions.contains_key(&event)
    }

    /// Waits for the end of the stream and returns its status, if it is an error.
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
            Some(ServerKind::Yield(_)) => self.yields = true,
            Some(ServerKind::Printed(_)) => panic!("no program prints"),
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
            form => panic!("{form:?} is for the other direction"),
        }
    }

    /// Data for a call: inline, or sent in chunks before the call.
    pub async fn data(&mut self, bytes: Vec<u8>) -> v1::Data {
        let id = self.id() | 1 << 63;
        self.transfer(id, bytes).await
    }

    pub(super) async fn transfer(&self, id: u64, bytes: Vec<u8>) -> v1::Data {
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
}
