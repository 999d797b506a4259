//! Distance of series from a query by dynamic time warping.

use super::floats;

/// The argument is the query, as long as a series.
pub(super) fn compute(input: &[u8], query: &[u8]) -> Vec<u8> {
    let query = floats(query);
    let series = floats(input);
    let distances = series.chunks_exact(query.len().max(1)).map(|series| distance(series, &query));
    distances.flat_map(f32::to_le_bytes).collect()
}

/// The least sum of differences along a path from the first pair of values to the last one.
fn distance(series: &[f32], query: &[f32]) -> f32 {
    // The distance of the first values of the series from each beginning of the query.
    let mut row = vec![f32::INFINITY; query.len()];
    for (index, value) in series.iter().enumerate() {
        let mut left = f32::INFINITY;
        let mut above_left = if index == 0 { 0.0 } else { f32::INFINITY };
        for (cell, other) in row.iter_mut().zip(query) {
            let above = *cell;
            left = (value - other).abs() + left.min(above).min(above_left);
            *cell = left;
            above_left = above;
        }
    }
    row.last().copied().unwrap_or_default()
}
