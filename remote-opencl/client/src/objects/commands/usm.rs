//! Commands on unified shared memory. Addresses in allocations stand for buffers and offsets.

use crate::cl;
use crate::error::{ClError, Result};
use crate::memory::host_memory::{HostSource, HostTarget};
use crate::objects::buffer::{Buffer, InUse, Initial};
use crate::objects::event::{Event, Uses};
use crate::objects::queue::Queue;
use crate::objects::usm::Allocation;
use fpga_protocol::v1::{self, command};
use std::ops::Range;
use std::sync::Arc;

/// A hint about an allocation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MemoryHint {
    /// `clEnqueueMigrateMemINTEL`.
    Migrate,
    /// `clEnqueueMemAdviseINTEL`.
    Advise,
}

/// A place in an allocation.
type Place = (Arc<Buffer>, usize);

impl Queue {
    /// `clEnqueueMemcpyINTEL`, of as many bytes as both have. Either may lie in an allocation or elsewhere.
    ///
    /// # Errors
    /// `CL_INVALID_VALUE` if an allocation is of another context or ends before, `CL_MEM_COPY_OVERLAP`, and the errors
    /// of the session.
    pub fn memcpy(
        self: &Arc<Self>,
        target: HostTarget,
        source: HostSource,
        wait: &[Arc<Event>],
    ) -> Result<Arc<Event>> {
        const KIND: u32 = cl::COMMAND_MEMCPY_INTEL;
        let wait = self.checked_wait_list(wait)?;
        let addresses = (target.addresses(), source.addresses().unwrap_or_default());
        if target.is_empty() {
            return self.nothing(KIND, Uses::default(), wait);
        }
        if addresses.0.start < addresses.1.end && addresses.1.start < addresses.0.end {
            return Err(ClError::MEM_COPY_OVERLAP);
        }
        match (self.place(&addresses.0)?, self.place(&addresses.1)?) {
            (Some(to), Some(from)) => self.copy(KIND, (&from.0, from.1), (&to.0, to.1), target.len(), wait),
            (Some((buffer, offset)), None) => self.write(KIND, &buffer, offset, source, wait),
            (None, Some((buffer, offset))) => self.read(KIND, &buffer, offset, target, wait),
            (None, None) => {
                let between =
                    Buffer::new(self.context(), cl::MEM_READ_WRITE, target.len(), Initial::Nothing)?;
                let written = self.write(KIND, &between, 0, source, wait)?;
                let wait = if written.now() == cl::COMPLETE { Vec::new() } else { vec![written.id()] };
                self.read(KIND, &between, 0, target, wait)
            }
        }
    }

    /// `clEnqueueMemFillINTEL` of `size` bytes from an address in an allocation on.
    ///
    /// # Errors
    /// `CL_INVALID_VALUE` for a length of the pattern that is no power of two up to 128, for an address or a size that
    /// is no multiple of it, and if no allocation of the context has all the bytes.
    pub fn mem_fill(
        self: &Arc<Self>,
        address: usize,
        pattern: &[u8],
        size: usize,
        wait: &[Arc<Event>],
    ) -> Result<Arc<Event>> {
        let wait = self.checked_wait_list(wait)?;
        let width = pattern.len();
        let valid = width.is_power_of_two() && width <= 128;
        if !valid || !address.is_multiple_of(width) || !size.is_multiple_of(width) {
            return Err(ClError::INVALID_VALUE);
        }
        if size == 0 {
            return self.nothing(cl::COMMAND_MEMFILL_INTEL, Uses::default(), wait);
        }
        let (buffer, offset) = self.place(&region(address, size)?)?.ok_or(ClError::INVALID_VALUE)?;
        self.fill(cl::COMMAND_MEMFILL_INTEL, &buffer, pattern, offset..offset + size, wait)
    }

    /// A hint about `size` bytes from an address in an allocation on. Nothing moves, since there is one memory.
    ///
    /// # Errors
    /// `CL_INVALID_VALUE` if no allocation of the context has all the bytes.
    pub fn mem_hint(
        self: &Arc<Self>,
        hint: MemoryHint,
        address: usize,
        size: usize,
        wait: &[Arc<Event>],
    ) -> Result<Arc<Event>> {
        let wait = self.checked_wait_list(wait)?;
        let kind = match hint {
            MemoryHint::Migrate => cl::COMMAND_MIGRATEMEM_INTEL,
            MemoryHint::Advise => cl::COMMAND_MEMADVISE_INTEL,
        };
        let (buffer, _) = self.place(&region(address, size)?)?.ok_or(ClError::INVALID_VALUE)?;
        let uses = Uses { buffers: vec![InUse::new(&buffer)], ..Uses::default() };
        self.nothing(kind, uses, wait)
    }

    /// The place of addresses that begin in an allocation; `None` if they begin elsewhere.
    ///
    /// # Errors
    /// `CL_INVALID_VALUE` if the allocation is of another context or ends before.
    fn place(&self, addresses: &Range<usize>) -> Result<Option<Place>> {
        let Some(allocation) = Allocation::at(addresses.start) else { return Ok(None) };
        let offset = allocation.offset_of(addresses).ok_or(ClError::INVALID_VALUE)?;
        if !Arc::ptr_eq(allocation.context(), self.context()) {
            return Err(ClError::INVALID_VALUE);
        }
        Ok(Some((Arc::clone(allocation.buffer()), offset)))
    }

    /// The place of host memory that a command on other objects takes or gives, if it lies in an allocation of the
    /// context: the command is then one on the device, in order with the kernels that use the allocation.
    pub(super) fn place_of_host_memory(&self, addresses: Option<Range<usize>>) -> Option<Place> {
        self.place(&addresses?).ok().flatten()
    }

    pub(super) fn copy(
        self: &Arc<Self>,
        command_type: u32,
        (source, source_offset): (&Arc<Buffer>, usize),
        (target, target_offset): (&Arc<Buffer>, usize),
        size: usize,
        wait: Vec<u64>,
    ) -> Result<Arc<Event>> {
        let copy = v1::CopyBuffer {
            source: source.id(),
            target: target.id(),
            source_offset: source_offset as u64,
            target_offset: target_offset as u64,
            size: size as u64,
        };
        let operation = command::Operation::CopyBuffer(copy);
        let uses = Uses { buffers: vec![InUse::new(source), InUse::new(target)], ..Uses::default() };
        self.submit(command_type, operation, uses, wait)
    }

    pub(super) fn fill(
        self: &Arc<Self>,
        command_type: u32,
        buffer: &Arc<Buffer>,
        pattern: &[u8],
        range: Range<usize>,
        wait: Vec<u64>,
    ) -> Result<Arc<Event>> {
        let fill = v1::FillBuffer {
            buffer: buffer.id(),
            pattern: pattern.to_vec().into(),
            offset: range.start as u64,
            size: range.len() as u64,
        };
        let uses = Uses { buffers: vec![InUse::new(buffer)], ..Uses::default() };
        self.submit(command_type, command::Operation::FillBuffer(fill), uses, wait)
    }
}

fn region(address: usize, size: usize) -> Result<Range<usize>> {
    address.checked_add(size).map(|end| address..end).ok_or(ClError::INVALID_VALUE)
}
