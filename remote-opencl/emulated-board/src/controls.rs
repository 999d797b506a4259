//! The memory by which a test steers the board in another process, and reads what it counted.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::AsRawFd as _;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

/// Names the file of the board's controls; without it the board counts for nobody and never fails.
/// A name that tenants' processes keep, as a runtime's own settings.
pub const VARIABLE: &str = "CL_EMULATED_BOARD";

/// The controls of one board. Lives as long as the process.
#[derive(Debug, Clone, Copy)]
pub struct Controls(&'static Words);

#[derive(Debug, Default)]
#[repr(C)]
struct Words {
    loads: AtomicU64,
    refused: AtomicU64,
    fail_loads: AtomicU64,
    fail_kernels: AtomicU64,
    stuck: AtomicU64,
    never_ends: AtomicU64,
    hold_markers: AtomicU64,
    held: AtomicU64,
}

impl Controls {
    /// A board that no test steers.
    pub(crate) fn of_nobody() -> Self {
        Self(Box::leak(Box::default()))
    }

    /// The controls in this file, which is made if it isn't there.
    ///
    /// # Errors
    /// The system's.
    pub fn open(path: &Path) -> io::Result<Self> {
        let file = OpenOptions::new().read(true).write(true).create(true).truncate(false).open(path)?;
        file.set_len(size_of::<Words>() as u64)?;
        map(&file)
    }

    /// How many images were loaded.
    #[must_use]
    pub fn loads(self) -> u64 {
        self.0.loads.load(Ordering::SeqCst)
    }

    /// How many launches were refused, since another image was on the board.
    #[must_use]
    pub fn refused(self) -> u64 {
        self.0.refused.load(Ordering::SeqCst)
    }

    /// How many calls wait in a board that is stuck.
    #[must_use]
    pub fn held(self) -> u64 {
        self.0.held.load(Ordering::SeqCst)
    }

    /// From now on loads fail, or no more.
    pub fn fail_loads(self, fail: bool) {
        self.0.fail_loads.store(fail.into(), Ordering::SeqCst);
    }

    /// From now on launches fail, or no more.
    pub fn fail_kernels(self, fail: bool) {
        self.0.fail_kernels.store(fail.into(), Ordering::SeqCst);
    }

    /// From now on calls that reach the board don't return, or do again, those that waited too.
    pub fn stuck(self, stuck: bool) {
        self.0.stuck.store(stuck.into(), Ordering::SeqCst);
    }

    /// From now on commands don't end, while calls return; or they end again, those that were given meanwhile too.
    pub fn never_end(self, never: bool) {
        self.0.never_ends.store(never.into(), Ordering::SeqCst);
    }

    /// From now on markers wait, as where kernels keep all of a runtime's threads busy; or no more.
    pub fn hold_markers(self, hold: bool) {
        self.0.hold_markers.store(hold.into(), Ordering::SeqCst);
    }

    pub(crate) fn count_load(self) {
        self.0.loads.fetch_add(1, Ordering::SeqCst);
    }

    pub(crate) fn count_refused(self) {
        self.0.refused.fetch_add(1, Ordering::SeqCst);
    }

    pub(crate) fn loads_fail(self) -> bool {
        self.0.fail_loads.load(Ordering::SeqCst) != 0
    }

    pub(crate) fn kernels_fail(self) -> bool {
        self.0.fail_kernels.load(Ordering::SeqCst) != 0
    }

    pub(crate) fn commands_never_end(self) -> bool {
        self.0.never_ends.load(Ordering::SeqCst) != 0
    }

    pub(crate) fn markers_wait(self) -> bool {
        self.commands_never_end() || self.0.hold_markers.load(Ordering::SeqCst) != 0
    }

    /// Returns when the board is not stuck.
    pub(crate) fn wait(self) {
        if self.0.stuck.load(Ordering::SeqCst) == 0 {
            return;
        }
        self.0.held.fetch_add(1, Ordering::SeqCst);
        while self.0.stuck.load(Ordering::SeqCst) != 0 {
            std::thread::sleep(std::time::Duration::from_millis(2));
        }
        self.0.held.fetch_sub(1, Ordering::SeqCst);
    }
}

fn map(file: &File) -> io::Result<Controls> {
    let (size, rights) = (size_of::<Words>(), libc::PROT_READ | libc::PROT_WRITE);
    // SAFETY: a new mapping of an open file, at an address of the system's choice.
    let address =
        unsafe { libc::mmap(std::ptr::null_mut(), size, rights, libc::MAP_SHARED, file.as_raw_fd(), 0) };
    if address == libc::MAP_FAILED {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: mapped for good, aligned to a page, as long as `Words`, and used by atomic words only in all processes.
    Ok(Controls(unsafe { &*address.cast::<Words>() }))
}
