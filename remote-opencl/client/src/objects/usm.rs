//! Unified shared memory (`cl_intel_unified_shared_memory`): allocations whose addresses are valid in this process and in
//! kernels.
//!
//! An allocation is a buffer that lies in memory with one address on both sides (`memory/placed.rs`). So commands on
//! allocations are commands on buffers, and an address is found by a look-up among the allocations of the process.

use crate::base::sync::lock;
use crate::cl;
use crate::error::{ClError, Result};
use crate::objects::buffer::Buffer;
use crate::objects::context::Context;
use crate::objects::platform::Device;
use crate::session::pending_command::User;
use fpga_foreign_process::PerProcess;
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock, Weak};

/// The kind of an allocation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AllocationKind {
    /// Memory of the host, which kernels can use (`clHostMemAllocINTEL`).
    Host,
    /// Memory of a device, which the host can't use (`clDeviceMemAllocINTEL`).
    Device,
    /// Memory that both can use (`clSharedMemAllocINTEL`).
    Shared,
}

/// The properties of a new allocation.
#[derive(Debug, Clone)]
pub struct AllocationProperties {
    /// Its kind.
    pub kind: AllocationKind,
    /// Its device; `None` for memory of the host, and for shared memory of all devices.
    pub device: Option<Arc<Device>>,
    /// `cl_mem_alloc_flags_intel`, which are hints.
    pub flags: u64,
    /// Size in bytes.
    pub size: usize,
    /// Alignment in bytes, a power of two; 0 for that of the largest type.
    pub alignment: u32,
}

/// An allocation of unified shared memory.
#[derive(Debug)]
pub struct Allocation {
    properties: AllocationProperties,
    address: usize,
    buffer: Arc<Buffer>,
}

/// A launch whose kernel may use all allocations of its context. Allocations that are freed meanwhile live as long as
/// the launch.
#[derive(Debug)]
pub(crate) struct IndirectLaunch {
    context: u64,
    event: OnceLock<Weak<dyn User>>,
    freed: Mutex<Vec<Arc<Allocation>>>,
}

#[derive(Debug, Default)]
struct Allocations {
    /// Number of allocations, so that programs without any take no lock.
    count: AtomicUsize,
    inner: Mutex<Inner>,
}

#[derive(Debug, Default)]
struct Inner {
    by_address: BTreeMap<usize, Arc<Allocation>>,
    launches: Vec<Weak<IndirectLaunch>>,
}

/// The allocations of all sessions. No two of them overlap, since each has its addresses in this process.
static ALLOCATIONS: PerProcess<Allocations> = PerProcess::new(|_parents| Allocations::default());

impl Allocation {
    /// Allocates memory.
    ///
    /// # Errors
    /// `CL_INVALID_DEVICE` for a device that is not in the context, `CL_INVALID_BUFFER_SIZE` for 0 or more bytes than a
    /// device allows, `CL_INVALID_VALUE` for an alignment that is no power of two, `CL_INVALID_OPERATION` if no device
    /// has memory of this kind, and the errors of the manager.
    pub fn new(context: &Arc<Context>, properties: AllocationProperties) -> Result<Arc<Self>> {
        let AllocationProperties { kind, device, size, alignment, .. } = &properties;
        if device.as_ref().is_some_and(|device| !context.has(device)) {
            return Err(ClError::INVALID_DEVICE);
        }
        let devices = device.as_ref().map_or(context.devices(), std::slice::from_ref);
        let limit = devices.iter().map(|device| device.max_allocation()).max();
        if *size == 0 || limit.is_some_and(|limit| *size as u64 > limit) {
            return Err(ClError::INVALID_BUFFER_SIZE);
        }
        if *alignment != 0 && !alignment.is_power_of_two() {
            return Err(ClError::INVALID_VALUE);
        }
        if !devices.iter().any(|device| device.has_memory_of(*kind)) {
            return Err(ClError::INVALID_OPERATION);
        }
        let alignment = usize::try_from(*alignment).map_err(|_| ClError::INVALID_VALUE)?;
        let (buffer, address) = Buffer::placed(context, *size, alignment)?;
        let allocation = Arc::new(Self { properties, address, buffer });
        let all = ALLOCATIONS.get();
        let mut inner = lock(&all.inner);
        inner.by_address.insert(address, Arc::clone(&allocation));
        all.count.store(inner.by_address.len(), Ordering::Release);
        Ok(allocation)
    }

