//! Binary netpbm pictures (P5 gray, P6 RGB, 8 bits per channel), the Sobel function's format, and conversion from and
//! to PNG. Not a general netpbm library.

use std::io::Cursor;

/// An 8-bit picture with interleaved channels, row by row.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Picture {
    width: usize,
    height: usize,
    channels: usize,
    pixels: Vec<u8>,
}

/// The reasons for which bytes are not a picture.
#[derive(Debug, thiserror::Error)]
pub enum PictureError {
    /// The size, the number of channels and the number of bytes do not fit together.
    #[error(
        "a picture has 1 or 3 channels, is at most 8192 wide and high, and has width x height x channels bytes"
    )]
    Shape,
    /// Not a binary netpbm picture with a largest value of 255.
    #[error("not a P5 or P6 picture with a largest value of 255")]
    Netpbm,
    /// The PNG is neither gray nor RGB with 8 bits.
    #[error("the PNG is neither 8-bit gray nor 8-bit RGB")]
    Kind,
    /// The PNG can't be read.
    #[error("cannot read the PNG")]
    Decode(#[from] png::DecodingError),
    /// The PNG can't be written.
    #[error("cannot write the PNG")]
    Encode(#[from] png::EncodingError),
}

/// Greatest width and height, the same as in the function.
const MAX_SIDE: usize = 8192;

impl Picture {
    /// A picture from its pixels.
    ///
    /// # Errors
    /// [`PictureError::Shape`] when size and bytes do not fit together.
    pub fn new(width: usize, height: usize, channels: usize, pixels: Vec<u8>) -> Result<Self, PictureError> {
        let sides = 1..=MAX_SIDE;
        let shape = sides.contains(&width) && sides.contains(&height) && matches!(channels, 1 | 3);
        if shape && pixels.len() == width * height * channels {
            Ok(Self { width, height, channels, pixels })
        } else {
            Err(PictureError::Shape)
        }
    }

    /// Width in pixels.
    #[must_use]
    pub const fn width(&self) -> usize {
        self.width
    }

    /// Height in pixels.
    #[must_use]
    pub const fn height(&self) -> usize {
        self.height
    }

    /// Gray value of a pixel. Outside the picture it is the value of the nearest border pixel. The weights are the
    /// kernel's.
    #[must_use]
    pub fn gray_at(&self, x: isize, y: isize) -> i32 {
        let inside = |at: isize, side: usize| usize::try_from(at).unwrap_or(0).min(side - 1);
        let at = (inside(y, self.height) * self.width + inside(x, self.width)) * self.channels;
        let value = |channel: usize| i32::from(self.pixels[at + channel]);
        if self.channels == 1 { value(0) } else { (77 * value(0) + 150 * value(1) + 29 * value(2)) >> 8 }
    }

    /// The picture as P5 or P6.
    #[must_use]
    pub fn to_netpbm(&self) -> Vec<u8> {
        let kind = if self.channels == 1 { 5 } else { 6 };
        let mut bytes = format!("P{kind}\n{} {}\n255\n", self.width, self.height).into_bytes();
        bytes.extend_from_slice(&self.pixels);
        bytes
    }

    /// Reads P5 or P6.
    ///
    /// # Errors
    /// [`PictureError::Netpbm`] or [`PictureError::Shape`].
    pub fn from_netpbm(bytes: &[u8]) -> Result<Self, PictureError> {
        let channels = match bytes.get(..2) {
            Some(b"P5") => 1,
            Some(b"P6") => 3,
            _ => return Err(PictureError::Netpbm),
        };
        let mut at = 2;
        let width = header_number(bytes, &mut at)?;
        let height = header_number(bytes, &mut at)?;
        let max = header_number(bytes, &mut at)?;
        // One white-space byte ends the header.
        let pixels = bytes.get(at + 1..).ok_or(PictureError::Netpbm)?;
        if max != 255 {
            return Err(PictureError::Netpbm);
        }
        Self::new(width, height, channels, pixels.to_vec())
    }

    /// Reads an 8-bit gray or RGB PNG.
    ///
    /// # Errors
    /// The PNG can't be decoded, or has another format or too large a size.
    pub fn from_png(bytes: &[u8]) -> Result<Self, PictureError> {
        let mut reader = png::Decoder::new(Cursor::new(bytes)).read_info()?;
        let size = reader.output_buffer_size().ok_or(PictureError::Shape)?;
        let mut pixels = vec![0; size];
        let frame = reader.next_frame(&mut pixels)?;
        pixels.truncate(frame.buffer_size());
        let channels = match (frame.color_type, frame.bit_depth) {
            (png::ColorType::Grayscale, png::BitDepth::Eight) => 1,
            (png::ColorType::Rgb, png::BitDepth::Eight) => 3,
            _ => return Err(PictureError::Kind),
        };
        let side = |length: u32| usize::try_from(length).map_err(|_| PictureError::Shape);
        Self::new(side(frame.width)?, side(frame.height)?, channels, pixels)
    }

    /// The picture as PNG.
    ///
    /// # Errors
    /// The encoder fails.
    pub fn to_png(&self) -> Result<Vec<u8>, PictureError> {
        let side = |length: usize| u32::try_from(length).map_err(|_| PictureError::Shape);
        let mut bytes = Vec::new();
        let mut encoder = png::Encoder::new(&mut bytes, side(self.width)?, side(self.height)?);
        encoder.set_color(if self.channels == 1 { png::ColorType::Grayscale } else { png::ColorType::Rgb });
        encoder.set_depth(png::BitDepth::Eight);
        encoder.write_header()?.write_image_data(&self.pixels)?;
        Ok(bytes)
    }
}

/// Reads a number of the header after skipping white space and comments.
fn header_number(bytes: &[u8], at: &mut usize) -> Result<usize, PictureError> {
    let mut comment = false;
    while let Some(&byte) = bytes.get(*at) {
        match byte {
            b'\n' => comment = false,
            b'#' => comment = true,
            _ if comment => {}
            b' ' | b'\t' | b'\r' => {}
            _ => break,
        }
        *at += 1;
    }
    let digits = bytes.get(*at..).unwrap_or_default();
    let count = digits.iter().take_while(|byte| byte.is_ascii_digit()).count();
    *at += count;
    let text = std::str::from_utf8(&digits[..count]).map_err(|_| PictureError::Netpbm)?;
    text.parse().map_err(|_| PictureError::Netpbm)
}
