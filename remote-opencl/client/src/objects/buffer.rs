//! Buffers and sub-buffers, and the host memory to which maps of them point.

use crate::base::sync::lock;
use crate::cl;
use crate::error::{ClError, Result};
use crate::memory::host_copy::HostCopy;
use crate::memory::host_memory::{HostSource, HostTarget, Shadow};
use crate::memory::maps::{MapTable, MappedRegion};
use crate::memory::placed::PlacedRange;
use crate::memory::storage::{self, Storage};
use crate::objects::context::Context;
use crate::session::callbacks;
use crate::session::pending_command::User;
use crate::session::{Session, check_status};
use bytes::Bytes;
use fpga_protocol::memory_flags::{KERNEL_ACCESS, OF_VENDORS};
use fpga_protocol::v1::{self, call::Method};
use std::fmt;
use std::ops::Range;
use std::sync::{Arc, Mutex, Weak};

const HOST_ACCESS: u64 = cl::MEM_HOST_WRITE_ONLY | cl::MEM_HOST_READ_ONLY | cl::MEM_HOST_NO_ACCESS;
const HOST_POINTER: u64 = cl::MEM_USE_HOST_PTR | cl::MEM_ALLOC_HOST_PTR | cl::MEM_COPY_HOST_PTR;

/// A buffer or a sub-buffer.
pub struct Buffer {
    id: u64,
    context: Arc<Context>,
    flags: u64,
    size: usize,
    kind: Kind,
    pub(crate) maps: Mutex<MapTable>,
    destructors: Mutex<Vec<Box<dyn FnOnce() + Send>>>,
}

enum Kind {
    /// A buffer with memory of its own. Maps of the buffer and of its sub-buffers point into one host memory: the
    /// application's, or a shadow that the first map allocates.
    Root {
        application: Option<Box<HostCopy>>,
        /// The memory of the buffer itself, if that is shared with the manager.
        storage: Option<Storage>,
        /// The memory of an allocation of unified shared memory.
        placed: Option<Box<PlacedMemory>>,
        shadow: Mutex<Option<HostTarget>>,
    },
    Sub {
        parent: Arc<Buffer>,
        origin: usize,
    },
}

/// The memory of an allocation of unified shared memory, and the commands that use it.
struct PlacedMemory {
    range: PlacedRange,
    users: Mutex<Vec<Weak<dyn User>>>,
}

/// Initial content of a buffer.
#[derive(Debug)]
pub enum Initial<'a> {
    /// Zeroes.
    Nothing,
    /// `CL_MEM_COPY_HOST_PTR`: a copy of these bytes, which must be as many as the buffer has.
    Copy(&'a [u8]),
    /// `CL_MEM_USE_HOST_PTR`: the content of this memory, to which maps of the buffer also point.
    Use(HostTarget),
}

