//! The trace that the commands and calls of a thread are a part of (W3C Trace Context): what the program has said for the thread, or
//! else the environment variables `TRACEPARENT` and `TRACESTATE`, which say it for the whole process.

use fpga_protocol::v1;
use fpga_traces::context::{InvalidTraceparent, Sampled, TraceContext};
use std::cell::RefCell;
use std::sync::OnceLock;

/// Environment variable with the `traceparent` of the process.
const TRACEPARENT_VARIABLE: &str = "TRACEPARENT";
/// Environment variable with its `tracestate`.
const TRACESTATE_VARIABLE: &str = "TRACESTATE";

thread_local! {
    /// What the program has said for this thread; `None` if it has said nothing.
    static OF_THREAD: RefCell<Option<Trace>> = const { RefCell::new(None) };
}

/// A trace as it is sent; `None` if nobody asks for its spans.
type Trace = Option<v1::Trace>;

/// Says which trace the commands that this thread enqueues from now on, and its calls, are a part of; without `traceparent`
/// they are part of none.
///
/// # Errors
/// [`InvalidTraceparent`]: the commands are part of no trace.
pub fn set_trace(traceparent: Option<&[u8]>, tracestate: &[u8]) -> Result<(), InvalidTraceparent> {
    let context = traceparent.map(|parent| TraceContext::parse(parent, tracestate)).transpose();
    let trace = context.as_ref().ok().and_then(Option::as_ref).and_then(sent);
    // A thread that ends enqueues nothing any more.
    let _ = OF_THREAD.try_with(|of_thread| *of_thread.borrow_mut() = Some(trace));
    context.map(drop)
}

/// What a thread has said of its trace, for another thread that does a part of its work.
#[derive(Debug)]
pub struct ThreadTrace(Option<Trace>);

impl ThreadTrace {
    /// What the calling thread has said.
    #[must_use]
    pub fn of_this_thread() -> Self {
        Self(OF_THREAD.try_with(|of_thread| of_thread.borrow().clone()).ok().flatten())
    }

    /// Says the same for the calling thread.
    pub fn take_over(self) {
        // A thread that ends enqueues nothing any more.
        let _ = OF_THREAD.try_with(|of_thread| *of_thread.borrow_mut() = self.0);
    }
}

/// The trace of this thread's commands and calls.
pub(crate) fn current() -> Trace {
    ThreadTrace::of_this_thread().0.unwrap_or_else(of_process)
}

fn of_process() -> Trace {
    static OF_PROCESS: OnceLock<Trace> = OnceLock::new();
    let read = || {
        let variable = |name| std::env::var(name).unwrap_or_default();
        let (parent, state) = (variable(TRACEPARENT_VARIABLE), variable(TRACESTATE_VARIABLE));
        TraceContext::parse(parent.as_bytes(), state.as_bytes()).as_ref().ok().and_then(sent)
    };
    OF_PROCESS.get_or_init(read).clone()
}

fn sent(context: &TraceContext) -> Trace {
    let trace = || v1::Trace {
        trace_id: context.trace.as_bytes().to_vec().into(),
        span_id: context.parent.as_bytes().to_vec().into(),
        state: context.state.as_str().to_owned(),
    };
    (context.sampled == Sampled::Yes).then(trace)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SAMPLED: &[u8] = b"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

    #[test]
    fn a_thread_says_its_own_trace_and_others_have_none_but_those_that_do_a_part_of_its_work() {
        set_trace(Some(SAMPLED), b"vendor=1").unwrap();
        let trace = current().unwrap();
        assert_eq!((trace.trace_id.len(), trace.span_id.len(), trace.state.as_str()), (16, 8, "vendor=1"));
        assert_eq!(std::thread::spawn(current).join().unwrap(), None);
        let said = ThreadTrace::of_this_thread();
        let helper = std::thread::spawn(move || {
            said.take_over();
            current()
        });
        assert_eq!(helper.join().unwrap().as_ref(), Some(&trace));
        set_trace(None, b"").unwrap();
        assert_eq!(current(), None);
    }

    #[test]
    fn a_trace_that_is_not_sampled_or_malformed_is_not_sent() {
        for unwanted in
            [&SAMPLED[..SAMPLED.len() - 1], b"", b"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-00"]
        {
            set_trace(Some(SAMPLED), b"").unwrap();
            let said = set_trace(Some(unwanted), b"");
            assert_eq!(said.is_ok(), unwanted.len() == SAMPLED.len());
            assert_eq!(current(), None);
        }
    }
}
