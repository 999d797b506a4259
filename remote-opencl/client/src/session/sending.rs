//! Commands and releases on their way to the manager.

use super::pending_command::PendingCommand;
use super::{Enqueued, Sent, Session, State};
use crate::base::clock::now_ns;
use crate::base::sync::lock;
use crate::error::{ClError, Result};
use crate::session::driver::BackgroundWork;
use crate::wire::features::UnwatchedCommands;
use crate::wire::outgoing::Upload;
use fpga_protocol::limits::MAX_MESSAGE_BYTES;
use fpga_protocol::v1::{self, call::Method, client_message::Kind};
use prost::Message as _;
use std::future::poll_fn;
use std::sync::Arc;

/// Greatest number of ids in one Release, which is then far below the greatest message.
const MAX_RELEASED: usize = 1 << 16;

impl Session {
    /// Enqueues a command. `upload` is the transfer of its data. `order` adds to the command's wait list what must
    /// end before the command, given all commands that were enqueued earlier.
    pub(crate) fn enqueue(
        &self,
        mut command: v1::Command,
        pending: Arc<dyn PendingCommand>,
        upload: Option<Arc<Upload>>,
        order: impl FnOnce(&mut v1::Command),
    ) -> Result<Sent> {
        command.trace = self.trace();
        // Half of a message leaves room for the message's other fields, and for events that `order` adds to the
        // wait list.
        if command.encoded_len() > MAX_MESSAGE_BYTES / 2 {
            return Err(ClError::OUT_OF_RESOURCES);
        }
        let mut state = lock(&self.state);
        self.check(ClError::OUT_OF_RESOURCES)?;
        let mut sent = Sent::No;
        if state.batch.must_go_before(&command, upload.as_deref()) {
            sent = self.send_locked(&mut state);
        }
        // Nothing may be sent between the two following steps. Sending includes releases, and a read in place that
        // ends meanwhile would have the user event released for which this command waits.
        order(&mut command);
        let enqueued = Enqueued { event: command.event, pending };
        state.batch.push(command, enqueued, upload);
        let at_manager = if self.holder.sends_early() { state.at_manager.len() } else { usize::MAX };
        if state.batch.is_due(at_manager) {
            sent = self.send_locked(&mut state);
        }
        Ok(sent)
    }

    /// Puts pending commands into the outbox. A thread that waits calls this and then [`Self::wait`].
    pub(crate) fn send(&self) -> Sent {
        if !self.is_usable() {
            return Sent::No;
        }
        self.send_locked(&mut lock(&self.state))
    }

    /// Sends pending commands without waiting for an answer.
    pub(crate) fn flush(&self) -> Result<()> {
        self.check(ClError::OUT_OF_RESOURCES)?;
        self.send();
        self.push_out();
        Ok(())
    }

    /// Puts an upload into the outbox.
    pub(crate) fn push_upload(&self, upload: Arc<Upload>) {
        self.outbox.push_upload(upload);
    }

    /// Has the content of the outbox sent, as far as the thread that drives does not do that anyway.
    pub(crate) fn wake_outbox(&self) {
        self.outbox.wake();
    }

    /// Sends the content of the outbox without waiting for an answer.
    pub(crate) fn push_out(&self) {
        self.outbox.wake();
        match &self.ring {
            // All messages are in the ring. If no thread waits for the answer, the background thread will receive it.
            Some(_) if self.outbox.is_sent() => {
                self.poll_ring();
                self.driver.arm_if_outstanding();
            }
            _ => self.driver.turn(),
        }
    }

    /// Calls [`Self::push_out`], or waits for room if too many messages wait to be sent (T-5).
    pub(crate) fn push_out_and_wait_for_room(&self) {
        if self.outbox.has_room() {
            self.push_out();
            return;
        }
        self.driver.block_on(async {
            self.outbox.wake();
            poll_fn(|cx| self.outbox.poll_room(cx)).await;
        });
    }

    pub(super) fn send_locked(&self, state: &mut State) -> Sent {
        let mut sent = Sent::No;
        if !state.batch.is_empty() {
            let mut taken = state.batch.take();
            if self.features.unwatched == UnwatchedCommands::Known {
                for (command, Enqueued { pending, .. }) in taken.flush.commands.iter_mut().zip(&taken.pending)
                {
                    // The end of a command with a trace is measured, so the manager tells of each.
                    command.unwatched = command.trace.is_none()
                        && Arc::strong_count(pending) == 1
                        && pending.goes_unwatched();
                }
            }
            for upload in taken.uploads {
                self.outbox.push_upload(upload);
            }
            self.outbox.push(Kind::Flush(taken.flush));
            let now = now_ns();
            self.driver.add_outstanding(taken.pending.len());
            for Enqueued { event, pending } in taken.pending {
                pending.submitted(now);
                state.at_manager.insert(event, pending);
            }
            sent = Sent::Yes;
        }
        let v1::Release { objects, events } = std::mem::take(&mut *lock(&self.releases));
        let release = |objects: &[u64], events: &[u64]| {
            let release = v1::Release { objects: objects.to_vec(), events: events.to_vec() };
            self.outbox.push(Kind::Call(v1::Call {
                id: 0,
                method: Some(Method::Release(release)),
                trace: None,
            }));
        };
        let (mut objects, mut events) = (objects.chunks(MAX_RELEASED), events.chunks(MAX_RELEASED));
        loop {
            match (objects.next(), events.next()) {
                (None, None) => break,
                (objects, events) => release(objects.unwrap_or_default(), events.unwrap_or_default()),
            }
            sent = Sent::Yes;
        }
        sent
    }

    /// Notes that an object has no references any more. It is released with the next batch, or by the background
    /// thread.
    pub(crate) fn release(&self, object: u64) {
        if self.is_usable() {
            lock(&self.releases).objects.push(object);
            self.driver.arm();
            self.driver.restart_background();
        }
    }

    /// Has the background thread send the session's releases where nothing else is sent.
    ///
    /// # Errors
    /// `CL_OUT_OF_RESOURCES` if the thread can't be started.
    pub(crate) fn release_in_background(self: &Arc<Self>) -> Result<()> {
        let session = Arc::downgrade(self);
        self.driver.add_background_work(session)
    }

    /// Notes that no later wait list can name the event. It is released with the next batch.
    pub(crate) fn release_event(&self, event: u64) {
        if self.is_usable() {
            lock(&self.releases).events.push(event);
        }
    }
}

impl BackgroundWork for Session {
    /// Sends the releases unless commands are pending that may still use the objects. Called on the thread that
    /// drives.
    fn send_releases(&self) {
        if self.is_usable() {
            let mut state = lock(&self.state);
            if state.batch.is_empty() {
                self.send_locked(&mut state);
            }
        }
        self.outbox.wake();
    }
}
