//! Heat maps: a coloured cell with its value for each pair of labels.

use super::frame::{anchored, labels_below, large, tick};
use super::{Drawn, Figure, FigureError, ends};
use plotters::coord::Shift;
use plotters::prelude::{BLACK, Color as _, DrawingArea, DrawingBackend, RGBColor, Rectangle, Text, WHITE};
use plotters::style::text_anchor::{HPos, VPos};

/// Colours of the scale from the least to the greatest value. Brightness falls along the scale, so that it can be
/// read without colours.
const SCALE: [(f64, f64, f64); 4] =
    [(253.0, 231.0, 160.0), (122.0, 209.0, 130.0), (42.0, 120.0, 142.0), (68.0, 1.0, 84.0)];

impl Figure {
    pub(super) fn draw_heat_map<D: DrawingBackend>(
        &self,
        area: &DrawingArea<D, Shift>,
        (columns, rows): (&[String], &[String]),
        cells: &[Vec<Option<f64>>],
    ) -> Drawn {
        let (least, most) = ends(cells.iter().flatten().flatten()).ok_or(FigureError::Empty)?;
        let greatest = least.abs().max(most.abs());
        let below = self.frame(area, &[])?;
        let (right, top) = (columns.len().max(1) as f64, rows.len().max(1) as f64);
        let longest = rows.iter().map(|label| label.chars().count()).max().unwrap_or(0);
        let mut chart = Self::chart(&below, longest).build_cartesian_2d(0.0..right, 0.0..top)?;
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
                area.draw(&Text::new(cell_text(*value, greatest), at, style))?;
            }
        }
        labels_below(area, columns, |column| chart.backend_coord(&(column as f64 + 0.5, 0.0)))?;
        for (row, label) in rows.iter().enumerate() {
            let (x, y) = chart.backend_coord(&(0.0, row as f64 + 0.5));
            area.draw(&Text::new(label.as_str(), (x - 10, y), anchored(HPos::Right, VPos::Center)))?;
        }
        Ok(())
    }
}

/// The text of a value, with as many decimals as are significant beside the greatest value.
fn cell_text(value: f64, most: f64) -> String {
    match most {
        most if most >= 1000.0 => tick(libm::round(value)),
        most if most >= 10.0 => format!("{value:.1}"),
        most if most >= 0.1 => format!("{value:.2}"),
        _ => crate::outcome::number(value),
    }
}

/// The colour at `share` of the scale, 0 to 1.
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
