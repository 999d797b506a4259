//! Line charts: one quantity over another one, or over time.

use super::frame::{large, round_range, small, tick};
use super::{COLORS, Drawn, Figure, FigureError, ends};
use plotters::coord::Shift;
use plotters::prelude::{BLACK, Circle, Color as _, DrawingArea, DrawingBackend, LineSeries, WHITE};

/// Most points of a line at which each point is marked.
const MARKED: usize = 40;

impl Figure {
    pub(super) fn draw_lines<D: DrawingBackend>(
        &self,
        area: &DrawingArea<D, Shift>,
        lines: &[(String, Vec<(f64, f64)>)],
    ) -> Drawn {
        let points = || lines.iter().flat_map(|(_, points)| points);
        let (left, right) = ends(points().map(|(x, _)| x)).ok_or(FigureError::Empty)?;
        let (least, most) = ends(points().map(|(_, y)| y)).ok_or(FigureError::Empty)?;
        let (left, right) = round_range(left.min(0.0), right);
        let (bottom, top) = round_range(least.min(0.0), most * 1.02);
        let names: Vec<&String> = lines.iter().map(|(name, _)| name).collect();
        let below = self.frame(area, &names)?;
        let longest = tick(top).len().max(tick(bottom).len()).max(3);
        let mut chart = Self::chart(&below, longest).build_cartesian_2d(left..right, bottom..top)?;
        let mut mesh = chart.configure_mesh();
        mesh.x_desc(&self.x).y_desc(&self.y).label_style(small()).axis_desc_style(large());
        mesh.x_label_formatter(&|x| tick(*x)).y_label_formatter(&|y| tick(*y));
        mesh.light_line_style(WHITE).bold_line_style(BLACK.mix(0.1)).draw()?;
        for ((_, points), color) in lines.iter().zip(COLORS.iter().cycle()) {
            chart.draw_series(LineSeries::new(points.iter().copied(), color.stroke_width(2)))?;
            if points.len() <= MARKED {
                chart.draw_series(points.iter().map(|point| Circle::new(*point, 4, color.filled())))?;
            }
        }
        Ok(())
    }
}
