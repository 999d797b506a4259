//! A buffer of a session, whose contents are never another tenant's.

use crate::context::Context;
use crate::quotas::Charge;
use fpga_vendor::{ClError, ClResult, Event, Memory, SharedBytes};
use parking_lot::Mutex;
use std::sync::Arc;

/// A buffer, or a region of one.
#[derive(Debug)]
pub struct Buffer {
    /// The vendor's buffer.
    pub vendor: Memory,
    /// Size in bytes.
    pub size: usize,
    /// May hold an event, which is released before the context and its devices.
    contents: Mutex<Contents>,
    /// The buffer's context.
    pub context: Arc<Context>,
    /// The shared memory in which the buffer lies.
    pub shared: Option<SharedBytes>,
    /// The buffer that this one is a region of.
    pub parent: Option<Arc<Buffer>>,
    /// The charges for the buffer and for its memory.
    _charges: [Option<Charge>; 2],
}

/// The owner of the bytes in a buffer.
#[derive(Debug)]
enum Contents {
    /// The buffer may hold another tenant's bytes.
    Stale,
    /// The buffer holds the session's own bytes once this event has completed.
    Becoming(Arc<Event>),
    /// The buffer holds the session's own bytes.
    Own,
}

impl Buffer {
    /// Makes a buffer.
    ///
    /// # Errors
    /// The vendor's error.
    pub fn new(context: Arc<Context>, flags: u64, size: usize) -> ClResult<Self> {
        let vendor = Memory::new(&context.vendor, flags, size)?;
        Ok(Self {
            vendor,
            size,
            context,
            shared: None,
            parent: None,
            contents: Mutex::new(Contents::Stale),
            _charges: [None, None],
        })
    }

    /// Makes a buffer that lies in shared memory and holds the bytes there.
    ///
    /// # Errors
    /// The vendor's error.
    pub fn in_segment(context: Arc<Context>, flags: u64, slice: SharedBytes) -> ClResult<Self> {
        let size = slice.len();
        let vendor = Memory::in_shared_memory(&context.vendor, flags, slice.clone())?;
        // A segment belongs to one session: it holds zeros or bytes of that session.
        let contents = Mutex::new(Contents::Own);
        let shared = Some(slice);
        Ok(Self { vendor, size, context, shared, parent: None, contents, _charges: [None, None] })
    }

    /// Makes a buffer that holds `bytes`.
    ///
    /// # Errors
    /// The vendor's error.
    pub fn with_contents(context: Arc<Context>, flags: u64, bytes: &[u8]) -> ClResult<Self> {
        let vendor = Memory::with_contents(&context.vendor, flags, bytes)?;
        let contents = Mutex::new(Contents::Own);
        let size = bytes.len();
        Ok(Self { vendor, size, context, shared: None, parent: None, contents, _charges: [None, None] })
    }

    /// Makes a region of `parent`.
    ///
    /// # Errors
    /// The vendor's error; `CL_INVALID_MEM_OBJECT` (-38) if `parent` is itself a region.
    pub fn sub(parent: &Arc<Self>, flags: u64, origin: usize, size: usize) -> ClResult<Self> {
        if parent.parent.is_some() {
            return Err(ClError::INVALID_MEM_OBJECT);
        }
        let vendor = parent.vendor.sub(flags, origin, size)?;
        let contents = Mutex::new(Contents::Own);
        let (context, parent) = (parent.context.clone(), Some(parent.clone()));
        Ok(Self { vendor, size, context, shared: None, parent, contents, _charges: [None, None] })
    }

    /// Attaches the charges for the buffer, which live as long as it.
    #[must_use]
    pub fn charged(self, charges: [Option<Charge>; 2]) -> Self {
        Self { _charges: charges, ..self }
    }

    /// The event that a command which uses the buffer must wait for, so that the command can't read another
    /// tenant's bytes. In most cases there is none. Otherwise it is the event of the command that overwrites the
    /// whole buffer; if no such command is under way, this enqueues a fill with zeros.
    ///
    /// # Errors
    /// `CL_MEM_OBJECT_ALLOCATION_FAILURE` (-4) if the fill can't be enqueued.
    pub fn own_contents(&self) -> ClResult<Option<Arc<Event>>> {
        let whole = self.whole();
        let mut contents = whole.contents.lock();
        if let Contents::Becoming(event) = &*contents {
            match event.status() {
                Ok(opencl_sys::CL_COMPLETE) => *contents = Contents::Own,
                Ok(status) if status > 0 => return Ok(Some(event.clone())),
                _ => *contents = Contents::Stale,
            }
        }
        if let Contents::Own = *contents {
            return Ok(None);
        }
        let event = whole.zero().map_err(|_| ClError::MEM_OBJECT_ALLOCATION_FAILURE)?;
        *contents = Contents::Becoming(event.clone());
        Ok(Some(event))
    }

    /// Whether a command that writes these bytes may skip [`Self::own_contents`]: it writes the whole buffer, and
    /// no command has used the buffer yet.
    #[must_use]
    pub fn is_first_and_whole(&self, offset: usize, size: usize) -> bool {
        self.parent.is_none()
            && offset == 0
            && size == self.size
            && matches!(*self.contents.lock(), Contents::Stale)
    }

    /// Records that a command for which [`Self::is_first_and_whole`] was true has been enqueued.
    pub fn owned_by(&self, event: &Arc<Event>) {
        *self.contents.lock() = Contents::Becoming(event.clone());
    }

    fn whole(&self) -> &Self {
        self.parent.as_deref().unwrap_or(self)
    }

    fn zero(&self) -> ClResult<Arc<Event>> {
        const ZEROS: [u8; 128] = [0; 128];
        // Runtimes fill faster with long patterns; the pattern must divide the size.
        let pattern = 1 << self.size.trailing_zeros().min(ZEROS.len().trailing_zeros());
        let queue = self.context.housekeeping()?;
        let fill = queue.fill(&self.vendor, &ZEROS[..pattern], 0, self.size, &[])?;
        queue.flush()?;
        Ok(fill.event().clone())
    }
}
