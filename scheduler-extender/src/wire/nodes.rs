//! The candidates of filter and prioritize, and the answers, in both cache modes.

use super::names::NodeNames;
use super::{Encode, Writer};
use fpga_core::matching::Rejection;
use std::ops::Range;

/// Upper bound of the bytes of an answer without the items of its lists.
const FRAME_BYTES: usize = 128;
/// Bytes of `"":"",` around a name and its rejection.
const PAIR_BYTES: usize = 6;
/// Bytes of `{"Host":"","Score":10},` around a name, the score included.
const SCORED_BYTES: usize = 23;
/// Index of the digit in `,"Score":0}`.
const SCORE_DIGIT: usize = 9;

/// Form of the candidates in a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Mode {
    /// `nodeCacheCapable: true`: names only.
    Names,
    /// `nodeCacheCapable: false`: whole nodes.
    Full,
}

/// The candidates of a request.
#[derive(Debug)]
pub struct Nodes<'a> {
    request: &'a str,
    names: NodeNames<'a>,
    /// The places of whole nodes in the request. The answer must return the same bytes, since kube-scheduler replaces its
    /// own view by them.
    whole: Option<Vec<Range<usize>>>,
}

/// Answer to filter.
#[derive(Debug)]
pub struct FilterResult<'a> {
    /// The candidates.
    pub nodes: &'a Nodes<'a>,
    /// The candidates that are rejected, by their places in ascending order.
    pub rejected: &'a [(usize, Rejected)],
}

/// Why a candidate is rejected.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rejected {
    /// The reason.
    pub reason: Rejection,
    /// Whether preemption helps.
    pub eviction: Eviction,
}

/// Whether the eviction of pods could let a rejected node pass.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Eviction {
    /// Pods of lower priority have the boards.
    Helps,
    /// Evicting pods makes no board appear.
    IsUseless,
}

/// Answer to prioritize: a JSON array without an object around it; scores are integers.
#[derive(Debug)]
pub struct HostPriorities<'a> {
    /// The candidates.
    pub nodes: &'a Nodes<'a>,
    /// The score of each candidate.
    pub scores: &'a [u32],
}

impl<'a> Nodes<'a> {
    /// Candidates of this request, with the places of whole nodes.
    pub(super) fn in_request(
        request: &'a str,
        names: NodeNames<'a>,
        whole: Option<Vec<Range<usize>>>,
    ) -> Self {
        Self { request, names, whole }
    }

    /// Whether each name has at most so many bytes.
    pub(super) fn names_are_within(&self, most_bytes: usize) -> bool {
        self.names.are_within(most_bytes)
    }

    /// The form of the candidates.
    #[must_use]
    pub fn mode(&self) -> Mode {
        if self.whole.is_some() { Mode::Full } else { Mode::Names }
    }

    /// Number of candidates.
    #[must_use]
    pub fn len(&self) -> usize {
        self.names.len()
    }

    /// Whether there are no candidates.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.names.is_empty()
    }

    /// The names of the candidates, in the order of the request.
    pub fn names(&self) -> impl Iterator<Item = &str> + Clone {
        self.names.iter()
    }

    /// As [`Self::names`], as bytes.
    pub fn names_as_bytes(&self) -> impl Iterator<Item = &[u8]> {
        self.names.as_bytes()
    }

    /// The name of the candidate with this index.
    #[must_use]
    pub fn name(&self, index: usize) -> &str {
        self.names.get(index)
    }

    /// The places of the names in a request that consists of names.
    #[must_use]
    pub fn places(&self) -> Option<&[Range<u32>]> {
        self.names.places().filter(|_| self.whole.is_none())
    }

    /// The JSON of a run of candidates as it lies in the request, with the commas between them; `None` if it does not.
    pub(super) fn run(&self, candidates: Range<usize>) -> Option<&'a str> {
        let (first, last) = (candidates.start, candidates.end.checked_sub(1)?);
        let place = match &self.whole {
            Some(nodes) => nodes.get(first)?.start..nodes.get(last)?.end,
            // With the quotes around them.
            None => {
                let places = self.names.places()?;
                (places.get(first)?.start as usize).checked_sub(1)?..places.get(last)?.end as usize + 1
            }
        };
        self.request.get(place)
    }
}

