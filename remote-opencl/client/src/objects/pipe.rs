//! Pipes between kernels (OpenCL 2.0), and host pipes, of which the host has one end (`cl_intel_fpga_host_pipe`).
//!
//! Each call of a host pipe is one exchange with the manager. It sends pending commands first, since the kernel at the other
//! end may be among them.

use crate::base::sync::lock;
use crate::error::{ClError, Result};
use crate::memory::host_memory::{HostTarget, Shadow};
use crate::objects::context::Context;
use crate::session::check_status;
use fpga_protocol::host_pipes::PIPE_EMPTY;
use fpga_protocol::v1::{self, call::Method, reply};
use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard};

pub use fpga_protocol::host_pipes::{EXTENSION as HOST_PIPE_EXTENSION, HostEnd, MAX_PIPE_BYTES};

/// A pipe.
#[derive(Debug)]
pub struct Pipe {
    id: u64,
    context: Arc<Context>,
    packet_size: u32,
    max_packets: u32,
    host_end: Option<HostEnd>,
    maps: Mutex<VecDeque<Map>>,
}

/// Memory of this crate for packets that the program writes, or with packets that it reads.
#[derive(Debug)]
struct Map {
    memory: HostTarget,
    /// The manager's number of a map for writing; 0 for reading.
    number: u64,
    /// Number of bytes that were unmapped.
    unmapped: usize,
}

impl Pipe {
    /// `clCreatePipe`.
    ///
    /// # Errors
    /// The errors of the manager's runtime, `CL_DEVICE_NOT_AVAILABLE` if the manager is gone, `CL_INVALID_OPERATION` if the
    /// manager has no host pipes.
    pub fn new(
        context: &Arc<Context>,
        packet_size: u32,
        max_packets: u32,
        host_end: Option<HostEnd>,
    ) -> Result<Arc<Self>> {
        let session = context.session();
        // Such a manager would make a pipe between kernels.
        if host_end.is_some() && !session.has_host_pipes() {
            return Err(ClError::INVALID_OPERATION);
        }
        let id = session.new_id();
        let end = match host_end {
            None => v1::HostEnd::None,
            Some(HostEnd::Reads) => v1::HostEnd::Reads,
            Some(HostEnd::Writes) => v1::HostEnd::Writes,
        };
        let (context_id, host_end_id) = (context.id(), end.into());
        let create =
            v1::CreatePipe { pipe: id, context: context_id, packet_size, max_packets, host_end: host_end_id };
        let context = Arc::clone(context);
        let pipe = Self { id, context, packet_size, max_packets, host_end, maps: Mutex::default() };
        check_status(pipe.context.session().call(Method::CreatePipe(create))?.status)?;
        Ok(Arc::new(pipe))
    }

    /// The context of the pipe.
    pub fn context(&self) -> &Arc<Context> {
        &self.context
    }

    /// Size of a packet in bytes.
    pub fn packet_size(&self) -> u32 {
        self.packet_size
    }

    /// Capacity of the pipe in packets.
    pub fn max_packets(&self) -> u32 {
        self.max_packets
    }

    /// The end that the host has.
    pub fn host_end(&self) -> Option<HostEnd> {
        self.host_end
    }

    /// Writes a packet (`clWritePipeIntelFPGA`).
    ///
    /// # Errors
    /// `CL_PIPE_FULL` (-1111), `CL_INVALID_MEM_OBJECT` if the host writes no packets of this pipe, and the errors of the
    /// manager's runtime.
    pub fn write(&self, packet: &[u8]) -> Result<()> {
        self.check_end(HostEnd::Writes)?;
        let write = v1::WritePipe { pipe: self.id, packet: packet.to_vec().into() };
        self.call(Method::WritePipe(write)).map(drop)
    }

    /// Reads a packet (`clReadPipeIntelFPGA`).
    ///
    /// # Errors
    /// `CL_PIPE_EMPTY` (-1112), `CL_INVALID_MEM_OBJECT` if the host reads no packets of this pipe, and the errors of the
    /// manager's runtime.
    pub fn read(&self) -> Result<Vec<u8>> {
        self.check_end(HostEnd::Reads)?;
        let packet = self.packets(1)?;
        if packet.len() == self.packet_size as usize { Ok(packet) } else { Err(ClError(PIPE_EMPTY)) }
    }

