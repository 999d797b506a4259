//! OpenCL's objects, and the commands that queues take.

mod arg_types;
pub(crate) mod buffer;
pub(crate) mod commands;
pub(crate) mod context;
pub(crate) mod device_queue;
pub(crate) mod event;
mod failures;
pub mod image;
mod in_place;
pub(crate) mod kernel;
pub(crate) mod kernel_info;
pub(crate) mod late;
mod nd_range;
pub(crate) mod pipe;
pub(crate) mod platform;
pub(crate) mod program;
mod progress;
pub(crate) mod queue;
pub(crate) mod reading;
pub(crate) mod sampler;
pub(crate) mod usm;
