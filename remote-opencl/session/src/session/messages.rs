//! Handling of a client's messages, in the order in which they arrive.

use super::on_board::OnBoard;
use super::violation::{MAX_DEFERRED, MAX_EVENTS, MAX_FLUSH, Violation};
use super::{Building, Message, Ring, Session};
use crate::calls::{CallError, Calls, Outcome, reply};
use crate::command_ring;
use crate::commands::{self, Body, Staging, Tracing, Watched};
use crate::dependencies::{EventId, Item};
use crate::governor::{DECODING_BYTES, Hold, MemoryRefusal};
use crate::metrics::{DataPath, Direction};
use crate::outgoing::STALL_TIMEOUT;
use crate::quiesce::InUse;
use crate::router::Input;
use crate::transfers::Reserved;
use bytes::Bytes;
use fpga_protocol::v1;
use fpga_protocol::v1::call::Method;
use fpga_protocol::v1::client_message::Kind;
use fpga_protocol::weight;
use fpga_vendor::ClError;
use prost::Message as _;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

/// Maximum time that a message waits for memory. By then sessions that hold memory and read nothing have been
/// ended.
const MEMORY_TIMEOUT: Duration = Duration::from_secs(3 * STALL_TIMEOUT.as_secs());

/// Maximum number of bytes that decoding a message may take.
const MAX_DECODED_BYTES: u64 = 64 << 20;

/// Whether there is memory for the data of a message.
enum Admission {
    /// The memory is held, or none is needed.
    Held(Option<Hold>),
    /// Memory may become free later.
    Waits,
    /// There is no memory, and the message can't wait.
    Refused,
}

impl Session {
    /// Handles an encoded message. The memory that decoding takes is computed before the message is decoded.
    pub(super) fn encoded(&mut self, encoded: Bytes) -> Result<(), Violation> {
        let decoded_bytes = weight::of_client_message(&encoded)?;
        if decoded_bytes > MAX_DECODED_BYTES {
            return Err(Violation::Decoded(decoded_bytes));
        }
        // Each session holds the first bytes from its beginning.
        let beyond = decoded_bytes.saturating_sub(DECODING_BYTES);
        let decoding = if beyond > 0 { Some(self.budget.try_hold(beyond)) } else { None };
        let _decoding = decoding.transpose().map_err(|_| Violation::Bytes(beyond))?;
        let encoded_bytes = encoded.len();
        // Commands and their arguments take at most the encoded message and twice its decoded form.
        let kept_bytes = encoded_bytes as u64 + 2 * decoded_bytes;
        let message = v1::ClientMessage::decode(encoded).map_err(|_| weight::Malformed)?;
        self.messages += 1;
        self.message(Message { message, encoded_bytes, kept_bytes, waits_since: None })?;
        self.count_events()?;
        if self.is_clients_turn() && self.budget.is_overdrawn() {
            return Err(Violation::Bytes(self.budget.held()));
        }
        Ok(())
    }

    /// Holds memory for the tables of events, whose size depends on the client alone.
    fn count_events(&mut self) -> Result<(), Violation> {
        /// Bytes of an event, with the spare room of a hash table.
        const EACH_BYTES: usize = 128;
        const BLOCK: usize = 4096;
        let blocks = self.dependencies.events() / BLOCK;
        while self.event_tables.len() < blocks {
            let block = self.budget.lasting((BLOCK * EACH_BYTES) as u64);
            self.event_tables.push(block.ok_or(Violation::EventMemory)?);
        }
        // One spare block is kept, so that blocks are not taken and freed repeatedly.
        self.event_tables.truncate(blocks + 1);
        Ok(())
    }

    /// Handles a message, or puts it off if the board is closed or its data needs memory that is not free.
    pub(super) fn message(&mut self, mut message: Message) -> Result<(), Violation> {
        let Some(used) = self.shared.config.board.enter() else {
            self.put_off = Some(message);
            return Ok(());
        };
        let admission = self.admit(&mut message);
        if let Admission::Waits = admission {
            self.put_off = Some(message);
            return Ok(());
        }
        let Message { message, encoded_bytes, kept_bytes, .. } = message;
        match message.kind.ok_or(Violation::NoKind)? {
            Kind::Hello(_) => Err(Violation::Hello),
            // Acknowledgements on resumable connections are handled by the link.
            Kind::Ack(_) => Err(Violation::NoKind),
            Kind::Chunk(chunk) => {
                let reserved = match admission {
                    Admission::Held(hold) => Reserved::Held(hold),
                    Admission::Waits | Admission::Refused => Reserved::Refused,
                };
                Ok(self.transfers.chunk(chunk, encoded_bytes, reserved)?)
            }
            Kind::Flush(flush) => {
                let (hold, staging) = match admission {
                    Admission::Held(Some(mut hold)) => {
                        let staged = hold.bytes().saturating_sub(kept_bytes);
                        let staging = Staging::Held(hold.split(staged));
                        (hold, staging)
                    }
                    // There is no memory to stage data: the reads of the message fail, its other commands run.
                    _ => {
                        let hold = self.budget.try_hold(kept_bytes);
                        (hold.map_err(|_| Violation::Bytes(self.budget.held()))?, Staging::Refused)
                    }
                };
                self.flush(flush, hold, staging)
            }
            Kind::Call(call) => match admission {
                Admission::Held(hold) => self.call(call, &used, hold),
                Admission::Waits | Admission::Refused => Err(Violation::Bytes(self.budget.held())),
            },
        }
    }

