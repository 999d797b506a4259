//! The spans of a session's tasks and commands that are part of a trace: for each trace of a task the task, and below it
//! the wait for its slots, the loads of bitstreams, and its commands. A call that loads the board is a task, too.
//!
//! Only commands and calls whose client asks for it are here, so that others cost nothing.

use crate::clock;
use crate::commands::Tracing;
use crate::dependencies::EventId;
use crate::report::Ended;
use fpga_board::dispatch::{TaskId, Tenant};
use fpga_protocol::v1;
use fpga_traces::context::{Sampled, TraceContext, TraceState};
use fpga_traces::ids::{SpanId, TraceId};
use fpga_traces::span::{self, Kind, Outcome, Span};
use fpga_traces::tracer::Tracer;
use std::collections::HashMap;
use std::sync::Arc;

/// Name of the attribute with the tenant, on the span of a task.
pub const TENANT: &str = "fpga.tenant";
/// Name of the attribute with the bitstream, on the span of a load.
pub const BITSTREAM: &str = "fpga.bitstream";
/// Name of the attribute with the error code of OpenCL, on the span of a command that has failed.
pub const STATUS: &str = "fpga.opencl.status";

/// Most traces of a task of which spans are recorded. A program enqueues for one request, or for the few that share a flush.
const MAX_TRACES_OF_TASK: usize = 8;

/// What is known of the traces of a session.
#[derive(Debug)]
pub(crate) struct Traced {
    tracer: Tracer,
    tenant: Arc<str>,
    /// Where the call belongs that came last. Calls are made one after another, so it is the one that is being made.
    call: Option<Place>,
    /// The commands that have not ended.
    commands: HashMap<EventId, Place>,
    /// The tasks that have not ended, each with the traces of its commands.
    tasks: HashMap<TaskId, Vec<TracedTask>>,
}

/// Where a span belongs.
#[derive(Debug, Clone)]
struct Place(Arc<TraceContext>);

/// A task in one of the traces of its commands.
#[derive(Debug)]
struct TracedTask {
    caller: Place,
    /// Where the spans of the task's parts belong.
    below: Place,
    /// When the first of its commands arrived, or its call was ready for the board, in ns of the manager's clock.
    received: u64,
    /// When it had its slots.
    granted: Option<u64>,
}

impl Traced {
    /// No commands of this tenant yet.
    pub fn new(tracer: Tracer, tenant: &Tenant) -> Self {
        let tenant = tenant.as_str().into();
        Self { tracer, tenant, call: None, commands: HashMap::new(), tasks: HashMap::new() }
    }

    /// Whether no command is part of a trace.
    pub fn is_empty(&self) -> bool {
        self.commands.is_empty()
    }

    /// Notes the trace of a command. Returns whether it has one.
    pub fn received(&mut self, command: EventId, trace: Option<v1::Trace>) -> Tracing {
        let Some(place) = self.place(trace) else { return Tracing::Off };
        self.commands.insert(command, place);
        Tracing::On
    }

    /// Notes the trace of a call, which is about to be made.
    pub fn call_received(&mut self, trace: Option<v1::Trace>) {
        self.call = self.place(trace);
    }

    /// Notes that the call has become a task, at this time in ns of the manager's clock.
    pub fn call_submitted(&mut self, task: TaskId, now: u64) {
        if let Some(caller) = self.call.take() {
            self.tasks.insert(task, vec![TracedTask::new(caller, now)]);
        }
    }

    /// Notes that commands have become a task: the event of each, and when it arrived, in ns of the manager's clock.
    pub fn submitted(&mut self, task: TaskId, commands: impl IntoIterator<Item = (EventId, u64)>) {
        if self.is_empty() {
            return;
        }
        let mut traces: Vec<TracedTask> = Vec::new();
        for (event, received) in commands {
            let Some(place) = self.commands.get_mut(&event) else { continue };
            let of_trace = traces.iter().find(|known| known.caller.0 == place.0);
            let below = match of_trace {
                Some(known) => known.below.clone(),
                None if traces.len() < MAX_TRACES_OF_TASK => {
                    let of_trace = TracedTask::new(place.clone(), received);
                    let below = of_trace.below.clone();
                    traces.push(of_trace);
                    below
                }
                None => {
                    self.commands.remove(&event);
                    continue;
                }
            };
            *place = below;
        }
        if !traces.is_empty() {
            self.tasks.insert(task, traces);
        }
    }

