//! The vendor's OpenCL runtime behind safe types: handles that release their objects, and errors as values.
//!
//! All `unsafe` code for OpenCL is in this module, which knows no sessions, tasks or protocol. The C functions are
//! looked up with their exact C types. The existing wrapper crates call them through Rust's own calling convention,
//! and pass a wrong array when a program has binaries for several devices.

mod api;
mod callbacks;
mod enqueue;
mod handles;
mod image;
mod info;
mod kernel;
mod life;
mod program;
mod since_2;
mod sub_device;

pub use api::{LoadError, load};
pub use callbacks::on_end;
pub use enqueue::{Enqueued, Profile, Rect};
pub use handles::{Context, Event, Memory, Queue};
pub use image::{Format, Region, Sampler, Shape, image_formats};
pub use info::{DeviceId, PlatformId, device_info, devices, platform_info, platforms};
pub use kernel::{ArgKind, Kernel, WorkGroupInfo};
pub use life::{Switched, is_on as objects_are_remembered, switch, switches, turn_on as remember_objects};
pub use program::Program;
pub use sub_device::SubDevice;

/// A negative error code of OpenCL.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("OpenCL error {0}")]
pub struct ClError(pub i32);

/// The result of a call to the vendor.
pub type ClResult<T> = Result<T, ClError>;

/// Turns a status into a result: every status but `CL_SUCCESS` is an error.
fn check(status: i32) -> ClResult<()> {
    if status == opencl_sys::CL_SUCCESS { Ok(()) } else { Err(ClError(status)) }
}
