//! Pipes between kernels (OpenCL 2.0), and host pipes, of which the host has one end (`cl_intel_fpga_host_pipe`).
//!
//! Each call of a host pipe is one exchange with the manager. It sends pending commands first, since the kernel at the other
//! end may be among them.

use crate::base::sync::lock;
use crate::error::{ClError, Result};
use crate::memory::host_memory::{HostTarget, Shadow};
use crate::objects::context::Context;
use crate::session::check_status;
use fpga_protocol::host_pipes::{MAX_PIPE_BYTES, PIPE_EMPTY};
use fpga_protocol::v1::{self, call::Method, reply};
use std::collections::VecDeque;
use std::sync::{Arc, Mutex};

pub use fpga_protocol::host_pipes::HostEnd;

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

/// Packets in memory of the program: those to be written, or those that were read.
#[derive(Debug)]
struct Map {
    memory: HostTarget,
    /// Number of bytes that were unmapped.
    unmapped: usize,
}

impl Pipe {
    /// `clCreatePipe`.
    ///
    /// # Errors
    /// The errors of the manager's runtime, `CL_DEVICE_NOT_AVAILABLE` if the manager is gone.
    pub fn new(
        context: &Arc<Context>,
        packet_size: u32,
        max_packets: u32,
        host_end: Option<HostEnd>,
    ) -> Result<Arc<Self>> {
        let session = context.session();
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
        let packets = size.min(MAX_PIPE_BYTES.max(packet)) / packet.max(1);
        if packets == 0 {
            return Err(ClError::INVALID_VALUE);
        }
        let memory = match end {
            HostEnd::Writes => {
                let map = v1::MapPipe { pipe: self.id, size: (packets * packet) as u64 };
                let mapped = match self.call(Method::MapPipe(map))? {
                    Some(reply::Result::Mapped(mapped)) if mapped <= (packets * packet) as u64 => mapped,
                    _ => return Err(ClError::OUT_OF_RESOURCES),
                };
                memory_of(usize::try_from(mapped).map_err(|_| ClError::OUT_OF_RESOURCES)?)?
            }
            HostEnd::Reads => {
                let read = self.packets(packets)?;
                let mut memory = memory_of(read.len())?;
                memory.write(0, &read);
                memory
            }
        };
        let (address, size) = (memory.address(), memory.len());
        lock(&self.maps).push_back(Map { memory, unmapped: 0 });
        Ok((address, size))
    }

    /// Gives the next `size` bytes of a map to the kernel, or gives up as many that were read
    /// (`clUnmapHostPipeIntelFPGA`). Maps for writing are unmapped in the order in which they were made.
    ///
    /// # Errors
    /// `CL_INVALID_VALUE` if there is no such map, or it has not so many bytes left; `CL_INVALID_MEM_OBJECT` if the pipe is
    /// no host pipe; and the errors of the manager's runtime.
    pub fn unmap(&self, address: usize, size: usize) -> Result<()> {
        let end = self.host_end.ok_or(ClError::INVALID_MEM_OBJECT)?;
        let mut maps = lock(&self.maps);
        let at = maps.iter().position(|map| map.memory.address() == address);
        let at = at.filter(|at| *at == 0 || end == HostEnd::Reads).ok_or(ClError::INVALID_VALUE)?;
        let map = maps.get_mut(at).ok_or(ClError::INVALID_VALUE)?;
        if size == 0 || size > map.memory.len() - map.unmapped {
            return Err(ClError::INVALID_VALUE);
        }
        if end == HostEnd::Writes {
            let part = map.memory.part_as_source(map.unmapped, size).ok_or(ClError::INVALID_VALUE)?;
            let unmap = v1::UnmapPipe { pipe: self.id, packets: part.capture() };
            self.call(Method::UnmapPipe(unmap))?;
        }
        map.unmapped += size;
        if map.unmapped == map.memory.len() {
            maps.remove(at);
        }
        Ok(())
    }

    /// The packets that are there, at most `most`.
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
