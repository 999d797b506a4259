//! Packets from the manager to a tenant process: sent at once if the control socket has room, otherwise
//! queued, in order.
//!
//! A socket takes a few hundred packets, and a busy process reads none for a moment; a burst of grants must
//! not end the process. The queue is bounded: a process that lets it fill up counts as not reading.

use super::packets::{Control, Received, Room, encode};
use parking_lot::Mutex;
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::thread;

/// Most packets in the queue. A grant has about 200 bytes, so a full queue takes a few MiB.
const MAX_WAITING: usize = 1 << 14;

/// The manager's end of a control socket. Clones share it.
#[derive(Debug, Clone)]
pub struct Outbound(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    control: Control,
    /// Packets in order. A thread sends the first; the thread ends when the queue is empty.
    waiting: Mutex<VecDeque<Arc<Waiting>>>,
}

#[derive(Debug)]
struct Waiting {
    bytes: Vec<u8>,
    descriptor: Option<OwnedFd>,
}

impl Outbound {
    /// Sends over `control`.
    #[must_use]
    pub fn new(control: Control) -> Self {
        Self(Arc::new(Shared { control, waiting: Mutex::default() }))
    }

    /// Sends a packet after all earlier ones; never blocks.
    ///
    /// # Errors
    /// The socket's error; the packet is too long; or the queue is full.
    pub fn send(&self, packet: &impl Serialize, descriptor: Option<BorrowedFd<'_>>) -> io::Result<()> {
        let bytes = encode(packet)?;
        let mut waiting = self.0.waiting.lock();
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

    /// Receives the next packet of the process.
    ///
    /// # Errors
    /// Like [`Control::receive`].
    pub fn receive<T: DeserializeOwned>(&self) -> io::Result<Received<T>> {
        self.0.control.receive()
    }

    /// Receives the next packet of the process and its descriptor.
    ///
    /// # Errors
    /// Like [`Control::receive_with_descriptor`].
    pub fn receive_with_descriptor<T: DeserializeOwned>(&self) -> io::Result<Received<T>> {
        self.0.control.receive_with_descriptor()
    }

    /// Ends both directions, for both ends; queued packets are dropped.
    pub fn hang_up(&self) {
        self.0.control.hang_up();
    }
}

impl Shared {
    /// Sends the queued packets until the queue is empty or the other end has gone.
    fn drain(&self) {
        while let Some(first) = self.first() {
            let descriptor = first.descriptor.as_ref().map(OwnedFd::as_fd);
            if self.control.send_encoded(&first.bytes, descriptor, Room::Awaited).is_err() {
                self.control.hang_up();
                self.waiting.lock().clear();
                return;
            }
            if !self.has_more() {
                return;
            }
        }
    }

    fn first(&self) -> Option<Arc<Waiting>> {
        self.waiting.lock().front().cloned()
    }

    /// Removes the first packet, which has been sent, and returns whether there is another. Both happen under
    /// one lock, so that a sender that finds an empty queue sends directly.
    fn has_more(&self) -> bool {
        let mut waiting = self.waiting.lock();
        waiting.pop_front();
        !waiting.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::isolation::packets::ToTenant;

    fn pair() -> (Outbound, Control) {
        let (ours, theirs) = Control::pair().unwrap();
        (Outbound::new(ours), Control::of(theirs))
    }

    fn side(session: u64) -> ToTenant {
        ToTenant::FdChannel { session }
    }

    #[test]
    fn a_burst_of_packets_waits_for_a_process_that_is_busy_and_arrives_in_order_with_its_descriptors() {
        // A socket takes about 277 packets.
        const PACKETS: u64 = 3000;
        let (outbound, process) = pair();
        let file = tempfile::tempfile().unwrap();
        for session in 0..PACKETS {
            let descriptor = session.is_multiple_of(7).then_some(file.as_fd());
            outbound.send(&side(session), descriptor).unwrap();
        }
        for expected in 0..PACKETS {
            match process.receive_with_descriptor().unwrap() {
                Received::Packet(ToTenant::FdChannel { session }, descriptor) => {
                    assert_eq!((session, descriptor.is_some()), (expected, expected.is_multiple_of(7)));
                }
                other => panic!("{other:?} instead of packet {expected}"),
            }
        }
        outbound.send(&side(PACKETS), None).unwrap();
        let last = process.receive_with_descriptor().unwrap();
        assert!(matches!(last, Received::Packet(ToTenant::FdChannel { session: PACKETS }, None)));
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
