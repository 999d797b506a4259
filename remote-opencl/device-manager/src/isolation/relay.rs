//! A session whose vendor context is in a tenant process: relays its messages in both directions, and passes
//! its grants and descriptors to the process.
//!
//! A frame on the link is a length (4 bytes, little-endian) and a message; a frame from the process has one
//! byte in between, which is the type of the frame. If the client is slow, the relay stops reading the link,
//! and so the process waits.

use super::packets::ToTenant;
use super::pool::{Owner, TenantProcesses};
use super::tenant_process::{Begin, TenantProcess, pass_on};
use crate::handshake::{Admitted, Tenure};
use bytes::{Buf, BufMut as _, Bytes, BytesMut};
use fpga_protocol::limits::MAX_MESSAGE_BYTES;
use fpga_protocol::v1;
use fpga_protocol::v1::server_message::Kind;
use fpga_session::governor::Budget;
use fpga_session::incoming::Incoming;
use fpga_session::locality::Locality;
use fpga_session::outgoing::{Outgoing, Said};
use fpga_session::router::{Inbox, Input};
use fpga_session::segments::Key;
use fpga_session::session::READS_NOTHING;
use prost::Message as _;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::UnixStream;
use tokio::net::unix::{OwnedReadHalf, OwnedWriteHalf};
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};
use tonic::{Code, Status};

/// Longest frame, in bytes.
const MAX_FRAME: usize = 2 * MAX_MESSAGE_BYTES;
/// Bytes of the length of a frame.
const LENGTH_BYTES: usize = 4;
/// Least number of bytes that a read asks for.
const READ_BYTES: usize = 64 << 10;

/// A frame from a tenant process.
#[derive(Debug)]
pub enum Frame {
    /// A message for the client.
    Message(Box<Said>),
    /// The status with which the session fails.
    Status(Status),
    /// The session ends well.
    End,
}

/// The reading end of a link, from which whole frames come.
#[derive(Debug)]
pub struct Frames {
    link: OwnedReadHalf,
    buffer: BytesMut,
}

impl Frames {
    /// Reads the frames of `link`.
    #[must_use]
    pub fn of(link: OwnedReadHalf) -> Self {
        Self { link, buffer: BytesMut::new() }
    }

    /// The next frame; `None` at the end of the link. The future can be dropped without losing a frame.
    ///
    /// # Errors
    /// The link's error, or a frame is too long or cut off.
    pub async fn next(&mut self) -> io::Result<Option<Bytes>> {
        loop {
            let mut wanted = READ_BYTES;
            if let Some(header) = self.buffer.first_chunk::<LENGTH_BYTES>() {
                let length = u32::from_le_bytes(*header) as usize;
                if length > MAX_FRAME {
                    return Err(io::ErrorKind::InvalidData.into());
                }
                if let Some(missing) = (LENGTH_BYTES + length).checked_sub(self.buffer.len())
                    && missing > 0
                {
                    wanted = missing.max(READ_BYTES);
                } else {
                    self.buffer.advance(LENGTH_BYTES);
                    if length < READ_BYTES {
                        // Copied: a short frame that is kept would otherwise keep all bytes that were read
                        // with it.
                        let frame = Bytes::copy_from_slice(&self.buffer[..length]);
                        self.buffer.advance(length);
                        return Ok(Some(frame));
                    }
                    return Ok(Some(self.buffer.split_to(length).freeze()));
                }
            }
            self.buffer.reserve(wanted);
            if self.link.read_buf(&mut self.buffer).await? == 0 {
                return if self.buffer.is_empty() {
                    Ok(None)
                } else {
                    Err(io::ErrorKind::UnexpectedEof.into())
                };
            }
        }
    }
}

impl Incoming for Frames {
    async fn next(&mut self) -> Result<Option<Bytes>, Status> {
        Self::next(self).await.map_err(|error| Status::unavailable(error.to_string()))
    }
}

/// Writes a client's message without decoding it.
///
/// # Errors
/// The link's error.
pub async fn write_down(link: &mut OwnedWriteHalf, message: Bytes) -> io::Result<()> {
    let length = u32::try_from(message.len()).map_err(io::Error::other)?.to_le_bytes();
    // One system call writes both.
    link.write_all_buf(&mut Buf::chain(length.as_slice(), message)).await
}

/// Writes a frame for the client.
///
/// # Errors
/// The link's error.
pub async fn write_frame(link: &mut OwnedWriteHalf, up: &Frame) -> io::Result<()> {
    let mut frame = BytesMut::new();
    frame.put_u32_le(0);
    match up {
        Frame::Message(message) => {
            frame.reserve(message.encoded_len() + 1);
            frame.put_u8(0);
            match &**message {
                Said::Message(message) => message.encode(&mut frame).map_err(io::Error::other)?,
                Said::Encoded(bytes) => frame.put_slice(bytes),
            }
        }
        Frame::Status(status) => {
            frame.put_u8(1);
            frame.put_i32_le(status.code() as i32);
            frame.put_slice(status.message().as_bytes());
        }
        Frame::End => frame.put_u8(2),
    }
    let length = u32::try_from(frame.len() - LENGTH_BYTES).map_err(io::Error::other)?;
    frame[..LENGTH_BYTES].copy_from_slice(&length.to_le_bytes());
    link.write_all(&frame).await
}

