//! A client's session with the scripted manager: its calls, and the readiness of its commands.

use super::description::{kernel_info, welcome};
use super::{RingAnswer, SIDE_KEY, Script};
use fpga_protocol::v1::{self, call::Method, client_message, command::Operation, data::Form, server_message};
use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use tokio::sync::mpsc;
use tonic::{Status, Streaming};

const CL_OUT_OF_HOST_MEMORY: i32 = -6;
const OTHER_TRANSFER: u64 = 1 << 63;

pub(super) struct State {
    pub(super) script: Arc<Script>,
    out: mpsc::UnboundedSender<Result<v1::ServerMessage, Status>>,
    pub(super) buffers: HashMap<u64, Vec<u8>>,
    pub(super) subs: HashMap<u64, (u64, usize)>,
    uploads: HashMap<u64, Vec<u8>>,
    ended: HashMap<u64, i32>,
    waiting: Vec<v1::Command>,
    has_welcomed: bool,
    programs: HashMap<u64, HashSet<Vec<u8>>>,
}

impl State {
    pub(super) fn new(
        script: Arc<Script>,
        out: mpsc::UnboundedSender<Result<v1::ServerMessage, Status>>,
    ) -> Self {
        Self {
            script,
            out,
            buffers: HashMap::new(),
            subs: HashMap::new(),
            uploads: HashMap::new(),
            ended: HashMap::new(),
            waiting: Vec::new(),
            has_welcomed: false,
            programs: HashMap::new(),
        }
    }

    pub(super) async fn run(mut self, mut inbox: Streaming<v1::ClientMessage>) {
        let script = Arc::clone(&self.script);
        script.sessions.fetch_add(1, Ordering::SeqCst);
        loop {
            tokio::select! {
                message = inbox.message() => match message {
                    Ok(Some(message)) => self.take(message.kind.unwrap()),
                    _ => break,
                },
                () = script.changed.notified() => {}
            }
            // The Welcome is a session's first message, also where the slot was wanted back before.
            if self.has_welcomed && script.wants_yield.swap(false, Ordering::SeqCst) {
                self.send(server_message::Kind::Yield(v1::Yield {}));
            }
            self.run_what_is_ready();
        }
        script.sessions.fetch_sub(1, Ordering::SeqCst);
    }

    fn send(&self, kind: server_message::Kind) {
        let _ = self.out.send(Ok(v1::ServerMessage { kind: Some(kind) }));
    }

    fn take(&mut self, kind: client_message::Kind) {
        match kind {
            client_message::Kind::Hello(hello) => {
                assert_eq!(hello.protocol_version, fpga_protocol::limits::PROTOCOL_VERSION);
                *self.script.hello.lock().unwrap() = hello.clone();
                if hello.lease != *self.script.lease.lock().unwrap() {
                    let _ = self.out.send(Err(Status::not_found("the lease is over")));
                    return;
                }
                let buffer_rects = !self.script.knows_no_rects.load(Ordering::SeqCst);
                let unwatched_commands = !self.script.knows_no_unwatched.load(Ordering::SeqCst);
                let traces = self.script.records_traces.load(Ordering::SeqCst);
                let mut welcome = v1::Welcome { buffer_rects, unwatched_commands, traces, ..welcome() };
                if self.script.ring.lock().unwrap().is_some() {
                    (welcome.side_key, welcome.ring_words) = (SIDE_KEY.to_vec().into(), 1 << 10);
                }
                self.send(server_message::Kind::Welcome(welcome));
                self.has_welcomed = true;
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
        self.script.calls.lock().unwrap().push(call.clone());
        let mut reply = v1::Reply { id: call.id, ..v1::Reply::default() };
        match call.method.unwrap() {
            Method::OpenRing(_) => match self.script.ring.lock().unwrap().unwrap() {
                RingAnswer::NoMemory => reply.status = CL_OUT_OF_HOST_MEMORY,
                RingAnswer::Nonsense => return self.send(server_message::Kind::Welcome(welcome())),
            },
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

    pub(super) fn data(&mut self, data: v1::Data) -> Vec<u8> {
        match data.form.unwrap() {
            Form::Inline(bytes) => bytes.to_vec(),
            Form::Transfer(transfer) => {
                let bytes = self.uploads.remove(&transfer.id).unwrap();
                assert_eq!(bytes.len() as u64, transfer.length, "all chunks before the reference");
                bytes
            }
            form => panic!("{form:?}, and neither memory nor a late command was offered"),
        }
    }

    pub(super) fn send_chunks(&self, transfer: u64, bytes: &[u8], chunk_bytes: usize) {
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
        let (mut completions, mut earlier) = (Vec::new(), Vec::new());
        loop {
            let mut blocked = HashSet::new();
            let ready = self.waiting.iter().position(|command| {
                let ready = command.wait.iter().all(|event| self.ended.contains_key(event));
                // In an in-order queue no command overtakes a waiting one.
                if !ready {
                    blocked.insert(command.queue);
                }
                ready && !blocked.contains(&command.queue)
            });
            let Some(ready) = ready else { break };
            let command = self.waiting.remove(ready);
            let failed = command.wait.iter().any(|event| self.ended[event] < 0);
            let v1::Command { event, queue, unwatched, .. } = command;
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
            let next = self.waiting.first();
            if unwatched && next.is_some_and(|next| next.queue == queue && next.wait.is_empty()) {
                earlier.push(event);
                continue;
            }
            completions.push(v1::Completion {
                event,
                status,
                queued_ns: 1_000,
                submitted_ns: 2_000,
                started_ns: 3_000,
                ended_ns: 3_500,
                data,
                // In these tests a command fails because of another one only after a failed user event.
                by_user_event: failed,
                earlier: std::mem::take(&mut earlier),
            });
        }
        if !completions.is_empty() {
            self.send(server_message::Kind::Completions(v1::Completions { completions }));
        }
    }
}
