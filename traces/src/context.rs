//! The trace context that programs hand to each other (W3C Trace Context, <https://www.w3.org/TR/trace-context/>): the
//! headers `traceparent` and `tracestate`, or the environment variables `TRACEPARENT` and `TRACESTATE`.
//!
//! Whoever sends a context is not trusted: a malformed one counts as none, and what is kept of it is bounded.

use crate::ids::{SpanId, TraceId};
use std::fmt;

/// Name of the header with the ids.
pub const TRACEPARENT: &str = "traceparent";
/// Name of the header with what tracing systems add.
pub const TRACESTATE: &str = "tracestate";

/// Length of a `traceparent` of version 00, in bytes.
const LENGTH: usize = 55;
/// Longest `traceparent` that is read, in bytes. Later versions may append to it.
const MAX_LENGTH: usize = 256;
/// Longest `tracestate` that is kept, in bytes: what the standard asks programs to hand on at least.
const MAX_STATE: usize = 512;
/// The flag `sampled`.
const SAMPLED: u8 = 1;

/// Whether spans of a trace are recorded. The first program of a trace decides it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sampled {
    /// They are.
    Yes,
    /// They are not; the context is only handed on.
    No,
}

/// The place of a program in a trace: which trace, and the span that caused what the program does.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TraceContext {
    /// The trace.
    pub trace: TraceId,
    /// The caller's span.
    pub parent: SpanId,
    /// Whether spans are recorded.
    pub sampled: Sampled,
    /// The `tracestate`; empty without one.
    pub state: TraceState,
}

/// A `tracestate`, which is handed on as it is. Empty if there is none, or if it is malformed or too long.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TraceState(Box<str>);

/// A `traceparent` that does not follow the standard.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error(
    "it is no traceparent: write 00-TRACE-SPAN-FLAGS with 32, 16 and 2 lowercase hexadecimal digits, no id zero"
)]
pub struct InvalidTraceparent;

impl TraceContext {
    /// Reads a `traceparent` and a `tracestate`, which may be empty.
    ///
    /// # Errors
    /// [`InvalidTraceparent`]: there is no context then.
    pub fn parse(traceparent: &[u8], tracestate: &[u8]) -> Result<Self, InvalidTraceparent> {
        let fields = |text: &[u8]| {
            if !(LENGTH..=MAX_LENGTH).contains(&text.len()) || [2, 35, 52].iter().any(|at| text[*at] != b'-')
            {
                return None;
            }
            let [version] = crate::hex::parse::<1>(&text[..2])?;
            let [flags] = crate::hex::parse::<1>(&text[53..55])?;
            // A later version may append fields after another dash.
            let is_whole = text.len() == LENGTH || (version > 0 && text[LENGTH] == b'-');
            (is_whole && version != 0xff).then_some(())?;
            Some((TraceId::from_hex(&text[3..35])?, SpanId::from_hex(&text[36..52])?, flags))
        };
        let (trace, parent, flags) = fields(traceparent).ok_or(InvalidTraceparent)?;
        let sampled = if flags & SAMPLED == SAMPLED { Sampled::Yes } else { Sampled::No };
        Ok(Self { trace, parent, sampled, state: TraceState::read(tracestate) })
    }

    /// The context that a program hands on whose own span is `span`.
    #[must_use]
    pub fn below(&self, span: SpanId) -> Self {
        Self { parent: span, ..self.clone() }
    }

    /// The context as `traceparent`, version 00.
    #[must_use]
    pub fn traceparent(&self) -> String {
        let flags = if self.sampled == Sampled::Yes { SAMPLED } else { 0 };
        format!("00-{}-{}-{flags:02x}", self.trace, self.parent)
    }
}

impl TraceState {
    /// Reads a `tracestate`.
    #[must_use]
    pub fn read(text: &[u8]) -> Self {
        let is_plain = |byte: &u8| matches!(byte, b'\t' | b' '..=b'~');
        match std::str::from_utf8(text) {
            Ok(state) if state.len() <= MAX_STATE && text.iter().all(is_plain) => Self(state.into()),
            _ => Self::default(),
        }
    }

    /// The text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for TraceState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const PARENT: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

    fn parse(text: &str) -> Result<TraceContext, InvalidTraceparent> {
        TraceContext::parse(text.as_bytes(), b"")
    }

