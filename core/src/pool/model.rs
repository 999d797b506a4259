//! Which thresholds suit a distribution of job sizes: mean completion times in closed form (P-5).
//!
//! One server, Poisson arrivals, priority queues without preemption. [`Formula::Paper`] is the paper's: each queue an
//! M/G/1 queue of its own on what the queues before it leave of the server. [`Formula::Exact`] is Cobham's for the
//! same queues: there the job that is being served counts too, from whichever queue it came.

use super::sizes::Sizes;
use super::thresholds::Shape;

/// What a server has to do.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Load {
    /// λ: jobs per second.
    pub jobs_per_second: f64,
    /// B: bytes per second that the server can process.
    pub bytes_per_second: f64,
    /// Their sizes.
    pub sizes: Sizes,
}

/// How the mean completion time is reckoned.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Formula {
    /// The paper's (3) and (4): an approximation.
    Paper,
    /// Exact for a server that finishes what it began.
    Exact,
}

/// Where to look for the best shape.
#[derive(Debug, Clone, PartialEq)]
pub struct Search {
    /// K.
    pub queues: u32,
    /// Candidates for E, in bytes.
    pub first: Vec<f64>,
    /// Candidates for q.
    pub growth: Vec<f64>,
    /// Which k1 and k2 are looked at.
    pub linear: Linear,
}

/// Which linear parts are looked at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Linear {
    /// Every k1 < k2 < K, and none.
    Any,
    /// None: all thresholds geometric.
    Never,
    /// From the first threshold to the last.
    All,
    /// These.
    Between {
        /// k1.
        from: u32,
        /// k2.
        to: u32,
    },
}

/// The best that a search found.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Best {
    /// The shape.
    pub shape: Shape,
    /// Mean completion time with it, in seconds.
    pub completion: f64,
}

impl Load {
    /// ρ: the share of the server's capacity that is asked for.
    #[must_use]
    pub fn utilisation(&self) -> f64 {
        self.jobs_per_second * self.sizes.mean() / self.bytes_per_second
    }

    /// Mean time from arrival to end with queues between these thresholds, in seconds; nothing if the server cannot
    /// keep up.
    #[must_use]
    pub fn mean_completion(&self, bounds: &[f64], formula: Formula) -> Option<f64> {
        if self.utilisation() >= 1.0 {
            return None;
        }
        let (rate, server) = (self.jobs_per_second, self.bytes_per_second);
        let least = self.sizes.least();
        let all_seconds_squared =
            rate * self.sizes.moment_between(2, least, f64::INFINITY) / (server * server) / 2.0;
        let mut from = least;
        // μ: what the queues before this one leave of the server.
        let mut left = server;
        let mut total = 0.0;
        for to in bounds.iter().copied().chain([f64::INFINITY]) {
            let share = self.sizes.share_between(from, to);
            let bytes = self.sizes.moment_between(1, from, to);
            let left_after = left - rate * bytes;
            total += match formula {
                Formula::Paper => {
                    let squares = self.sizes.moment_between(2, from, to);
                    bytes / left + rate * squares / (2.0 * left_after * left) * share
                }
                Formula::Exact => {
                    bytes / server + all_seconds_squared * server * server / (left * left_after) * share
                }
            };
            left = left_after;
            from = from.max(to);
        }
        Some(total)
    }

    /// The candidate with the least mean completion time; the first of equals. Nothing without a valid candidate, or if
    /// the server cannot keep up.
    #[must_use]
    pub fn best(&self, search: &Search, formula: Formula) -> Option<Best> {
        let mut best: Option<Best> = None;
        for (from, to) in search.linear.candidates(search.queues) {
            for &growth in &search.growth {
                for &first in &search.first {
                    let shape =
                        Shape { first, growth, linear_from: from, linear_to: to, queues: search.queues };
                    let Ok(bounds) = shape.bounds() else { continue };
                    let completion = self.mean_completion(&bounds, formula)?;
                    if best.is_none_or(|best| completion < best.completion) {
                        best = Some(Best { shape, completion });
                    }
                }
            }
        }
        best
    }
}

impl Linear {
    fn candidates(self, queues: u32) -> Vec<(u32, u32)> {
        let last = queues.saturating_sub(1).max(1);
        match self {
            Self::Never => vec![(1, 1)],
            Self::All => vec![(1, last)],
            Self::Between { from, to } => vec![(from, to)],
            // One step apart is no linear part.
            Self::Any => {
                let wide = (1..=last).flat_map(|from| (from + 2..=last).map(move |to| (from, to)));
                std::iter::once((1, 1)).chain(wide).collect()
            }
        }
    }
}

#[cfg(test)]
mod tests;
