//! Bar charts: groups of bars side by side.

use super::frame::{labels_below, large, round_range, small, tick};
use super::{COLORS, Drawn, Figure, FigureError, ends};
use plotters::coord::Shift;
use plotters::prelude::{BLACK, Color as _, DrawingArea, DrawingBackend, Rectangle, WHITE};

impl Figure {
    pub(super) fn draw_bars<D: DrawingBackend>(
        &self,
        area: &DrawingArea<D, Shift>,
        labels: &[String],
        series: &[(String, Vec<f64>)],
    ) -> Drawn {
        let ends = ends(series.iter().flat_map(|(_, values)| values));
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
            chart.draw_series(values.iter().enumerate().map(|(group, value)| {
                let left = group as f64 + 0.1 + place as f64 * width;
                Rectangle::new([(left, 0.0), (left + width * 0.95, *value)], color.filled())
            }))?;
        }
        labels_below(area, labels, |group| chart.backend_coord(&(group as f64 + 0.5, bottom)))
    }
}
