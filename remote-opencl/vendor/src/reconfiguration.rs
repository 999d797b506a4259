//! Reconfiguration of a whole board (T-2): all objects of the vendor, contexts included, are released and made again by
//! their recipes. Handles stay the same.
//!
//! Programs of binaries and their kernels are made again only while their image is on the board, since making them
//! loads the image. The contents of buffers and images are read before the release and given to the new objects. In
//! between the old contents are overwritten, so that a runtime which returns the same memory does not hide an error.
//! Events have ended by then and stay as records. An object that can't be made again becomes a null handle, and calls
//! on it return OpenCL's error codes. From [`release_all`] to the end of [`restore_all`] no other thread uses the vendor.

use crate::api::{api, call, check};
use crate::enqueue::Enqueued;
use crate::handles::{Context, Event, Handle as _, Memory, Queue};
use crate::object::{self, Kind, Make, Recipe, Release, VendorObject};
use fpga_core::bitstream::Digest;
use fpga_protocol::cl_error::{ClError, ClResult};
use opencl_sys::CL_CONTEXT_REFERENCE_COUNT;
use std::collections::{HashMap, HashSet};
use std::ffi::c_void;
use std::ptr;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, PoisonError};
use std::time::{Duration, Instant};

/// Byte that overwrites the old contents of buffers and images.
const POISON: u8 = 0xA5;

/// Time for which the vendor's own threads may hold a context.
const CONTEXT_RELEASE_TIMEOUT: Duration = Duration::from_millis(50);

static SWITCHES: AtomicU64 = AtomicU64::new(0);
/// For tests: the number of the object in a switch that is not made again, or a negative number, and the first
/// switch in which this applies.
static FAILS_AT: AtomicI64 = AtomicI64::new(-1);
static FAILS_FROM: AtomicU64 = AtomicU64::new(0);

/// The counts of a switch.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Switched {
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
pub fn remember_objects() {
    object::turn_on();
    if cfg!(debug_assertions)
        && let Ok(text) = std::env::var("FPGA_TEST_LOSE_OBJECT")
        && let Some((from, at)) = text.split_once(':')
        && let (Ok(from), Ok(at)) = (from.parse(), at.parse())
    {
        FAILS_FROM.store(from, Ordering::Relaxed);
        FAILS_AT.store(at, Ordering::Relaxed);
    }
}

/// Number of switches so far. A kernel loses its arguments at each switch.
#[must_use]
pub fn switches() -> u64 {
    SWITCHES.load(Ordering::Acquire)
}

/// A function that runs its argument confined. Programs are built again in it.
pub type Confined<'a> = &'a dyn Fn(&mut (dyn FnMut() + Send));

/// What [`restore_all`] gives back to the objects.
#[derive(Debug)]
pub struct Saved {
    /// Contents of buffers and images, by the ids of their recipes.
    contents: HashMap<u64, ClResult<Vec<u8>>>,
    /// Contexts that were destroyed.
    pub contexts: u64,
    /// Contexts that the vendor itself still holds.
    pub outlived: u64,
}

/// An object that lives, its recipe, and the recipe's id.
type Known = (u64, Arc<Recipe>, Arc<VendorObject>);

/// The objects in the order of creation: an object comes after those that it needs.
fn known() -> Vec<Known> {
    let all: Vec<_> = object::recipes().iter().map(|(id, recipe)| (*id, recipe.clone())).collect();
    let living =
        |(id, recipe): (u64, Arc<Recipe>)| recipe.object.upgrade().map(|object| (id, recipe, object));
    all.into_iter().filter_map(living).collect()
}

/// Releases all objects, and saves what buffers and images contain.
#[must_use]
pub fn release_all() -> Saved {
    let all = known();
    for (_, recipe, object) in &all {
        if let Kind::Event = recipe.kind {
            let event = Event::of(object.clone());
            // A failed command has also ended.
            let _ = event.wait();
            let status = event.status().unwrap_or(opencl_sys::CL_COMPLETE);
            object.past.store(status.min(0), Ordering::Relaxed);
        }
    }
    let mut saved = Saved { contents: save(&all), contexts: 0, outlived: 0 };
    for (_, recipe, object) in all.iter().rev() {
        if let Kind::Context { .. } = recipe.kind {
            if is_held_by_nobody_else(object) {
                saved.contexts += 1;
            } else {
                saved.outlived += 1;
            }
        }
        object.release();
    }
    saved
}