    /// Notes that a task has its slots, and records how long it waited; the first time counts.
    pub fn granted(&mut self, task: TaskId, now: u64) {
        let Some(traces) = self.tasks.get_mut(&task) else { return };
        for of_trace in traces.iter_mut().filter(|of_trace| of_trace.granted.is_none()) {
            of_trace.granted = Some(now);
            let wait = of_trace.below.span("wait for a slot", Kind::Internal);
            self.tracer.record([lasted(wait, of_trace.received, now)]);
        }
    }

    /// Records the load of a bitstream for a task: when it began, and how long it took, in ns of the manager's clock.
    pub fn loaded(&self, task: TaskId, bitstream: &str, (begins, took_ns): (u64, u64), outcome: Outcome) {
        for of_trace in self.tasks.get(&task).into_iter().flatten() {
            let load = of_trace.below.span("load", Kind::Internal).with(BITSTREAM, bitstream.to_owned());
            self.tracer.record([lasted(load, begins, begins.saturating_add(took_ns)).ended(outcome)]);
        }
    }

    /// Records a command that has ended.
    pub fn command_ended(&mut self, ended: &Ended) {
        let Some(place) = self.commands.remove(&ended.event) else { return };
        let Some(moments) = &ended.moments else { return };
        let span = place.span(ended.operation, Kind::Internal);
        let span = if ended.status < 0 {
            span.with(STATUS, i64::from(ended.status)).ended(Outcome::Failed)
        } else {
            span
        };
        self.tracer.record([lasted(span, moments.started, moments.ended)]);
    }

    /// Records a task that has ended.
    pub fn ended(&mut self, task: TaskId) {
        for TracedTask { caller, below, received, .. } in self.tasks.remove(&task).into_iter().flatten() {
            let span = Span::new(&caller.0, below.0.parent, "task", Kind::Server);
            let span = span.with(TENANT, self.tenant.to_string());
            self.tracer.record([lasted(span, received, clock::now_ns())]);
        }
    }

    /// The place that a trace of a message names, if spans are recorded.
    fn place(&self, trace: Option<v1::Trace>) -> Option<Place> {
        let context = trace.filter(|_| self.tracer.is_on()).and_then(context)?;
        Some(Place(Arc::new(context)))
    }
}

impl TracedTask {
    /// A task that began at this time, in ns of the manager's clock.
    fn new(caller: Place, received: u64) -> Self {
        let below = Place(Arc::new(caller.0.below(SpanId::new())));
        Self { caller, below, received, granted: None }
    }
}

impl Place {
    fn span(&self, name: &'static str, kind: Kind) -> Span {
        Span::new(&self.0, SpanId::new(), name, kind)
    }
}

/// The context of a message, whose sender is not trusted; `None` if it is malformed.
fn context(trace: v1::Trace) -> Option<TraceContext> {
    let v1::Trace { trace_id, span_id, state } = trace;
    Some(TraceContext {
        trace: TraceId::from_bytes(&trace_id)?,
        parent: SpanId::from_bytes(&span_id)?,
        sampled: Sampled::Yes,
        state: TraceState::read(state.as_bytes()),
    })
}

