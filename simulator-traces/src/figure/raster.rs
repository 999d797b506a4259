//! A plotters backend that draws into pixels. Plotters rasterises lines and areas, and a font in the program draws
//! texts. So a picture is the same on every machine and needs no installed fonts.

use embedded_graphics::mono_font::iso_8859_1::{FONT_7X13, FONT_9X15, FONT_10X20};
use embedded_graphics::mono_font::{MonoFont, MonoTextStyle};
use embedded_graphics::pixelcolor::BinaryColor;
use embedded_graphics::prelude::{DrawTarget, Drawable as _, OriginDimensions, Pixel, Point, Size};
use embedded_graphics::text::{Baseline, Text};
use plotters_backend::text_anchor::{HPos, VPos};
use plotters_backend::{BackendColor, BackendCoord, BackendTextStyle, DrawingBackend, DrawingErrorKind};
use std::convert::Infallible;

/// An RGB picture, three bytes per pixel.
pub(super) struct Raster<'a> {
    pub(super) size: (u32, u32),
    pub(super) pixels: &'a mut [u8],
}

/// The pixels of a text, relative to its upper left corner.
struct Glyphs {
    size: Size,
    lit: Vec<(i32, i32)>,
}

impl Raster<'_> {
    fn blend(&mut self, (x, y): BackendCoord, color: BackendColor) {
        let (Ok(x), Ok(y)) = (u32::try_from(x), u32::try_from(y)) else { return };
        if x >= self.size.0 || y >= self.size.1 {
            return;
        }
        let at = (y as usize * self.size.0 as usize + x as usize) * 3;
        let (r, g, b) = color.rgb;
        for (pixel, new) in self.pixels.iter_mut().skip(at).take(3).zip([r, g, b]) {
            let mixed = f64::from(*pixel) * (1.0 - color.alpha) + f64::from(new) * color.alpha;
            #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "0 to 255")]
            let mixed = (mixed + 0.5) as u8;
            *pixel = mixed;
        }
    }
}

impl DrawingBackend for Raster<'_> {
    type ErrorType = Infallible;

    fn get_size(&self) -> (u32, u32) {
        self.size
    }

    fn ensure_prepared(&mut self) -> Result<(), DrawingErrorKind<Infallible>> {
        Ok(())
    }

    fn present(&mut self) -> Result<(), DrawingErrorKind<Infallible>> {
        Ok(())
    }

    fn draw_pixel(
        &mut self,
        at: BackendCoord,
        color: BackendColor,
    ) -> Result<(), DrawingErrorKind<Infallible>> {
        self.blend(at, color);
        Ok(())
    }

    fn draw_text<S: BackendTextStyle>(
        &mut self,
        text: &str,
        style: &S,
        at: BackendCoord,
    ) -> Result<(), DrawingErrorKind<Infallible>> {
        let font = font(style.size());
        let glyphs = Glyphs::of(text, font);
        let (width, height) = (glyphs.size.width.cast_signed(), glyphs.size.height.cast_signed());
        let left = match style.anchor().h_pos {
            HPos::Left => 0,
            HPos::Center => -width / 2,
            HPos::Right => -width,
        };
        let top = match style.anchor().v_pos {
            VPos::Top => 0,
            VPos::Center => -height / 2,
            VPos::Bottom => -height,
        };
        for (x, y) in glyphs.lit {
            let (x, y) = style.transform().transform(x + left, y + top);
            self.blend((at.0 + x, at.1 + y), style.color());
        }
        Ok(())
    }

    fn estimate_text_size<S: BackendTextStyle>(
        &self,
        text: &str,
        style: &S,
    ) -> Result<(u32, u32), DrawingErrorKind<Infallible>> {
        let Size { width, height } = Glyphs::of(text, font(style.size())).size;
        Ok((width, height))
    }
}

/// The font whose height is closest to `size` pixels.
fn font(size: f64) -> &'static MonoFont<'static> {
    match size {
        size if size >= 18.0 => &FONT_10X20,
        size if size >= 15.0 => &FONT_9X15,
        _ => &FONT_7X13,
    }
}

impl Glyphs {
    fn of(text: &str, font: &'static MonoFont<'static>) -> Self {
        let letters = u32::try_from(text.chars().count()).unwrap_or(u32::MAX);
        let width = font.character_size.width.saturating_mul(letters);
        let mut glyphs = Self { size: Size::new(width, font.character_size.height), lit: Vec::new() };
        let style = MonoTextStyle::new(font, BinaryColor::On);
        match Text::with_baseline(text, Point::zero(), style, Baseline::Top).draw(&mut glyphs) {
            Ok(_) => glyphs,
            Err(never) => match never {},
        }
    }
}

impl OriginDimensions for Glyphs {
    fn size(&self) -> Size {
        self.size
    }
}

impl DrawTarget for Glyphs {
    type Color = BinaryColor;
    type Error = Infallible;

    fn draw_iter<I: IntoIterator<Item = Pixel<BinaryColor>>>(&mut self, pixels: I) -> Result<(), Infallible> {
        let lit = pixels.into_iter().filter(|Pixel(_, color)| color.is_on());
        self.lit.extend(lit.map(|Pixel(at, _)| (at.x, at.y)));
        Ok(())
    }
}
