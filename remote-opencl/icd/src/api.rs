//! The C entry points, in one module for each type of object.
//!
//! An entry point checks pointers, looks handles up and calls the client, which implements the call.

pub mod context;
pub mod device;
pub mod event;
pub mod extension;
pub mod image;
pub mod kernel;
pub mod launch;
pub mod memory;
pub mod pipe;
pub mod platform;
pub mod program;
pub mod queue;
pub mod sampler;
pub mod sub_group;
pub mod svm;
pub mod transfer;
pub mod transfer_image;
pub mod transfer_rect;
pub mod usm;

mod wait_list;
