//! Maps and unmaps: reads into the host memory of a buffer, and writes from it.

use super::late::Takes;
use crate::base::clock::now_ns;
use crate::base::sync::lock;
use crate::cl;
use crate::error::{ClError, Result};
use crate::memory::maps::{MapAccess, MappedRegion};
use crate::objects::buffer::{Buffer, InUse};
use crate::objects::event::{Event, Uses};
use crate::objects::queue::Queue;
use fpga_protocol::v1::{self, command};
use std::sync::Arc;

/// A mapped region. The application may use the address once the event has completed.
#[derive(Debug)]
pub struct Mapped {
    /// The event of the map command.
    pub event: Arc<Event>,
    /// Address of the region's first byte.
    pub address: usize,
}

impl Queue {
    /// `clEnqueueMapBuffer`; `flags` are `cl_map_flags`. Fetches the content unless the map overwrites it.
    ///
    /// # Errors
    /// The codes of the C call.
    pub fn map(
        self: &Arc<Self>,
        buffer: &Arc<Buffer>,
        flags: u64,
        offset: usize,
        size: usize,
        wait: &[Arc<Event>],
    ) -> Result<Mapped> {
        let wait = self.checked_wait_list(wait)?;
        let access = MapAccess::of_flags(flags).ok_or(ClError::INVALID_VALUE)?;
        self.check_region(buffer, offset, size)?;
        if flags & cl::MAP_READ != 0 {
            buffer.check_host_access(cl::MEM_HOST_WRITE_ONLY)?;
        }
        if access.writes_back() {
            buffer.check_host_access(cl::MEM_HOST_READ_ONLY)?;
        }
        let target = buffer.host_memory(offset, size)?;
        let address = target.address();
        let event = if access.reads_back() && !buffer.is_mapped_in_place() {
            self.read(cl::COMMAND_MAP_BUFFER, buffer, offset, target, wait)?
        } else {
            self.nothing(cl::COMMAND_MAP_BUFFER, uses_of(buffer), wait)?
        };
        lock(&buffer.maps).map(MappedRegion { offset, size, access });
        Ok(Mapped { event, address })
    }

    /// `clEnqueueUnmapMemObject` for an address that [`Self::map`] returned. Writes the content back if it was
    /// mapped for writing.
    ///
    /// # Errors
    /// `CL_INVALID_VALUE` for an address that isn't mapped.
    pub fn unmap(
        self: &Arc<Self>,
        buffer: &Arc<Buffer>,
        address: usize,
        wait: &[Arc<Event>],
    ) -> Result<Arc<Event>> {
        let wait = self.checked_wait_list(wait)?;
        self.check_context(buffer.context())?;
        let offset = buffer.offset_of(address).ok_or(ClError::INVALID_VALUE)?;
        let region = lock(&buffer.maps).unmap(offset).ok_or(ClError::INVALID_VALUE)?;
        let event = if !region.access.writes_back() {
            self.nothing(cl::COMMAND_UNMAP_MEM_OBJECT, uses_of(buffer), wait)
        } else if buffer.is_mapped_in_place() {
            let memory = buffer.host_memory(region.offset, region.size)?;
            match self.is_late(&wait, &memory.addresses(), Takes::Nothing) {
                Some(late) => {
                    let marker = || (command::Operation::Marker(v1::Marker {}), None);
                    self.enqueue_late(cl::COMMAND_UNMAP_MEM_OBJECT, late, uses_of(buffer), wait, |_, _| {
                        marker()
                    })
                }
                None => self.nothing(cl::COMMAND_UNMAP_MEM_OBJECT, uses_of(buffer), wait),
            }
        } else {
            let memory = buffer.host_memory(region.offset, region.size)?;
            let source = memory.part_as_source(0, region.size).ok_or(ClError::INVALID_VALUE)?;
            self.write(cl::COMMAND_UNMAP_MEM_OBJECT, buffer, region.offset, source, wait)
        };
        event.inspect_err(|_| lock(&buffer.maps).map(region))
    }

    /// A command that does nothing but keeps its place in the order, such as a map whose content isn't fetched or
    /// an unmap whose content isn't written back. If nothing comes before it, it completes at once.
    pub(super) fn nothing(
        self: &Arc<Self>,
        command_type: u32,
        uses: Uses,
        mut wait: Vec<u64>,
    ) -> Result<Arc<Event>> {
        if !self.is_in_order() {
            wait.extend(self.progress().open_barrier());
        }
        if wait.is_empty() && (!self.is_in_order() || self.progress().last().is_none()) {
            return Ok(Event::of_executed(self, command_type, now_ns()));
        }
        self.submit_marker(command_type, uses, wait)
    }
}

fn uses_of(buffer: &Arc<Buffer>) -> Uses {
    Uses { buffers: vec![InUse::new(buffer)], ..Uses::default() }
}
