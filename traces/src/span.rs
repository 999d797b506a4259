//! Spans: what a program did for a request, from when to when.

use crate::context::TraceContext;
use crate::ids::{SpanId, TraceId};
use std::borrow::Cow;
use std::time::{Duration, SystemTime};

/// Longest text of a name or attribute, in bytes. Longer ones are cut.
const MAX_TEXT: usize = 256;

/// What a span is to the spans of other programs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// A part of what the program does.
    Internal,
    /// The program's answer to a request of another program.
    Server,
}

/// How what a span tells of has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// Without an error, or unknown.
    Done,
    /// With an error.
    Failed,
}

/// A value of an attribute.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Value {
    /// A text.
    Text(Cow<'static, str>),
    /// A number.
    Number(i64),
}

/// A span.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Span {
    /// The trace.
    pub trace: TraceId,
    /// The span's id.
    pub id: SpanId,
    /// The span that caused this one.
    pub parent: SpanId,
    /// The `tracestate` of the caller.
    pub state: Box<str>,
    /// The name, of which there are few.
    pub name: Cow<'static, str>,
    /// What the span is to others.
    pub kind: Kind,
    /// Begin, in nanoseconds since the epoch.
    pub start_ns: u64,
    /// End, in nanoseconds since the epoch.
    pub end_ns: u64,
    /// What else is known, by name.
    pub attributes: Vec<(&'static str, Value)>,
    /// How it has ended.
    pub outcome: Outcome,
}

impl Span {
    /// A span below the caller's of `context`.
    #[must_use]
    pub fn new(context: &TraceContext, id: SpanId, name: impl Into<Cow<'static, str>>, kind: Kind) -> Self {
        Self {
            trace: context.trace,
            id,
            parent: context.parent,
            state: context.state.as_str().into(),
            name: cut(name.into()),
            kind,
            start_ns: 0,
            end_ns: 0,
            attributes: Vec::new(),
            outcome: Outcome::Done,
        }
    }

    /// The span from when to when; not before its start.
    #[must_use]
    pub fn lasted(mut self, start_ns: u64, end_ns: u64) -> Self {
        (self.start_ns, self.end_ns) = (start_ns, end_ns.max(start_ns));
        self
    }

    /// The span with an attribute more.
    #[must_use]
    pub fn with(mut self, name: &'static str, value: impl Into<Value>) -> Self {
        let value = match value.into() {
            Value::Text(text) => Value::Text(cut(text)),
            number @ Value::Number(_) => number,
        };
        self.attributes.push((name, value));
        self
    }

    /// The span with this outcome.
    #[must_use]
    pub fn ended(mut self, outcome: Outcome) -> Self {
        self.outcome = outcome;
        self
    }
}

/// The wall clock, in nanoseconds since the epoch.
#[must_use]
pub fn now_ns() -> u64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or(Duration::ZERO);
    u64::try_from(since.as_nanos()).unwrap_or(u64::MAX)
}

fn cut(text: Cow<'static, str>) -> Cow<'static, str> {
    if text.len() <= MAX_TEXT {
        return text;
    }
    let ends = text.char_indices().map(|(at, _)| at).take_while(|at| *at <= MAX_TEXT);
    text[..ends.last().unwrap_or_default()].to_owned().into()
}

impl From<&'static str> for Value {
    fn from(text: &'static str) -> Self {
        Self::Text(text.into())
    }
}

impl From<String> for Value {
    fn from(text: String) -> Self {
        Self::Text(text.into())
    }
}

impl From<i64> for Value {
    fn from(number: i64) -> Self {
        Self::Number(number)
    }
}