    /// The allocation that contains this address.
    pub fn at(address: usize) -> Option<Arc<Self>> {
        let all = ALLOCATIONS.get();
        if all.count.load(Ordering::Acquire) == 0 {
            return None;
        }
        let inner = lock(&all.inner);
        let (_, allocation) = inner.by_address.range(..=address).next_back()?;
        (address - allocation.address < allocation.properties.size).then(|| Arc::clone(allocation))
    }

    /// The allocation in which an argument points: to a byte, or to the end.
    pub fn of_pointer(address: usize) -> Option<Arc<Self>> {
        Self::at(address).or_else(|| Self::at(address.checked_sub(1)?))
    }

    /// Frees the allocation that begins at this address. Commands that use it still have it until they have ended.
    ///
    /// # Errors
    /// `CL_INVALID_VALUE` if no allocation of the context begins there.
    pub fn free(context: &Arc<Context>, address: usize) -> Result<()> {
        let all = ALLOCATIONS.get();
        let mut inner = lock(&all.inner);
        let found = inner.by_address.get(&address).filter(|found| Arc::ptr_eq(found.context(), context));
        let freed = Arc::clone(found.ok_or(ClError::INVALID_VALUE)?);
        inner.by_address.remove(&address);
        all.count.store(inner.by_address.len(), Ordering::Release);
        for launch in inner.launches(context) {
            lock(&launch.freed).push(Arc::clone(&freed));
        }
        // The last reference is dropped after the lock is free.
        drop(inner);
        drop(freed);
        Ok(())
    }

    /// Frees like [`Self::free`] when the commands that use the allocation have ended.
    ///
    /// # Errors
    /// As [`Self::free`].
    pub fn free_after_use(context: &Arc<Context>, address: usize) -> Result<()> {
        let users = {
            let mut inner = lock(&ALLOCATIONS.get().inner);
            let found = inner.by_address.get(&address).filter(|found| Arc::ptr_eq(found.context(), context));
            let mut users = found.ok_or(ClError::INVALID_VALUE)?.buffer.users();
            let events =
                inner.launches(context).into_iter().filter_map(|launch| launch.event.get()?.upgrade());
            users.extend(events);
            users
        };
        for user in users {
            user.wait_for_end();
        }
        Self::free(context, address)
    }

    /// The properties.
    pub fn properties(&self) -> &AllocationProperties {
        &self.properties
    }

    /// Address of the first byte.
    pub fn address(&self) -> usize {
        self.address
    }

    /// The context of the allocation.
    pub fn context(&self) -> &Arc<Context> {
        self.buffer.context()
    }

    pub(crate) fn buffer(&self) -> &Arc<Buffer> {
        &self.buffer
    }

    /// The offset of addresses that all lie in the allocation.
    pub(crate) fn offset_of(&self, addresses: &Range<usize>) -> Option<usize> {
        let offset = addresses.start.checked_sub(self.address)?;
        (addresses.end <= self.address + self.properties.size).then_some(offset)
    }
}

impl Inner {
    /// The launches of a context that have not ended.
    fn launches(&mut self, context: &Context) -> Vec<Arc<IndirectLaunch>> {
        self.launches.retain(|launch| launch.strong_count() > 0);
        let alive = self.launches.iter().filter_map(Weak::upgrade);
        alive.filter(|launch| launch.context == context.id()).collect()
    }
}

impl IndirectLaunch {
    /// A launch in this context. The command keeps it until it has ended.
    pub(crate) fn new(context: &Context) -> Arc<Self> {
        let launch = Self { context: context.id(), event: OnceLock::new(), freed: Mutex::default() };
        let launch = Arc::new(launch);
        let mut inner = lock(&ALLOCATIONS.get().inner);
        // Programs that free nothing must not collect launches for ever.
        if inner.launches.len() == inner.launches.capacity() {
            inner.launches.retain(|launch| launch.strong_count() > 0);
        }
        inner.launches.push(Arc::downgrade(&launch));
        launch
    }

    /// Notes the event of the launch.
    pub(crate) fn set_event(&self, event: Weak<dyn User>) {
        let _ = self.event.set(event);
    }
}

impl Device {
    fn has_memory_of(&self, kind: AllocationKind) -> bool {
        let param = match kind {
            AllocationKind::Host => cl::DEVICE_HOST_MEM_CAPABILITIES_INTEL,
            AllocationKind::Device => cl::DEVICE_DEVICE_MEM_CAPABILITIES_INTEL,
            AllocationKind::Shared => cl::DEVICE_SINGLE_DEVICE_SHARED_MEM_CAPABILITIES_INTEL,
        };
        self.number(param) & cl::UNIFIED_SHARED_MEMORY_ACCESS_INTEL != 0
    }
}
