//! What kernels print: a vendor's runtime writes the text of `printf` to the standard output of its process.
//!
//! A process that serves one tenant catches its standard output in a pipe. A session with a program that prints takes the text when one
//! of its commands ends, and tells its client before the end. Text that no session is to take goes to the standard error.

use bytes::Bytes;
use nix::fcntl::OFlag;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use parking_lot::Mutex;
use std::fs::File;
use std::io::{self, ErrorKind, Read as _, Write as _};
use std::os::fd::AsFd as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

/// Most bytes of text that wait for a session. Further text is lost.
const MOST_BYTES: usize = 1 << 20;

/// The text of the kernels of this process.
#[derive(Debug, Clone)]
pub struct Printed(Arc<Caught>);

/// A session that takes the text, for as long as it lives.
#[derive(Debug)]
pub struct Taker(Printed);

#[derive(Debug)]
struct Caught {
    pipe: File,
    text: Mutex<Text>,
    takers: AtomicUsize,
}

#[derive(Debug, Default)]
struct Text {
    bytes: Vec<u8>,
    lost: u64,
}

impl Printed {
    /// Puts a pipe in place of the standard output of this process.
    ///
    /// # Errors
    /// The system has no pipe or no thread.
    pub fn catch() -> io::Result<Self> {
        let (pipe, end) = nix::unistd::pipe2(OFlag::O_CLOEXEC)?;
        nix::fcntl::fcntl(&pipe, nix::fcntl::FcntlArg::F_SETFL(OFlag::O_NONBLOCK))?;
        nix::unistd::dup2_stdout(&end)?;
        let caught = Caught { pipe: File::from(pipe), text: Mutex::default(), takers: AtomicUsize::new(0) };
        let printed = Self(Arc::new(caught));
        let drained = printed.clone();
        thread::Builder::new().name("printed".to_owned()).spawn(move || drained.0.drain())?;
        Ok(printed)
    }

    /// Lets a session take the text.
    #[must_use]
    pub fn taker(&self) -> Taker {
        self.0.takers.fetch_add(1, Ordering::SeqCst);
        Taker(self.clone())
    }
}

impl Taker {
    /// What was printed since the last call; `None` if that is nothing.
    #[must_use]
    pub fn take(&self) -> Option<Bytes> {
        // SAFETY: null stands for all streams of the C library, in which a runtime may keep text.
        unsafe { libc::fflush(std::ptr::null_mut()) };
        let Caught { pipe, text, .. } = &*self.0.0;
        let mut text = text.lock();
        text.read(pipe);
        let Text { mut bytes, lost } = std::mem::take(&mut *text);
        if lost > 0 {
            bytes.extend_from_slice(format!("\n[{lost} bytes that kernels printed are lost]\n").as_bytes());
        }
        (!bytes.is_empty()).then(|| bytes.into())
    }
}

impl Drop for Taker {
    fn drop(&mut self) {
        self.0.0.takers.fetch_sub(1, Ordering::SeqCst);
    }
}

impl Caught {
    /// Empties the pipe, so that no kernel waits for a session.
    fn drain(&self) {
        let mut ready = [PollFd::new(self.pipe.as_fd(), PollFlags::POLLIN)];
        loop {
            match poll(&mut ready, PollTimeout::NONE) {
                Ok(_) | Err(nix::Error::EINTR) => {}
                Err(_) => return,
            }
            let mut text = self.text.lock();
            if !text.read(&self.pipe) {
                return;
            }
            if self.takers.load(Ordering::SeqCst) > 0 {
                continue;
            }
            let Text { bytes, .. } = std::mem::take(&mut *text);
            drop(text);
            // A log that can't be written has no other place.
            let _ = io::stderr().write_all(&bytes);
        }
    }
}

impl Text {
    /// Takes in what is in the pipe. Returns whether more may come.
    fn read(&mut self, mut pipe: &File) -> bool {
        let mut piece = [0; 16 << 10];
        loop {
            match pipe.read(&mut piece) {
                Ok(0) => return false,
                Ok(length) => {
                    let kept = length.min(MOST_BYTES - self.bytes.len());
                    self.bytes.extend_from_slice(piece.get(..kept).unwrap_or_default());
                    self.lost += (length - kept) as u64;
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return error.kind() == ErrorKind::WouldBlock,
            }
        }
    }
}
