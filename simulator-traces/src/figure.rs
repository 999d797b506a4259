//! Draws the papers' kinds of figures as SVG or PNG: distributions, lines, bars per node, heat maps. The callers
//! supply the numbers.

mod bars;
mod distributions;
mod frame;
mod heat_map;
mod lines;
mod raster;

use plotters::coord::Shift;
use plotters::drawing::DrawingAreaErrorKind;
use plotters::prelude::{DrawingArea, DrawingBackend, IntoDrawingArea as _, RGBColor, SVGBackend};
use raster::Raster;

/// Width and height of a figure in pixels.
const SIZE: (u32, u32) = (1000, 700);
/// Colours that the colour-blind can tell apart (Okabe and Ito).
const COLORS: [RGBColor; 7] = [
    RGBColor(0, 114, 178),
    RGBColor(213, 94, 0),
    RGBColor(0, 158, 115),
    RGBColor(204, 121, 167),
    RGBColor(230, 159, 0),
    RGBColor(86, 180, 233),
    RGBColor(0, 0, 0),
];

/// A figure.
#[derive(Debug, Clone, PartialEq)]
pub struct Figure {
    /// Title, drawn above the plot.
    pub title: String,
    /// Label of the horizontal axis.
    pub x: String,
    /// Label of the vertical axis.
    pub y: String,
    /// The plot.
    pub plot: Plot,
}

/// The kinds of plots with their data.
#[derive(Debug, Clone, PartialEq)]
pub enum Plot {
    /// Cumulative distributions: for each name the values.
    Distributions(Vec<(String, Vec<f64>)>),
    /// Lines: for each name its points, from left to right.
    Lines(Vec<(String, Vec<(f64, f64)>)>),
    /// Groups of bars.
    Bars {
        /// One label per group.
        labels: Vec<String>,
        /// For each name the values of its bars, one per label; `None` is drawn as a cross.
        series: Vec<(String, Vec<Option<f64>>)>,
    },
    /// Coloured cells, one for each pair of labels.
    HeatMap {
        /// Labels of the columns, from left to right.
        columns: Vec<String>,
        /// Labels of the rows, from bottom to top.
        rows: Vec<String>,
        /// Values row by row; `None` leaves the cell empty.
        cells: Vec<Vec<Option<f64>>>,
    },
}

/// The reasons for which a figure can't be drawn.
#[derive(Debug, thiserror::Error)]
pub enum FigureError {
    /// There are no numbers.
    #[error("there is nothing to draw: no numbers")]
    Empty,
    /// Drawing failed.
    #[error("the figure can't be drawn: {0}")]
    Drawing(String),
    /// The PNG can't be written.
    #[error("the figure can't be written as PNG: {0}")]
    Png(#[from] png::EncodingError),
}

impl Figure {
    /// Draws the figure as SVG.
    ///
    /// # Errors
    /// [`FigureError`] if there are no numbers or drawing fails.
    pub fn svg(&self) -> Result<String, FigureError> {
        let mut text = String::new();
        self.draw(&SVGBackend::with_string(&mut text, SIZE).into_drawing_area())?;
        Ok(text)
    }

    /// Draws the figure as PNG.
    ///
    /// # Errors
    /// [`FigureError`] if there are no numbers, drawing fails, or the PNG can't be written.
    pub fn png(&self) -> Result<Vec<u8>, FigureError> {
        let (width, height) = SIZE;
        let mut pixels = vec![255; width as usize * height as usize * 3];
        self.draw(&Raster { size: SIZE, pixels: &mut pixels }.into_drawing_area())?;
        let mut bytes = Vec::new();
        let mut encoder = png::Encoder::new(&mut bytes, width, height);
        encoder.set_color(png::ColorType::Rgb);
        let mut writer = encoder.write_header()?;
        writer.write_image_data(&pixels)?;
        writer.finish()?;
        Ok(bytes)
    }

    fn draw<D: DrawingBackend>(&self, area: &DrawingArea<D, Shift>) -> Drawn {
        match &self.plot {
            Plot::Distributions(curves) => self.draw_distributions(area, curves)?,
            Plot::Lines(lines) => self.draw_lines(area, lines)?,
            Plot::Bars { labels, series } => self.draw_bars(area, labels, series)?,
            Plot::HeatMap { columns, rows, cells } => self.draw_heat_map(area, (columns, rows), cells)?,
        }
        Ok(area.present()?)
    }
}

type Drawn = Result<(), FigureError>;

impl<E: std::error::Error + Send + Sync> From<DrawingAreaErrorKind<E>> for FigureError {
    fn from(error: DrawingAreaErrorKind<E>) -> Self {
        Self::Drawing(error.to_string())
    }
}

/// The least and the greatest finite value; `None` if no value is finite.
fn ends<'a>(values: impl Iterator<Item = &'a f64>) -> Option<(f64, f64)> {
    let finite = values.copied().filter(|value| value.is_finite());
    finite.fold(None, |ends, value| match ends {
        None => Some((value, value)),
        Some((least, most)) => Some((f64::min(least, value), f64::max(most, value))),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn figure(plot: Plot) -> Figure {
        Figure { title: "t < u".into(), x: "x".into(), y: "y".into(), plot }
    }

    #[test]
    fn every_kind_is_drawn_as_svg_and_png() {
        for plot in [
            Plot::Distributions(vec![("a".into(), vec![1.0, 2.0]), ("b".into(), vec![5.0])]),
            Plot::Lines(vec![("a".into(), vec![(0.0, 1.0), (3.0, 2.0)]), ("b".into(), vec![(1.0, 5.0)])]),
            Plot::Bars {
                labels: vec!["0".into(), "1".into()],
                series: vec![("a".into(), vec![Some(1.0), None])],
            },
            Plot::HeatMap {
                columns: vec!["0.1".into()],
                rows: vec!["0.2".into(), "0.3".into()],
                cells: vec![vec![Some(1.0)], vec![None]],
            },
        ] {
            let svg = figure(plot.clone()).svg().unwrap();
            assert!(svg.starts_with("<svg") && svg.contains("t &lt; u"), "{svg}");
            let png = figure(plot.clone()).png().unwrap();
            let mut reader = png::Decoder::new(std::io::Cursor::new(&png)).read_info().unwrap();
            let mut pixels = vec![0; reader.output_buffer_size().unwrap()];
            reader.next_frame(&mut pixels).unwrap();
            assert!(pixels.iter().filter(|byte| **byte != 255).count() > 5_000, "{plot:?}");
            assert_eq!(png, figure(plot).png().unwrap());
        }
    }

    #[test]
    fn nothing_gives_no_picture() {
        assert!(matches!(figure(Plot::Distributions(vec![])).png(), Err(FigureError::Empty)));
    }
}
