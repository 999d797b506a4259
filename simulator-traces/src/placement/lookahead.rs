//! All uses of each bitstream, known in advance, for the clairvoyant bound. Memory is four bytes per request that
//! uses a board; no other part of a run grows with the trace.

use super::jobs::Jobs;
use super::options::Scenario;
use crate::error::ScenarioError;
use crate::trace::Trace;

/// The times of all uses in milliseconds, and how many of them have passed.
#[derive(Debug, Default)]
pub struct Lookahead {
    uses: Vec<Vec<u32>>,
    passed: Vec<usize>,
}

impl Lookahead {
    /// Reads the whole trace of a scenario.
    ///
    /// # Errors
    /// [`ScenarioError`] if the trace can't be read.
    pub fn new(scenario: &Scenario) -> Result<Self, ScenarioError> {
        let mut trace = Trace::open(&scenario.origin()?)?;
        let mut jobs = Jobs::new(scenario);
        let mut all = Self::default();
        while let Some(job) = jobs.next(&mut trace) {
            if job.board.is_some() {
                let index = job.bitstream as usize;
                if all.uses.len() <= index {
                    all.uses.resize(index + 1, Vec::new());
                }
                all.uses[index].push(u32::try_from(job.at.millis().0).unwrap_or(u32::MAX));
            }
        }
        all.passed = vec![0; all.uses.len()];
        Ok(all)
    }

    /// Records that the next use of a bitstream has happened.
    pub fn used(&mut self, bitstream: u32) {
        if let Some(passed) = self.passed.get_mut(bitstream as usize) {
            *passed += 1;
        }
    }

    /// Time of the next use of a bitstream in milliseconds, after skipping `skip` uses; `u32::MAX` if there is none.
    #[must_use]
    pub fn next(&self, bitstream: u32, skip: usize) -> u32 {
        let index = bitstream as usize;
        let uses = self.uses.get(index).zip(self.passed.get(index));
        uses.and_then(|(uses, passed)| uses.get(passed + skip)).copied().unwrap_or(u32::MAX)
    }
}
