//! Fourier transforms in `f64`, by recursion.

use super::{Expected, Near, floats};
use std::f64::consts::PI;

/// Error of each part of a number, relative to the root mean square of the transform's numbers.
pub const TOLERANCE: f64 = 4e-6;

const POINTS: usize = 1024;

pub fn expected(input: &[u8]) -> Expected {
    let mut input = input.to_vec();
    input.resize(input.len().next_multiple_of(POINTS * 8), 0);
    let numbers: Vec<f64> = floats(&input).collect();
    let points: Vec<(f64, f64)> = numbers.chunks_exact(2).map(|pair| (pair[0], pair[1])).collect();
    let near = |block| {
        let found = transform(block);
        let squares: f64 = found.iter().map(|(re, im)| re * re + im * im).sum();
        // Devices may take floats below the least normal one for zero.
        let tolerance = TOLERANCE * (squares / POINTS as f64).sqrt() + f64::from(f32::MIN_POSITIVE);
        found.into_iter().flat_map(move |(re, im)| [re, im]).map(move |value| Near { value, tolerance })
    };
    Expected::Near(points.chunks_exact(POINTS).flat_map(near).collect())
}

/// The transform of a power of two of complex numbers.
pub fn transform(points: &[(f64, f64)]) -> Vec<(f64, f64)> {
    if points.len() == 1 {
        return points.to_vec();
    }
    let every_second = |first| transform(&points.iter().copied().skip(first).step_by(2).collect::<Vec<_>>());
    let (even, odd) = (every_second(0), every_second(1));
    let term = |k: usize| {
        let (sin, cos) = (-2.0 * PI * k as f64 / points.len() as f64).sin_cos();
        let (e, o) = (even[k % even.len()], odd[k % odd.len()]);
        (e.0 + cos * o.0 - sin * o.1, e.1 + cos * o.1 + sin * o.0)
    };
    (0..points.len()).map(term).collect()
}
