//! The remote OpenCL client: sessions, queues, events, buffers, programs and kernels in Rust.
//!
//! The C entry points (crate `icd`) are a thin layer over this crate. It isn't an OpenCL implementation: everything
//! runs in a device manager's vendor runtime; here are ids, batches, states and the socket. Errors are the standard's
//! codes ([`ClError`]), since that is what the caller of the C API gets.
//!
//! The floors, from top to bottom; a module imports only from its own floor and from those below:
//! - `client`: the managers of the process and the platforms that they serve; `lease`: the session of a leased slot.
//! - `objects`: OpenCL's objects, and the commands that queues take.
//! - `session`: what is outstanding at one manager, and the threads that send, wait and call back.
//! - `wire`: connections to a manager, and the messages on them.
//! - `memory`: the application's memory, and memory shared with a manager; below it `base`, `cl`, `error`, and `trace`.
#![deny(unsafe_code)]

mod base;
pub mod cl;
mod client;
mod error;
mod lease;
mod memory;
mod objects;
mod printed;
mod session;
mod trace;
mod wire;

pub use client::{Client, MANAGERS_VARIABLE};
pub use error::{ClError, Result};
pub use fpga_protocol::memory_flags;
pub use lease::{Lease, LeaseError, LeasedSession};
pub use memory::host_memory::{Awaited, HostSource, HostTarget};
pub use memory::rect;
pub use objects::buffer::{Buffer, Initial};
pub use objects::commands::{Mapped, MemoryHint, Migration, Operation};
pub use objects::context::Context;
pub use objects::device_queue::DeviceQueue;
pub use objects::event::{Event, Profiling};
pub use objects::image::{self, Image, ImageFormat, ImageInitial, ImageRegion, ImageShape};
pub use objects::kernel::{ArgValue, IndirectAccess, Kernel};
pub use objects::kernel_info::{ArgInfo, ArgKind, KernelInfo, WorkGroupInfo};
pub use objects::pipe::{HOST_PIPE_EXTENSION, HostEnd, MAX_PIPE_BYTES, Pipe};
pub use objects::platform::{Device, Platform};
pub use objects::program::{BinariesError, BuildInfo, DigestError, Program};
pub use objects::queue::Queue;
pub use objects::reading::Reading;
pub use objects::sampler::Sampler;
pub use objects::usm::{Allocation, AllocationKind, AllocationProperties};
pub use session::Notice;
pub use trace::{ThreadTrace, set_trace};
pub use wire::address::AddressError;
