//! Host pipes (`cl_intel_fpga_host_pipe`): pipes of which the host has one end, while a kernel has the other.
//!
//! Packets are read one by one: a map for reading waits for packets in Intel's emulator. A map for writing reserves room
//! in the pipe, so those are the vendor's.

use crate::api::check;
use crate::extension::{extension, has_extension};
use crate::handles::{Context, Handle as _, Memory};
use crate::info::DeviceId;
use crate::object::{self, Kind};
use crate::opencl2::create_pipe;
use fpga_protocol::cl_error::{ClError, ClResult};
use fpga_protocol::host_pipes::{EXTENSION, HostEnd, MAX_PIPE_BYTES, PIPE_EMPTY};
use opencl_sys::{CL_MEM_HOST_READ_ONLY, CL_MEM_HOST_WRITE_ONLY, cl_map_flags, cl_mem};
use std::collections::VecDeque;
use std::ffi::c_void;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// Maximum number of maps of a pipe that are not used up. They take memory of this process.
const MAX_MAPS: usize = 1024;

type Read = unsafe extern "C" fn(cl_mem, *mut c_void) -> i32;
type Write = unsafe extern "C" fn(cl_mem, *const c_void) -> i32;
type Map = unsafe extern "C" fn(cl_mem, cl_map_flags, usize, *mut usize, *mut i32) -> *mut c_void;
type Unmap = unsafe extern "C" fn(cl_mem, *mut c_void, usize, *mut usize) -> i32;

/// The host's end of a pipe.
#[derive(Debug)]
pub struct HostPipe {
    memory: Memory,
    end: HostEnd,
    packet_size: usize,
    functions: Functions,
    /// How often the vendor's pipe was made again. The address of a map is valid for one pipe of the vendor.
    made: Arc<AtomicU64>,
    maps: Mutex<Maps>,
}

/// The maps that are not used up.
#[derive(Debug, Default)]
struct Maps {
    open: VecDeque<Mapping>,
    /// Number of the last map.
    last: u64,
}

#[derive(Debug, Clone, Copy)]
struct Functions {
    read: Read,
    write: Write,
    map: Map,
    unmap: Unmap,
}

/// Room in the pipe that is reserved for packets.
#[derive(Debug)]
struct Mapping {
    number: u64,
    address: usize,
    /// Size in bytes.
    size: usize,
    /// Number of bytes that were unmapped.
    filled: usize,
    /// [`HostPipe::made`] at the time of the map.
    made: u64,
}

impl Functions {
    fn of(device: DeviceId) -> ClResult<Self> {
        // SAFETY: `extension` returns no NULL, and the extension defines the types of the functions of these names.
        unsafe {
            Ok(Self {
                read: std::mem::transmute::<*mut c_void, Read>(extension(device, c"clReadPipeIntelFPGA")?),
                write: std::mem::transmute::<*mut c_void, Write>(extension(device, c"clWritePipeIntelFPGA")?),
                map: std::mem::transmute::<*mut c_void, Map>(extension(device, c"clMapHostPipeIntelFPGA")?),
                unmap: std::mem::transmute::<*mut c_void, Unmap>(extension(
                    device,
                    c"clUnmapHostPipeIntelFPGA",
                )?),
            })
        }
    }
}

impl HostPipe {
    /// Makes a pipe of `max_packets` packets. `device` is one of the context's.
    ///
    /// # Errors
    /// The vendor's error; `CL_INVALID_OPERATION` (-59) if the device has no host pipes; `CL_INVALID_PIPE_SIZE` (-69) if a
    /// packet has no bytes, or more than [`MAX_PIPE_BYTES`].
    pub fn new(
        context: &Context,
        device: DeviceId,
        packet_size: u32,
        max_packets: u32,
        end: HostEnd,
    ) -> ClResult<Self> {
        if !has_extension(device, EXTENSION) {
            return Err(ClError::INVALID_OPERATION);
        }
        // A packet travels in one message, and a client says its size.
        if packet_size == 0 || packet_size as usize > MAX_PIPE_BYTES {
            return Err(ClError::INVALID_PIPE_SIZE);
        }
        let functions = Functions::of(device)?;
        let of = context.cell().clone();
        let flags = match end {
            HostEnd::Reads => CL_MEM_HOST_READ_ONLY,
            HostEnd::Writes => CL_MEM_HOST_WRITE_ONLY,
        };
        let raw = create_pipe(&of, flags, packet_size, max_packets)?;
        let memory = Memory::own(raw, opencl_sys::CL_SUCCESS)?;
        let made = Arc::new(AtomicU64::new(0));
        let counts = Arc::clone(&made);
        // The pipe's packets are not kept.
        object::remember(memory.cell(), Kind::Other, move |_| {
            counts.fetch_add(1, Ordering::Relaxed);
            create_pipe(&of, flags, packet_size, max_packets)
        });
        let maps = Mutex::default();
        Ok(Self { memory, end, packet_size: packet_size as usize, functions, made, maps })
    }

    /// The pipe as a kernel's argument.
    #[must_use]
    pub fn memory(&self) -> &Memory {
        &self.memory
    }

