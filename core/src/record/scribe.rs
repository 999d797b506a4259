//! Writes decisions as lines. It remembers what it has said of each node, and says only what is new.

use super::line::{
    Answer, Asked, CandidateLine, DecisionLine, ExpectedLine, Header, KnowledgeLine, Line, NodeLine,
};
use crate::decide::Rules;
use crate::expected_load::Expected;
use crate::node_facts::NodeFacts;
use crate::staleness::Knowledge;
use crate::units::WallTime;
use std::collections::HashMap;

/// A node as a decision saw it, in whatever its user keeps it.
pub trait Witness {
    /// What was known of it.
    fn facts(&self) -> &NodeFacts;

    /// What brought its state.
    fn source(&self) -> &'static str;

    /// Whether the other one is this very state of this very node.
    fn is_same(&self, other: &Self) -> bool;
}

/// A decision and all that went into it.
#[derive(Debug, Clone)]
pub struct Seen<'a, W> {
    /// What was asked.
    pub asked: &'a Asked,
    /// What the administrator chose.
    pub rules: &'a Rules,
    /// The candidates' names.
    pub names: &'a [&'a str],
    /// What was known of each; nothing of one that was never seen.
    pub nodes: &'a [Option<W>],
    /// What was expected on each, or nothing at all.
    pub expected: &'a [Expected],
    /// What was answered.
    pub answer: &'a Answer,
}

/// Writes one recording.
#[derive(Debug)]
pub struct Scribe<W> {
    rules: Option<Rules>,
    nodes: HashMap<Box<str>, (u32, W)>,
}

impl<W: Witness + Clone> Scribe<W> {
    /// A recording that begins now, with its first line in `out`.
    ///
    /// # Errors
    /// None so far: serde_json's signature.
    pub fn begin(program: &str, now: WallTime, out: &mut Vec<u8>) -> Result<Self, serde_json::Error> {
        write(&Line::Header(Header::new(program, now)), out)?;
        Ok(Self { rules: None, nodes: HashMap::new() })
    }

    /// Writes a decision, after what is new in it.
    ///
    /// # Errors
    /// None so far: serde_json's signature.
    pub fn decision(&mut self, seen: &Seen<'_, W>, out: &mut Vec<u8>) -> Result<(), serde_json::Error> {
        if self.rules.as_ref() != Some(seen.rules) {
            write(&Line::Rules(Box::new(*seen.rules)), out)?;
            self.rules = Some(*seen.rules);
        }
        let mut candidates = Vec::with_capacity(seen.nodes.len());
        for (name, node) in seen.names.iter().zip(seen.nodes) {
            candidates.push(match node {
                Some(node) => CandidateLine::Number(self.number(name, node, out)?),
                None => CandidateLine::Name((*name).to_owned()),
            });
        }
        let expected = (0..).zip(seen.expected).filter(|(_, expected)| **expected != Expected::default());
        let line = DecisionLine {
            asked: seen.asked.clone(),
            candidates,
            expected: expected.map(|(place, expected)| ExpectedLine::new(place, expected)).collect(),
            answer: seen.answer.clone(),
        };
        write(&Line::Decision(Box::new(line)), out)
    }

    /// The node's number, after a line on what is new of it.
    fn number(&mut self, name: &str, node: &W, out: &mut Vec<u8>) -> Result<u32, serde_json::Error> {
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
