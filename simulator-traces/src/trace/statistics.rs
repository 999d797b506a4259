//! The statistics of a trace that S-9 reports.

use super::request::Request;
use crate::outcome::Outcome;
use std::collections::HashMap;

/// Bins of the histogram of durations per factor of ten.
const BINS: f64 = 400.0;

/// Statistics of the requests seen so far.
#[derive(Debug, Clone, Default)]
pub struct Statistics {
    functions: HashMap<u32, u64>,
    apps: HashMap<u32, (u64, Vec<u32>)>,
    durations: Vec<u64>,
    requests: u64,
    total_duration: f64,
    last_at: f64,
}

impl Statistics {
    /// Counts a request.
    pub fn add(&mut self, request: &Request) {
        self.requests += 1;
        let of_function = self.functions.entry(request.function).or_default();
        *of_function += 1;
        let app = self.apps.entry(request.app).or_default();
        app.0 += 1;
        if *of_function == 1 {
            app.1.push(request.function);
        }
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a cast saturates")]
        let bin = (libm::log10(request.duration.0.max(1) as f64) * BINS) as usize;
        if self.durations.len() <= bin {
            self.durations.resize(bin + 1, 0);
        }
        self.durations[bin] += 1;
        self.total_duration += request.duration.secs();
        self.last_at = request.at.secs();
    }

    /// The quantile of durations at `share`, in seconds, accurate to half a bin: 0.3 %.
    #[must_use]
    pub fn duration_quantile(&self, share: f64) -> f64 {
        let wanted = share * self.requests as f64;
        let mut seen = 0.0;
        for (bin, count) in self.durations.iter().enumerate() {
            seen += *count as f64;
            if seen >= wanted {
                return libm::pow(10.0, (bin as f64 + 0.5) / BINS) / 1e6;
            }
        }
        0.0
    }

    /// The share of durations below `seconds`.
    #[must_use]
    pub fn share_below(&self, seconds: f64) -> f64 {
        let bins = libm::log10(seconds * 1e6) * BINS;
        let below: u64 = self
            .durations
            .iter()
            .zip(0_u32..)
            .filter(|(_, bin)| f64::from(*bin) < bins - 0.5)
            .map(|(count, _)| count)
            .sum();
        below as f64 / self.requests as f64
    }

    /// Requests per function, sorted.
    #[must_use]
    pub fn per_function(&self) -> Vec<u64> {
        sorted(self.functions.values().copied())
    }

    /// Requests per application, sorted.
    #[must_use]
    pub fn per_app(&self) -> Vec<u64> {
        sorted(self.apps.values().map(|app| app.0))
    }

    /// Number of functions per application, sorted.
    #[must_use]
    pub fn functions_per_app(&self) -> Vec<u64> {
        sorted(self.apps.values().map(|app| app.1.len() as u64))
    }

    /// The statistics as an outcome, in the order of S-9.
    #[must_use]
    pub fn outcome(&self) -> Outcome {
        let mut outcome = Outcome::default();
        let minutes = self.last_at / 60.0;
        let per_minute: Vec<f64> = self.per_function().iter().map(|count| *count as f64 / minutes).collect();
        outcome.push("requests", self.requests as f64);
        outcome.push("applications", self.apps.len() as f64);
        outcome.push("functions", self.functions.len() as f64);
        outcome.push("requests_per_application_median", median(&self.per_app()));
        outcome.push("functions_per_application_median", median(&self.functions_per_app()));
        outcome.push("requests_per_function_median", median(&self.per_function()));
        outcome.push("requests_per_function_most", self.per_function().last().copied().unwrap_or(0) as f64);
        outcome.push("function_per_minute_median", quantile(&per_minute, 0.5));
        outcome.push("function_per_minute_p75", quantile(&per_minute, 0.75));
        outcome.push("duration_below_100_ms_share", self.share_below(0.1));
        for (name, share) in [("median", 0.5), ("p75", 0.75), ("p95", 0.95), ("p99", 0.99)] {
            outcome.push(&format!("duration_{name}_s"), self.duration_quantile(share));
        }
        outcome.push("duration_mean_s", self.total_duration / self.requests as f64);
        outcome.push("days", self.last_at / 86_400.0);
        outcome
    }
}

fn sorted(values: impl Iterator<Item = u64>) -> Vec<u64> {
    let mut values: Vec<u64> = values.collect();
    values.sort_unstable();
    values
}

/// The median of sorted values; 0 if there are none.
#[must_use]
pub fn median(sorted: &[u64]) -> f64 {
    let middle = sorted.len() / 2;
    match sorted.len() {
        0 => 0.0,
        count if count % 2 == 1 => sorted[middle] as f64,
        _ => (sorted[middle - 1] + sorted[middle]) as f64 / 2.0,
    }
}

/// The quantile of sorted values at `share`, linearly interpolated; 0 if there are none.
#[must_use]
pub fn quantile(sorted: &[f64], share: f64) -> f64 {
    if sorted.is_empty() {
        return 0.0;
    }
    let place = share.clamp(0.0, 1.0) * (sorted.len() - 1) as f64;
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "within the values")]
    let below = place.floor() as usize;
    let above = (below + 1).min(sorted.len() - 1);
    sorted[below] + (sorted[above] - sorted[below]) * (place - below as f64)
}
