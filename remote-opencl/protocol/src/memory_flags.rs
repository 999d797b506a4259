//! The `cl_mem_flags` that travel to a manager.

/// Access by kernels: `CL_MEM_READ_WRITE`, `CL_MEM_WRITE_ONLY`, `CL_MEM_READ_ONLY`. The client enforces all other flags of the
/// standard itself.
pub const KERNEL_ACCESS: u64 = 0b111;

/// Flags of vendors for buffers, which the manager's runtime accepts or refuses: `CL_CHANNEL_1_INTELFPGA` to
/// `CL_CHANNEL_7_INTELFPGA`, and `CL_MEM_HETEROGENEOUS_INTELFPGA`. They change the place of a buffer, never the meaning of a
/// host pointer.
pub const OF_VENDORS: u64 = 0b1111 << 16;
