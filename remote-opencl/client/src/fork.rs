//! What a forked child needs: to know that it is one, and to close its copies of our sockets.
//!
//! A child never touches the parent's runtime, threads or locks (another thread may have held them). It only notices,
//! by the generation, that whatever it inherited is not its own.
#![allow(unsafe_code)]

use fpga_net::descriptor::Beside;
use std::os::fd::{AsRawFd, BorrowedFd, RawFd};
use std::sync::Once;
use std::sync::atomic::{AtomicI32, AtomicU32, Ordering};

/// How many sockets of ours a child closes; further ones are closed by `exec` alone.
const SOCKETS: usize = 64;

const FREE: RawFd = -1;

static GENERATION: AtomicU32 = AtomicU32::new(0);
static OPEN: [AtomicI32; SOCKETS] = [const { AtomicI32::new(FREE) }; SOCKETS];

/// Number of forks between the process that loaded this library and this one.
pub(crate) fn generation() -> u32 {
    GENERATION.load(Ordering::Relaxed)
}

/// Has children close their copy of a socket; forgets it on drop, before the socket is closed.
#[derive(Debug)]
pub(crate) struct ClosedInChildren(Option<usize>);

impl ClosedInChildren {
    /// Registers `socket`.
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

/// Installs the handler, once.
pub(crate) fn install() {
    static INSTALLED: Once = Once::new();
    INSTALLED.call_once(|| {
        // SAFETY: `in_child` is a function for as long as this library is loaded (glibc forgets the handlers of an
        // unloaded library), and calls async-signal-safe functions only. A failure (no memory) leaves children
        // unaware, which nothing here can repair.
        unsafe { libc::pthread_atfork(None, None, Some(in_child)) };
    });
}

extern "C" fn in_child() {
    GENERATION.fetch_add(1, Ordering::SeqCst);
    for slot in &OPEN {
        let fd = slot.swap(FREE, Ordering::SeqCst);
        if fd != FREE {
            // SAFETY: this is the child's own copy of a descriptor that the parent's runtime owns. The child never uses
            // that runtime again (every entry checks the generation), so nobody else closes this copy.
            unsafe { libc::close(fd) };
        }
    }
}
