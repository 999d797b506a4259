//! Scores of a picture by a convolutional network in the manner of AlexNet (B-10). Input: u32 width, u32 side, u32 seed of
//! the weights, and the picture, 3 × side × side floats. Output: a float for each of [`CLASSES`] classes.

use super::{Function, FunctionError, Numbers, Tolerance, floats, take_u32};
use std::ops::RangeInclusive;

/// Name of the program and the bitstream.
pub const NAME: &str = "cnn";

/// Number of classes.
pub const CLASSES: usize = 1000;

/// Sides of a picture in pixels: with fewer the last layers have nothing left, with more it is no AlexNet.
const SIDES: RangeInclusive<u16> = 67..=227;
/// Widths of a network. The layers have the width times as many channels; with 16 they have those of AlexNet.
const WIDTHS: RangeInclusive<u16> = 1..=16;

/// Scores are about 1, and sums of up to 9,216 products of floats, through 8 layers.
pub(super) const TOLERANCE: Tolerance = Tolerance { absolute: 2e-3, relative: 1e-3 };

/// Channels, each of side × side values, row by row.
struct Tensor {
    channels: usize,
    side: usize,
    values: Vec<f32>,
}

/// A square window that moves over a channel.
#[derive(Clone, Copy)]
struct Window {
    size: usize,
    stride: usize,
    padding: usize,
}

/// Whether a layer sets negative sums to 0.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Rectified {
    Yes,
    No,
}

/// A random picture of this side, as near as it can be, for a random network of width 1.
#[must_use]
pub fn make_input(side: u16, numbers: &mut Numbers) -> Vec<u8> {
    make_input_of_width(*WIDTHS.start(), side, numbers)
}

/// A random picture for a random network.
#[must_use]
pub fn make_input_of_width(width: u16, side: u16, numbers: &mut Numbers) -> Vec<u8> {
    let width = width.clamp(*WIDTHS.start(), *WIDTHS.end());
    let side = side.clamp(*SIDES.start(), *SIDES.end());
    let [a, b, c, d, ..] = numbers.bits().to_le_bytes();
    let mut bytes: Vec<u8> = [width, side].into_iter().flat_map(|n| u32::from(n).to_le_bytes()).collect();
    bytes.extend([a, b, c, d]);
    for _ in 0..3 * usize::from(side) * usize::from(side) {
        bytes.extend(numbers.float(0.0, 1.0).to_le_bytes());
    }
    bytes
}

/// Computes the output for an input.
///
/// # Errors
/// The input is no picture for a network.
pub fn reference(input: &[u8]) -> Result<Vec<u8>, FunctionError> {
    let malformed = |reason| FunctionError::Input { function: Function::Cnn, reason };
    let (width, rest) = take_u32(input).ok_or_else(|| malformed("no width"))?;
    let (side, rest) = take_u32(rest).ok_or_else(|| malformed("no side"))?;
    let (seed, picture) = take_u32(rest).ok_or_else(|| malformed("no seed"))?;
    let within = |value: u32, range: RangeInclusive<u16>| {
        u16::try_from(value).ok().filter(|value| range.contains(value)).map(usize::from)
    };
    let width = within(width, WIDTHS).ok_or_else(|| malformed("width is not in 1 to 16"))?;
    let side = within(side, SIDES).ok_or_else(|| malformed("side is not in 67 to 227"))?;
    if picture.len() != 3 * side * side * 4 {
        return Err(malformed("not 3 x side x side floats"));
    }
    let picture = Tensor { channels: 3, side, values: floats(picture).collect() };
    Ok(scores(picture, width, &mut Numbers::new(seed.into()))
        .into_iter()
        .flat_map(f32::to_le_bytes)
        .collect())
}

