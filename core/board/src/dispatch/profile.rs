//! The mean measured duration of each kind of task, for the policies that go by expected time.
//!
//! The caller names a kind by a number. The number of kinds in memory is bounded.

use std::collections::HashMap;
use std::time::Duration;

/// Maximum number of kinds in memory.
const MAX_KINDS: usize = 4096;

/// Divisor of a new measurement's weight: it counts 1/8, so that a mean follows within some tens of tasks.
const NEWEST: u32 = 8;

/// The kind of a task: a number that is equal for tasks that run the same kernels over ranges of the same size.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Kind(pub u64);

/// The mean duration of each kind.
#[derive(Debug, Default)]
pub(super) struct TaskProfile {
    means: HashMap<Kind, Mean>,
    uses: u64,
}

#[derive(Debug)]
struct Mean {
    mean: Duration,
    last_use: u64,
}

impl TaskProfile {
    /// The expected device time of a task of this kind; `None` if none was measured.
    pub(super) fn expected(&self, kind: Option<Kind>) -> Option<Duration> {
        self.means.get(&kind?).map(|mean| mean.mean)
    }

    /// Adds the measured device time of a task of this kind.
    pub(super) fn measured(&mut self, kind: Option<Kind>, took: Duration) {
        let Some(kind) = kind else { return };
        self.uses += 1;
        let last_use = self.uses;
        if let Some(known) = self.means.get_mut(&kind) {
            known.mean = (known.mean * (NEWEST - 1) + took) / NEWEST;
            known.last_use = last_use;
            return;
        }
        if self.means.len() >= MAX_KINDS {
            self.forget_half();
        }
        self.means.insert(kind, Mean { mean: took, last_use });
    }

    /// Removes the half of the kinds that was used least recently; half, so that this is seldom needed.
    fn forget_half(&mut self) {
        let mut uses: Vec<u64> = self.means.values().map(|mean| mean.last_use).collect();
        let middle = uses.len() / 2;
        let (_, median, _) = uses.select_nth_unstable(middle);
        let median = *median;
        self.means.retain(|_, mean| mean.last_use >= median);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mean_follows_what_is_measured_and_the_oldest_kinds_are_forgotten() {
        let mut profile = TaskProfile::default();
        let ms = Duration::from_millis;
        profile.measured(Some(Kind(1)), ms(80));
        profile.measured(Some(Kind(1)), ms(0));
        assert_eq!(profile.expected(Some(Kind(1))), Some(ms(70)));
        assert_eq!((profile.expected(Some(Kind(2))), profile.expected(None)), (None, None));
        for kind in 2..=MAX_KINDS as u64 + 1 {
            profile.measured(Some(Kind(kind)), ms(1));
        }
        assert!(profile.means.len() <= MAX_KINDS);
        assert_eq!(profile.expected(Some(Kind(1))), None);
        assert_eq!(profile.expected(Some(Kind(MAX_KINDS as u64 + 1))), Some(ms(1)));
    }
}