impl FilterResult<'_> {
    /// Appends the candidates that pass, as a list.
    fn encode_passed(&self, out: &mut Writer<'_>) -> Result<(), serde_json::Error> {
        let (mut next, mut is_first) = (0, true);
        for end in self.rejected.iter().map(|(place, _)| *place).chain([self.nodes.len()]) {
            let candidates = next..end;
            next = end + 1;
            if candidates.is_empty() {
                continue;
            }
            if !std::mem::take(&mut is_first) {
                out.text().push(b',');
            }
            match self.nodes.run(candidates.clone()) {
                Some(piece) => out.pass(piece),
                None => list(out.text(), candidates, |out, index| self.nodes.names.encode(index, out))?,
            }
        }
        Ok(())
    }

    /// The rejected candidates with this effect of evictions.
    fn rejected(&self, by: Eviction) -> impl Iterator<Item = (usize, Rejection)> {
        let by_it = self.rejected.iter().filter(move |(_, rejected)| rejected.eviction == by);
        by_it.map(|(place, rejected)| (*place, rejected.reason))
    }

    /// Appends the reasons of rejected candidates as the content of an object.
    fn encode_reasons(&self, out: &mut Vec<u8>, by: Eviction) -> Result<(), serde_json::Error> {
        list(out, self.rejected(by), |out, (index, reason)| {
            self.nodes.names.encode(index, out)?;
            out.push(b':');
            serde_json::to_writer(out, reason.text())
        })
    }
}

impl Encode for FilterResult<'_> {
    fn encode(&self, out: &mut Writer<'_>) -> Result<(), serde_json::Error> {
        let (begin, end): (&[u8], &[u8]) = match self.nodes.mode() {
            Mode::Names => (br#"{"Nodes":null,"NodeNames":["#, b"]"),
            Mode::Full => (br#"{"Nodes":{"metadata":{},"items":["#, br#"]},"NodeNames":null"#),
        };
        out.text().extend_from_slice(begin);
        self.encode_passed(out)?;
        let reason = |(place, rejected): &(usize, Rejected)| {
            self.nodes.name(*place).len() + rejected.reason.text().len() + PAIR_BYTES
        };
        let reasons = self.rejected.iter().map(reason).sum::<usize>();
        let out = out.text();
        out.reserve(FRAME_BYTES + reasons);
        out.extend_from_slice(end);
        out.extend_from_slice(br#","FailedNodes":{"#);
        self.encode_reasons(out, Eviction::Helps)?;
        out.extend_from_slice(br#"},"FailedAndUnresolvableNodes":{"#);
        self.encode_reasons(out, Eviction::IsUseless)?;
        out.extend_from_slice(br#"},"Error":""}"#);
        Ok(())
    }
}

impl Encode for HostPriorities<'_> {
    fn encode(&self, out: &mut Writer<'_>) -> Result<(), serde_json::Error> {
        let (out, names) = (out.text(), &self.nodes.names);
        out.reserve(FRAME_BYTES + names.bytes() + names.len() * SCORED_BYTES);
        out.push(b'[');
        list(out, self.scores.iter().enumerate(), |out, (index, score)| {
            out.extend_from_slice(br#"{"Host":"#);
            names.encode(index, out)?;
            // One piece of a fixed length is copied faster than three.
            let mut end = *br#","Score":0}"#;
            match u8::try_from(*score) {
                Ok(digit @ 0..=9) => {
                    end[SCORE_DIGIT] += digit;
                    out.extend_from_slice(&end);
                }
                _ => {
                    out.extend_from_slice(&end[..SCORE_DIGIT]);
                    serde_json::to_writer(&mut *out, score)?;
                    out.push(b'}');
                }
            }
            Ok(())
        })?;
        out.push(b']');
        Ok(())
    }
}

/// Writes `items`, separated by commas.
fn list<T>(
    out: &mut Vec<u8>,
    items: impl Iterator<Item = T>,
    mut encode: impl FnMut(&mut Vec<u8>, T) -> Result<(), serde_json::Error>,
) -> Result<(), serde_json::Error> {
    for (index, item) in items.enumerate() {
        if index > 0 {
            out.push(b',');
        }
        encode(out, item)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests;
