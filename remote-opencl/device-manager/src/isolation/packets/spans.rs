//! Spans of traces in packets: a tenant process has no network, so the manager sends them on.
//!
//! The manager believes a process what it did and when, and no more: whose process it is, the manager knows itself.

use fpga_board::dispatch::Tenant;
use fpga_session::traced::{BITSTREAM, STATUS, TENANT};
use fpga_traces::context::{Sampled, TraceContext, TraceState};
use fpga_traces::ids::{SpanId, TraceId};
use fpga_traces::span::{Kind, Outcome, Span, Value};
use serde::{Deserialize, Serialize};

/// Most spans of a packet: the longest ones fit.
pub const MAX_SPANS: usize = 12;

/// A span of a tenant process.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TenantSpan {
    /// Id of the trace, 32 hexadecimal digits.
    trace: String,
    /// Id of the span, 16 hexadecimal digits.
    id: String,
    /// Id of the span that caused it.
    parent: String,
    /// The `tracestate`.
    state: String,
    name: String,
    /// Whether the span is that of a task, not of a part of one.
    is_task: bool,
    /// Begin, in nanoseconds since the epoch.
    start_ns: u64,
    /// End, in nanoseconds since the epoch.
    end_ns: u64,
    is_failed: bool,
    bitstream: Option<String>,
    /// Error code of a command.
    status: Option<i64>,
}

impl From<Span> for TenantSpan {
    fn from(span: Span) -> Self {
        let attribute =
            |name| span.attributes.iter().find(|(of, _)| *of == name).map(|(_, value)| value.clone());
        let bitstream = match attribute(BITSTREAM) {
            Some(Value::Text(text)) => Some(text.into_owned()),
            _ => None,
        };
        let status = match attribute(STATUS) {
            Some(Value::Number(number)) => Some(number),
            _ => None,
        };
        Self {
            trace: span.trace.to_string(),
            id: span.id.to_string(),
            parent: span.parent.to_string(),
            state: span.state.into(),
            name: span.name.into_owned(),
            is_task: span.kind == Kind::Server,
            start_ns: span.start_ns,
            end_ns: span.end_ns,
            is_failed: span.outcome == Outcome::Failed,
            bitstream,
            status,
        }
    }
}

impl TenantSpan {
    /// The span of a process of `tenant`; `None` if it is malformed.
    #[must_use]
    pub fn of(self, tenant: &Tenant) -> Option<Span> {
        let Self { trace, id, parent, state, name, is_task, start_ns, end_ns, is_failed, bitstream, status } =
            self;
        let context = TraceContext {
            trace: TraceId::from_hex(trace.as_bytes())?,
            parent: SpanId::from_hex(parent.as_bytes())?,
            sampled: Sampled::Yes,
            state: TraceState::read(state.as_bytes()),
        };
        let kind = if is_task { Kind::Server } else { Kind::Internal };
        let outcome = if is_failed { Outcome::Failed } else { Outcome::Done };
        let mut span = Span::new(&context, SpanId::from_hex(id.as_bytes())?, name, kind);
        if is_task {
            span = span.with(TENANT, tenant.as_str().to_owned());
        }
        if let Some(bitstream) = bitstream {
            span = span.with(BITSTREAM, bitstream);
        }
        if let Some(status) = status {
            span = span.with(STATUS, status);
        }
        Some(span.lasted(start_ns, end_ns).ended(outcome))
    }
}

#[cfg(test)]
mod tests {
    use super::super::{FromTenant, encode};
    use super::*;

    fn context(state: &str) -> TraceContext {
        TraceContext {
            trace: TraceId::from_bytes(&[0xfe; 16]).unwrap(),
            parent: SpanId::new(),
            sampled: Sampled::Yes,
            state: TraceState::read(state.as_bytes()),
        }
    }

    #[test]
    fn spans_survive_the_way_through_the_manager_and_the_tenant_is_the_managers_word() {
        let tenant = Tenant::new("alice");
        let task = Span::new(&context("a=1"), SpanId::new(), "task", Kind::Server).lasted(5, 9);
        let load = Span::new(&context(""), SpanId::new(), "load", Kind::Internal)
            .with(BITSTREAM, "sobel")
            .with(STATUS, -5)
            .ended(Outcome::Failed);
        let sent = |span: Span| TenantSpan::from(span).of(&tenant).unwrap();
        assert_eq!(sent(task.clone().with(TENANT, "bob")), task.with(TENANT, "alice"));
        assert_eq!(sent(load.clone()), load);
    }

    #[test]
    fn a_span_without_ids_is_none() {
        let good = TenantSpan::from(Span::new(&context(""), SpanId::new(), "load", Kind::Internal));
        for wrong in [
            TenantSpan { trace: "0".repeat(32), ..good.clone() },
            TenantSpan { id: String::new(), ..good.clone() },
            TenantSpan { parent: "x".repeat(16), ..good },
        ] {
            assert_eq!(wrong.of(&Tenant::new("alice")), None);
        }
    }

    #[test]
    fn the_longest_spans_fit_a_packet() {
        // A control character takes six bytes in JSON, and no state has one.
        let (longest, state) = ("\u{1}".repeat(1_000), "\"".repeat(512));
        let span = Span::new(&context(&state), SpanId::new(), longest.clone(), Kind::Internal)
            .with(BITSTREAM, longest)
            .with(STATUS, i64::MIN)
            .lasted(u64::MAX, u64::MAX);
        assert_eq!(span.state.len(), state.len());
        encode(&FromTenant::Spans(vec![span.into(); MAX_SPANS])).unwrap();
    }
}
