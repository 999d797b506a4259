//! The remote OpenCL client: sessions, queues, events, buffers, programs and kernels in Rust.
//!
//! The C entry points (crate `icd`) are a thin layer over this crate. It isn't an OpenCL implementation: everything
//! runs in a device manager's vendor runtime; here are ids, batches, states and the socket. Errors are the standard's
//! codes ([`ClError`]), since that is what the caller of the C API gets.
#![deny(unsafe_code)]

pub mod address;
mod arg_types;
mod batch;
pub mod buffer;
pub mod callbacks;
pub mod cl;
pub mod client;
mod clock;
mod codec;
mod command_ring;
pub mod context;
pub mod device_queue;
mod driver;
pub mod error;
pub mod event;
mod fork;
pub mod host_memory;
pub mod image;
mod in_place;
mod keepalive;
mod kept;
pub mod kernel;
mod maps;
mod nd_range;
mod outbox;
mod patience;
pub mod pipe;
mod pitches;
pub mod platform;
mod process;
pub mod program;
mod progress;
pub mod proof;
pub mod queue;
mod reconnect;
pub mod rect;
pub mod sampler;
mod segments;
mod session;
mod signals;
mod socket;
mod storage;
mod sync;
mod transport;

pub use buffer::{Buffer, Initial};
pub use client::Client;
pub use context::Context;
pub use device_queue::DeviceQueue;
pub use error::{ClError, Result};
pub use event::{Event, Profiling};
pub use host_memory::{Awaited, HostSource, HostTarget};
pub use image::{Image, ImageFormat, ImageInitial, ImageRegion, ImageShape};
pub use kernel::{ArgKind, ArgValue, Kernel, KernelInfo, WorkGroupInfo};
pub use pipe::Pipe;
pub use platform::{Device, Platform};
pub use program::{BinariesError, BuildInfo, Program};
pub use queue::{Mapped, Operation, Queue};
pub use sampler::Sampler;
