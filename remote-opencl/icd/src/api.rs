//! The C entry points, by the object they are about.
//!
//! Each checks pointers, looks its handles up and calls the client; what a call means is decided there.

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

mod wait_list;
