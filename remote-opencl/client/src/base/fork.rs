//! Handling of forked children: a child recognises that it is one, and closes its copies of our sockets.
//!
//! A child never touches the parent's runtime, threads or locks (another thread may have held them during the
//! fork). It recognises by the generation that inherited state is not its own.
#![allow(unsafe_code)]

use fpga_net::descriptor::Beside;
use std::os::fd::{AsRawFd, BorrowedFd, RawFd};
use std::sync::Once;
use std::sync::atomic::{AtomicI32, AtomicU32, Ordering};

/// Number of sockets that a child closes. Its copies of further sockets are closed only by `exec`.
const SOCKETS: usize = 64;

const FREE: RawFd = -1;

static GENERATION: AtomicU32 = AtomicU32::new(0);
static OPEN: [AtomicI32; SOCKETS] = [const { AtomicI32::new(FREE) }; SOCKETS];

/// Number of forks between the process that loaded this library and this process.
pub(crate) fn generation() -> u32 {
    GENERATION.load(Ordering::Relaxed)
}

/// Registration of a socket whose copy children close. It is dropped before the socket is closed.
#[derive(Debug)]
pub(crate) struct ClosedInChildren(Option<usize>);

impl ClosedInChildren {
    pub(crate) fn register(socket: &impl AsRawFd) -> Self {
        install();
        let fd = socket.as_raw_fd();
        Self(
            OPEN.iter()
                .position(|slot| slot.compare_exchange(FREE, fd, Ordering::SeqCst, Ordering::SeqCst).is_ok()),
        )
    }
}

impl Beside for ClosedInChildren {
    fn of(fd: BorrowedFd<'_>) -> Self {
        Self::register(&fd)
    }
}

impl Drop for ClosedInChildren {
    fn drop(&mut self) {
        if let Some(slot) = self.0.and_then(|index| OPEN.get(index)) {
            slot.store(FREE, Ordering::SeqCst);
        }
    }
}

/// Installs the handler that runs in forked children, once.
pub(crate) fn install() {
    static INSTALLED: Once = Once::new();
    INSTALLED.call_once(|| {
        // SAFETY: `in_child` stays callable as long as this library is loaded (glibc removes the handlers of an
        // unloaded library), and it calls async-signal-safe functions only. If the registration fails (no memory),
        // children don't recognise that they are children, which can't be repaired here.
        unsafe { libc::pthread_atfork(None, None, Some(in_child)) };
    });
}

extern "C" fn in_child() {
    GENERATION.fetch_add(1, Ordering::SeqCst);
    for slot in &OPEN {
        let fd = slot.swap(FREE, Ordering::SeqCst);
        if fd != FREE {
            // SAFETY: this is the child's own copy of a descriptor that the parent's runtime owns. The child never
            // uses that runtime (every entry point checks the generation), so nothing else closes this copy.
            unsafe { libc::close(fd) };
        }
    }
}