    /// Reads packets until the pipe is empty. Reads at most `packets` packets, and at most [`MAX_PIPE_BYTES`].
    ///
    /// # Errors
    /// The vendor's error; `CL_INVALID_MEM_OBJECT` (-38) if the host has the other end.
    pub fn read(&self, packets: usize) -> ClResult<Vec<u8>> {
        let pipe = self.end(HostEnd::Reads)?;
        let most = MAX_PIPE_BYTES / self.packet_size.max(1);
        let mut all = Vec::new();
        for _ in 0..packets.min(most) {
            let before = all.len();
            all.resize(before + self.packet_size, 0);
            let packet = all.get_mut(before..).ok_or(ClError::OUT_OF_RESOURCES)?;
            // SAFETY: the pipe is live. The vendor writes one packet, which fits.
            let status = unsafe { (self.functions.read)(pipe, packet.as_mut_ptr().cast()) };
            if status != opencl_sys::CL_SUCCESS {
                all.truncate(before);
                // Packets that were read must not be lost.
                return if status == PIPE_EMPTY || before > 0 { Ok(all) } else { Err(ClError(status)) };
            }
        }
        Ok(all)
    }

    /// Writes one packet.
    ///
    /// # Errors
    /// The vendor's error, such as `CL_PIPE_FULL` (-1111); `CL_INVALID_VALUE` (-30) if it is no packet;
    /// `CL_INVALID_MEM_OBJECT` (-38) if the host has the other end.
    pub fn write(&self, packet: &[u8]) -> ClResult<()> {
        let pipe = self.end(HostEnd::Writes)?;
        if packet.len() != self.packet_size {
            return Err(ClError::INVALID_VALUE);
        }
        // SAFETY: the pipe is live. The vendor reads one packet, which `packet` is.
        check(unsafe { (self.functions.write)(pipe, packet.as_ptr().cast()) })
    }

    /// Reserves room for at most `size` bytes, in whole packets. Returns the number of the map, and its size in bytes.
    ///
    /// # Errors
    /// The vendor's error; `CL_INVALID_VALUE` (-30) if `size` is less than a packet; `CL_OUT_OF_RESOURCES` (-5) if the pipe is
    /// full or has 1,024 maps that are not used up; `CL_INVALID_MEM_OBJECT` (-38) if the host has the other end.
    pub fn map(&self, size: usize) -> ClResult<(u64, usize)> {
        let pipe = self.end(HostEnd::Writes)?;
        let made = self.made.load(Ordering::Relaxed);
        let mut maps = self.maps.lock().unwrap_or_else(PoisonError::into_inner);
        maps.open.retain(|mapping| mapping.made == made);
        if maps.open.len() >= MAX_MAPS {
            return Err(ClError::OUT_OF_RESOURCES);
        }
        let size = size - size % self.packet_size;
        if size == 0 {
            return Err(ClError::INVALID_VALUE);
        }
        let (mut mapped, mut status) = (0, 0);
        // SAFETY: the pipe is live, and both results are written in this call.
        let address = unsafe { (self.functions.map)(pipe, 0, size, &raw mut mapped, &raw mut status) };
        check(status)?;
        let size = mapped.min(size);
        let size = size - size % self.packet_size;
        if address.is_null() || size == 0 {
            return Err(ClError::OUT_OF_RESOURCES);
        }
        maps.last += 1;
        let number = maps.last;
        maps.open.push_back(Mapping { number, address: address as usize, size, filled: 0, made });
        Ok((number, size))
    }

    /// Writes the next bytes of the map of this number, and unmaps them. The kernel then gets their packets.
    ///
    /// # Errors
    /// The vendor's error; `CL_INVALID_VALUE` (-30) if the map is not the oldest one that is not used up, if it has not so
    /// many bytes left, if the bytes are not whole packets, or if the board was reconfigured since.
    pub fn fill(&self, number: u64, bytes: &[u8]) -> ClResult<()> {
        let pipe = self.end(HostEnd::Writes)?;
        let made = self.made.load(Ordering::Relaxed);
        let mut maps = self.maps.lock().unwrap_or_else(PoisonError::into_inner);
        maps.open.retain(|mapping| mapping.made == made);
        let oldest = maps.open.front_mut().filter(|mapping| mapping.number == number);
        let mapping = oldest.ok_or(ClError::INVALID_VALUE)?;
        let are_packets = !bytes.is_empty() && bytes.len().is_multiple_of(self.packet_size);
        if !are_packets || bytes.len() > mapping.size - mapping.filled {
            return Err(ClError::INVALID_VALUE);
        }
        let start = (mapping.address as *mut u8).wrapping_add(mapping.filled);
        // SAFETY: the vendor has mapped `size` bytes of this pipe for writing, and `filled` of them are unmapped. The pipe was
        // not made again since. The bytes fit into the rest, and are memory of this process that the vendor does not have.
        unsafe { start.copy_from_nonoverlapping(bytes.as_ptr(), bytes.len()) };
        let mut unmapped = 0;
        // SAFETY: the pipe is live, and the address is that of the map.
        check(unsafe {
            (self.functions.unmap)(pipe, mapping.address as *mut c_void, bytes.len(), &raw mut unmapped)
        })?;
        mapping.filled += bytes.len();
        if mapping.filled == mapping.size {
            maps.open.pop_front();
        }
        Ok(())
    }

    /// The vendor's pipe, if the host has this end.
    fn end(&self, end: HostEnd) -> ClResult<cl_mem> {
        if self.end == end { self.memory.cell().alive() } else { Err(ClError::INVALID_MEM_OBJECT) }
    }
}