    /// Maps memory of at most `size` bytes for packets that the program writes, or with packets that it reads; returns its
    /// address and its size (`clMapHostPipeIntelFPGA`).
    ///
    /// # Errors
    /// `CL_INVALID_VALUE` if `size` is less than a packet, `CL_OUT_OF_RESOURCES` if the pipe is full or empty,
    /// `CL_INVALID_MEM_OBJECT` if it is no host pipe, and the errors of the manager's runtime.
    pub fn map(&self, size: usize) -> Result<(usize, usize)> {
        let end = self.host_end.ok_or(ClError::INVALID_MEM_OBJECT)?;
        let packet = self.packet_size as usize;
        let packets = size.min(MAX_PIPE_BYTES) / packet.max(1);
        if packets == 0 {
            return Err(ClError::INVALID_VALUE);
        }
        let mut maps = self.lock_maps()?;
        let map = match end {
            HostEnd::Writes => self.reserve(packets * packet)?,
            HostEnd::Reads => {
                let read = self.packets(packets)?;
                let mut memory = memory_of(read.len())?;
                memory.write(0, &read);
                Map { memory, number: 0, unmapped: 0 }
            }
        };
        let (address, size) = (map.memory.address(), map.memory.len());
        maps.push_back(map);
        Ok((address, size))
    }

    /// Reserves room for at most `size` bytes.
    fn reserve(&self, size: usize) -> Result<Map> {
        // The memory comes first: a kernel waits for room that is reserved and never filled.
        let memory = memory_of(size)?;
        let map = v1::MapPipe { pipe: self.id, size: size as u64 };
        let Some(reply::Result::Mapped(mapped)) = self.call(Method::MapPipe(map))? else {
            return Err(ClError::OUT_OF_RESOURCES);
        };
        let part = usize::try_from(mapped.size).ok().and_then(|size| memory.part(0, size));
        let memory = part.filter(|part| !part.is_empty()).ok_or(ClError::OUT_OF_RESOURCES)?;
        Ok(Map { memory, number: mapped.map, unmapped: 0 })
    }

    /// Gives the next `size` bytes of a map to the kernel, or gives up as many that were read
    /// (`clUnmapHostPipeIntelFPGA`). Maps for writing are unmapped in the order in which they were made.
    ///
    /// # Errors
    /// `CL_INVALID_VALUE` if there is no such map, if it has not so many bytes left, or if a map for writing is not the oldest
    /// one, was lost by a reconfiguration, or gets a part of a packet; `CL_INVALID_MEM_OBJECT` if the pipe is no host pipe; and the errors of the
    /// manager's runtime.
    pub fn unmap(&self, address: usize, size: usize) -> Result<()> {
        let end = self.host_end.ok_or(ClError::INVALID_MEM_OBJECT)?;
        let mut maps = self.lock_maps()?;
        let at = maps.iter().position(|map| map.memory.address() == address).ok_or(ClError::INVALID_VALUE)?;
        let map = maps.get_mut(at).ok_or(ClError::INVALID_VALUE)?;
        if size == 0 || size > map.memory.len() - map.unmapped {
            return Err(ClError::INVALID_VALUE);
        }
        if end == HostEnd::Writes {
            let part = map.memory.part_as_source(map.unmapped, size).ok_or(ClError::INVALID_VALUE)?;
            let unmap = v1::UnmapPipe { pipe: self.id, packets: part.capture(), map: map.number };
            self.call(Method::UnmapPipe(unmap))?;
        }
        map.unmapped += size;
        if map.unmapped == map.memory.len() {
            maps.remove(at);
        }
        Ok(())
    }

    /// The maps, locked during calls to the manager, so that their order is the manager's.
    ///
    /// # Errors
    /// `CL_DEVICE_NOT_AVAILABLE` in a forked child, where a thread of the parent may hold the lock for ever.
    fn lock_maps(&self) -> Result<MutexGuard<'_, VecDeque<Map>>> {
        if !self.context.session().is_own() {
            return Err(ClError::DEVICE_NOT_AVAILABLE);
        }
        Ok(lock(&self.maps))
    }

    /// Reads packets until the pipe is empty, at most `most`.
    fn packets(&self, most: usize) -> Result<Vec<u8>> {
        let packets = u32::try_from(most).unwrap_or(u32::MAX);
        match self.call(Method::ReadPipe(v1::ReadPipe { pipe: self.id, packets }))? {
            Some(reply::Result::Packets(packets)) if packets.len() <= most * self.packet_size as usize => {
                Ok(packets.to_vec())
            }
            _ => Err(ClError::OUT_OF_RESOURCES),
        }
    }

    fn check_end(&self, end: HostEnd) -> Result<()> {
        if self.host_end == Some(end) { Ok(()) } else { Err(ClError::INVALID_MEM_OBJECT) }
    }

    fn call(&self, method: Method) -> Result<Option<reply::Result>> {
        let reply = self.context.session().call(method)?;
        check_status(reply.status)?;
        Ok(reply.result)
    }

    pub(crate) fn id(&self) -> u64 {
        self.id
    }
}

/// Memory for the program; none is `CL_OUT_OF_RESOURCES`, as for a pipe that is empty or full.
fn memory_of(size: usize) -> Result<HostTarget> {
    Shadow::allocate(size).ok_or(ClError::OUT_OF_RESOURCES)
}

impl Drop for Pipe {
    fn drop(&mut self) {
        self.context.session().release(self.id);
    }
}
