//! The decoder of recordings, and the replay of their decisions.

use super::line::{
    Asked, CandidateLine, DecisionLine, FORMAT, KnowledgeLine, Line, NodeLine, RecordedAnswer, VERSION, Verb,
};
use crate::decide::{
    Candidate, DecisionRules, Ranking, ScoreDecision, filter_among, filter_for, prioritize_ranking,
};
use crate::expected_load::Expected;
use crate::matching::Rejection;
use crate::node_facts::NodeFacts;
use crate::node_state::controller;
use crate::redistribution::FreeTime;
use crate::staleness::{Knowledge, Received};

/// Decodes a recording line by line.
#[derive(Debug, Default)]
pub struct RecordingDecoder {
    /// Ranking of the header's version; `None` before the first header.
    ranking: Option<Ranking>,
    rules: Option<DecisionRules>,
    nodes: Vec<(String, NodeFacts)>,
}

/// A recorded decision with all its inputs.
#[derive(Debug)]
pub struct Recorded<'b> {
    /// The request.
    pub asked: Asked,
    /// The quantity by which nodes were compared.
    pub ranking: Ranking,
    /// The administrator's settings at that time.
    pub rules: &'b DecisionRules,
    /// Names of the candidates.
    pub names: Vec<String>,
    /// The facts of each candidate; `None` for a node that was never seen.
    pub nodes: Vec<Candidate<'b>>,
    /// The expectation of each candidate, or none at all.
    pub expected: Vec<Expected>,
    /// The free time of all boards that were known; `None` if the decision did not ask for it.
    pub free_time: Option<FreeTime>,
    /// The recorded answer.
    pub answer: RecordedAnswer,
}

/// The result of a replayed decision.
#[derive(Debug, Clone, PartialEq)]
pub enum Decided {
    /// For each candidate whether it fits.
    Verdicts(Vec<Result<(), Rejection>>),
    /// The score of each candidate.
    Scores(ScoreDecision),
}

/// The reason why a line cannot be decoded.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// The line is not JSON, or not a line of a recording.
    #[error("it is no line of a recording: {0}")]
    Json(#[from] serde_json::Error),
    /// The first line is not a header.
    #[error("it comes before any header; a recording begins with one")]
    NoHeader,
    /// The header is of another format.
    #[error("it is a {0:?}, and no {FORMAT:?}")]
    Format(String),
    /// The header is of an unknown version.
    #[error("it is a recording of version {0}, and versions 1 to {VERSION} are understood")]
    Version(u32),
    /// A decision comes before any rules.
    #[error("it is a decision, and no rules came before it")]
    NoRules,
    /// The number of a node is neither known nor the next one.
    #[error("node number {0} is out of order")]
    Node(u32),
    /// An expectation is for a candidate that the decision does not have.
    #[error("it speaks of candidate {0}, and there are {1}")]
    Candidate(u32, usize),
    /// The answer does not fit the verb or the number of candidates.
    #[error("the answer is not one to {0} over {1} candidates")]
    Answer(Verb, usize),
}

