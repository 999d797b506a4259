//! The vendor's objects, and the recipes by which they are made again when a board is reconfigured as a whole (T-2).
//!
//! Without such reconfigurations (`--reconfiguration partial`) an object only stores a pointer. With them, each object
//! has a recipe: how it was made, and the steps that followed, such as builds of a program.

use crate::api::{Api, api};
use crate::info::DeviceId;
use crate::rects::Region;
use fpga_core::bitstream::Digest;
use fpga_protocol::cl_error::{ClError, ClResult};
use std::collections::BTreeMap;
use std::ffi::c_void;
use std::fmt;
use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicPtr, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

/// Maximum number of steps that are repeated for one object. The latest ones count.
const MAX_STEPS: usize = 64;

static ON: AtomicBool = AtomicBool::new(false);
static LAST_ID: AtomicU64 = AtomicU64::new(0);
static RECIPES: Mutex<BTreeMap<u64, Arc<Recipe>>> = Mutex::new(BTreeMap::new());
pub(crate) type Release = fn(&Api, *mut c_void);
pub(crate) type Make = Box<dyn Fn(Option<&[u8]>) -> ClResult<*mut c_void> + Send + Sync>;
pub(crate) type Step = Box<dyn Fn(*mut c_void) -> ClResult<()> + Send + Sync>;

/// A context, queue, buffer or other object of the vendor, and how it is released.
pub struct VendorObject {
    pub(crate) raw: AtomicPtr<c_void>,
    pub(crate) release: Release,
    /// The key of the object's recipe; 0 if the object is not made again.
    id: AtomicU64,
    /// The final status of an event that is only a record.
    pub(crate) past: AtomicI32,
}

/// The recipe of an object.
pub(crate) struct Recipe {
    pub(crate) object: Weak<VendorObject>,
    pub(crate) kind: Kind,
    pub(crate) make: Option<Make>,
    pub(crate) steps: Mutex<Vec<Step>>,
}

/// How a switch treats an object.
#[derive(Debug, Clone)]
pub(crate) enum Kind {
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
        context: Arc<VendorObject>,
        /// Size in bytes.
        size: usize,
    },
    /// An image keeps its pixels.
    Image {
        /// The image's context.
        context: Arc<VendorObject>,
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
        program: Arc<VendorObject>,
    },
    /// Another object is made again.
    Other,
}

/// Records recipes from now on. Call it before any object is made.
pub(crate) fn turn_on() {
    ON.store(true, Ordering::Relaxed);
}

/// Whether recipes are recorded, so that objects can be made again.
#[must_use]
pub fn is_on() -> bool {
    ON.load(Ordering::Relaxed)
}

impl VendorObject {
    pub(crate) fn new(raw: *mut c_void, release: Release) -> Arc<Self> {
        let (raw, id, past) = (AtomicPtr::new(raw), AtomicU64::new(0), AtomicI32::new(0));
        Arc::new(Self { raw, release, id, past })
    }

    pub(crate) fn raw(&self) -> *mut c_void {
        self.raw.load(Ordering::Acquire)
    }

    /// The object, if no reconfiguration has lost it.
    pub(crate) fn alive(&self) -> ClResult<*mut c_void> {
        let raw = self.raw();
        if raw.is_null() { Err(ClError::OUT_OF_RESOURCES) } else { Ok(raw) }
    }

    /// The final status of an event, if it is only a record.
    pub(crate) fn past(&self) -> Option<i32> {
        self.raw().is_null().then(|| self.past.load(Ordering::Relaxed))
    }

    pub(crate) fn release(&self) {
        let raw = self.raw.swap(ptr::null_mut(), Ordering::AcqRel);
        if !raw.is_null()
            && let Ok(api) = api()
        {
            (self.release)(api, raw);
        }
    }
}

impl Drop for VendorObject {
    fn drop(&mut self) {
        let id = self.id.load(Ordering::Relaxed);
        // The recipe is dropped after the lock is free, since it holds other objects.
        let _recipe = if id == 0 { None } else { recipes().remove(&id) };
        self.release();
    }
}

impl fmt::Debug for VendorObject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("VendorObject").field(&self.raw()).finish()
    }
}

pub(crate) fn recipes() -> MutexGuard<'static, BTreeMap<u64, Arc<Recipe>>> {
    RECIPES.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Records the recipe of an object. `make` gets the old content if the object's kind keeps it.
pub(crate) fn remember(
    object: &Arc<VendorObject>,
    kind: Kind,
    make: impl Fn(Option<&[u8]>) -> ClResult<*mut c_void> + Send + Sync + 'static,
) {
    if is_on() {
        insert(object, kind, Some(Box::new(make)));
    }
}

/// Lets a switch turn this event into a record.
pub(crate) fn remember_event(object: &Arc<VendorObject>) {
    if is_on() {
        insert(object, Kind::Event, None);
    }
}

fn insert(object: &Arc<VendorObject>, kind: Kind, make: Option<Make>) {
    let id = LAST_ID.fetch_add(1, Ordering::Relaxed) + 1;
    object.id.store(id, Ordering::Relaxed);
    let recipe = Recipe { object: Arc::downgrade(object), kind, make, steps: Mutex::default() };
    recipes().insert(id, Arc::new(recipe));
}

/// Records a step after the creation of an object, to be repeated after it is made again.
pub(crate) fn and_then(
    object: &Arc<VendorObject>,
    step: impl Fn(*mut c_void) -> ClResult<()> + Send + Sync + 'static,
) {
    if !is_on() {
        return;
    }
    let recipe = recipes().get(&object.id.load(Ordering::Relaxed)).cloned();
    if let Some(recipe) = recipe {
        let mut steps = recipe.steps.lock().unwrap_or_else(PoisonError::into_inner);
        if steps.len() == MAX_STEPS {
            drop(steps.remove(0));
        }
        steps.push(Box::new(step));
    }
}
