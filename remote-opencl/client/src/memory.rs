//! The application's memory, memory that is shared with a manager, and the layout of rectangles in either.

pub(crate) mod fd_channel;
mod free_ranges;
pub(crate) mod host_bytes;
pub(crate) mod host_copy;
pub(crate) mod host_memory;
mod mapping;
pub(crate) mod maps;
pub(crate) mod pitches;
pub(crate) mod placed;
pub mod rect;
pub(crate) mod ring_memory;
pub(crate) mod segments;
pub(crate) mod storage;
