//! A request of a trace.

use crate::time::{Micros, SimTime};

/// A request for a function: its arrival and its duration.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Request {
    /// Time of arrival.
    pub at: SimTime,
    /// Duration without any waiting.
    pub duration: Micros,
    /// Number of the function, from 0, in the order of first appearance.
    pub function: u32,
    /// Number of the function's application, from 0, in the order of first appearance.
    pub app: u32,
}
