//! The encoder of recordings. It remembers the state of each node that it has written and writes only new states.

use super::line::{
    Asked, CandidateLine, DecisionLine, ExpectedLine, Header, KnowledgeLine, Line, NodeLine, RecordedAnswer,
};
use crate::decide::DecisionRules;
use crate::expected_load::Expected;
use crate::node_facts::NodeFacts;
use crate::redistribution::FreeTime;
use crate::staleness::Knowledge;
use crate::units::WallTime;
use std::collections::HashMap;

/// A node as a decision saw it, in the caller's own type.
pub trait NodeSnapshot {
    /// The facts of the node.
    fn facts(&self) -> &NodeFacts;

    /// Source of the state, for example `stream`.
    fn source(&self) -> &'static str;

    /// Whether `other` is the same state of the same node.
    fn is_same(&self, other: &Self) -> bool;
}

/// A decision and all its inputs.
#[derive(Debug, Clone)]
pub struct DecisionInput<'a, N> {
    /// The request.
    pub asked: &'a Asked,
    /// The administrator's settings.
    pub rules: &'a DecisionRules,
    /// Names of the candidates.
    pub names: &'a [&'a str],
    /// Each candidate; `None` for a node that was never seen.
    pub nodes: &'a [Option<N>],
    /// The expectation of each candidate, or none at all.
    pub expected: &'a [Expected],
    /// The free time of all known boards, if the load of some had to be redistributed.
    pub free_time: Option<&'a FreeTime>,
    /// The answer.
    pub answer: &'a RecordedAnswer,
}

/// Encodes one recording.
#[derive(Debug)]
pub struct RecordingEncoder<N> {
    rules: Option<DecisionRules>,
    nodes: HashMap<Box<str>, (u32, N)>,
}

impl<N: NodeSnapshot + Clone> RecordingEncoder<N> {
    /// Starts a recording and writes its header to `out`.
    ///
    /// # Errors
    /// An error of serde_json, which does not occur with these types.
    pub fn begin(program: &str, now: WallTime, out: &mut Vec<u8>) -> Result<Self, serde_json::Error> {
        write(&Line::Header(Header::new(program, now)), out)?;
        Ok(Self { rules: None, nodes: HashMap::new() })
    }

    /// Writes a decision to `out`, after lines for those rules and nodes that changed since the last decision.
    ///
    /// # Errors
    /// An error of serde_json, which does not occur with these types.
    pub fn decision(
        &mut self,
        input: &DecisionInput<'_, N>,
        out: &mut Vec<u8>,
    ) -> Result<(), serde_json::Error> {
        if self.rules.as_ref() != Some(input.rules) {
            write(&Line::Rules(Box::new(*input.rules)), out)?;
            self.rules = Some(*input.rules);
        }
        let mut candidates = Vec::with_capacity(input.nodes.len());
        for (name, node) in input.names.iter().zip(input.nodes) {
            candidates.push(match node {
                Some(node) => CandidateLine::Number(self.number(name, node, out)?),
                None => CandidateLine::Name((*name).to_owned()),
            });
        }
        let expected = (0..).zip(input.expected).filter(|(_, expected)| **expected != Expected::default());
        let line = DecisionLine {
            asked: input.asked.clone(),
            candidates,
            expected: expected.map(|(place, expected)| ExpectedLine::new(place, expected)).collect(),
            free_time: input.free_time.cloned(),
            answer: input.answer.clone(),
        };
        write(&Line::Decision(Box::new(line)), out)
    }

    /// The number of the node. Writes a line first if the node or its state is new.
    fn number(&mut self, name: &str, node: &N, out: &mut Vec<u8>) -> Result<u32, serde_json::Error> {
        let next = u32::try_from(self.nodes.len()).unwrap_or(u32::MAX);
        let number = match self.nodes.get_mut(name) {
            Some((number, known)) if known.is_same(node) => return Ok(*number),
            Some((number, known)) => {
                *known = node.clone();
                *number
            }
            None => {
                self.nodes.insert(name.into(), (next, node.clone()));
                next
            }
        };
        let facts = node.facts();
        let line = NodeLine {
            number,
            name: name.to_owned(),
            labels: facts.labels.clone(),
            knowledge: (&facts.knowledge).into(),
            moved_off: facts.moved_off.clone(),
            source: node.source().to_owned(),
        };
        write(&Line::Node(Box::new(line)), out)?;
        Ok(number)
    }
}

impl From<&Knowledge> for KnowledgeLine {
    fn from(knowledge: &Knowledge) -> Self {
        match knowledge {
            Knowledge::Absent => Self::Absent,
            Knowledge::Unreadable => Self::Unreadable,
            Knowledge::Known(received) => Self::Known {
                received_at: received.received_at(),
                age_then: received.age_at_receipt(),
                state: Box::new(received.state().clone()),
            },
        }
    }
}

fn write(line: &Line, out: &mut Vec<u8>) -> Result<(), serde_json::Error> {
    serde_json::to_writer(&mut *out, line)?;
    out.push(b'\n');
    Ok(())
}