/// Makes the objects again that still live. Programs of binaries are made again only if they are of `images`.
pub fn restore_all(mut saved: Saved, images: &[Digest], confined: Confined<'_>) -> Switched {
    let all = known();
    let mut switched = Switched::default();
    let number = SWITCHES.fetch_add(1, Ordering::AcqRel) + 1;
    let fails_at = FAILS_AT.load(Ordering::Relaxed);
    let fails_at = (number >= FAILS_FROM.load(Ordering::Relaxed)).then_some(fails_at);
    let mut counted = 0;
    let mut left_out = HashSet::new();
    for (id, recipe, object) in &all {
        let Some(make) = &recipe.make else { continue };
        let is_left_out = match &recipe.kind {
            Kind::Program { images: of } => !of.is_empty() && !of.iter().any(|image| images.contains(image)),
            Kind::Kernel { program } => left_out.contains(&Arc::as_ptr(program)),
            _ => false,
        };
        if is_left_out {
            left_out.insert(Arc::as_ptr(object));
            continue;
        }
        counted += 1;
        let made = match saved.contents.remove(id) {
            _ if fails_at == Some(counted) => Err(ClError::OUT_OF_RESOURCES),
            Some(Ok(contents)) => make(Some(&contents)),
            Some(Err(error)) => Err(error),
            None if matches!(recipe.kind, Kind::Program { .. }) => {
                let mut made = Err(ClError::INVALID_VALUE);
                confined(&mut || made = again(recipe, make, object.release).map(Raw));
                made.map(|Raw(raw)| raw)
            }
            None => again(recipe, make, object.release),
        };
        match made {
            Ok(raw) => {
                object.raw.store(raw, Ordering::Release);
                switched.restored += 1;
                if matches!(&recipe.kind, Kind::Program { images } if !images.is_empty()) {
                    switched.loads += 1;
                }
            }
            Err(error) => {
                tracing::error!(%error, kind = ?recipe.kind, "An object is lost by a reconfiguration");
                switched.lost += 1;
                if matches!(&recipe.kind, Kind::Program { images } if !images.is_empty()) {
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
fn again(recipe: &Recipe, make: &Make, release: Release) -> ClResult<*mut c_void> {
    let raw = make(None)?;
    let steps = recipe.steps.lock().unwrap_or_else(PoisonError::into_inner);
    let done = steps.iter().try_for_each(|step| step(raw));
    if done.is_err() && !raw.is_null() {
        release(api()?, raw);
    }
    done.map(|()| raw)
}

/// The contents of buffers and images, by their ids. Overwrites the old contents.
fn save(all: &[Known]) -> HashMap<u64, ClResult<Vec<u8>>> {
    let mut saved = HashMap::new();
    for (_, recipe, context) in all {
        let Kind::Context { device } = recipe.kind else { continue };
        let queue = Queue::unremembered(&Context::of(context.clone()), device, 0);
        for (id, recipe, object) in all {
            let memory = Memory::of(object.clone());
            let contents = match &recipe.kind {
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

fn read(mut enqueued: Enqueued) -> ClResult<Vec<u8>> {
    enqueued.event().wait()?;
    enqueued.take_piece(0).map(Vec::from).ok_or(ClError::OUT_OF_RESOURCES)
}

/// Whether this object has the only reference to the context. The vendor's threads may hold the context for a moment
/// after the last command.
fn is_held_by_nobody_else(context: &VendorObject) -> bool {
    let until = Instant::now() + CONTEXT_RELEASE_TIMEOUT;
    loop {
        match references(context) {
            Ok(1) => return true,
            Ok(_) if Instant::now() < until => std::thread::sleep(Duration::from_micros(200)),
            _ => return false,
        }
    }
}

fn references(context: &VendorObject) -> ClResult<u32> {
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