/// The network: eight layers with weights, drawn in this order.
fn scores(picture: Tensor, width: usize, numbers: &mut Numbers) -> Vec<f32> {
    let window = |size, stride, padding| Window { size, stride, padding };
    let halve = window(3, 2, 0);
    let mut t = picture;
    t = pool(&normalise(&convolve(&t, 6 * width, window(11, 4, 0), numbers)), halve);
    t = pool(&normalise(&convolve(&t, 16 * width, window(5, 1, 2), numbers)), halve);
    t = convolve(&t, 24 * width, window(3, 1, 1), numbers);
    t = convolve(&t, 24 * width, window(3, 1, 1), numbers);
    t = pool(&convolve(&t, 16 * width, window(3, 1, 1), numbers), halve);
    let hidden = dense(&t.values, 256 * width, Rectified::Yes, numbers);
    let hidden = dense(&hidden, 256 * width, Rectified::Yes, numbers);
    dense(&hidden, CLASSES, Rectified::No, numbers)
}

/// Random weights and biases of a layer of which each output has `inputs` inputs.
fn draw(inputs: usize, outputs: usize, numbers: &mut Numbers) -> (Vec<f32>, Vec<f32>) {
    let limit = (6.0 / inputs as f32).sqrt();
    let weights = (0..inputs * outputs).map(|_| numbers.float(-limit, limit)).collect();
    (weights, (0..outputs).map(|_| numbers.float(-0.1, 0.1)).collect())
}

fn convolve(input: &Tensor, channels: usize, window: Window, numbers: &mut Numbers) -> Tensor {
    let Window { size, stride, padding } = window;
    let (weights, biases) = draw(input.channels * size * size, channels, numbers);
    let side = (input.side + 2 * padding - size) / stride + 1;
    let mut values = Vec::with_capacity(channels * side * side);
    for (own, bias) in weights.chunks_exact(input.channels * size * size).zip(biases) {
        for y in 0..side {
            for x in 0..side {
                let mut sum = bias;
                for (at, weight) in own.iter().enumerate() {
                    let (channel, i, j) = (at / (size * size), at / size % size, at % size);
                    sum += weight * input.padded(channel, y * stride + i, x * stride + j, padding);
                }
                values.push(sum.max(0.0));
            }
        }
    }
    Tensor { channels, side, values }
}

/// Local response normalisation over five channels, with the constants of AlexNet.
fn normalise(input: &Tensor) -> Tensor {
    let pixels = input.side * input.side;
    let squares = |channel: usize, at: usize| -> f32 {
        let around = channel.saturating_sub(2)..(channel + 3).min(input.channels);
        around.map(|channel| input.values[channel * pixels + at].powi(2)).sum()
    };
    let normal = |(index, value): (usize, &f32)| {
        value * (2.0 + 1e-4 * squares(index / pixels, index % pixels)).powf(-0.75)
    };
    Tensor { values: input.values.iter().enumerate().map(normal).collect(), ..*input }
}

/// The largest value of each window.
fn pool(input: &Tensor, window: Window) -> Tensor {
    let side = (input.side - window.size) / window.stride + 1;
    let mut values = Vec::with_capacity(input.channels * side * side);
    for channel in 0..input.channels {
        for y in 0..side {
            for x in 0..side {
                let cells = (0..window.size * window.size).map(|at| {
                    let (i, j) = (at / window.size, at % window.size);
                    input.padded(channel, y * window.stride + i, x * window.stride + j, 0)
                });
                values.push(cells.fold(f32::NEG_INFINITY, f32::max));
            }
        }
    }
    Tensor { side, values, ..*input }
}

/// A fully connected layer.
fn dense(inputs: &[f32], outputs: usize, rectified: Rectified, numbers: &mut Numbers) -> Vec<f32> {
    let (weights, biases) = draw(inputs.len(), outputs, numbers);
    let neurons = weights.chunks_exact(inputs.len()).zip(biases);
    let sum = |(own, bias): (&[f32], f32)| bias + own.iter().zip(inputs).map(|(w, x)| w * x).sum::<f32>();
    let rectify = |sum: f32| if rectified == Rectified::Yes { sum.max(0.0) } else { sum };
    neurons.map(sum).map(rectify).collect()
}

impl Tensor {
    /// A value of the tensor with `padding` zeros around each channel.
    fn padded(&self, channel: usize, row: usize, column: usize, padding: usize) -> f32 {
        let inside = |at: usize| at.checked_sub(padding).filter(|at| *at < self.side);
        match inside(row).zip(inside(column)) {
            Some((row, column)) => self.values[(channel * self.side + row) * self.side + column],
            None => 0.0,
        }
    }
}
