//! Sockets of which forked children close their copies.
#![allow(unsafe_code)]

use fpga_net::descriptor::Beside;
use std::os::fd::BorrowedFd;

/// Registration of a socket whose copy children close. It is dropped before the socket is closed.
#[derive(Debug)]
pub(crate) struct ClosedInChildren {
    _registration: fpga_foreign_process::ClosedInChildren,
}

impl Beside for ClosedInChildren {
    fn of(socket: BorrowedFd<'_>) -> Self {
        // SAFETY: the parent's runtime owns the socket, and a child never uses that runtime, since every entry point
        // checks the generation. So nothing else uses or closes the child's copy.
        let _registration = unsafe { fpga_foreign_process::ClosedInChildren::register(socket) };
        Self { _registration }
    }
}
