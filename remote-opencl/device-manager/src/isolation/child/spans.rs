//! The spans of the process's tasks, which the manager sends on.

use super::super::packets::{FromTenant, MAX_SPANS, Setup};
use super::asking::ToManager;
use fpga_traces::tracer::Tracer;
use std::{io, thread};

/// Takes spans for the manager, if it records them, on a thread of its own.
pub(super) fn tracer(setup: &Setup, manager: &ToManager) -> io::Result<Tracer> {
    if !setup.common.records_traces {
        return Ok(Tracer::off());
    }
    let (tracer, mut spans) = Tracer::channel();
    let manager = manager.clone();
    thread::Builder::new().name("spans".to_owned()).spawn(move || {
        let mut batch = Vec::with_capacity(MAX_SPANS);
        while spans.blocking_recv_many(&mut batch, MAX_SPANS) > 0 {
            manager.say(&FromTenant::Spans(batch.drain(..).map(Into::into).collect()));
        }
    })?;
    Ok(tracer)
}