impl Buffer {
    /// A buffer as [`Self::new`] says. Initial content that has to travel and is longer than `longest` is left out.
    pub(crate) fn create(
        context: &Arc<Context>,
        flags: u64,
        size: usize,
        initial: Initial<'_>,
        longest: usize,
    ) -> Result<Arc<Self>> {
        let flags = checked_flags(flags)?;
        let allowed = context.devices().iter().map(|device| device.max_allocation()).max();
        if size == 0 || allowed.is_some_and(|allowed| size as u64 > allowed) {
            return Err(ClError::INVALID_BUFFER_SIZE);
        }
        let copies = flags & cl::MEM_COPY_HOST_PTR != 0;
        let uses = flags & cl::MEM_USE_HOST_PTR != 0;
        let fits = match &initial {
            Initial::Nothing => !copies && !uses,
            Initial::Copy(bytes) => copies && bytes.len() == size,
            Initial::Use(memory) => uses && memory.len() == size,
        };
        if !fits {
            return Err(ClError::INVALID_HOST_PTR);
        }
        let session = context.session();
        session.check(ClError::DEVICE_NOT_AVAILABLE)?;
        let shared = session.small_buffers_share_pages()
            || size >= storage::SMALLEST
            || flags & cl::MEM_ALLOC_HOST_PTR != 0;
        // A flag of a vendor says where the vendor has the buffer.
        let is_placed = flags & OF_VENDORS != 0;
        let storage = if shared && !is_placed { storage_with(session, size, &initial) } else { None };
        let travels = storage.is_none() && size <= longest;
        let (content, application) = match initial {
            Initial::Nothing => (None, None),
            Initial::Copy(bytes) => (travels.then(|| Bytes::copy_from_slice(bytes)), None),
            Initial::Use(memory) => (travels.then(|| memory.capture()), Some(memory)),
        };
        let id = session.new_id();
        let create = Method::CreateBuffer(v1::CreateBuffer {
            buffer: id,
            context: context.id(),
            flags: flags & (KERNEL_ACCESS | OF_VENDORS),
            size: size as u64,
            initial: content.map(|content| session.data(content)),
            storage: storage.as_ref().map(Storage::message),
        });
        if is_placed {
            // Only the runtime knows whether it has the flag.
            check_status(session.call(create)?.status)?;
        } else {
            session.cast(create)?;
        }
        if storage.is_none() {
            session.prepare_shared_memory(size);
        }
        let application = application.map(|memory| Box::new(HostCopy::new(memory)));
        let kind = Kind::Root { application, storage, placed: None, shadow: Mutex::default() };
        Ok(Arc::new(Self::with_kind(id, context, flags, size, kind)))
    }

    /// A buffer in memory that has one address on both sides, and the address, a multiple of `alignment`.
    ///
    /// # Errors
    /// The manager's error.
    pub(crate) fn placed(
        context: &Arc<Context>,
        size: usize,
        alignment: usize,
    ) -> Result<(Arc<Self>, usize)> {
        let session = context.session();
        let range = session.placed(size, alignment)?;
        let (id, address) = (session.new_id(), range.address());
        session.cast(Method::CreateBuffer(v1::CreateBuffer {
            buffer: id,
            context: context.id(),
            flags: cl::MEM_READ_WRITE,
            size: size as u64,
            initial: None,
            storage: Some(range.message()),
        }))?;
        let placed = Some(Box::new(PlacedMemory { range, users: Mutex::default() }));
        let kind = Kind::Root { application: None, storage: None, placed, shadow: Mutex::default() };
        Ok((Arc::new(Self::with_kind(id, context, cl::MEM_READ_WRITE, size, kind)), address))
    }

    /// Notes a command that uses the buffer, if the buffer is an allocation of unified shared memory.
    pub(crate) fn note_user(&self, user: impl FnOnce() -> Weak<dyn User>) {
        let Kind::Root { placed: Some(placed), .. } = &self.kind else { return };
        let mut users = lock(&placed.users);
        if users.len() == users.capacity() {
            users.retain(|user| user.upgrade().is_some_and(|user| !user.has_ended()));
        }
        users.push(user());
    }

    /// The commands that use an allocation of unified shared memory.
    pub(crate) fn users(&self) -> Vec<Arc<dyn User>> {
        match &self.kind {
            Kind::Root { placed: Some(placed), .. } => {
                lock(&placed.users).iter().filter_map(Weak::upgrade).collect()
            }
            Kind::Root { .. } | Kind::Sub { .. } => Vec::new(),
        }
    }