    #[test]
    fn the_standards_example_is_read_and_written_as_it_was() {
        let context = TraceContext::parse(PARENT.as_bytes(), b"vendor=a,other=b").unwrap();
        assert_eq!(context.trace.to_string(), "0af7651916cd43dd8448eb211c80319c");
        assert_eq!(context.parent.to_string(), "b7ad6b7169203331");
        assert_eq!(context.sampled, Sampled::Yes);
        assert_eq!(context.state.as_str(), "vendor=a,other=b");
        assert_eq!(context.traceparent(), PARENT);
    }

    #[test]
    fn what_the_standard_calls_malformed_is_no_context() {
        let good = PARENT.len();
        for wrong in [
            "",
            &PARENT[..good - 1],
            &format!("{PARENT}-00"),
            &format!("{PARENT} "),
            &PARENT.replacen("00", "ff", 1),
            &PARENT.replacen("00", "0A", 1),
            &PARENT.replace("af", "AF"),
            &PARENT.replace("0af7651916cd43dd8448eb211c80319c", &"0".repeat(32)),
            &PARENT.replace("b7ad6b7169203331", &"0".repeat(16)),
            &PARENT.replace('-', "_"),
            &PARENT.replacen("00", "ü", 1),
            &format!("01{}.", &PARENT[2..]),
            &format!("01{}-{}", &PARENT[2..], "x".repeat(MAX_LENGTH)),
        ] {
            assert_eq!(parse(wrong), Err(InvalidTraceparent), "{wrong}");
        }
    }

    #[test]
    fn a_later_version_is_read_as_far_as_it_is_known_and_handed_on_as_version_00() {
        let later = format!("cc{}-what-the-future-will-be-like", &PARENT[2..]);
        assert_eq!(parse(&later).unwrap().traceparent(), PARENT);
        let flags = PARENT.replace("-01", "-0b");
        assert_eq!(
            parse(&flags).unwrap().traceparent(),
            PARENT,
            "flags that are not known are not handed on"
        );
    }

    #[test]
    fn a_tracestate_that_is_long_or_no_plain_text_is_dropped_and_the_trace_goes_on() {
        for wrong in [&b"\xff=1"[..], b"a=\n", &[b'a'; MAX_STATE + 1]] {
            let context = TraceContext::parse(PARENT.as_bytes(), wrong).unwrap();
            assert_eq!(context.state, TraceState::default());
        }
    }

    #[test]
    fn ids_of_new_spans_differ_and_are_not_zero() {
        let ids: std::collections::HashSet<SpanId> = (0..1_000).map(|_| SpanId::new()).collect();
        assert_eq!(ids.len(), 1_000);
        assert!(ids.iter().all(|id| SpanId::from_bytes(id.as_bytes()).is_some()));
    }

    proptest! {
        #[test]
        fn what_is_written_is_read_as_the_same_context(
            trace in any::<[u8; 16]>(), parent in any::<[u8; 8]>(), sampled in any::<bool>(), state in "[ -~]{0,40}",
        ) {
            let (Some(trace), Some(parent)) = (TraceId::from_bytes(&trace), SpanId::from_bytes(&parent)) else {
                return Ok(());
            };
            let sampled = if sampled { Sampled::Yes } else { Sampled::No };
            let context = TraceContext { trace, parent, sampled, state: TraceState::read(state.as_bytes()) };
            let read = TraceContext::parse(context.traceparent().as_bytes(), context.state.as_str().as_bytes());
            prop_assert_eq!(read, Ok(context));
        }

        #[test]
        fn no_bytes_make_the_parser_panic(
            traceparent in prop::collection::vec(any::<u8>(), 0..80), state in prop::collection::vec(any::<u8>(), 0..600),
        ) {
            let _ = TraceContext::parse(&traceparent, &state);
        }

        #[test]
        fn a_changed_character_is_read_as_another_context_or_none(at in 0..LENGTH, to in any::<u8>()) {
            let mut text = PARENT.as_bytes().to_vec();
            let before = text[at];
            text[at] = to;
            if let Ok(context) = TraceContext::parse(&text, b"") {
                // Versions and flags that are not known change nothing.
                let is_id = (3..52).contains(&at);
                prop_assert_eq!(is_id && to != before, context.traceparent()[3..52] != PARENT[3..52]);
            }
        }
    }
}
