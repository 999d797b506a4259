//! What becomes of the vendor's objects when a board is reconfigured as a whole (T-2): all of them, contexts included, are
//! released and made again, and the handles above this module stay what they were.
//!
//! Off (`--reconfiguration partial`) this is nothing but a pointer. On, each object has a recipe: how it was made, and
//! what was done to it since (programs are built again). Programs of binaries, and their kernels, are made again only while
//! their image is on the board: making them loads it. Buffers and images are read before and made with what they
//! held; in between the old ones are overwritten, so that a runtime that gives the same memory again proves nothing.
//! Events have ended by then and stay as records. What can't be made again is a null handle, which the standard's
//! errors answer. Who calls [`switch`] sees to it that nobody uses the vendor meanwhile.

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

/// What the old contents of a buffer become.
const POISON: u8 = 0xA5;

/// How long a context may be held by the vendor's own threads.
const PATIENCE: Duration = Duration::from_millis(50);

/// Most things done to one object that are done again: the latest builds of a program count.
const MAX_STEPS: usize = 64;

static ON: AtomicBool = AtomicBool::new(false);
static SWITCHES: AtomicU64 = AtomicU64::new(0);
static LAST_ID: AtomicU64 = AtomicU64::new(0);
static LIVES: Mutex<BTreeMap<u64, Arc<Life>>> = Mutex::new(BTreeMap::new());
/// Which object, counted in a switch, is not made again, and from which switch on: for tests. Negative: none.
static FAILS_AT: AtomicI64 = AtomicI64::new(-1);
static FAILS_FROM: AtomicU64 = AtomicU64::new(0);

type Release = fn(&Api, *mut c_void);
type Make = Box<dyn Fn(Option<&[u8]>) -> ClResult<*mut c_void> + Send + Sync>;
type Step = Box<dyn Fn(*mut c_void) -> ClResult<()> + Send + Sync>;

/// One object of the vendor.
pub struct Cell {
    raw: AtomicPtr<c_void>,
    release: Release,
    /// 0 where it is not made again.
    id: AtomicU64,
    /// What an event had come to.
    past: AtomicI32,
}

/// How an object is made again.
struct Life {
    cell: Weak<Cell>,
    kind: Kind,
    make: Option<Make>,
    steps: Mutex<Vec<Step>>,
}

/// What a switch does with an object.
#[derive(Debug, Clone)]
pub(super) enum Kind {
    /// It holds others; `device` is one of it.
    Context {
        /// For a queue in it.
        device: DeviceId,
    },
    /// It becomes a record.
    Event,
    /// Its bytes are kept.
    Buffer {
        /// Where it is.
        context: Arc<Cell>,
        /// How many.
        size: usize,
    },
    /// Its pixels are kept.
    Image {
        /// Where it is.
        context: Arc<Cell>,
        /// All of them.
        region: Region,
        /// As bytes.
        size: usize,
    },
    /// It is built again, where sources can include nothing.
    Program {
        /// It is made of one of these; empty where it is of no image.
        images: Vec<Digest>,
    },
    /// It is made again where its program is.
    Kernel {
        /// That.
        program: Arc<Cell>,
    },
    /// It is made again.
    Other,
}

/// What a switch came to.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Switched {
    /// Contexts that were destroyed.
    pub contexts: u64,
    /// Contexts that something of the vendor's own still holds.
    pub outlived: u64,
    /// Objects that were made again.
    pub restored: u64,
    /// Objects that could not be.
    pub lost: u64,
    /// Those of them that are programs of the image that was to be loaded.
    pub failed_loads: u64,
    /// Programs of that image that were made again.
    pub loads: u64,
}

/// From now on objects can be made again; before any is made.
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

/// Whether they can.
#[must_use]
pub fn is_on() -> bool {
    ON.load(Ordering::Relaxed)
}

/// How many switches there were: what a kernel was given before the last one it has no more.
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

    /// The object, if a reconfiguration has not lost it.
    pub(super) fn alive(&self) -> ClResult<*mut c_void> {
        let raw = self.raw();
        if raw.is_null() { Err(ClError(CL_OUT_OF_RESOURCES)) } else { Ok(raw) }
    }

    /// What an event had come to, if it is but a record.
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
        // Dropped after the lock is free: a recipe holds other objects.
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

/// How an object is made again: `make` gets what it held, where its kind says that this is kept.
pub(super) fn remember(
    cell: &Arc<Cell>,
    kind: Kind,
    make: impl Fn(Option<&[u8]>) -> ClResult<*mut c_void> + Send + Sync + 'static,
) {
    if is_on() {
        insert(cell, kind, Some(Box::new(make)));
    }
}

/// An event becomes a record.
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

/// What has been done to an object, and is done again.
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

/// Where programs are built again.
pub type Confined<'a> = &'a dyn Fn(&mut (dyn FnMut() + Send));

/// Releases all objects and makes them again, of programs of images those of `images`. Nobody else may use the vendor
/// meanwhile.
pub fn switch(images: &[Digest], confined: Confined<'_>) -> Switched {
    // As they were made: what an object needs comes before it.
    let all: Vec<(u64, Arc<Life>)> = lives().iter().map(|(id, life)| (*id, life.clone())).collect();
    let all: Vec<(u64, Arc<Life>, Arc<Cell>)> =
        all.into_iter().filter_map(|(id, life)| life.cell.upgrade().map(|cell| (id, life, cell))).collect();
    let mut switched = Switched::default();
    for (_, life, cell) in &all {
        if let Kind::Event = life.kind {
            let event = Event::of(cell.clone());
            // A command that failed has ended, too.
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

/// Passed from a thread to another.
struct Raw(*mut c_void);

// SAFETY: the standard's objects may be used by any thread.
unsafe impl Send for Raw {}

/// Makes an object, and does to it what was done to the old one. That succeeded then, so that a failure loses the object.
fn again(life: &Life, make: &Make, release: Release) -> ClResult<*mut c_void> {
    let raw = make(None)?;
    let steps = life.steps.lock().unwrap_or_else(PoisonError::into_inner);
    let done = steps.iter().try_for_each(|step| step(raw));
    if done.is_err() && !raw.is_null() {
        release(api()?, raw);
    }
    done.map(|()| raw)
}

/// What buffers and images hold, by their ids; the old ones are overwritten.
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
                        // Some formats can't be filled so; then a new image is what has to differ.
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

/// Whether the context goes with our reference. The vendor's threads may hold it for a moment after the last command.
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
    // SAFETY: the context is live, the answer is a number of 32 bits.
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