    /// The region `origin..origin + size` of `parent` as a buffer (`clCreateSubBuffer`).
    ///
    /// # Errors
    /// The codes of `clCreateSubBuffer`.
    pub fn sub(parent: &Arc<Self>, flags: u64, origin: usize, size: usize) -> Result<Arc<Self>> {
        if matches!(parent.kind, Kind::Sub { .. }) {
            return Err(ClError::INVALID_MEM_OBJECT);
        }
        if flags & HOST_POINTER != 0 {
            return Err(ClError::INVALID_VALUE);
        }
        let flags = inherited_flags(parent.flags, flags)?;
        if size == 0 {
            return Err(ClError::INVALID_BUFFER_SIZE);
        }
        if origin.checked_add(size).is_none_or(|end| end > parent.size) {
            return Err(ClError::INVALID_VALUE);
        }
        let context = &parent.context;
        if !context.devices().iter().any(|device| origin.is_multiple_of(device.base_alignment())) {
            return Err(ClError::MISALIGNED_SUB_BUFFER_OFFSET);
        }
        let session = context.session();
        let id = session.new_id();
        session.cast(Method::CreateSubBuffer(v1::CreateSubBuffer {
            buffer: id,
            parent: parent.id,
            flags: flags & KERNEL_ACCESS,
            origin: origin as u64,
            size: size as u64,
        }))?;
        let kind = Kind::Sub { parent: Arc::clone(parent), origin };
        Ok(Arc::new(Self::with_kind(id, context, flags, size, kind)))
    }

    fn with_kind(id: u64, context: &Arc<Context>, flags: u64, size: usize, kind: Kind) -> Self {
        let context = Arc::clone(context);
        Self { id, context, flags, size, kind, maps: Mutex::default(), destructors: Mutex::default() }
    }

    /// The context of the buffer.
    pub fn context(&self) -> &Arc<Context> {
        &self.context
    }

    /// `CL_MEM_FLAGS`.
    pub fn flags(&self) -> u64 {
        self.flags
    }

    /// Size in bytes.
    pub fn size(&self) -> usize {
        self.size
    }

    /// For a sub-buffer, its parent and its offset in the parent.
    pub fn parent(&self) -> Option<(&Arc<Self>, usize)> {
        match &self.kind {
            Kind::Root { .. } => None,
            Kind::Sub { parent, origin } => Some((parent, *origin)),
        }
    }

    /// `CL_MEM_HOST_PTR`: the address that the application gave with `CL_MEM_USE_HOST_PTR`, plus the sub-buffer's
    /// origin; 0 without such an address.
    pub fn host_address(&self) -> usize {
        match &self.kind {
            Kind::Root { application, .. } => application.as_ref().map_or(0, |copy| copy.memory().address()),
            Kind::Sub { parent, origin } => match parent.host_address() {
                0 => 0,
                address => address + origin,
            },
        }
    }

    /// `CL_MEM_MAP_COUNT`.
    pub fn map_count(&self) -> usize {
        lock(&self.maps).count()
    }

    /// Runs `callback` on the callback thread once the last handle is dropped and no command uses the buffer.
    /// Callbacks run in reverse order of registration.
    pub fn on_destroyed(&self, callback: impl FnOnce() + Send + 'static) {
        lock(&self.destructors).push(Box::new(callback));
    }

    pub(crate) fn id(&self) -> u64 {
        self.id
    }

    /// The host memory of `offset..offset + size`, to which maps of this region point.
    pub(crate) fn host_memory(&self, offset: usize, size: usize) -> Result<HostTarget> {
        match &self.kind {
            Kind::Sub { parent, origin } => parent.host_memory(origin + offset, size),
            Kind::Root { application: Some(copy), .. } => {
                copy.memory().part(offset, size).map(HostTarget::changes_only).ok_or(ClError::INVALID_VALUE)
            }
            Kind::Root { application: None, storage, shadow, .. } => {
                let mut shadow = lock(shadow);
                if shadow.is_none() {
                    *shadow = match storage {
                        Some(storage) => storage.memory(),
                        None => Shadow::allocate(self.size),
                    };
                }
                let shadow = shadow.as_ref().ok_or(ClError::MAP_FAILURE)?;
                shadow.part(offset, size).ok_or(ClError::INVALID_VALUE)
            }
        }
    }

