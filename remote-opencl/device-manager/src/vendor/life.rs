//! Object re-creation: when a board is reconfigured as a whole (T-2), all objects of the vendor, contexts included,
//! are released and made again. The handles above this module stay the same.
//!
//! Without it (`--reconfiguration partial`) a cell only stores a pointer. With it, each object has a recipe: how it
//! was made, and the steps that followed, such as builds of a program. Programs of binaries and their kernels are
//! made again only while their image is on the board, since making them loads the image. The contents of buffers
//! and images are read before the release and given to the new objects. In between the old contents are
//! overwritten, so that a runtime which returns the same memory does not hide an error. Events have ended by then
//! and stay as records. An object that can't be made again becomes a null handle, and calls on it return OpenCL's
//! error codes. The caller of [`switch`] ensures that no other thread uses the vendor meanwhile.

use super::api::{Api, api, call};
use super::handles::Handle as _;
use super::{ClError, ClResult, Context, DeviceId, Event, Memory, Queue, Region, check};
use fpga_core::bitstream::Digest;
use opencl_sys::{CL_CONTEXT_REFERENCE_COUNT, CL_INVALID_VALUE, CL_OUT_OF_RESOURCES};
use std::collections::{BTreeMap, HashMap, HashSet};
use std::ffi::c_void;
use std::fmt;
use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicI64, AtomicPtr, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};

/// Byte that overwrites the old contents of buffers and images.
const POISON: u8 = 0xA5;

/// Time for which the vendor's own threads may hold a context.
const PATIENCE: Duration = Duration::from_millis(50);

/// Maximum number of steps that are repeated for one object. The latest ones count.
const MAX_STEPS: usize = 64;

static ON: AtomicBool = AtomicBool::new(false);
static SWITCHES: AtomicU64 = AtomicU64::new(0);
static LAST_ID: AtomicU64 = AtomicU64::new(0);
static LIVES: Mutex<BTreeMap<u64, Arc<Life>>> = Mutex::new(BTreeMap::new());
/// For tests: the number of the object in a switch that is not made again, or a negative number, and the first
/// switch in which this applies.
static FAILS_AT: AtomicI64 = AtomicI64::new(-1);
static FAILS_FROM: AtomicU64 = AtomicU64::new(0);

type Release = fn(&Api, *mut c_void);
type Make = Box<dyn Fn(Option<&[u8]>) -> ClResult<*mut c_void> + Send + Sync>;
type Step = Box<dyn Fn(*mut c_void) -> ClResult<()> + Send + Sync>;

/// One object of the vendor.
pub struct Cell {
    raw: AtomicPtr<c_void>,
    release: Release,
    /// The key of the object's recipe; 0 if the object is not made again.
    id: AtomicU64,
    /// The final status of an event that is only a record.
    past: AtomicI32,
}

/// The recipe of an object.
struct Life {
    cell: Weak<Cell>,
    kind: Kind,
    make: Option<Make>,
    steps: Mutex<Vec<Step>>,
}

/// How a switch treats an object.
#[derive(Debug, Clone)]
pub(super) enum Kind {
    /// A context is made again before its objects.
    Context {
        /// A device of the context, for a temporary queue.
        device: DeviceId,
    },
    /// An event becomes a record.
    Event,
    /// A buffer keeps its bytes.
    Buffer {
        /// The buffer's context.
        context: Arc<Cell>,
        /// Size in bytes.
        size: usize,
    },
    /// An image keeps its pixels.
    Image {
        /// The image's context.
        context: Arc<Cell>,
        /// The region of the whole image.
        region: Region,
        /// Size of the pixels in bytes.
        size: usize,
    },
    /// A program is built again, confined so that its sources can include no files.
    Program {
        /// The images that contain the program; empty if it is not from binaries.
        images: Vec<Digest>,
    },
    /// A kernel is made again if its program is.
    Kernel {
        /// The kernel's program.
        program: Arc<Cell>,
    },
    /// Another object is made again.
    Other,
}

/// The counts of a switch.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Switched {
    /// Contexts that were destroyed.
    pub contexts: u64,
    /// Contexts that the vendor itself still holds.
    pub outlived: u64,
    /// Objects that were made again.
    pub restored: u64,
    /// Objects that could not be made again.
    pub lost: u64,
    /// Lost objects that are programs of the image to be loaded.
    pub failed_loads: u64,
    /// Programs of that image that were made again.
    pub loads: u64,
}

/// Records recipes from now on. Call it before any object is made.
pub fn turn_on() {
    ON.store(true, Ordering::Relaxed);
    if cfg!(debug_assertions)
        && let Ok(text) = std::env::var("FPGA_TEST_LOSE_OBJECT")
        && let Some((from, at)) = text.split_once(':')
        && let (Ok(from), Ok(at)) = (from.parse(), at.parse())
    {
        FAILS_FROM.store(from, Ordering::Relaxed);
        FAILS_AT.store(at, Ordering::Relaxed);
    }
}

