//! Descriptors of which forked children close their copies.
#![allow(unsafe_code)]

use crate::registration::Registration;
use std::os::fd::{AsRawFd, BorrowedFd, RawFd};
use std::sync::atomic::{AtomicI32, Ordering};

/// Maximum number of descriptors that a child closes. Its copies of further descriptors are closed only by `exec`.
const DESCRIPTORS: usize = 64;

const FREE: RawFd = -1;

static OPEN: [AtomicI32; DESCRIPTORS] = [const { AtomicI32::new(FREE) }; DESCRIPTORS];
static HANDLER: Registration = Registration::new();

/// Registration of a descriptor whose copy forked children close. It is dropped before the descriptor is closed.
#[derive(Debug)]
pub struct ClosedInChildren {
    slot: Option<&'static AtomicI32>,
}

impl ClosedInChildren {
    /// Makes children that are forked from now on close their copies of `fd`.
    ///
    /// # Safety
    /// A forked child neither uses nor closes the copies of descriptors that it inherits.
    pub unsafe fn register(fd: BorrowedFd<'_>) -> Self {
        HANDLER.ensure(close_in_child);
        let fd = fd.as_raw_fd();
        let take =
            |slot: &&AtomicI32| slot.compare_exchange(FREE, fd, Ordering::SeqCst, Ordering::SeqCst).is_ok();
        Self { slot: OPEN.iter().find(take) }
    }
}

impl Drop for ClosedInChildren {
    fn drop(&mut self) {
        if let Some(slot) = self.slot {
            slot.store(FREE, Ordering::SeqCst);
        }
    }
}

/// Runs in the child, where only async-signal-safe functions are allowed.
extern "C" fn close_in_child() {
    for slot in &OPEN {
        let fd = slot.swap(FREE, Ordering::SeqCst);
        if fd != FREE {
            // SAFETY: this is the child's copy of a descriptor that is open in the parent, since its registration is
            // dropped first. By the contract of `register` nothing else uses or closes this copy.
            unsafe { libc::close(fd) };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::forked::succeeds_in_child;
    use std::fs::File;
    use std::os::fd::AsFd;

    /// Whether the descriptor with this number is open in the calling process.
    fn is_open(fd: RawFd) -> bool {
        // SAFETY: the call reads the flags of a descriptor, if there is one.
        unsafe { libc::fcntl(fd, libc::F_GETFD) != -1 }
    }

    #[test]
    fn a_child_closes_registered_descriptors_only_and_the_parent_none() {
        let [registered, released, other] = [(); 3].map(|()| File::open("/dev/null").unwrap());
        let fds = [&registered, &released, &other].map(AsRawFd::as_raw_fd);
        // SAFETY: the child asks only whether the descriptors are open.
        let [_held, dropped] =
            [&registered, &released].map(|file| unsafe { ClosedInChildren::register(file.as_fd()) });
        drop(dropped);
        assert!(succeeds_in_child(|| fds.map(is_open) == [false, true, true]));
        assert_eq!(fds.map(is_open), [true; 3]);
    }
}
