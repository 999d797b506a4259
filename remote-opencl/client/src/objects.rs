//! OpenCL's objects, and the commands that queues take.

pub(crate) mod arg_types;
pub(crate) mod buffer;
pub(crate) mod context;
pub(crate) mod device_queue;
pub(crate) mod event;
pub mod image;
pub(crate) mod in_place;
pub(crate) mod kernel;
pub(crate) mod nd_range;
pub(crate) mod pipe;
pub(crate) mod platform;
pub(crate) mod program;
pub(crate) mod progress;
pub(crate) mod queue;
pub(crate) mod sampler;
