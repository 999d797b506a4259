//! What libraries share that live in programs of others: they notice a fork, and have state per process.
//!
//! After fork() the child has one thread: locks that other threads held stay locked, threads of the library are gone,
//! and connections belong to the parent. So a child must not touch the state that it inherits. It recognises that
//! state by its [`generation`], has its own value of each [`PerProcess`], and closes its copies of descriptors that
//! are [`ClosedInChildren`]. Threads of libraries take no signal of the program ([`spawn_with_signals_blocked`]).
//! Libraries with functions for C have their [`c_boundary`].
//!
//! Nothing here panics, prints or runs code at exit.
#![deny(unsafe_code)]

pub mod c_boundary;
mod closed_in_children;
mod generation;
mod per_process;
mod registration;
mod signals;

pub use closed_in_children::ClosedInChildren;
pub use generation::generation;
pub use per_process::PerProcess;
pub use signals::{run_with_signals_blocked, spawn_with_signals_blocked};

#[cfg(test)]
mod forked;