    /// Holds the memory for the data of a message. A session waits only if it holds no memory that its own client
    /// must free, and for at most [`MEMORY_TIMEOUT`].
    fn admit(&self, message: &mut Message) -> Admission {
        let need = self.need(message);
        if need == 0 {
            return Admission::Held(None);
        }
        match self.budget.try_hold(need) {
            Ok(hold) => Admission::Held(Some(hold)),
            Err(MemoryRefusal::Never) => Admission::Refused,
            Err(MemoryRefusal::NotNow) if self.is_clients_turn() => Admission::Refused,
            Err(MemoryRefusal::NotNow) => {
                let since = *message.waits_since.get_or_insert_with(Instant::now);
                if since.elapsed() < MEMORY_TIMEOUT { Admission::Waits } else { Admission::Refused }
            }
        }
    }

    /// Number of bytes that a message makes the manager hold after it was handled, or while its call runs on
    /// another thread.
    fn need(&self, message: &Message) -> u64 {
        match &message.message.kind {
            Some(Kind::Chunk(chunk)) => self.transfers.need(chunk),
            Some(Kind::Flush(flush)) => {
                let staged = |command| commands::staged_bytes(command, &self.objects);
                let staged = flush.commands.iter().map(staged).fold(0, u64::saturating_add);
                message.kept_bytes.saturating_add(staged)
            }
            Some(Kind::Call(v1::Call {
                method: Some(Method::BuildProgram(_) | Method::CompileProgram(_) | Method::LinkProgram(_)),
                ..
            })) => message.kept_bytes,
            // Other calls have ended when the message was handled.
            _ => 0,
        }
    }

    fn call(&mut self, mut call: v1::Call, used: &InUse, hold: Option<Hold>) -> Result<(), Violation> {
        self.traced.call_received(call.trace.take().map(|trace| *trace));
        match self.images_for(&call) {
            Some(images) => {
                self.put_on_board(&images, OnBoard::Call(Box::new(call), hold), used);
                Ok(())
            }
            None => self.call_now(call, used, hold),
        }
    }

    pub(super) fn call_now(
        &mut self,
        call: v1::Call,
        used: &InUse,
        hold: Option<Hold>,
    ) -> Result<(), Violation> {
        let id = call.id;
        let method = call.method.ok_or(CallError::NoMethod)?;
        if may_print(&method)
            && let Some(printed) = &self.shared.config.printed
        {
            self.executor.tell_of_text(printed.taker());
        }
        match method {
            Method::CreateUserEvent(create) => {
                let context = self.objects.context(create.context);
                self.new_event(create.event)?;
                self.dependencies.create_user_event(EventId(create.event))?;
                self.answer(reply(id, context.map(|_| ()), None));
            }
            Method::SetUserEvent(set) => {
                let step = self.dependencies.set_user_event(EventId(set.event), set.status);
                let status = match step {
                    Ok(step) => {
                        self.go(step);
                        Ok(())
                    }
                    Err(code) => Err(ClError(code)),
                };
                self.answer(reply(id, status, None));
            }
            Method::Release(release) => {
                for object in release.objects {
                    self.objects.release(object);
                    self.transfers.segments.release(object);
                }
                for event in release.events {
                    self.dependencies.forget(EventId(event));
                    self.transfers.released(event);
                }
                self.answer(reply(id, Ok(()), None));
            }
            Method::OpenRing(open) => self.open_ring(id, &open),
            method => {
                match self.calls().run(id, method)? {
                    Outcome::Done(reply) => self.answer(reply),
                    Outcome::Load(load) => self.load(load, used),
                    Outcome::Ask(waiting, question) => {
                        let inbox = self.inbox.clone();
                        let thread = std::thread::Builder::new().name("gate".to_owned());
                        let started = thread.spawn(move || {
                            let decided = question();
                            // The session waits for the decision, so the inbox is open.
                            let _ = inbox.send(Input::Decided(waiting, decided));
                        });
                        match started {
                            Ok(_) => self.building = Building::Yes,
                            Err(_) => {
                                self.answer(reply(id, Err(ClError::OUT_OF_HOST_MEMORY), None));
                            }
                        }
                    }
                    Outcome::Build(build) => {
                        let used = used.another();
                        let inbox = self.inbox.clone();
                        let confinement = self.shared.config.confinement.clone();
                        let includes = self.includes.clone();
                        let (builds, tenant) = (self.shared.config.builds.clone(), self.tenant.clone());
                        let thread = std::thread::Builder::new().name("build".to_owned());
                        let started = thread.spawn(move || {
                            // The session waits for the reply, so the inbox is open.
                            let place = builds.enter(&tenant);
                            // The files are written before the thread is confined.
                            let laid = build.lay_out(&includes);
                            let included = laid.as_ref().ok().cloned().flatten();
                            let built = match confinement.enter() {
                                Ok(()) => build.run(laid),
                                Err(error) => {
                                    tracing::error!(%error, "A build can't be confined: refused");
                                    reply(id, Err(ClError::OUT_OF_RESOURCES), None)
                                }
                            };
                            drop((place, used, hold));
                            let _ = inbox.send(Input::Built(Box::new(built), included));
                        });
                        match started {
                            Ok(_) => self.building = Building::Yes,
                            Err(_) => {
                                self.answer(reply(id, Err(ClError::OUT_OF_HOST_MEMORY), None));
                            }
                        }
                    }
                }
            }
        }
        Ok(())
    }