/// Decodes a frame of a tenant process.
fn read_up(mut frame: Bytes) -> io::Result<Frame> {
    match frame.try_get_u8()? {
        0 => Ok(Frame::Message(Box::new(Said::Encoded(frame)))),
        1 => {
            let code = Code::from_i32(frame.try_get_i32_le()?);
            Ok(Frame::Status(Status::new(code, String::from_utf8_lossy(&frame))))
        }
        2 => Ok(Frame::End),
        _ => Err(io::ErrorKind::InvalidData.into()),
    }
}

/// Serves a session through its tenant's process, to its end. Tasks that still run then hold their slots until the process
/// says that they have ended, or has itself ended.
pub async fn run(
    processes: &Arc<TenantProcesses>,
    mut admitted: Admitted,
    locality: Locality,
    outgoing: Outgoing,
    client: impl Incoming,
) {
    let (session, shared) = (admitted.session, admitted.shared.clone());
    let is_leased = matches!(admitted.tenure, Tenure::Lease(..));
    let (sender, inputs) = unbounded_channel();
    let inbox = Inbox::new(sender);
    let (link, process) = match open(processes, &admitted, locality, &inbox) {
        Ok(opened) => opened,
        Err(error) => {
            shared.router.remove(session);
            outgoing.end(Status::resource_exhausted(error.to_string()));
            return;
        }
    };
    let side = (locality, inbox);
    let last = relayed(&process, &mut admitted, (link, side), (inputs, client), &outgoing).await;
    let last = last.map(|status| process.why_it_was_ended().unwrap_or(status));
    shared.router.remove(session);
    shared.sides.forget(session.0);
    if is_leased {
        // The slot is not free before nothing of the session is left.
        process.retire();
        processes.lease_has_ended(session).await;
    }
    process.close(session, &shared);
    drop(admitted.account);
    if let Some(status) = last {
        outgoing.refuse(session, &admitted.tenant, status);
    }
    drop(outgoing);
    let settled = tokio::time::timeout(shared.config.abandoned_grace, process.settled(session));
    if settled.await.is_err() {
        process.is_stuck();
        process.settled(session).await;
    }
}

/// Begins the session in its process. Returns the manager's end of the link.
fn open(
    processes: &Arc<TenantProcesses>,
    admitted: &Admitted,
    locality: Locality,
    inbox: &Inbox,
) -> io::Result<(UnixStream, Arc<TenantProcess>)> {
    let Admitted { tenant, session, shared, tenure, .. } = admitted;
    let owner = match tenure {
        Tenure::Lease(..) => Owner::Lease(*session),
        Tenure::Proof(_) => Owner::Tenant(tenant.clone()),
    };
    let (ours, theirs) = link()?;
    // Registered before the process can ask for a slot.
    shared.router.add(*session, inbox.clone());
    let begin = Begin { session: *session, token: tenure.token(), locality, link: &theirs };
    let process = processes.open(shared, (tenant, owner), &begin).map_err(io::Error::other)?;
    Ok((ours, process))
}

/// Relays until the session ends. Returns the status of a session that fails.
async fn relayed(
    process: &Arc<TenantProcess>,
    admitted: &mut Admitted,
    (link, (locality, inbox)): (UnixStream, (Locality, Inbox)),
    (mut inputs, client): (UnboundedReceiver<Input>, impl Incoming),
    outgoing: &Outgoing,
) -> Option<Status> {
    let Admitted { session, shared, budget, tenure, .. } = admitted;
    let (session, grace) = (*session, shared.config.abandoned_grace);
    let (from_process, to_process) = link.into_split();
    let abandoned = async {
        tokio::select! {
            () = downwards(client, to_process, outgoing) => {}
            status = tenure.ended(|| process.tell(&ToTenant::Yield { session: session.0 })) => {
                outgoing.end(status);
                process.tell(&ToTenant::Revoked { session: session.0 });
            }
        }
        // The session may be building, which takes no slot and may last long.
        loop {
            tokio::time::sleep(grace).await;
            if process.runs_tasks_of(session) {
                break;
            }
        }
    };
    let passed_on = async {
        while let Some(input) = inputs.recv().await {
            pass_on(process, session, input);
        }
    };
    let expect = |key: Key| {
        if let Locality::SharesMemory(process) = locality {
            shared.sides.expect(session.0, key, process, inbox.clone());
        }
    };
    tokio::select! {
        last = upwards(Frames::of(from_process), outgoing, budget, expect) => last,
        () = abandoned => {
            process.is_stuck();
            None
        }
        // This future never completes: the session's inbox is here.
        () = passed_on => None,
    }
}

