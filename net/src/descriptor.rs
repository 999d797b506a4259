//! A socket's descriptor, registered with a runtime.
#![allow(unsafe_code)]

use std::io;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

/// A value kept beside a descriptor for as long as it is open: made from the descriptor, and dropped before it is
/// closed.
pub trait Beside {
    /// Makes the value for `fd`.
    fn of(fd: BorrowedFd<'_>) -> Self;
}

impl Beside for () {
    fn of(_: BorrowedFd<'_>) {}
}

#[derive(Debug)]
pub(crate) struct Watched<B> {
    // Declared first, since fields drop in this order: dropped before the descriptor is closed.
    _beside: B,
    pub(crate) fd: AsyncFd<OwnedFd>,
}

impl<B: Beside> Watched<B> {
    pub(crate) fn new(fd: OwnedFd, interest: Interest) -> io::Result<Self> {
        let beside = B::of(fd.as_fd());
        // SAFETY: an `OwnedFd` is one open descriptor until it is dropped, and only the `AsyncFd` drops it. (A forked
        // child may close its copy if it never touches this object.)
        let fd = unsafe { AsyncFd::register_with_interest(fd, interest) }?;
        Ok(Self { _beside: beside, fd })
    }
}
