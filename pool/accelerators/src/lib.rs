//! Accelerators of the pool (P-8): OpenCL kernels that turn a stream of bytes into another one.
//!
//! An [`Interface`] says what a kernel takes and gives, so that a client needs to know nothing else of it: how many bytes
//! come out, where the stream may be cut, what is carried from one chunk to the next, and whether a chunk may be done again.
//! It is all that a program needs to run an accelerator:
//!
//! 1. [`Interface::arguments`] checks the arguments of a job and lays them out for the kernel.
//! 2. [`chunks()`] splits the stream (P-6).
//! 3. [`Interface::launch`] says how the kernel is launched for a chunk, and [`Interface::kernel_arguments`] what it is passed.
//!
//! [`Accelerator`] names the accelerators that are shipped, with their kernels as OpenCL C; [`Accelerator::compute`] does the same on
//! the processor. The library of a cluster may
//! have others, with the same kind of interface.
//!
//! This crate does no I/O and knows no runtime.
#![forbid(unsafe_code)]

mod arguments;
mod chunks;
mod interface;
mod launch;
mod processor;
pub mod reed_solomon;
mod shipped;
pub mod value_at_risk;

pub use arguments::{ArgumentError, Arguments};
pub use chunks::{
    Chunk, Chunks, MAX_CHUNK_BYTES, MAX_STREAM_BYTES, Position, StreamError, chunks, chunks_of,
};
pub use interface::{Interface, InterfaceSpec, InvalidInterface, Parameter, Tail};
pub use launch::{KernelArgument, Launch};
pub use processor::{ChunkInput, ChunkOutput, InvalidChunk};
pub use shipped::Accelerator;