/// A span between two times of the manager's clock, of which the wall clock's are computed.
fn lasted(span: Span, from: u64, until: u64) -> Span {
    let (now, wall_now) = (clock::now_ns(), span::now_ns());
    let wall = |at: u64| wall_now.saturating_sub(now).saturating_add(at);
    span.lasted(wall(from), wall(until))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::moments::Moments;
    use tokio::sync::mpsc::Receiver;

    const TASK: TaskId = TaskId(1);

    fn new_traced() -> (Traced, Receiver<Span>) {
        let (tracer, spans) = Tracer::channel();
        (Traced::new(tracer, &Tenant::new("tenant")), spans)
    }

    fn trace(id: u8) -> v1::Trace {
        v1::Trace { trace_id: vec![id; 16].into(), span_id: vec![1; 8].into(), state: String::new() }
    }

    fn taken(spans: &mut Receiver<Span>) -> Vec<Span> {
        std::iter::from_fn(|| spans.try_recv().ok()).collect()
    }

    fn names(spans: &[Span]) -> Vec<&str> {
        spans.iter().map(|span| span.name.as_ref()).collect()
    }

    #[test]
    fn a_malformed_trace_is_none_and_without_a_tracer_there_is_none() {
        let (mut traced, _spans) = new_traced();
        let good = trace(7);
        for wrong in [
            v1::Trace::default(),
            v1::Trace { trace_id: vec![7; 17].into(), ..good.clone() },
            v1::Trace { trace_id: vec![0; 16].into(), ..good.clone() },
            v1::Trace { span_id: vec![0; 8].into(), ..good.clone() },
            v1::Trace { span_id: vec![1; 7].into(), ..good.clone() },
        ] {
            assert_eq!(traced.received(EventId(1), Some(wrong)), Tracing::Off);
        }
        assert_eq!(traced.received(EventId(1), None), Tracing::Off);
        assert!(traced.is_empty());
        assert_eq!(traced.received(EventId(1), Some(good.clone())), Tracing::On);
        let mut off = Traced::new(Tracer::off(), &Tenant::new("tenant"));
        assert_eq!(off.received(EventId(1), Some(good)), Tracing::Off);
    }

    #[test]
    fn a_task_waits_loads_and_runs_its_commands_below_its_callers_span() {
        let (mut traced, mut spans) = new_traced();
        traced.received(EventId(1), Some(trace(7)));
        let now = clock::now_ns();
        traced.submitted(TASK, [(EventId(1), now), (EventId(2), now)]);
        traced.granted(TASK, now + 1_000);
        traced.granted(TASK, now + 9_000);
        traced.loaded(TASK, "sobel", (now + 1_000, 500), Outcome::Failed);
        let failed =
            Ended { operation: "kernel", moments: Some(Moments::now()), ..Ended::at_once(EventId(1), -5) };
        traced.command_ended(&failed);
        traced.ended(TASK);
        assert!(traced.is_empty() && traced.tasks.is_empty());

        let spans = taken(&mut spans);
        assert_eq!(names(&spans), ["wait for a slot", "load", "kernel", "task"]);
        let task = &spans[3];
        assert_eq!((task.trace.as_bytes(), task.parent.as_bytes()), (&[7; 16], &[1; 8]));
        assert!(spans[..3].iter().all(|span| span.parent == task.id && span.trace == task.trace));
        let took: Vec<u64> = spans[..2].iter().map(|span| span.end_ns - span.start_ns).collect();
        assert_eq!(took, [1_000, 500], "only the first grant counts");
        let outcomes: Vec<Outcome> = spans.iter().map(|span| span.outcome).collect();
        assert_eq!(outcomes, [Outcome::Done, Outcome::Failed, Outcome::Failed, Outcome::Done]);
    }

    #[test]
    fn a_call_that_becomes_a_task_waits_and_loads_below_its_callers_span_and_the_next_call_does_not() {
        let (mut traced, mut spans) = new_traced();
        traced.call_received(Some(trace(7)));
        traced.call_submitted(TASK, 1);
        traced.granted(TASK, 2);
        traced.loaded(TASK, "sobel", (3, 500), Outcome::Done);
        traced.ended(TASK);
        let other = TaskId(2);
        traced.call_submitted(other, 3);
        traced.ended(other);
        traced.call_received(Some(trace(7)));
        traced.call_received(None);
        traced.call_submitted(other, 3);
        traced.ended(other);
        assert!(traced.tasks.is_empty());

        let spans = taken(&mut spans);
        assert_eq!(names(&spans), ["wait for a slot", "load", "task"]);
        let task = &spans[2];
        assert_eq!((task.trace.as_bytes(), task.parent.as_bytes()), (&[7; 16], &[1; 8]));
        assert!(spans[..2].iter().all(|span| span.parent == task.id && span.trace == task.trace));
    }

    #[test]
    fn a_task_has_spans_in_few_traces_however_many_its_commands_name() {
        let (mut traced, mut spans) = new_traced();
        let events = || (1..=200).map(EventId);
        for event in events() {
            let id = u8::try_from(event.0).unwrap();
            assert_eq!(traced.received(event, Some(trace(id))), Tracing::On);
        }
        traced.submitted(TASK, events().map(|event| (event, 1)));
        assert_eq!(traced.commands.len(), MAX_TRACES_OF_TASK);
        for event in events() {
            traced.command_ended(&Ended::at_once(event, 0));
        }
        traced.ended(TASK);
        assert!(traced.is_empty() && traced.tasks.is_empty());
        assert_eq!(taken(&mut spans).len(), 2 * MAX_TRACES_OF_TASK);
    }
}
