//! The manager's side of a tenant process that sends arbitrary packets, for fuzz targets.

use super::packets::{Control, FromTenant};
use super::relay::Frames;
use super::tenant_process::{Begin, TASK_IDS, TenantProcess};
use fpga_board::dispatch::{Lanes, TaskRequest, Tenant};
use fpga_board::slots::{Demand, SessionId};
use fpga_session::locality::Locality;
use fpga_session::session::Shared;
use nix::sys::socket::{MsgFlags, Shutdown, send, shutdown};
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::os::unix::net::UnixStream;
use std::sync::Arc;

/// Tasks that are left in the dispatcher after the process has gone. A neighbour of the process has one
/// running task.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TenantPackets {
    /// Number of running tasks.
    pub running: usize,
    /// Number of waiting tasks.
    pub waiting: usize,
}

impl TenantPackets {
    /// The tasks of the neighbour alone.
    pub const OF_NEIGHBOUR: Self = Self { running: 1, waiting: 0 };

    /// Serves, for a manager of these parts, a process with two sessions that sends `packets` and ends.
    ///
    /// # Errors
    /// A call of the system fails.
    pub fn hear(shared: &Arc<Shared>, packets: &[&[u8]]) -> Result<Self, String> {
        let failed = |error: &dyn std::fmt::Display| error.to_string();
        let dispatcher = &shared.config.dispatcher;
        let neighbour = dispatcher.new_session();
        let task = dispatcher.new_task();
        let tenant = Tenant::new("neighbour");
        let (demand, lanes) = (Demand::AnySlot, Lanes::Any);
        let request = TaskRequest { session: neighbour, task, tenant, demand, lanes, kind: None, bytes: 0 };
        dispatcher.submit(request).map_err(|error| failed(&error))?;
        let (control, theirs) = Control::pair().map_err(|error| failed(&error))?;
        let process = Arc::new(TenantProcess::new(
            Tenant::new("fuzz"),
            TASK_IDS,
            control,
            shared.governor.tenant(),
            None,
        ));
        let (link, _other_end) = UnixStream::pair().map_err(|error| failed(&error))?;
        let link = OwnedFd::from(link);
        let sessions = [SessionId(u64::MAX - 1), SessionId(u64::MAX)];
        for session in sessions {
            let begin = Begin { session, token: None, locality: Locality::Remote, link: &link };
            process.begin(&begin).map_err(|error| failed(&error))?;
        }
        let confined = serde_json::to_vec(&FromTenant::Confined).map_err(|error| failed(&error))?;
        for packet in std::iter::once(confined.as_slice()).chain(packets.iter().copied()) {
            // An empty packet would mean the end of the socket. A packet for which there is no room is not
            // sent.
            if !packet.is_empty() {
                let _ = send(theirs.as_raw_fd(), packet, MsgFlags::MSG_DONTWAIT | MsgFlags::MSG_NOSIGNAL);
            }
        }
        // The manager's packets stay unread: closing the socket would discard the packets that were sent.
        shutdown(theirs.as_raw_fd(), Shutdown::Write).map_err(|error| failed(&error))?;
        process.serve(0, || process.retires_if_idle(), shared);
        process.leave_nothing(shared);
        let left = Self { running: dispatcher.running(), waiting: dispatcher.waiting() };
        dispatcher.finished(task);
        dispatcher.cancel_session(neighbour);
        Ok(left)
    }
}

/// The number of frames in a session's link that carries `bytes`, and the length of the longest.
///
/// # Errors
/// The socket pair or the runtime can't be made.
pub fn link_frames(bytes: &[u8]) -> std::io::Result<(usize, usize)> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let (ours, mut theirs) = tokio::net::UnixStream::pair()?;
        let (read, _write) = ours.into_split();
        let mut frames = Frames::of(read);
        let (mut count, mut longest) = (0, 0);
        let write = async move {
            // Writing fails where the reader stops early.
            let _ = tokio::io::AsyncWriteExt::write_all(&mut theirs, bytes).await;
        };
        let read = async {
            while let Ok(Some(frame)) = frames.next().await {
                count += 1;
                longest = longest.max(frame.len());
            }
            drop(frames);
        };
        tokio::join!(write, read);
        Ok((count, longest))
    })
}
