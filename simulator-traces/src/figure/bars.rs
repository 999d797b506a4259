//! Bar charts: groups of bars side by side. A cross on the zero line marks a missing value.

use super::frame::{labels_below, large, round_range, small, tick};
use super::{COLORS, Drawn, Figure, FigureError, ends};
use plotters::coord::Shift;
use plotters::prelude::{BLACK, Color as _, Cross, DrawingArea, DrawingBackend, Rectangle, WHITE};

/// Half the width of the cross for a missing value, in pixels.
const CROSS: i32 = 4;

impl Figure {
    pub(super) fn draw_bars<D: DrawingBackend>(
        &self,
        area: &DrawingArea<D, Shift>,
        labels: &[String],
        series: &[(String, Vec<Option<f64>>)],
    ) -> Drawn {
        let ends = ends(series.iter().flat_map(|(_, values)| values.iter().flatten()));
        let (least, most) = ends.ok_or(FigureError::Empty)?;
        let (bottom, top) = round_range(least.min(0.0), most.max(0.0));
        let names: Vec<&String> = series.iter().map(|(name, _)| name).collect();
        let below = self.frame(area, &names)?;
        let groups = labels.len().max(1) as f64;
        let longest = tick(top).len().max(tick(bottom).len()).max(3);
        let mut chart = Self::chart(&below, longest).build_cartesian_2d(0.0..groups, bottom..top)?;
        let mut mesh = chart.configure_mesh();
        mesh.x_desc(&self.x).y_desc(&self.y).label_style(small()).axis_desc_style(large());
        mesh.y_label_formatter(&|y| tick(*y));
        mesh.disable_x_mesh().x_labels(0).light_line_style(WHITE).bold_line_style(BLACK.mix(0.1));
        mesh.draw()?;
        let width = 0.8 / series.len().max(1) as f64;
        for (place, ((_, values), color)) in series.iter().zip(COLORS.iter().cycle()).enumerate() {
            let left = |group: usize| group as f64 + 0.1 + place as f64 * width;
            let bars = values.iter().enumerate().filter_map(|(group, value)| {
                Some(Rectangle::new(
                    [(left(group), 0.0), (left(group) + width * 0.95, (*value)?)],
                    color.filled(),
                ))
            });
            chart.draw_series(bars)?;
            let missing = values.iter().enumerate().filter(|(_, value)| value.is_none());
            chart.draw_series(
                missing.map(|(group, _)| Cross::new((left(group) + width * 0.475, 0.0), CROSS, color)),
            )?;
        }
        labels_below(area, labels, |group| chart.backend_coord(&(group as f64 + 0.5, bottom)))
    }
}
