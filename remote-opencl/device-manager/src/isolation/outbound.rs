//! What the manager says to a tenant process: sent at once where the control socket has room, else queued, in order.
//!
//! A socket of packets takes few hundred of them, and a process that is busy reads none for a moment; a burst of grants is
//! no reason to end it. The queue is bounded: a process that reads nothing while the queue fills up does not listen.

use super::packets::{Control, Received, Room, encode};
use crate::objects::lock;
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::sync::{Arc, Mutex};
use std::thread;

/// Most packets that wait: a grant has about 200 bytes, so these are a few MiB.
const MAX_WAITING: usize = 1 << 14;

/// The manager's end of a control socket. Clones share it.
#[derive(Debug, Clone)]
pub struct Outbound(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    control: Control,
    /// The first is being sent by a thread of its own, which ends with the last.
    waiting: Mutex<VecDeque<Arc<Waiting>>>,
}

#[derive(Debug)]
struct Waiting {
    bytes: Vec<u8>,
    descriptor: Option<OwnedFd>,
}

impl Outbound {
    /// Over this socket.
    #[must_use]
    pub fn new(control: Control) -> Self {
        Self(Arc::new(Shared { control, waiting: Mutex::default() }))
    }

    /// Sends a packet after all those before; never blocks.
    ///
    /// # Errors
    /// The system's; that the packet is too long; that the process does not read what waits for it.
    pub fn send(&self, packet: &impl Serialize, descriptor: Option<BorrowedFd<'_>>) -> io::Result<()> {
        let bytes = encode(packet)?;
        let mut waiting = lock(&self.0.waiting);
        if waiting.is_empty() {
            match self.0.control.send_encoded(&bytes, descriptor, Room::Now) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                sent => return sent,
            }
        }
        if waiting.len() >= MAX_WAITING {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        let descriptor = descriptor.map(|descriptor| descriptor.try_clone_to_owned()).transpose()?;
        if waiting.is_empty() {
            let shared = self.0.clone();
            thread::Builder::new().name("packets".to_owned()).spawn(move || shared.drain())?;
        }
        waiting.push_back(Arc::new(Waiting { bytes, descriptor }));
        Ok(())
    }

    /// The next packet of the process.
    ///
    /// # Errors
    /// As [`Control::receive`].
    pub fn receive<T: DeserializeOwned>(&self) -> io::Result<Received<T>> {
        self.0.control.receive()
    }

    /// The next packet of the process with what came beside it.
    ///
    /// # Errors
    /// As [`Control::receive_with_descriptor`].
    pub fn receive_with_descriptor<T: DeserializeOwned>(&self) -> io::Result<Received<T>> {
        self.0.control.receive_with_descriptor()
    }

    /// Ends both directions, for both ends; what waits is dropped.
    pub fn hang_up(&self) {
        self.0.control.hang_up();
    }
}

impl Shared {
    /// Sends what waits, until there is nothing more or the other end has gone.
    fn drain(&self) {
        while let Some(first) = self.first() {
            let descriptor = first.descriptor.as_ref().map(OwnedFd::as_fd);
            if self.control.send_encoded(&first.bytes, descriptor, Room::Awaited).is_err() {
                self.control.hang_up();
                lock(&self.waiting).clear();
                return;
            }
            if !self.has_more() {
                return;
            }
        }
    }

    fn first(&self) -> Option<Arc<Waiting>> {
        lock(&self.waiting).front().cloned()
    }

    /// The first packet has been sent. Whether there is another: under the same lock, so that who finds none sends by
    /// itself.
    fn has_more(&self) -> bool {
        let mut waiting = lock(&self.waiting);
        waiting.pop_front();
        !waiting.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::isolation::packets::Down;

    fn pair() -> (Outbound, Control) {
        let (ours, theirs) = Control::pair().unwrap();
        (Outbound::new(ours), Control::of(theirs))
    }

    fn side(session: u64) -> Down {
        Down::Side { session }
    }

    #[test]
    fn a_burst_of_packets_waits_for_a_process_that_is_busy_and_arrives_in_order_with_its_descriptors() {
        // A socket takes about 277.
        const PACKETS: u64 = 3000;
        let (outbound, process) = pair();
        let file = tempfile::tempfile().unwrap();
        for session in 0..PACKETS {
            let descriptor = session.is_multiple_of(7).then_some(file.as_fd());
            outbound.send(&side(session), descriptor).unwrap();
        }
        for expected in 0..PACKETS {
            match process.receive_with_descriptor().unwrap() {
                Received::Packet(Down::Side { session }, descriptor) => {
                    assert_eq!((session, descriptor.is_some()), (expected, expected.is_multiple_of(7)));
                }
                other => panic!("{other:?} instead of packet {expected}"),
            }
        }
        outbound.send(&side(PACKETS), None).unwrap();
        let last = process.receive_with_descriptor().unwrap();
        assert!(matches!(last, Received::Packet(Down::Side { session: PACKETS }, None)));
    }

    #[test]
    fn a_process_that_reads_nothing_is_an_error_after_a_bound_and_hanging_up_ends_the_thread_that_sends() {
        let (outbound, process) = pair();
        let mut sent = 0;
        let error = loop {
            match outbound.send(&side(sent), None) {
                Ok(()) => sent += 1,
                Err(error) => break error,
            }
            assert!(sent <= 2 * MAX_WAITING as u64, "the queue has no bound");
        };
        assert_eq!(error.kind(), io::ErrorKind::WouldBlock);
        let shared = Arc::downgrade(&outbound.0);
        outbound.hang_up();
        drop((outbound, process));
        let deadline = std::time::Instant::now() + std::time::Duration::from_secs(30);
        while shared.upgrade().is_some() {
            assert!(std::time::Instant::now() < deadline, "the thread stays");
            thread::yield_now();
        }
    }
}
