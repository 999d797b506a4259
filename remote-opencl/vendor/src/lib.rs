//! The vendor's OpenCL runtime behind safe types: handles that release their objects, and errors as values.
//!
//! All `unsafe` code for OpenCL is in this crate, which knows no sessions, tasks or messages. The C functions are
//! looked up with their exact C types. The existing wrapper crates call them through Rust's own calling convention,
//! and pass a wrong array when a program has binaries for several devices.
//!
//! Floors, the lowest first: the table of functions (`api`), answers of `clGet*Info` (`info`), objects and how they
//! are made again (`object`), handles of objects (`handles`, `image`, `program`, `kernel`, …), commands (`enqueue`),
//! and the reconfiguration of a whole board (`reconfiguration`).

mod api;
mod callbacks;
mod enqueue;
mod extension;
mod handles;
mod host_pipe;
mod image;
mod info;
mod kernel;
mod kernels;
mod object;
mod opencl2;
mod program;
mod reconfiguration;
mod rects;
pub mod runtime;
mod shared_bytes;
mod sub_device;
mod usm;

pub use api::{LoadError, load};
pub use callbacks::on_end;
pub use enqueue::{CommandProfile, Enqueued, Rect};
pub use fpga_protocol::cl_error::{ClError, ClResult};
pub use handles::{Context, Event, Memory, Queue};
pub use host_pipe::HostPipe;
pub use image::{Format, Sampler, Shape, image_formats};
pub use info::{DeviceId, PlatformId, device_info, devices, platform_info, platforms};
pub use kernel::{ArgKind, Kernel, WorkGroupInfo};
pub use object::is_on as objects_are_remembered;
pub use program::{Included, Program};
pub use reconfiguration::{Saved, Switched, release_all, remember_objects, restore_all, switches};
pub use rects::{Extent, Layout, Region};
pub use shared_bytes::SharedBytes;
pub use sub_device::SubDevice;
pub use usm::UsmCapabilities;
