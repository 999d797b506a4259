//! Fourier transforms of 1024 complex numbers: Cooley and Tukey's algorithm with radix 2, decimation in time, in `f64`.

use super::floats;
use std::f64::consts::PI;

const POINTS: usize = 1024;

/// A complex number: real and imaginary part.
type Complex = (f64, f64);

pub(super) fn compute(input: &[u8]) -> Vec<u8> {
    let turn = |index: usize| {
        let (sin, cos) = (-2.0 * PI * index as f64 / POINTS as f64).sin_cos();
        (cos, sin)
    };
    let turns: Vec<Complex> = (0..POINTS / 2).map(turn).collect();
    let mut output = Vec::with_capacity(input.len());
    for block in floats(input).chunks_exact(2 * POINTS) {
        let numbers = block.chunks_exact(2).map(|pair| (f64::from(pair[0]), f64::from(pair[1])));
        for (re, im) in transform(&numbers.collect::<Vec<_>>(), &turns) {
            #[expect(clippy::cast_possible_truncation, reason = "the output is rounded to f32")]
            let parts = [re as f32, im as f32];
            output.extend(parts.into_iter().flat_map(f32::to_le_bytes));
        }
    }
    output
}

/// The transform of [`POINTS`] numbers; `turns` are the roots of unity of its second half.
fn transform(numbers: &[Complex], turns: &[Complex]) -> Vec<Complex> {
    let bits = POINTS.trailing_zeros();
    let reversed = |index: usize| index.reverse_bits() >> (usize::BITS - bits);
    let mut points: Vec<Complex> = (0..POINTS).map(|index| numbers[reversed(index)]).collect();
    let mut half = 1;
    while half < POINTS {
        for pair in points.chunks_exact_mut(2 * half) {
            let (low, high) = pair.split_at_mut(half);
            for (k, (low, high)) in low.iter_mut().zip(high).enumerate() {
                let (cos, sin) = turns[k * (POINTS / 2 / half)];
                let turned = (cos * high.0 - sin * high.1, cos * high.1 + sin * high.0);
                *high = (low.0 - turned.0, low.1 - turned.1);
                *low = (low.0 + turned.0, low.1 + turned.1);
            }
        }
        half *= 2;
    }
    points
}