/// Whether recipes are recorded, so that objects can be made again.
#[must_use]
pub fn is_on() -> bool {
    ON.load(Ordering::Relaxed)
}

/// Number of switches so far. A kernel loses its arguments at each switch.
#[must_use]
pub fn switches() -> u64 {
    SWITCHES.load(Ordering::Acquire)
}

impl Cell {
    pub(super) fn new(raw: *mut c_void, release: Release) -> Arc<Self> {
        let (raw, id, past) = (AtomicPtr::new(raw), AtomicU64::new(0), AtomicI32::new(0));
        Arc::new(Self { raw, release, id, past })
    }

    pub(super) fn raw(&self) -> *mut c_void {
        self.raw.load(Ordering::Acquire)
    }

    /// The object, if no reconfiguration has lost it.
    pub(super) fn alive(&self) -> ClResult<*mut c_void> {
        let raw = self.raw();
        if raw.is_null() { Err(ClError(CL_OUT_OF_RESOURCES)) } else { Ok(raw) }
    }

    /// The final status of an event, if it is only a record.
    pub(super) fn past(&self) -> Option<i32> {
        self.raw().is_null().then(|| self.past.load(Ordering::Relaxed))
    }

    fn release(&self) {
        let raw = self.raw.swap(ptr::null_mut(), Ordering::AcqRel);
        if !raw.is_null()
            && let Ok(api) = api()
        {
            (self.release)(api, raw);
        }
    }
}

impl Drop for Cell {
    fn drop(&mut self) {
        let id = self.id.load(Ordering::Relaxed);
        // The recipe is dropped after the lock is free, since it holds other objects.
        let _life = if id == 0 { None } else { lives().remove(&id) };
        self.release();
    }
}

impl fmt::Debug for Cell {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Cell").field(&self.raw()).finish()
    }
}

fn lives() -> MutexGuard<'static, BTreeMap<u64, Arc<Life>>> {
    LIVES.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Records the recipe of an object. `make` gets the old content if the object's kind keeps it.
pub(super) fn remember(
    cell: &Arc<Cell>,
    kind: Kind,
    make: impl Fn(Option<&[u8]>) -> ClResult<*mut c_void> + Send + Sync + 'static,
) {
    if is_on() {
        insert(cell, kind, Some(Box::new(make)));
    }
}

/// Lets a switch turn this event into a record.
pub(super) fn remember_event(cell: &Arc<Cell>) {
    if is_on() {
        insert(cell, Kind::Event, None);
    }
}

fn insert(cell: &Arc<Cell>, kind: Kind, make: Option<Make>) {
    let id = LAST_ID.fetch_add(1, Ordering::Relaxed) + 1;
    cell.id.store(id, Ordering::Relaxed);
    let life = Life { cell: Arc::downgrade(cell), kind, make, steps: Mutex::default() };
    lives().insert(id, Arc::new(life));
}

/// Records a step after the creation of an object, to be repeated after it is made again.
pub(super) fn and_then(cell: &Arc<Cell>, step: impl Fn(*mut c_void) -> ClResult<()> + Send + Sync + 'static) {
    if !is_on() {
        return;
    }
    let life = lives().get(&cell.id.load(Ordering::Relaxed)).cloned();
    if let Some(life) = life {
        let mut steps = life.steps.lock().unwrap_or_else(PoisonError::into_inner);
        if steps.len() == MAX_STEPS {
            drop(steps.remove(0));
        }
        steps.push(Box::new(step));
    }
}

/// A function that runs its argument confined. Programs are built again in it.
pub type Confined<'a> = &'a dyn Fn(&mut (dyn FnMut() + Send));