    /// The offset in the buffer of an address in the buffer's host memory; `None` for other addresses.
    pub(crate) fn offset_of(&self, address: usize) -> Option<usize> {
        let begin = match &self.kind {
            Kind::Sub { parent, origin } => return parent.offset_of(address)?.checked_sub(*origin),
            Kind::Root { application: Some(copy), .. } => copy.memory().address(),
            Kind::Root { application: None, shadow, .. } => lock(shadow).as_ref()?.address(),
        };
        address.checked_sub(begin).filter(|offset| *offset < self.size)
    }

    /// The program's memory of a `CL_MEM_USE_HOST_PTR` buffer, and the buffer's offset in it.
    pub(crate) fn host_copy(&self) -> Option<(&HostCopy, usize)> {
        match &self.kind {
            Kind::Root { application, .. } => application.as_deref().map(|copy| (copy, 0)),
            Kind::Sub { parent, origin } => parent.host_copy().map(|(copy, begin)| (copy, begin + origin)),
        }
    }

    /// The regions that are mapped.
    pub(crate) fn live_maps(&self) -> Vec<MappedRegion> {
        lock(&self.maps).regions().to_vec()
    }

    /// The shared memory in which the buffer lies, and the buffer's offset in it.
    pub(crate) fn storage(&self) -> Option<(&Storage, usize)> {
        match &self.kind {
            Kind::Root { storage, .. } => storage.as_ref().map(|storage| (storage, 0)),
            Kind::Sub { parent, origin } => {
                parent.storage().map(|(storage, begin)| (storage, begin + origin))
            }
        }
    }

    /// Whether maps point to the memory on which the device works.
    pub(crate) fn is_mapped_in_place(&self) -> bool {
        match &self.kind {
            Kind::Root { application, storage, .. } => application.is_none() && storage.is_some(),
            Kind::Sub { parent, .. } => parent.is_mapped_in_place(),
        }
    }

    /// Refuses access that the buffer's `CL_MEM_HOST_*` flags forbid.
    pub(crate) fn check_host_access(&self, forbidden_by: u64) -> Result<()> {
        match self.flags & (forbidden_by | cl::MEM_HOST_NO_ACCESS) {
            0 => Ok(()),
            _ => Err(ClError::INVALID_OPERATION),
        }
    }

    /// Id of the root buffer, and this buffer's offset in it.
    pub(crate) fn root(&self) -> (u64, usize) {
        match &self.kind {
            Kind::Root { .. } => (self.id, 0),
            Kind::Sub { parent, origin } => (parent.id, *origin),
        }
    }
}

/// Storage in shared memory with the initial content; `None` if no shared memory is available.
fn storage_with(session: &Session, size: usize, initial: &Initial<'_>) -> Option<Storage> {
    let range = session.storage(size)?;
    match initial {
        Initial::Nothing => Storage::new(range, None),
        Initial::Copy(bytes) => HostSource::with_slice(bytes, |source| Storage::new(range, Some(source))),
        Initial::Use(memory) => Storage::new(range, Some(&memory.part_as_source(0, size)?)),
    }
}

/// Checks `cl_mem_flags`, and adds `CL_MEM_READ_WRITE` if no kernel access is given.
pub(crate) fn checked_flags(flags: u64) -> Result<u64> {
    let both = |a, b| flags & a != 0 && flags & b != 0;
    let unknown = flags & !(KERNEL_ACCESS | HOST_ACCESS | HOST_POINTER | OF_VENDORS) != 0;
    let contradicting = (flags & KERNEL_ACCESS).count_ones() > 1
        || (flags & HOST_ACCESS).count_ones() > 1
        || both(cl::MEM_USE_HOST_PTR, cl::MEM_ALLOC_HOST_PTR | cl::MEM_COPY_HOST_PTR);
    if unknown || contradicting {
        return Err(ClError::INVALID_VALUE);
    }
    Ok(if flags & KERNEL_ACCESS == 0 { flags | cl::MEM_READ_WRITE } else { flags })
}

