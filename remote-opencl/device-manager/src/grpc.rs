//! gRPC's messages in HTTP/2's frames, read no further ahead than the sessions take.

pub(crate) mod frames;
pub(crate) mod read_ahead;
