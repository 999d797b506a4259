//! Traces of requests: what the endpoint picker, the OpenCL client and the device manager did for one request, as one
//! trace.
//!
//! [`context`] is the W3C trace context that programs hand to each other. With the feature `export` there are [`span`], what
//! a program did in a time, [`otlp`], the form in which spans leave the program, and [`tracer`], which sends them. A span is
//! made only where the caller asks for it by the flag `sampled`, and none delays a request: a full queue drops spans, and
//! counts them.
#![forbid(unsafe_code)]

#[cfg(feature = "export")]
pub mod args;
pub mod context;
#[cfg(feature = "export")]
mod exporter;
mod hex;
pub mod ids;
#[cfg(feature = "export")]
pub mod otlp;
#[cfg(feature = "export")]
pub mod span;
#[cfg(feature = "export")]
pub mod tracer;
