//! The application's memory, memory that is shared with a manager, and the layout of rectangles in either.

pub(crate) mod host_memory;
pub(crate) mod maps;
pub(crate) mod pitches;
pub mod rect;
pub(crate) mod segments;
pub(crate) mod storage;