    /// Opens a command ring for the messages after the reply, if the client can have one.
    fn open_ring(&mut self, call: u64, open: &v1::OpenRing) {
        let opened = match (&self.ring, &self.side) {
            (Ring::None, Some(side)) if command_ring::is_wanted() => {
                command_ring::open(&self.budget, side, call)
            }
            _ => return self.answer(reply(call, Err(ClError::INVALID_OPERATION), None)),
        };
        match opened {
            Ok((sender, receiver)) => {
                self.answer(reply(call, Ok(()), None));
                self.executor.tell_by(sender.clone());
                self.outgoing.over(sender);
                if open.futex {
                    receiver.doze_by(self.inbox.doze());
                }
                self.ring = Ring::New(receiver);
            }
            Err(error) => {
                tracing::debug!(%error, "No command ring");
                self.answer(reply(call, Err(ClError::OUT_OF_RESOURCES), None));
            }
        }
    }

    /// The state that calls work on.
    pub(super) fn calls(&mut self) -> Calls<'_> {
        Calls {
            config: &self.shared.config,
            account: &self.account,
            inventory: &self.shared.inventory,
            objects: &mut self.objects,
            transfers: &mut self.transfers,
            outgoing: &mut self.outgoing,
            side: self.side.as_ref(),
            asker: &self.asker,
        }
    }

    pub(super) fn answer(&self, reply: v1::Reply) {
        if reply.id != 0 {
            self.outgoing.reply(reply);
        }
    }

    fn new_event(&self, event: u64) -> Result<(), Violation> {
        if event == 0 {
            Err(Violation::ZeroEvent)
        } else if self.dependencies.events() >= MAX_EVENTS {
            Err(Violation::Events)
        } else {
            Ok(())
        }
    }

    fn flush(&mut self, flush: v1::Flush, hold: Hold, mut staging: Staging) -> Result<(), Violation> {
        let count = flush.commands.len();
        if count > MAX_FLUSH {
            return Err(Violation::Flush(count));
        }
        let hold = Arc::new(hold);
        let mut items = Vec::with_capacity(count);
        let mut unwatched = Vec::new();
        for mut command in flush.commands {
            self.new_event(command.event)?;
            let event = EventId(command.event);
            let tracing = self.traced.received(event, command.trace.take());
            if command.unwatched {
                unwatched.push(event);
            }
            let mut item = commands::item(command, &self.objects, &mut self.transfers, &mut staging, &hold)?;
            if let (Tracing::On, Ok(body)) = (tracing, &mut item.body) {
                // The end of a command that is told with another one is not measured.
                (body.tracing, body.watched) = (Tracing::On, Watched::Yes);
            }
            items.push(item);
        }
        for path in [DataPath::Messages, DataPath::Shared] {
            let received = |item: &Item<Box<Body>>| item.body.as_ref().map_or(0, |body| body.received(path));
            let received = items.iter().map(received).sum();
            if received > 0 {
                self.shared.config.metrics.count_bytes(Direction::Received, path, received);
            }
        }
        let shared = items.iter().filter_map(|item| item.body.as_ref().ok()).map(|body| body.shared()).sum();
        if shared > 0 {
            self.shared.config.metrics.count_bytes(Direction::Sent, DataPath::Shared, shared);
        }
        let step = self.dependencies.flush(items)?;
        for event in unwatched {
            self.dependencies.forget(event);
        }
        if self.dependencies.deferred() > MAX_DEFERRED {
            return Err(Violation::Deferred);
        }
        self.go(step);
        Ok(())
    }
}

/// Whether the call makes a program that may print.
fn may_print(method: &Method) -> bool {
    match method {
        Method::CreateProgramWithSource(create) => create.prints,
        Method::CreateProgramWithIl(create) => create.prints,
        Method::CreateProgramWithBinary(create) => create.prints,
        _ => false,
    }
}
