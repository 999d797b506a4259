//! Edges of a picture (B-10). Input: netpbm. Output: gray netpbm of the same size. The computation uses integers
//! only, so results are exact.

use super::netpbm::Picture;
use super::{Function, FunctionError, Numbers};

/// Name of the program, the kernel and the bitstream.
pub const NAME: &str = "sobel";

/// A square RGB picture of coarse blocks in random colours with some noise, so that it has edges.
#[must_use]
pub fn make_input(side: u16, numbers: &mut Numbers) -> Vec<u8> {
    const BLOCK: usize = 16;
    let side = usize::from(side);
    let blocks = side.div_ceil(BLOCK);
    let colours: Vec<[u8; 3]> =
        (0..blocks * blocks).map(|_| [numbers.byte(), numbers.byte(), numbers.byte()]).collect();
    let mut bytes = format!("P6\n{side} {side}\n255\n").into_bytes();
    for y in 0..side {
        for x in 0..side {
            let colour = colours[y / BLOCK * blocks + x / BLOCK];
            bytes.extend(colour.map(|channel| channel ^ (numbers.byte() & 7)));
        }
    }
    bytes
}

/// Computes the output for an input.
///
/// # Errors
/// The input is not a picture that the function accepts.
pub fn reference(input: &[u8]) -> Result<Vec<u8>, FunctionError> {
    let malformed = |reason| FunctionError::Input { function: Function::Sobel, reason };
    let picture = Picture::from_netpbm(input).map_err(|_| malformed("not a P5 or P6 picture"))?;
    let (width, height) = (picture.width(), picture.height());
    let mut pixels = Vec::with_capacity(width * height);
    for y in 0..height {
        for x in 0..width {
            pixels.push(edge(&picture, x.cast_signed(), y.cast_signed()));
        }
    }
    let edges = Picture::new(width, height, 1, pixels).map_err(|_| malformed("too large"))?;
    Ok(edges.to_netpbm())
}

fn edge(picture: &Picture, x: isize, y: isize) -> u8 {
    let at = |dx: isize, dy: isize| picture.gray_at(x + dx, y + dy);
    let gx = at(1, -1) - at(-1, -1) + 2 * (at(1, 0) - at(-1, 0)) + at(1, 1) - at(-1, 1);
    let gy = at(-1, 1) + 2 * at(0, 1) + at(1, 1) - at(-1, -1) - 2 * at(0, -1) - at(1, -1);
    u8::try_from(gx.abs() + gy.abs()).unwrap_or(u8::MAX)
}
