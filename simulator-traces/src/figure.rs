//! Figures as the papers have them, as SVG or PNG: distributions, bars per node, heat maps. Where their numbers come from
//! is not known here.

mod raster;

use plotters::coord::Shift;
use plotters::drawing::DrawingAreaErrorKind;
use plotters::prelude::{
    BLACK, ChartBuilder, Color as _, DrawingArea, DrawingBackend, IntoDrawingArea as _, IntoFont as _,
    LineSeries, PathElement, RGBColor, Rectangle, SVGBackend, SeriesLabelPosition, Text, TextStyle, WHITE,
};
use plotters::style::text_anchor::{HPos, Pos, VPos};
use raster::Raster;

/// Width and height in pixels.
const SIZE: (u32, u32) = (1000, 700);
/// The part of an axis that nobody sees.
const PIXEL: f64 = 0.002;
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
/// From little to much; light and dark alone tell them apart as well.
const SCALE: [(f64, f64, f64); 4] =
    [(253.0, 231.0, 160.0), (122.0, 209.0, 130.0), (42.0, 120.0, 142.0), (68.0, 1.0, 84.0)];

/// A figure.
#[derive(Debug, Clone, PartialEq)]
pub struct Figure {
    /// What stands above it.
    pub title: String,
    /// What stands below.
    pub x: String,
    /// What stands at its side.
    pub y: String,
    /// What it shows.
    pub plot: Plot,
}

/// What a figure shows.
#[derive(Debug, Clone, PartialEq)]
pub enum Plot {
    /// Per name the values whose cumulative distribution is drawn.
    Distributions(Vec<(String, Vec<f64>)>),
    /// A group of bars for each label: per name one value for each.
    Bars {
        /// Of the groups.
        labels: Vec<String>,
        /// The bars of one colour, in the order of the labels.
        series: Vec<(String, Vec<f64>)>,
    },
    /// A cell for each pair of labels.
    HeatMap {
        /// From left to right.
        columns: Vec<String>,
        /// From bottom to top.
        rows: Vec<String>,
        /// Row by row; nothing where nothing is known.
        cells: Vec<Vec<Option<f64>>>,
    },
}

