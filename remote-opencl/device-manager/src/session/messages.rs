//! What the messages of a client do, in the order in which they come.

use super::on_board::OnBoard;
use super::violation::{MAX_DEFERRED, MAX_EVENTS, MAX_FLUSH, Violation};
use super::{Building, Ring, Session};
use crate::board::Use;
use crate::budget::HARD_LIMIT;
use crate::calls::{CallError, Calls, Outcome, reply};
use crate::command_ring;
use crate::commands::{self, Body};
use crate::metrics::{DataPath, Direction};
use crate::ready::{EventId, Item};
use crate::router::Input;
use crate::vendor::ClError;
use fpga_protocol::v1;
use fpga_protocol::v1::call::Method;
use fpga_protocol::v1::client_message::Kind;

impl Session {
    pub(super) fn message(&mut self, message: v1::ClientMessage) -> Result<(), Violation> {
        let Some(used) = self.shared.config.board.enter() else {
            self.put_off = Some(message);
            return Ok(());
        };
        match message.kind.ok_or(Violation::NoKind)? {
            Kind::Hello(_) => Err(Violation::Hello),
            // Where there is something to acknowledge it doesn't come here.
            Kind::Ack(_) => Err(Violation::NoKind),
            Kind::Chunk(chunk) => {
                self.transfers.chunk(chunk)?;
                let held = self.transfers.bytes() + self.budget.held();
                if held > HARD_LIMIT { Err(Violation::Bytes(held)) } else { Ok(()) }
            }
            Kind::Flush(flush) => self.flush(flush),
            Kind::Call(call) => self.call(call, &used),
        }
    }

    fn call(&mut self, call: v1::Call, used: &Use) -> Result<(), Violation> {
        match self.images_for(&call) {
            Some(images) => {
                self.put_on_board(&images, OnBoard::Call(Box::new(call)), used);
                Ok(())
            }
            None => self.call_now(call, used),
        }
    }

    pub(super) fn call_now(&mut self, call: v1::Call, used: &Use) -> Result<(), Violation> {
        let id = call.id;
        match call.method.ok_or(CallError::NoMethod)? {
            Method::CreateUserEvent(create) => {
                let context = self.objects.context(create.context);
                self.new_event(create.event)?;
                self.ready.create_user_event(EventId(create.event))?;
                self.answer(reply(id, context.map(|_| ()), None));
            }
            Method::SetUserEvent(set) => {
                let step = self.ready.set_user_event(EventId(set.event), set.status);
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
                    self.ready.forget(EventId(event));
                }
                self.answer(reply(id, Ok(()), None));
            }
            Method::OpenRing(_) => self.open_ring(id),
            method => {
                match self.calls().run(id, method)? {
                    Outcome::Done(reply) => self.answer(reply),
                    Outcome::Load(load) => self.load(load, used),
                    Outcome::Ask(waiting, question) => {
                        let inbox = self.inbox.clone();
                        let thread = std::thread::Builder::new().name("gate".to_owned());
                        let started = thread.spawn(move || {
                            let decided = question();
                            // The session waits for it, so the inbox is open.
                            let _ = inbox.0.send(Input::Decided(waiting, decided));
                        });
                        match started {
                            Ok(_) => {
                                self.building = Building::Yes;
                                self.deciding = Some(used.another());
                            }
                            Err(_) => {
                                self.answer(reply(id, Err(ClError(opencl_sys::CL_OUT_OF_HOST_MEMORY)), None));
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
                            // The session waits for it, so the inbox is open.
                            let place = builds.enter(&tenant);
                            // Before the thread gives up all files.
                            let laid = build.lay_out(&includes);
                            let included = laid.as_ref().ok().cloned().flatten();
                            let built = match confinement.enter() {
                                Ok(()) => build.run(laid),
                                Err(error) => {
                                    tracing::error!(%error, "A build can't be confined: refused");
                                    reply(id, Err(ClError(opencl_sys::CL_OUT_OF_RESOURCES)), None)
                                }
                            };
                            drop((place, used));
                            let _ = inbox.0.send(Input::Built(Box::new(built), included));
                        });
                        match started {
                            Ok(_) => self.building = Building::Yes,
                            Err(_) => {
                                self.answer(reply(id, Err(ClError(opencl_sys::CL_OUT_OF_HOST_MEMORY)), None));
                            }
                        }
                    }
                }
            }
        }
        Ok(())
    }

    /// Has what comes after the reply travel in a command ring, if there can be one.
    fn open_ring(&mut self, call: u64) {
        let opened = match (&self.ring, &self.side) {
            (Ring::None, Some(side)) if command_ring::is_wanted() => {
                command_ring::open(&self.shared.segments, side, call)
            }
            _ => return self.answer(reply(call, Err(ClError(opencl_sys::CL_INVALID_OPERATION)), None)),
        };
        match opened {
            Ok((sender, receiver)) => {
                self.answer(reply(call, Ok(()), None));
                self.executor.tell_by(sender.clone());
                self.outgoing.over(sender);
                self.ring = Ring::New(receiver);
            }
            Err(error) => {
                tracing::debug!(%error, "No command ring");
                self.answer(reply(call, Err(ClError(opencl_sys::CL_OUT_OF_RESOURCES)), None));
            }
        }
    }

    /// What the methods work on.
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
        } else if self.ready.events() >= MAX_EVENTS {
            Err(Violation::Events)
        } else {
            Ok(())
        }
    }

    fn flush(&mut self, flush: v1::Flush) -> Result<(), Violation> {
        let count = flush.commands.len();
        if count > MAX_FLUSH {
            return Err(Violation::Flush(count));
        }
        let mut items = Vec::with_capacity(count);
        for command in flush.commands {
            self.new_event(command.event)?;
            items.push(commands::item(command, &self.objects, &mut self.transfers, &self.budget)?);
        }
        for path in [DataPath::Messages, DataPath::Shared] {
            let received = |item: &Item<Body>| item.body.as_ref().map_or(0, |body| body.received(path));
            let received = items.iter().map(received).sum();
            if received > 0 {
                self.shared.config.metrics.count_bytes(Direction::Received, path, received);
            }
        }
        let shared = items.iter().filter_map(|item| item.body.as_ref().ok()).map(Body::shared).sum();
        if shared > 0 {
            self.shared.config.metrics.count_bytes(Direction::Sent, DataPath::Shared, shared);
        }
        let step = self.ready.flush(items)?;
        if self.ready.deferred() > MAX_DEFERRED {
            return Err(Violation::Deferred);
        }
        let held = self.transfers.bytes() + self.budget.held();
        if held > HARD_LIMIT {
            return Err(Violation::Bytes(held));
        }
        self.go(step);
        Ok(())
    }
}
