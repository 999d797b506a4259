//! Host pipes (`cl_intel_fpga_host_pipe`).

/// The name of the extension.
pub const EXTENSION: &str = "cl_intel_fpga_host_pipe";

/// Status of a read from a pipe without packets (`CL_PIPE_EMPTY`).
pub const PIPE_EMPTY: i32 = -1112;

/// Maximum number of bytes of a packet of a host pipe, of a map, and of the packets in a message.
pub const MAX_PIPE_BYTES: usize = 64 * 1024;

/// The end of a pipe that the host has, while a kernel has the other.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HostEnd {
    /// The host reads what a kernel writes (`CL_MEM_HOST_READ_ONLY`).
    Reads,
    /// The host writes what a kernel reads (`CL_MEM_HOST_WRITE_ONLY`).
    Writes,
}
