//! Cumulative distributions, drawn as step lines.

use super::frame::{large, round_range, small, tick};
use super::{COLORS, Drawn, Figure, FigureError, ends};
use plotters::coord::Shift;
use plotters::prelude::{BLACK, Color as _, DrawingArea, DrawingBackend, LineSeries, WHITE};

/// The share of an axis' length below which a step is not visible.
const PIXEL: f64 = 0.002;

impl Figure {
    pub(super) fn draw_distributions<D: DrawingBackend>(
        &self,
        area: &DrawingArea<D, Shift>,
        curves: &[(String, Vec<f64>)],
    ) -> Drawn {
        let ends = ends(curves.iter().flat_map(|(_, values)| values));
        let (least, most) = ends.ok_or(FigureError::Empty)?;
        let (from, to) = round_range(least.min(0.0), most);
        let names: Vec<&String> = curves.iter().map(|(name, _)| name).collect();
        let below = self.frame(area, &names)?;
        let mut chart = Self::chart(&below, 3).build_cartesian_2d(from..to, 0.0..1.0)?;
        let mut mesh = chart.configure_mesh();
        mesh.x_desc(&self.x).y_desc(&self.y).label_style(small()).axis_desc_style(large());
        mesh.x_label_formatter(&|x| tick(*x)).y_label_formatter(&|y| tick(*y));
        mesh.light_line_style(WHITE).bold_line_style(BLACK.mix(0.1)).draw()?;
        for ((_, values), color) in curves.iter().zip(COLORS.iter().cycle()) {
            chart.draw_series(LineSeries::new(steps(values, from, to), color.stroke_width(2)))?;
        }
        Ok(())
    }
}

/// The cumulative distribution of `values` as a step line between the ends `from` and `to` of the axis.
fn steps(values: &[f64], from: f64, to: f64) -> Vec<(f64, f64)> {
    let mut sorted: Vec<f64> = values.iter().copied().filter(|value| value.is_finite()).collect();
    sorted.sort_unstable_by(f64::total_cmp);
    let count = sorted.len() as f64;
    let mut line = vec![(from, 0.0)];
    for (place, value) in sorted.iter().enumerate() {
        let (x, y) = line.last().copied().unwrap_or_default();
        let (before, after) = (place as f64 / count, (place + 1) as f64 / count);
        // Leave out steps smaller than a pixel: there may be many thousand values.
        if place + 1 == sorted.len() || *value - x > (to - from) * PIXEL || after - y > PIXEL {
            line.extend([(*value, before), (*value, after)]);
        }
    }
    if !sorted.is_empty() {
        line.push((to, 1.0));
    }
    line
}

#[cfg(test)]
mod tests {
    use super::*;

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
}
