//! Dynamic time warping in `f64`, over the whole matrix of pairs.

use super::{Expected, Near, floats};

/// Error of a distance, relative to it: a path adds up at most 255 numbers.
pub const TOLERANCE: f64 = 2e-5;

pub fn expected(query: &[u8], input: &[u8]) -> Expected {
    let query: Vec<f64> = floats(query).collect();
    let series: Vec<f64> = floats(input).collect();
    let near = |series| {
        let value = distance(series, &query);
        Near { value, tolerance: TOLERANCE * value }
    };
    Expected::Near(series.chunks_exact(query.len()).map(near).collect())
}

/// The distance, from the ends of both: what is left from each pair on.
pub fn distance(a: &[f64], b: &[f64]) -> f64 {
    let mut left = vec![vec![f64::INFINITY; b.len() + 1]; a.len() + 1];
    for i in (0..a.len()).rev() {
        for j in (0..b.len()).rev() {
            let next = left[i + 1][j].min(left[i][j + 1]).min(left[i + 1][j + 1]);
            let next = if next.is_finite() { next } else { 0.0 };
            left[i][j] = (a[i] - b[j]).abs() + next;
        }
    }
    left[0][0]
}
