//! Mean completion times in closed form, to choose thresholds for a distribution of job sizes (P-5).
//!
//! The model has one server, Poisson arrivals and priority queues without preemption. [`Formula::Paper`] is the
//! paper's: each queue is an M/G/1 queue on the capacity that the queues before it leave. [`Formula::Exact`] is
//! Cobham's for the same queues, which also counts the job in service, whichever queue it came from.

use super::sizes::Sizes;
use super::thresholds::Shape;

/// The load on a server.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ServerLoad {
    /// λ: arrivals per second.
    pub jobs_per_second: f64,
    /// B: capacity of the server, in bytes per second.
    pub bytes_per_second: f64,
    /// Distribution of the job sizes.
    pub sizes: Sizes,
}

/// The formula for the mean completion time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Formula {
    /// Formulas (3) and (4) of the paper: an approximation.
    Paper,
    /// Cobham's formula: exact for a server without preemption.
    Exact,
}

/// The candidates of a search for the best shape.
#[derive(Debug, Clone, PartialEq)]
pub struct Search {
    /// K: number of queues.
    pub queues: u32,
    /// Candidates for E, the first threshold, in bytes.
    pub first: Vec<f64>,
    /// Candidates for q, the growth factor.
    pub growth: Vec<f64>,
    /// Candidates for k1 and k2, the ends of the linear part.
    pub linear: Linear,
}

/// The linear parts that a search tries.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Linear {
    /// Every k1 < k2 < K, and no linear part.
    Any,
    /// No linear part: all thresholds are geometric.
    Never,
    /// The linear part goes from the first threshold to the last.
    All,
    /// Given ends of the linear part.
    Between {
        /// k1: last threshold before the linear part.
        from: u32,
        /// k2: last threshold of the linear part.
        to: u32,
    },
}

/// The result of a search.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Best {
    /// The best shape.
    pub shape: Shape,
    /// Mean completion time with that shape, in seconds.
    pub completion: f64,
}

impl ServerLoad {
    /// ρ: the share of the server's capacity that the jobs need.
    #[must_use]
    pub fn utilisation(&self) -> f64 {
        self.jobs_per_second * self.sizes.mean() / self.bytes_per_second
    }

    /// Mean time from arrival to completion with queues between these thresholds, in seconds; `None` if the jobs need
    /// the whole capacity or more.
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
        // μ: capacity that the queues before this one leave.
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

    /// The first candidate with the least mean completion time. `None` if no candidate is valid or if the jobs need
    /// the whole capacity or more.
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
            // Ends that are one step apart have no threshold between them.
            Self::Any => {
                let wide = (1..=last).flat_map(|from| (from + 2..=last).map(move |to| (from, to)));
                std::iter::once((1, 1)).chain(wide).collect()
            }
        }
    }
}

#[cfg(test)]
mod tests;