/// Both ends of a link; the first is for the async runtime of this thread.
fn link() -> io::Result<(UnixStream, OwnedFd)> {
    let (ours, theirs) = std::os::unix::net::UnixStream::pair()?;
    ours.set_nonblocking(true)?;
    Ok((UnixStream::from_std(ours)?, theirs.into()))
}

/// Relays the client's messages to the process, until the client or the process has gone.
async fn downwards(mut client: impl Incoming, mut link: OwnedWriteHalf, outgoing: &Outgoing) {
    loop {
        let message = tokio::select! {
            message = client.next() => message,
            () = outgoing.closed() => break,
        };
        let Ok(Some(message)) = message else { break };
        if write_down(&mut link, message).await.is_err() {
            break;
        }
    }
    // The process learns the end of the link, and finishes what is running.
    let _ = link.shutdown().await;
}

/// Relays the process's messages to the client, until the session ends there. Returns the status of a session
/// that fails.
async fn upwards(
    mut frames: Frames,
    outgoing: &Outgoing,
    budget: &Budget,
    expect: impl Fn(Key),
) -> Option<Status> {
    let mut admitted = false;
    loop {
        let up = match frames.next().await {
            Ok(Some(frame)) => read_up(frame),
            Ok(None) => return Some(died()),
            Err(error) => Err(error),
        };
        match up {
            // Only the first message is decoded.
            Ok(Frame::Message(said)) if !admitted => match welcome(*said) {
                Some(welcome) => {
                    if let Some(key) = Key::of(&welcome.side_key) {
                        expect(key);
                    }
                    admitted = true;
                    outgoing.welcome(welcome);
                }
                None => {
                    tracing::debug!("A tenant's process does not say Welcome first");
                    return Some(died());
                }
            },
            Ok(Frame::Message(said)) => outgoing.forward(*said),
            Ok(Frame::Status(status)) => return Some(status),
            Ok(Frame::End) => return None,
            Err(error) => {
                tracing::debug!(%error, "A tenant's process says what can't be understood");
                return Some(died());
            }
        }
        // The link waits until the client has read, and so does the process.
        let _watch = budget.watch();
        loop {
            let freed = budget.freed();
            if !budget.is_pressed() {
                break;
            }
            tokio::select! {
                () = freed => {}
                () = outgoing.stalled() => return Some(Status::resource_exhausted(READS_NOTHING)),
                () = outgoing.closed() => break,
            }
        }
    }
}

fn welcome(said: Said) -> Option<v1::Welcome> {
    let message = match said {
        Said::Message(message) => message,
        Said::Encoded(bytes) => v1::ServerMessage::decode(bytes).ok()?,
    };
    match message.kind? {
        Kind::Welcome(welcome) => Some(welcome),
        _ => None,
    }
}

fn died() -> Status {
    Status::aborted("the process of this tenant's OpenCL runtime has ended; a new session gets a new one")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn frames_arrive_whole_and_lengths_that_lie_are_refused() {
        let (one, two) = UnixStream::pair().unwrap();
        let (_keep, mut write) = one.into_split();
        let (read, _keep_too) = two.into_split();
        let mut frames = Frames::of(read);
        let completions = v1::Completions { completions: vec![v1::Completion::default(); 3] };
        let message = v1::ServerMessage { kind: Some(Kind::Completions(completions)) };
        let said = Said::Message(message.clone());
        for up in [Frame::Message(Box::new(said)), Frame::Status(Status::aborted("x")), Frame::End] {
            write_frame(&mut write, &up).await.unwrap();
        }
        let mut next = async || read_up(frames.next().await.unwrap().unwrap()).unwrap();
        let Frame::Message(got) = next().await else { panic!("no message") };
        let Said::Encoded(bytes) = *got else { panic!("it was decoded") };
        assert_eq!(v1::ServerMessage::decode(bytes).unwrap(), message);
        assert!(matches!(next().await, Frame::Status(status) if status.code() == Code::Aborted));
        assert!(matches!(next().await, Frame::End));
        write.write_all(&u32::MAX.to_le_bytes()).await.unwrap();
        assert!(frames.next().await.is_err());
    }

    #[test]
    fn frames_of_a_stranger_are_errors_and_no_panic() {
        let said = Said::Encoded(Bytes::from_static(&[255, 255]));
        assert!(welcome(said).is_none());
        for frame in [&b""[..], &[1, 0], &[9]] {
            assert!(read_up(Bytes::copy_from_slice(frame)).is_err(), "{frame:?}");
        }
    }
}
