//! A socket's descriptor that a runtime watches.
#![allow(unsafe_code)]

use std::io;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

/// What is kept beside a descriptor for as long as it is open: made of it, and dropped before it is closed.
pub trait Beside {
    /// Of this descriptor.
    fn of(fd: BorrowedFd<'_>) -> Self;
}

/// Nothing.
impl Beside for () {
    fn of(_: BorrowedFd<'_>) {}
}

#[derive(Debug)]
pub(crate) struct Watched<B> {
    // Dropped before the descriptor is closed: fields drop in this order.
    _beside: B,
    pub(crate) fd: AsyncFd<OwnedFd>,
}

impl<B: Beside> Watched<B> {
    pub(crate) fn new(fd: OwnedFd, interest: Interest) -> io::Result<Self> {
        let beside = B::of(fd.as_fd());
        // SAFETY: an `OwnedFd` is one open descriptor until it is dropped, which only the `AsyncFd` does. (A forked
        // child may close its copy, if it never touches this object.)
        let fd = unsafe { AsyncFd::register_with_interest(fd, interest) }?;
        Ok(Self { _beside: beside, fd })
    }
}