/// Why there is no picture.
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
    /// As SVG.
    ///
    /// # Errors
    /// [`FigureError`] if there is nothing to draw.
    pub fn svg(&self) -> Result<String, FigureError> {
        let mut text = String::new();
        self.draw(&SVGBackend::with_string(&mut text, SIZE).into_drawing_area())?;
        Ok(text)
    }

    /// As PNG.
    ///
    /// # Errors
    /// [`FigureError`] if there is nothing to draw.
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

    fn draw<D: DrawingBackend>(&self, area: &DrawingArea<D, Shift>) -> Result<(), FigureError> {
        let drawn = match &self.plot {
            Plot::Distributions(curves) => {
                let ends = ends(curves.iter().flat_map(|(_, values)| values)).ok_or(FigureError::Empty)?;
                self.draw_distributions(area, curves, ends)
            }
            Plot::Bars { labels, series } => {
                let (_, most) =
                    ends(series.iter().flat_map(|(_, values)| values)).ok_or(FigureError::Empty)?;
                self.draw_bars(area, labels, series, most)
            }
            Plot::HeatMap { columns, rows, cells } => {
                let ends = ends(cells.iter().flatten().flatten()).ok_or(FigureError::Empty)?;
                self.draw_heat_map(area, (columns, rows), cells, ends)
            }
        };
        drawn?;
        Ok(area.present()?)
    }

    fn draw_distributions<D: DrawingBackend>(
        &self,
        area: &DrawingArea<D, Shift>,
        curves: &[(String, Vec<f64>)],
        (least, most): (f64, f64),
    ) -> Drawn {
        area.fill(&WHITE)?;
        let (from, to) = (least.min(0.0), if most > least { most } else { least + 1.0 });
        let mut chart = self.chart(area).build_cartesian_2d(from..to, 0.0..1.0)?;
        let mut mesh = chart.configure_mesh();
        mesh.x_desc(&self.x).y_desc(&self.y).label_style(small()).axis_desc_style(large());
        mesh.light_line_style(WHITE).bold_line_style(BLACK.mix(0.1)).draw()?;
        for ((name, values), color) in curves.iter().zip(COLORS.iter().cycle()) {
            let stroke = color.stroke_width(2);
            chart
                .draw_series(LineSeries::new(steps(values, from, to), stroke))?
                .label(roomy(name))
                .legend(move |(x, y)| PathElement::new([(x, y), (x + 24, y)], stroke));
        }
        let mut labels = chart.configure_series_labels();
        labels.position(SeriesLabelPosition::LowerRight).margin(16).legend_area_size(34).label_font(small());
        labels.background_style(WHITE.mix(0.9)).border_style(BLACK.mix(0.3));
        labels.draw()?;
        Ok(())
    }

    fn draw_bars<D: DrawingBackend>(
        &self,
        area: &DrawingArea<D, Shift>,
        labels: &[String],
        series: &[(String, Vec<f64>)],
        most: f64,
    ) -> Drawn {
        area.fill(&WHITE)?;
        let top = if most > 0.0 { most * 1.15 } else { 1.0 };
        let groups = labels.len().max(1) as f64;
        let mut chart = self.chart(area).build_cartesian_2d(0.0..groups, 0.0..top)?;
        let mut mesh = chart.configure_mesh();
        mesh.x_desc(&self.x).y_desc(&self.y).label_style(small()).axis_desc_style(large());
        mesh.disable_x_mesh().x_labels(0).light_line_style(WHITE).bold_line_style(BLACK.mix(0.1));
        mesh.draw()?;
        let width = 0.8 / series.len().max(1) as f64;
        for (place, ((name, values), color)) in series.iter().zip(COLORS.iter().cycle()).enumerate() {
            let bars = values.iter().enumerate().map(|(group, value)| {
                let left = group as f64 + 0.1 + place as f64 * width;
                Rectangle::new([(left, 0.0), (left + width * 0.95, *value)], color.filled())
            });
            let legend = chart.draw_series(bars)?;
            if series.len() > 1 {
                let mark = move |(x, y)| Rectangle::new([(x, y - 6), (x + 20, y + 6)], color.filled());
                legend.label(roomy(name)).legend(mark);
            }
        }
        if series.len() > 1 {
            let mut legend = chart.configure_series_labels();
            legend.position(SeriesLabelPosition::UpperRight).margin(8).legend_area_size(30);
            legend.label_font(small()).background_style(WHITE.mix(0.9)).border_style(BLACK.mix(0.3));
            legend.draw()?;
        }
        // Of many labels some are left out.
        let every = labels.len().div_ceil(20).max(1);
        for (group, label) in labels.iter().enumerate().step_by(every) {
            let (x, y) = chart.backend_coord(&(group as f64 + 0.5, 0.0));
            area.draw(&Text::new(label.as_str(), (x, y + 10), anchored(HPos::Center, VPos::Top)))?;
        }
        Ok(())
    }

    fn draw_heat_map<D: DrawingBackend>(
        &self,
        area: &DrawingArea<D, Shift>,
        (columns, rows): (&[String], &[String]),
        cells: &[Vec<Option<f64>>],
        (least, most): (f64, f64),
    ) -> Drawn {
        area.fill(&WHITE)?;
        let (right, top) = (columns.len().max(1) as f64, rows.len().max(1) as f64);
        let mut chart = self.chart(area).build_cartesian_2d(0.0..right, 0.0..top)?;
        let mut mesh = chart.configure_mesh();
        mesh.x_desc(&self.x).y_desc(&self.y).axis_desc_style(large());
        mesh.disable_mesh().x_labels(0).y_labels(0).draw()?;
        for (row, values) in cells.iter().enumerate() {
            for (column, value) in values.iter().enumerate() {
                let Some(value) = value else { continue };
                let share = if most > least { (value - least) / (most - least) } else { 0.5 };
                let (x, y) = (column as f64, row as f64);
                let cell = Rectangle::new([(x, y), (x + 1.0, y + 1.0)], shade(share).filled());
                chart.draw_series([cell])?;
                let ink = if share > 0.6 { WHITE } else { BLACK };
                let style = anchored(HPos::Center, VPos::Center).color(&ink);
                let at = chart.backend_coord(&(x + 0.5, y + 0.5));
                area.draw(&Text::new(crate::outcome::number(*value), at, style))?;
            }
        }
        for (column, label) in columns.iter().enumerate() {
            let (x, y) = chart.backend_coord(&(column as f64 + 0.5, 0.0));
            area.draw(&Text::new(label.as_str(), (x, y + 10), anchored(HPos::Center, VPos::Top)))?;
        }
        for (row, label) in rows.iter().enumerate() {
            let (x, y) = chart.backend_coord(&(0.0, row as f64 + 0.5));
            area.draw(&Text::new(label.as_str(), (x - 10, y), anchored(HPos::Right, VPos::Center)))?;
        }
        Ok(())
    }

    fn chart<'a, 'b, D: DrawingBackend>(&self, area: &'a DrawingArea<D, Shift>) -> ChartBuilder<'a, 'b, D> {
        let mut chart = ChartBuilder::on(area);
        chart.margin(20).caption(&self.title, large()).x_label_area_size(70).y_label_area_size(110);
        chart
    }
}

