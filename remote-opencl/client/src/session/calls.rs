//! Calls to the manager, and the bytes that belong to them.

use super::Session;
use crate::base::sync::lock;
use crate::error::{ClError, Result};
use crate::memory::host_memory::HostSource;
use crate::wire::outgoing::Upload;
use bytes::Bytes;
use fpga_protocol::limits::{MAX_INLINE_BYTES, MAX_MESSAGE_BYTES};
use fpga_protocol::v1::{self, call::Method, client_message::Kind, data::Form};
use prost::Message as _;
use std::pin::Pin;
use std::sync::Arc;
use tokio::sync::oneshot;

impl Session {
    /// Calls a method and waits for the reply, whatever its status.
    ///
    /// # Errors
    /// `CL_DEVICE_NOT_AVAILABLE` if the session can't be used or is lost meanwhile, `CL_OUT_OF_RESOURCES` for a
    /// call that is too long.
    pub(crate) fn call(&self, method: Method) -> Result<v1::Reply> {
        let receiver = self.start_call(method)?;
        self.wait_for_reply(receiver)
    }

    /// Calls a method. The reply comes through the returned channel.
    pub(crate) fn start_call(&self, method: Method) -> Result<oneshot::Receiver<v1::Reply>> {
        self.check(ClError::DEVICE_NOT_AVAILABLE)?;
        let id = self.new_id();
        let call = sendable(v1::Call { id, trace: self.trace().map(Box::new), method: Some(method) })?;
        let (sender, receiver) = oneshot::channel();
        let mut state = lock(&self.state);
        self.check(ClError::DEVICE_NOT_AVAILABLE)?;
        state.calls.insert(id, sender);
        self.send_locked(&mut state);
        self.outbox.push(call);
        Ok(receiver)
    }

    /// Waits for a reply that [`Self::start_call`] requested.
    pub(crate) fn wait_for_reply(&self, mut receiver: oneshot::Receiver<v1::Reply>) -> Result<v1::Reply> {
        let wait = self.adaptive_spin.wait();
        if self.ring.is_some() {
            self.outbox.wake();
            self.spin_on_ring(wait.as_ref(), || !receiver.is_empty() || receiver.is_terminated());
            if let Some(reply) = self.doze(Pin::new(&mut receiver)) {
                return reply.map_err(|_| ClError::DEVICE_NOT_AVAILABLE);
            }
        }
        let reply = self.driver.block_on(async {
            self.outbox.wake();
            self.spin_then_wait(wait.as_ref(), receiver).await
        });
        reply.map_err(|_| ClError::DEVICE_NOT_AVAILABLE)
    }

    /// Calls a method without a reply. The call is sent before all commands that are enqueued later.
    pub(crate) fn cast(&self, method: Method) -> Result<()> {
        self.check(ClError::DEVICE_NOT_AVAILABLE)?;
        self.outbox.push(sendable(v1::Call {
            id: 0,
            trace: self.trace().map(Box::new),
            method: Some(method),
        })?);
        Ok(())
    }

    /// Data for a call: inline if it is small, else a transfer, which is sent before the call.
    pub(crate) fn data(&self, bytes: Bytes) -> v1::Data {
        let form = if bytes.len() <= MAX_INLINE_BYTES {
            Form::Inline(bytes)
        } else {
            let upload = Arc::new(Upload::new(self.new_transfer_id(), HostSource::owned(bytes)));
            let transfer = v1::Transfer { id: upload.transfer, length: upload.length };
            self.outbox.push_upload(upload);
            Form::Transfer(transfer)
        };
        v1::Data { form: Some(form) }
    }

    /// The bytes of data in a reply.
    ///
    /// # Errors
    /// `CL_OUT_OF_RESOURCES` if the manager has not sent them all.
    pub(crate) fn take_data(&self, data: Option<v1::Data>) -> Result<Bytes> {
        match data.and_then(|data| data.form) {
            Some(Form::Inline(bytes)) => Ok(bytes),
            // Replies never have data in shared memory, and never later.
            Some(Form::Segment(_) | Form::Later(_)) => Err(ClError::OUT_OF_RESOURCES),
            Some(Form::Transfer(transfer)) => {
                let bytes = lock(&self.state).downloads.take(&transfer);
                bytes.ok_or(ClError::OUT_OF_RESOURCES)
            }
            None => Ok(Bytes::new()),
        }
    }
}

/// Converts the status of a reply; positive codes become -1.
pub(crate) fn check_status(status: i32) -> Result<()> {
    if status == 0 { Ok(()) } else { Err(ClError(status.min(-1))) }
}

/// A call as a message.
///
/// # Errors
/// `CL_OUT_OF_RESOURCES` for a call that exceeds the manager's limit, since sending it would end the session.
fn sendable(call: v1::Call) -> Result<Kind> {
    /// Upper bound of the bytes of the message around the call.
    const ENVELOPE_BYTES: usize = 16;
    if call.encoded_len() > MAX_MESSAGE_BYTES - ENVELOPE_BYTES {
        tracing::warn!(bytes = call.encoded_len(), "A call is longer than any message");
        return Err(ClError::OUT_OF_RESOURCES);
    }
    Ok(Kind::Call(call))
}