/// The flags of a sub-buffer. Access that `flags` doesn't specify is inherited from `parent`; access wider than the
/// parent's is refused.
pub(crate) fn inherited_flags(parent: u64, flags: u64) -> Result<u64> {
    let kernel = if flags & KERNEL_ACCESS == 0 { parent & KERNEL_ACCESS } else { flags & KERNEL_ACCESS };
    let host = if flags & HOST_ACCESS == 0 { parent & HOST_ACCESS } else { flags & HOST_ACCESS };
    let widens = |limit, wider: &[u64], value: u64| parent & limit != 0 && wider.contains(&value);
    let invalid = widens(cl::MEM_WRITE_ONLY, &[cl::MEM_READ_WRITE, cl::MEM_READ_ONLY], kernel)
        || widens(cl::MEM_READ_ONLY, &[cl::MEM_READ_WRITE, cl::MEM_WRITE_ONLY], kernel)
        || widens(cl::MEM_HOST_WRITE_ONLY, &[cl::MEM_HOST_READ_ONLY], host)
        || widens(cl::MEM_HOST_READ_ONLY, &[cl::MEM_HOST_WRITE_ONLY], host)
        || widens(cl::MEM_HOST_NO_ACCESS, &[cl::MEM_HOST_READ_ONLY, cl::MEM_HOST_WRITE_ONLY], host);
    if invalid {
        return Err(ClError::INVALID_VALUE);
    }
    checked_flags(flags & !(KERNEL_ACCESS | HOST_ACCESS) | kernel | host | parent & HOST_POINTER)
}

/// Notes that the program's memory at these addresses is equal to the content of buffers, after a command of this type has
/// moved bytes between both.
pub(crate) fn note_equal<'a>(
    command_type: u32,
    buffers: impl IntoIterator<Item = &'a Arc<Buffer>>,
    addresses: Option<Range<usize>>,
) {
    let moves = [cl::COMMAND_MAP_BUFFER, cl::COMMAND_UNMAP_MEM_OBJECT, cl::COMMAND_MIGRATE_MEM_OBJECTS]
        .contains(&command_type);
    let Some(addresses) = addresses.filter(|_| moves) else { return };
    for buffer in buffers {
        if let Some((copy, _)) = buffer.host_copy() {
            copy.is_equal_at(&addresses);
        }
    }
}

/// A buffer in use by a command. Dropped when the command has ended.
#[derive(Debug)]
pub(crate) struct InUse(pub(crate) Arc<Buffer>);

impl InUse {
    pub(crate) fn new(buffer: &Arc<Buffer>) -> Self {
        if let Some((storage, _)) = buffer.storage() {
            storage.begin_use();
        }
        Self(Arc::clone(buffer))
    }
}

impl Drop for InUse {
    fn drop(&mut self) {
        if let Some((storage, _)) = self.0.storage()
            && self.0.context.session().is_own()
        {
            storage.end_use();
        }
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        let session = self.context.session();
        let (storage, placed) = match &mut self.kind {
            Kind::Root { storage, placed, .. } => (storage.take(), placed.take()),
            Kind::Sub { .. } => (None, None),
        };
        if !session.is_own() {
            // In a forked child, nothing of the parent's may be touched: another thread may have held a lock during
            // the fork.
            std::mem::forget((storage, placed));
            return;
        }
        session.release(self.id);
        if storage.is_some() {
            drop(storage);
            session.storage_freed();
        }
        if let Some(placed) = placed {
            drop(placed.range);
            session.placed_freed();
        }
        let destructors = std::mem::take(&mut *lock(&self.destructors));
        if !destructors.is_empty() {
            // If there is no callback thread, the callbacks are lost.
            let _ = callbacks::run(move || destructors.into_iter().rev().for_each(|callback| callback()));
        }
    }
}

impl fmt::Debug for Buffer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Buffer").field("id", &self.id).field("size", &self.size).finish_non_exhaustive()
    }
}
