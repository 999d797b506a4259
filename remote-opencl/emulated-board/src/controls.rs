//! The shared memory by which a test controls the board in another process, and reads its counters.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::AsRawFd as _;
use std::path::Path;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

/// The environment variable with the path of the board's control file. Without it the board never fails, and its
/// counters can't be read. Processes of tenants keep the variable, like the runtime's own settings.
pub const VARIABLE: &str = "CL_EMULATED_BOARD";

/// Maximum number of processes that share a board.
const MAX_PROCESSES: usize = 32;

/// The controls and counters of one board. The mapping lives as long as the process.
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
    unplugged: AtomicU64,
    shared: AtomicU64,
    /// The hash of the loaded image, if processes share the board.
    image: AtomicU64,
    busy: AtomicU64,
    /// The process that keeps a context.
    stays: AtomicU64,
    /// For each process its id and, in the lower half, its number of contexts.
    contexts: [AtomicU64; MAX_PROCESSES],
}

impl Controls {
    /// The controls of the board in this process: the file that [`VARIABLE`] names, or controls that nobody else has.
    pub(crate) fn of_this_process() -> Self {
        static CONTROLS: OnceLock<Controls> = OnceLock::new();
        *CONTROLS.get_or_init(|| {
            let file = std::env::var_os(VARIABLE).and_then(|path| Self::open(Path::new(&path)).ok());
            file.unwrap_or_else(|| Self(Box::leak(Box::default())))
        })
    }

    /// Opens the controls in a file, and creates the file if there is none.
    ///
    /// # Errors
    /// If the file can't be opened, resized or mapped.
    pub fn open(path: &Path) -> io::Result<Self> {
        let file = OpenOptions::new().read(true).write(true).create(true).truncate(false).open(path)?;
        file.set_len(size_of::<Words>() as u64)?;
        map(&file)
    }

    /// Number of loaded images.
    #[must_use]
    pub fn loads(self) -> u64 {
        self.0.loads.load(Ordering::SeqCst)
    }

    /// Number of launches that were refused because another image was on the board.
    #[must_use]
    pub fn refused(self) -> u64 {
        self.0.refused.load(Ordering::SeqCst)
    }

    /// Number of calls that wait because the board is stuck.
    #[must_use]
    pub fn held(self) -> u64 {
        self.0.held.load(Ordering::SeqCst)
    }

    /// Sets whether loads fail.
    pub fn fail_loads(self, fail: bool) {
        self.0.fail_loads.store(fail.into(), Ordering::SeqCst);
    }

    /// Sets whether launches fail.
    pub fn fail_kernels(self, fail: bool) {
        self.0.fail_kernels.store(fail.into(), Ordering::SeqCst);
    }

    /// Sets whether calls that reach the board block. Blocked calls return when this is reset.
    pub fn stuck(self, stuck: bool) {
        self.0.stuck.store(stuck.into(), Ordering::SeqCst);
    }

    /// Sets whether commands never end, while calls return. Commands enqueued in the meantime end when this is reset.
    pub fn never_end(self, never: bool) {
        self.0.never_ends.store(never.into(), Ordering::SeqCst);
    }

    /// Sets whether markers wait, as they do where kernels keep all threads of a runtime busy.
    pub fn hold_markers(self, hold: bool) {
        self.0.hold_markers.store(hold.into(), Ordering::SeqCst);
    }

    /// Sets whether all processes share the board.
    pub fn share(self, share: bool) {
        self.0.shared.store(share.into(), Ordering::SeqCst);
    }

    /// Number of loads that were refused because another process had a context.
    #[must_use]
    pub fn busy(self) -> u64 {
        self.0.busy.load(Ordering::SeqCst)
    }

    /// Lets a process keep a context whatever it releases from now on.
    pub fn stays(self, process: u32) {
        self.0.stays.store(process.into(), Ordering::SeqCst);
    }

    /// The loaded image, if processes share the board; 0 if there is none.
    pub(crate) fn shared_image(self) -> Option<u64> {
        self.is_shared().then(|| self.0.image.load(Ordering::SeqCst))
    }

    fn is_shared(self) -> bool {
        self.0.shared.load(Ordering::SeqCst) != 0
    }

    /// Loads an image for all processes. Returns whether it is another one.
    pub(crate) fn load_shared(self, image: u64) -> bool {
        self.0.image.swap(image, Ordering::SeqCst) != image
    }

    /// Notes the number of contexts of this process.
    pub(crate) fn has_contexts(self, contexts: usize) {
        let own = std::process::id();
        let stays = self.0.stays.load(Ordering::SeqCst) == u64::from(own);
        let contexts = if stays { contexts.max(1) } else { contexts };
        let now = u64::from(own) << 32 | contexts as u64;
        let mine = |place: &&AtomicU64| process_of(place) == Some(own);
        if let Some(place) = self.0.contexts.iter().find(mine) {
            return place.store(now, Ordering::SeqCst);
        }
        for place in &self.0.contexts {
            let is_free = process_of(place).is_none_or(|process| !lives(process));
            let before = place.load(Ordering::SeqCst);
            if is_free && place.compare_exchange(before, now, Ordering::SeqCst, Ordering::SeqCst).is_ok() {
                return;
            }
        }
    }

    /// Whether another process that lives has a context on a shared board, which keeps this image out. Counts that.
    pub(crate) fn is_kept_busy(self, image: u64) -> bool {
        let has_contexts = |place: &AtomicU64| {
            place.load(Ordering::SeqCst) & u64::from(u32::MAX) > 0
                && process_of(place).is_some_and(|process| process != std::process::id() && lives(process))
        };
        let busy = self.shared_image().is_some_and(|loaded| loaded != image)
            && self.0.contexts.iter().any(has_contexts);
        if busy {
            self.0.busy.fetch_add(1, Ordering::SeqCst);
        }
        busy
    }

    /// Sets whether the runtime lists no device, as if the board were not there.
    pub fn unplugged(self, unplugged: bool) {
        self.0.unplugged.store(unplugged.into(), Ordering::SeqCst);
    }

    pub(crate) fn is_unplugged(self) -> bool {
        self.0.unplugged.load(Ordering::SeqCst) != 0
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

    /// Blocks while the board is stuck.
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

fn process_of(place: &AtomicU64) -> Option<u32> {
    u32::try_from(place.load(Ordering::SeqCst) >> 32).ok().filter(|process| *process != 0)
}

fn lives(process: u32) -> bool {
    Path::new("/proc").join(process.to_string()).exists()
}

fn map(file: &File) -> io::Result<Controls> {
    let (size, rights) = (size_of::<Words>(), libc::PROT_READ | libc::PROT_WRITE);
    // SAFETY: `mmap` makes a new mapping of an open file, at an address that the system chooses.
    let address =
        unsafe { libc::mmap(std::ptr::null_mut(), size, rights, libc::MAP_SHARED, file.as_raw_fd(), 0) };
    if address == libc::MAP_FAILED {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the mapping is never removed, is aligned to a page and as long as `Words`; all processes access it by
    // atomic words only.
    Ok(Controls(unsafe { &*address.cast::<Words>() }))
}
