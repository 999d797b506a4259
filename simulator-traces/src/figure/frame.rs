//! The parts that all figures share: title and legend above the plot, axes with round numbers, and text styles.

use super::{COLORS, Drawn, Figure};
use plotters::coord::Shift;
use plotters::prelude::Color as _;
use plotters::prelude::{
    BLACK, ChartBuilder, DrawingArea, DrawingBackend, IntoFont as _, RGBColor, Rectangle, Text, TextStyle,
    WHITE,
};
use plotters::style::text_anchor::{HPos, Pos, VPos};

/// Greatest width of a letter and height of a line, in pixels.
const LETTER: i32 = 10;
const LINE: i32 = 28;
/// Approximate number of ticks of an axis.
const TICKS: f64 = 8.0;

impl Figure {
    /// Draws title and legend, and returns the remaining area for the plot.
    pub(super) fn frame<D: DrawingBackend>(
        &self,
        area: &DrawingArea<D, Shift>,
        legend: &[&String],
    ) -> Result<DrawingArea<D, Shift>, super::FigureError> {
        area.fill(&WHITE)?;
        let (width, _) = area.dim_in_pixel();
        let middle = width.cast_signed() / 2;
        let title = large().pos(Pos::new(HPos::Center, VPos::Top));
        area.draw(&Text::new(self.title.as_str(), (middle, 16), title))?;
        let mut top = 16 + LINE;
        if legend.len() > 1 {
            for line in legend_lines(legend, width.cast_signed() - 80) {
                let length: i32 = line.iter().map(|(_, name)| entry_width(name)).sum();
                let mut left = middle - length / 2;
                for (color, name) in line {
                    let swatch = Rectangle::new([(left, top + 4), (left + 22, top + 16)], color.filled());
                    area.draw(&swatch)?;
                    let style = anchored(HPos::Left, VPos::Center);
                    area.draw(&Text::new(name.as_str(), (left + 30, top + 10), style))?;
                    left += entry_width(name);
                }
                top += LINE;
            }
        }
        Ok(area.split_vertically(top).1)
    }

    /// A chart whose left margin has room for labels of `longest_label` letters.
    pub(super) fn chart<'a, 'b, D: DrawingBackend>(
        area: &'a DrawingArea<D, Shift>,
        longest_label: usize,
    ) -> ChartBuilder<'a, 'b, D> {
        let labels = i32::try_from(longest_label).unwrap_or(20).clamp(3, 30) * LETTER;
        let mut chart = ChartBuilder::on(area);
        chart.margin(12).margin_right(30).x_label_area_size(70).y_label_area_size(labels + 50);
        chart
    }
}

/// Splits the entries of a legend into lines of at most `width` pixels.
fn legend_lines<'n>(names: &[&'n String], width: i32) -> Vec<Vec<(RGBColor, &'n String)>> {
    let mut lines: Vec<Vec<(RGBColor, &String)>> = vec![Vec::new()];
    let mut used = 0;
    for (name, color) in names.iter().zip(COLORS.iter().cycle()) {
        let needed = entry_width(name);
        if used > 0 && used + needed > width {
            lines.push(Vec::new());
            used = 0;
        }
        used += needed;
        if let Some(line) = lines.last_mut() {
            line.push((*color, name));
        }
    }
    lines
}

fn entry_width(name: &str) -> i32 {
    30 + LETTER * i32::try_from(name.chars().count()).unwrap_or(0) + 24
}

/// Extends the range from `least` to `most` so that both ends are at ticks.
pub(super) fn round_range(least: f64, most: f64) -> (f64, f64) {
    let most = if most > least { most } else { least + 1.0 };
    let rough = (most - least) / TICKS;
    let ten = libm::pow(10.0, libm::floor(libm::log10(rough)));
    let step =
        [1.0, 2.0, 5.0, 10.0].into_iter().map(|factor| factor * ten).find(|step| *step >= rough * 0.999);
    let step = step.unwrap_or(rough);
    (libm::floor(least / step + 1e-9) * step, libm::ceil(most / step - 1e-9) * step)
}

/// The text of a number at an axis: without trailing zeros, with commas between thousands.
pub(super) fn tick(value: f64) -> String {
    let text = format!("{value:.6}");
    let text = text.trim_end_matches('0').trim_end_matches('.');
    let (sign, text) = text.strip_prefix('-').map_or(("", text), |rest| ("-", rest));
    let (whole, part) = text.split_once('.').map_or((text, None), |(whole, part)| (whole, Some(part)));
    let mut grouped = String::from(sign);
    for (index, digit) in whole.char_indices() {
        if index > 0 && (whole.len() - index).is_multiple_of(3) {
            grouped.push(',');
        }
        grouped.push(digit);
    }
    if grouped == "-0" && part.is_none() {
        return "0".to_owned();
    }
    match part {
        Some(part) => format!("{grouped}.{part}"),
        None => grouped,
    }
}

pub(super) fn small() -> TextStyle<'static> {
    ("sans-serif", 18).into_font().color(&BLACK)
}

pub(super) fn large() -> TextStyle<'static> {
    ("sans-serif", 20).into_font().color(&BLACK)
}

pub(super) fn anchored(horizontal: HPos, vertical: VPos) -> TextStyle<'static> {
    small().pos(Pos::new(horizontal, vertical))
}

/// Draws labels below the plot at the pixels that `place` returns. Of more than 20 labels only every n-th is drawn.
pub(super) fn labels_below<D: DrawingBackend>(
    area: &DrawingArea<D, Shift>,
    labels: &[String],
    place: impl Fn(usize) -> (i32, i32),
) -> Drawn {
    let every = labels.len().div_ceil(20).max(1);
    for (index, label) in labels.iter().enumerate().step_by(every) {
        let (x, y) = place(index);
        area.draw(&Text::new(label.as_str(), (x, y + 10), anchored(HPos::Center, VPos::Top)))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_at_axes_are_short() {
        for (value, text) in [(0.0, "0"), (0.30000000000000004, "0.3"), (-0.0, "0"), (1234567.0, "1,234,567")]
        {
            assert_eq!(tick(value), text);
        }
        assert_eq!(tick(-1234.5), "-1,234.5");
    }

    #[test]
    fn axes_end_at_round_numbers() {
        assert_eq!(round_range(0.0, 158.0), (0.0, 160.0));
        assert_eq!(round_range(0.0, 0.0), (0.0, 1.0));
        let (from, to) = round_range(-3.0, 14.1);
        assert!((from - -5.0).abs() < 1e-9 && (to - 15.0).abs() < 1e-9, "{from} {to}");
    }

    #[test]
    fn a_long_legend_takes_several_lines() {
        let names: Vec<String> = (0..8).map(|number| format!("a rather long name {number}")).collect();
        let lines = legend_lines(&names.iter().collect::<Vec<_>>(), 900);
        assert!(lines.len() > 1 && lines.iter().map(Vec::len).sum::<usize>() == 8);
    }
}
