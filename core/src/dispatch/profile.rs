//! How long tasks of a kind took: the measured mean, for the policies that look at it.
//!
//! What a kind is, the caller says by a number; the profile only remembers so many of them.

use std::collections::HashMap;
use std::time::Duration;

/// Most kinds that are remembered.
const MAX_KINDS: usize = 4096;

/// How much a new measurement counts against the mean: 1/8, so that a mean follows within some tens of tasks.
const NEWEST: u32 = 8;

/// What a task runs, as a number: the same for tasks that run the same kernels over ranges of the same size.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Kind(pub u64);

/// Means by kind.
#[derive(Debug, Default)]
pub(super) struct Profile {
    means: HashMap<Kind, Mean>,
    uses: u64,
}

#[derive(Debug)]
struct Mean {
    mean: Duration,
    last_use: u64,
}

impl Profile {
    /// The device time that a task of this kind should take; nothing while none has been measured.
    pub(super) fn expected(&self, kind: Option<Kind>) -> Option<Duration> {
        self.means.get(&kind?).map(|mean| mean.mean)
    }

    /// A task of this kind has taken so much.
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

    /// Those whose last use is longest ago; half of them, so that it is seldom done.
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
        let mut profile = Profile::default();
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