impl RecordingDecoder {
    /// Decodes the next line. Returns the decision if the line has one.
    ///
    /// # Errors
    /// [`ReadError`] if the line cannot be decoded; the decoder is unchanged then.
    pub fn read(&mut self, line: &str) -> Result<Option<Recorded<'_>>, ReadError> {
        let line: Line = serde_json::from_str(line)?;
        if self.ranking.is_none() && !matches!(line, Line::Header(_)) {
            return Err(ReadError::NoHeader);
        }
        match line {
            Line::Header(header) if header.format != FORMAT => Err(ReadError::Format(header.format)),
            Line::Header(header) => {
                let ranking = header.ranking().ok_or(ReadError::Version(header.version))?;
                *self = Self { ranking: Some(ranking), ..Self::default() };
                Ok(None)
            }
            Line::Rules(rules) => {
                self.rules = Some(*rules);
                Ok(None)
            }
            Line::Node(node) => self.node(*node).map(|()| None),
            Line::Decision(decision) => self.decision(*decision).map(Some),
        }
    }

    fn node(&mut self, line: NodeLine) -> Result<(), ReadError> {
        let knowledge = match line.knowledge {
            KnowledgeLine::Absent => Knowledge::Absent,
            KnowledgeLine::Unreadable => Knowledge::Unreadable,
            KnowledgeLine::Known { received_at, age_then, state } => {
                Knowledge::Known(Box::new(Received::new(*state, received_at, age_then)))
            }
        };
        let node = (line.name, NodeFacts { labels: line.labels, knowledge, moved_off: line.moved_off });
        let number = line.number as usize;
        let next = self.nodes.len();
        match self.nodes.get_mut(number) {
            Some(known) => *known = node,
            None if number == next => self.nodes.push(node),
            None => return Err(ReadError::Node(line.number)),
        }
        Ok(())
    }

    fn decision(&self, line: DecisionLine) -> Result<Recorded<'_>, ReadError> {
        let DecisionLine { asked, candidates, expected, free_time, answer } = line;
        let ranking = self.ranking.ok_or(ReadError::NoHeader)?;
        let rules = self.rules.as_ref().ok_or(ReadError::NoRules)?;
        let (mut names, mut nodes) = (Vec::new(), Vec::new());
        for candidate in candidates {
            let (name, node) = match candidate {
                CandidateLine::Name(name) => (name, None),
                CandidateLine::Number(number) => {
                    let (name, node) = self.nodes.get(number as usize).ok_or(ReadError::Node(number))?;
                    (name.clone(), Some(node.known()))
                }
            };
            names.push(name);
            nodes.push(node);
        }
        let count = nodes.len();
        let mut all = if expected.is_empty() { Vec::new() } else { vec![Expected::default(); count] };
        for line in &expected {
            let place = all.get_mut(line.candidate as usize);
            *place.ok_or(ReadError::Candidate(line.candidate, count))? = line.expected();
        }
        let fits = match (&answer, asked.verb) {
            (RecordedAnswer::Scores(scores), Verb::Prioritize) => scores.len() == count,
            (RecordedAnswer::Rejected(rejected), Verb::Filter | Verb::Preempt) => {
                rejected.values().flatten().all(|place| (*place as usize) < count)
            }
            _ => false,
        };
        if !fits {
            return Err(ReadError::Answer(asked.verb, count));
        }
        Ok(Recorded { asked, ranking, rules, names, nodes, expected: all, free_time, answer })
    }
}

impl Recorded<'_> {
    /// Replays the decision with the given rules. With [`Self::rules`] the result must equal [`Self::answer`].
    #[must_use]
    pub fn decide(&self, rules: &DecisionRules) -> Decided {
        let Asked { verb, now, namespace, owner, requirement, .. } = &self.asked;
        match verb {
            Verb::Filter | Verb::Preempt => {
                let owner = owner.as_deref().map(|uid| controller(namespace, uid));
                let (owner, nodes) = (owner.as_deref(), &self.nodes);
                let decision = match &self.free_time {
                    Some(free_time) => {
                        filter_among(owner, requirement, nodes, || free_time.clone(), rules, *now)
                    }
                    None => filter_for(owner, requirement, nodes, rules, *now),
                };
                Decided::Verdicts(decision.verdicts)
            }
            Verb::Prioritize => {
                let expected = match rules.anti_herd {
                    crate::decide::AntiHerd::On => self.expected.as_slice(),
                    crate::decide::AntiHerd::Off => &[],
                };
                let (nodes, ranking) = (&self.nodes, self.ranking);
                Decided::Scores(prioritize_ranking(ranking, requirement, nodes, expected, rules, *now))
            }
        }
    }
}

impl Decided {
    /// The answer to kube-scheduler.
    #[must_use]
    pub fn answer(&self) -> RecordedAnswer {
        match self {
            Self::Verdicts(verdicts) => RecordedAnswer::of_verdicts(verdicts),
            Self::Scores(decision) => RecordedAnswer::Scores(decision.scores().to_vec()),
        }
    }
}