type Drawn = Result<(), FigureError>;

impl<E: std::error::Error + Send + Sync> From<DrawingAreaErrorKind<E>> for FigureError {
    fn from(error: DrawingAreaErrorKind<E>) -> Self {
        Self::Drawing(error.to_string())
    }
}

fn small() -> TextStyle<'static> {
    ("sans-serif", 18).into_font().color(&BLACK)
}

fn large() -> TextStyle<'static> {
    ("sans-serif", 20).into_font().color(&BLACK)
}

fn anchored(horizontal: HPos, vertical: VPos) -> TextStyle<'static> {
    small().pos(Pos::new(horizontal, vertical))
}

/// A name in a legend: plotters takes letters to be narrower than they are, and spaces at the end make up for it.
fn roomy(name: &str) -> String {
    format!("{name}{}", " ".repeat(1 + name.chars().count() / 4))
}

/// The least and the greatest of all that are numbers.
fn ends<'a>(values: impl Iterator<Item = &'a f64>) -> Option<(f64, f64)> {
    let finite = values.copied().filter(|value| value.is_finite());
    finite.fold(None, |ends, value| match ends {
        None => Some((value, value)),
        Some((least, most)) => Some((f64::min(least, value), f64::max(most, value))),
    })
}

/// The cumulative distribution as a line of steps, from end to end.
fn steps(values: &[f64], from: f64, to: f64) -> Vec<(f64, f64)> {
    let mut sorted: Vec<f64> = values.iter().copied().filter(|value| value.is_finite()).collect();
    sorted.sort_unstable_by(f64::total_cmp);
    let count = sorted.len() as f64;
    let mut line = vec![(from, 0.0)];
    for (place, value) in sorted.iter().enumerate() {
        let (x, y) = line.last().copied().unwrap_or_default();
        let (before, after) = (place as f64 / count, (place + 1) as f64 / count);
        // What is less than a pixel is left out: there may be many thousand values.
        if place + 1 == sorted.len() || *value - x > (to - from) * PIXEL || after - y > PIXEL {
            line.extend([(*value, before), (*value, after)]);
        }
    }
    if !sorted.is_empty() {
        line.push((to, 1.0));
    }
    line
}

/// The colour of a share of the scale.
fn shade(share: f64) -> RGBColor {
    let at = share.clamp(0.0, 1.0) * (SCALE.len() - 1) as f64;
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "0 to 3")]
    let below = (at.floor() as usize).min(SCALE.len() - 2);
    let part = at - below as f64;
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "0 to 255")]
    let mix = |from: f64, to: f64| (from + (to - from) * part + 0.5) as u8;
    let (from, to) = (SCALE[below], SCALE[below + 1]);
    RGBColor(mix(from.0, to.0), mix(from.1, to.1), mix(from.2, to.2))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn figure(plot: Plot) -> Figure {
        Figure { title: "t < u".into(), x: "x".into(), y: "y".into(), plot }
    }

    #[test]
    fn a_distribution_climbs_by_steps_to_one() {
        assert_eq!(
            steps(&[3.0, f64::NAN, 1.0], 0.0, 4.0),
            [(0.0, 0.0), (1.0, 0.0), (1.0, 0.5), (3.0, 0.5), (3.0, 1.0), (4.0, 1.0)]
        );
    }

    #[test]
    fn a_distribution_of_very_many_values_is_a_short_line() {
        let values: Vec<f64> = (0..100_000).map(f64::from).collect();
        let line = steps(&values, 0.0, 100_000.0);
        assert!((500..2_000).contains(&line.len()), "{}", line.len());
        assert!(line.is_sorted_by(|a, b| a.0 <= b.0 && a.1 <= b.1));
    }

    #[test]
    fn every_kind_is_drawn_as_svg_and_png() {
        for plot in [
            Plot::Distributions(vec![("a".into(), vec![1.0, 2.0]), ("b".into(), vec![5.0])]),
            Plot::Bars { labels: vec!["0".into(), "1".into()], series: vec![("a".into(), vec![1.0, 2.0])] },
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