/// Releases all objects and makes them again. Programs of binaries are made again only if they are of `images`. No
/// other thread may use the vendor meanwhile.
pub fn switch(images: &[Digest], confined: Confined<'_>) -> Switched {
    // In the order of creation: an object comes after those that it needs.
    let all: Vec<(u64, Arc<Life>)> = lives().iter().map(|(id, life)| (*id, life.clone())).collect();
    let all: Vec<(u64, Arc<Life>, Arc<Cell>)> =
        all.into_iter().filter_map(|(id, life)| life.cell.upgrade().map(|cell| (id, life, cell))).collect();
    let mut switched = Switched::default();
    for (_, life, cell) in &all {
        if let Kind::Event = life.kind {
            let event = Event::of(cell.clone());
            // A failed command has also ended.
            let _ = event.wait();
            let status = event.status().unwrap_or(opencl_sys::CL_COMPLETE);
            cell.past.store(status.min(0), Ordering::Relaxed);
        }
    }
    let mut saved = save(&all);
    for (_, life, cell) in all.iter().rev() {
        if let Kind::Context { .. } = life.kind {
            if is_held_by_nobody_else(cell) {
                switched.contexts += 1;
            } else {
                switched.outlived += 1;
            }
        }
        cell.release();
    }
    let number = SWITCHES.fetch_add(1, Ordering::AcqRel) + 1;
    let fails_at = FAILS_AT.load(Ordering::Relaxed);
    let fails_at = (number >= FAILS_FROM.load(Ordering::Relaxed)).then_some(fails_at);
    let mut counted = 0;
    let mut left_out = HashSet::new();
    for (id, life, cell) in &all {
        let Some(make) = &life.make else { continue };
        let is_left_out = match &life.kind {
            Kind::Program { images: of } => !of.is_empty() && !of.iter().any(|image| images.contains(image)),
            Kind::Kernel { program } => left_out.contains(&Arc::as_ptr(program)),
            _ => false,
        };
        if is_left_out {
            left_out.insert(Arc::as_ptr(cell));
            continue;
        }
        counted += 1;
        let made = match saved.remove(id) {
            _ if fails_at == Some(counted) => Err(ClError(CL_OUT_OF_RESOURCES)),
            Some(Ok(contents)) => make(Some(&contents)),
            Some(Err(error)) => Err(error),
            None if matches!(life.kind, Kind::Program { .. }) => {
                let mut made = Err(ClError(CL_INVALID_VALUE));
                confined(&mut || made = again(life, make, cell.release).map(Raw));
                made.map(|Raw(raw)| raw)
            }
            None => again(life, make, cell.release),
        };
        match made {
            Ok(raw) => {
                cell.raw.store(raw, Ordering::Release);
                switched.restored += 1;
                if matches!(&life.kind, Kind::Program { images } if !images.is_empty()) {
                    switched.loads += 1;
                }
            }
            Err(error) => {
                tracing::error!(%error, kind = ?life.kind, "An object is lost by a reconfiguration");
                switched.lost += 1;
                if matches!(&life.kind, Kind::Program { images } if !images.is_empty()) {
                    switched.failed_loads += 1;
                }
            }
        }
    }
    switched
}

/// A pointer that is passed from one thread to another.
struct Raw(*mut c_void);

// SAFETY: any thread may use OpenCL's objects.
unsafe impl Send for Raw {}

/// Makes an object again and repeats its steps. The steps succeeded for the old object, so a failure loses the
/// object.
fn again(life: &Life, make: &Make, release: Release) -> ClResult<*mut c_void> {
    let raw = make(None)?;
    let steps = life.steps.lock().unwrap_or_else(PoisonError::into_inner);
    let done = steps.iter().try_for_each(|step| step(raw));
    if done.is_err() && !raw.is_null() {
        release(api()?, raw);
    }
    done.map(|()| raw)
}

/// The contents of buffers and images, by their ids. Overwrites the old contents.
fn save(all: &[(u64, Arc<Life>, Arc<Cell>)]) -> HashMap<u64, ClResult<Vec<u8>>> {
    let mut saved = HashMap::new();
    for (_, life, context) in all {
        let Kind::Context { device } = life.kind else { continue };
        let queue = Queue::unremembered(&Context::of(context.clone()), device, 0);
        for (id, life, cell) in all {
            let memory = Memory::of(cell.clone());
            let contents = match &life.kind {
                Kind::Buffer { context: of, size } if Arc::ptr_eq(of, context) => {
                    queue.as_ref().map_err(|error| *error).and_then(|queue| {
                        let contents = read(queue.read(&memory, 0, *size, *size, &[])?)?;
                        queue.fill(&memory, &[POISON], 0, *size, &[])?.event().wait()?;
                        Ok(contents)
                    })
                }
                Kind::Image { context: of, region, size } if Arc::ptr_eq(of, context) => {
                    queue.as_ref().map_err(|error| *error).and_then(|queue| {
                        let contents = read(queue.read_image(&memory, *region, *size, &[])?)?;
                        // Some formats can't be filled with this value. Their old content stays.
                        let _ = queue
                            .fill_image(&memory, &[POISON; 16], *region, &[])
                            .and_then(|fill| fill.event().wait());
                        Ok(contents)
                    })
                }
                _ => continue,
            };
            saved.insert(*id, contents);
        }
    }
    saved
}

fn read(mut enqueued: super::Enqueued) -> ClResult<Vec<u8>> {
    enqueued.event().wait()?;
    enqueued.take_piece(0).map(Vec::from).ok_or(ClError(CL_OUT_OF_RESOURCES))
}

/// Whether this cell has the only reference to the context. The vendor's threads may hold the context for a moment
/// after the last command.
fn is_held_by_nobody_else(context: &Cell) -> bool {
    let until = Instant::now() + PATIENCE;
    loop {
        match references(context) {
            Ok(1) => return true,
            Ok(_) if Instant::now() < until => std::thread::sleep(Duration::from_micros(200)),
            _ => return false,
        }
    }
}

fn references(context: &Cell) -> ClResult<u32> {
    let mut count = 0_u32;
    // SAFETY: the context is live, and the answer is a 32-bit number.
    check(unsafe {
        call!(clGetContextInfo(
            context.alive()?,
            CL_CONTEXT_REFERENCE_COUNT,
            size_of::<u32>(),
            (&raw mut count).cast(),
            ptr::null_mut()
        ))
    })?;
    Ok(count)
}
