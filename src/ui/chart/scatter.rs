//! Predicted against measured, on logarithmic axes with the line on which both are equal; and how many are off by how much.

use std::fmt::Write;

use plotters::prelude::{ChartBuilder, IntoDrawingArea};
use plotters::style::text_anchor::{HPos, VPos};

use super::backend::{Marks, SCALE, Svg};
use super::pen::{HEIGHT, Pen, TICKS, svg, svg_of};
use crate::check::Figure;
use crate::ui::format::Unit;
use crate::ui::proof::EDGES;
use crate::units::{Bytes, grouped};

/// Of the drawing of points.
pub const HIGH: u32 = 360;
/// Around the drawing of points, in CSS pixels.
const ABOVE: u32 = 10;
const BELOW: u32 = 24;
const AFTER: u32 = 16;

/// What a name below the drawing takes, in CSS pixels.
const APART: u32 = 56;

/// The classes of points by how far they are off in percent.
const CLASSES: [(&str, f64); 3] = [("near", 1.), ("off", 5.), ("far", f64::INFINITY)];

/// Where points lie: both axes have the same ends, as powers of ten.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Axes {
    low: f64,
    high: f64,
}

impl Axes {
    /// Ends that hold all figures.
    pub fn of<'a>(figures: impl Iterator<Item = &'a Figure>) -> Axes {
        let all = figures.flat_map(|figure| [log(figure.measured), log(figure.predicted)]);
        let (low, high) = all.fold((f64::MAX, 0_f64), |(low, high), at| (low.min(at), high.max(at)));
        let low = low.min(high);
        Axes { low: low - 0.1, high: high + 0.1 }
    }

    /// Where a figure lies in a drawing of that width, in CSS pixels from its corner.
    pub fn place(self, figure: Figure, width: u32) -> (f64, f64) {
        let room = f64::from(width.saturating_sub(TICKS + AFTER).max(1));
        let height = f64::from(HIGH - ABOVE - BELOW);
        let part = |bytes| (log(bytes) - self.low) / (self.high - self.low);
        let (x, y) = (part(figure.measured), part(figure.predicted));
        (f64::from(TICKS) + x * room, f64::from(ABOVE) + (1. - y) * height)
    }
}

fn log(bytes: Bytes) -> f64 {
    (bytes.0.max(1) as f64).log10()
}

/// Draws the figures as an `<svg>` of that width; `name` is said of it to those who do not see it.
pub fn draw(figures: &[Figure], unit: Unit, width: u32, name: &str) -> String {
    let marks = Marks::default();
    let mut body = String::new();
    let axes = Axes::of(figures.iter());
    let root = Svg::new(&mut body, &marks, (width, HIGH)).into_drawing_area();
    let area = ChartBuilder::on(&root)
        .margin_top(ABOVE as i32 * SCALE)
        .margin_bottom(BELOW as i32 * SCALE)
        .margin_left(TICKS as i32 * SCALE)
        .margin_right(AFTER as i32 * SCALE)
        .build_cartesian_2d(axes.low..axes.high, axes.low..axes.high)
        .map(|chart| chart.plotting_area().clone());
    if let Ok(area) = area {
        let pen = Pen { area, marks: &marks };
        let powers = powers(axes, unit);
        // on a narrow drawing not every name has room beside the next
        let step = (powers.len() as u32 * APART).div_ceil(width.saturating_sub(TICKS + AFTER).max(1)).max(1)
            as usize;
        for (index, (at, text)) in powers.into_iter().enumerate() {
            pen.line("grid", [(axes.low, at), (axes.high, at)]);
            pen.line("grid", [(at, axes.low), (at, axes.high)]);
            let (left, height) = pen.area.map_coordinate(&(axes.low, at));
            pen.named("tick", &text, (left - 6 * SCALE, height), (HPos::Right, VPos::Center));
            if index.is_multiple_of(step) {
                let (x, floor) = pen.area.map_coordinate(&(at, axes.low));
                pen.named("tick", &text, (x, floor + 6 * SCALE), (HPos::Center, VPos::Top));
            }
        }
        pen.line("equal", [(axes.low, axes.low), (axes.high, axes.high)]);
        let (left, top) = pen.area.map_coordinate(&(axes.low, axes.high));
        pen.named(
            "name",
            "predicted ↑, measured →",
            (left + 4 * SCALE, top + 2 * SCALE),
            (HPos::Left, VPos::Top),
        );
    }
    drop(root);
    for (index, (class, most)) in CLASSES.iter().enumerate() {
        let least = if index == 0 { -1. } else { CLASSES[index - 1].1 };
        let own = figures.iter().filter(|figure| {
            let off = figure.error_pct().abs();
            off >= least && off < *most
        });
        // a path of points is one element, however many they are
        let mut path = String::new();
        for figure in own {
            let (x, y) = axes.place(*figure, width);
            // Writing to a string cannot fail.
            let _ = write!(path, "M{x:.1} {y:.1}h0");
        }
        let _ = write!(body, "<path class=\"points {class}\" d=\"{path}\"/>");
    }
    svg_of(&body, name, (width, HIGH))
}

/// The ends of a decade, or of two powers of two, within the axes.
fn powers(axes: Axes, unit: Unit) -> Vec<(f64, String)> {
    let (base, least) = match unit {
        Unit::Binary => (4_u64, 1 << 20),
        Unit::Decimal => (10, 1_000_000),
    };
    let all = std::iter::successors(Some(least), |bytes: &u64| bytes.checked_mul(base));
    let within =
        all.map(|bytes| (log(Bytes(bytes)), bytes)).filter(|(at, _)| *at > axes.low && *at < axes.high);
    within.map(|(at, bytes)| (at, round(bytes, unit))).collect()
}

/// An amount without decimals: `256 MiB`.
fn round(bytes: u64, unit: Unit) -> String {
    let (step, names) = match unit {
        Unit::Binary => (1024, ["MiB", "GiB", "TiB"]),
        Unit::Decimal => (1000, ["MB", "GB", "TB"]),
    };
    let mut count = bytes / (step * step);
    let mut names = names.into_iter();
    let mut name = names.next().unwrap_or_default();
    while let (true, Some(next)) = (count >= step, names.next()) {
        (count, name) = (count / step, next);
    }
    format!("{count} {name}")
}

/// Draws how many figures are off by how much.
pub fn bars(bars: &[usize], width: u32, name: &str) -> String {
    let marks = Marks::default();
    let mut body = String::new();
    let root = Svg::new(&mut body, &marks, (width, HEIGHT)).into_drawing_area();
    let most = bars.iter().copied().max().unwrap_or_default().max(1) as f64;
    let area = ChartBuilder::on(&root)
        .margin_top(20 * SCALE)
        .margin_bottom(24 * SCALE)
        .margin_left(8 * SCALE)
        .margin_right(8 * SCALE)
        .build_cartesian_2d(0_f64..bars.len() as f64, 0_f64..most)
        .map(|chart| chart.plotting_area().clone());
    if let Ok(area) = area {
        let pen = Pen { area, marks: &marks };
        pen.line("grid", [(0., 0.), (bars.len() as f64, 0.)]);
        for (index, count) in bars.iter().enumerate() {
            let middle = bars.len() / 2;
            let class = CLASSES[match index.abs_diff(middle) {
                0 | 1 => 0,
                2 | 3 => 1,
                _ => 2,
            }]
            .0;
            let at = |x: f64, y: f64| pen.area.map_coordinate(&(index as f64 + x, y));
            let (left, top) = at(0.1, *count as f64);
            let (right, floor) = at(0.9, 0.);
            if *count > 0 {
                let color = marks.add(format!("bar-of {class}"), None);
                // a bar of one among thousands is still to be seen
                let top = top.min(floor - SCALE);
                pen.fill(&[(left, floor), (left, top), (right, top), (right, floor)], color);
                let middle = left.midpoint(right);
                pen.named(
                    "amount",
                    &grouped(*count as u64),
                    (middle, top - 4 * SCALE),
                    (HPos::Center, VPos::Bottom),
                );
            }
        }
        let step = (EDGES.len() as u32 * APART).div_ceil(width.max(1)).max(1) as usize;
        for (index, edge) in EDGES
            .iter()
            .enumerate()
            .filter(|(index, _)| index.is_multiple_of(step) || *index == EDGES.len() - 1)
        {
            let (x, floor) = pen.area.map_coordinate(&(index as f64 + 1., 0.));
            pen.named("tick", &edge_name(*edge), (x, floor + 6 * SCALE), (HPos::Center, VPos::Top));
        }
    }
    drop(root);
    svg(&body, name, width)
}

/// `−0.1 %`.
pub fn edge_name(edge: f64) -> String {
    let sign = if edge < 0. { "−" } else { "+" };
    format!("{sign}{} %", edge.abs())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn figure(measured: u64, predicted: u64) -> Figure {
        Figure { measured: Bytes(measured), predicted: Bytes(predicted) }
    }

    #[test]
    fn what_is_predicted_right_lies_on_the_line() {
        let figures = [figure(1 << 20, 1 << 20), figure(1 << 30, 1 << 30), figure(1 << 36, 1 << 35)];
        let svg = draw(&figures, Unit::Binary, 600, "All");
        for part in [
            "class=\"equal\"",
            ">256 MiB<",
            ">16 GiB<",
            "class=\"points near\" d=\"M",
            "class=\"points far\" d=\"M",
        ] {
            assert!(svg.contains(part), "{part} is not in {svg}");
        }
        let axes = Axes::of(figures.iter());
        let (x, y) = axes.place(figures[0], 600);
        let (right, top) = axes.place(figures[1], 600);
        assert!(x < right && y > top);
        assert!(axes.place(figures[2], 600).1 > axes.place(figure(1 << 36, 1 << 36), 600).1);
    }

    #[test]
    fn extremes_are_drawn() {
        for figures in [&[][..], &[figure(0, 0)], &[figure(0, u64::MAX), figure(u64::MAX, 1)]] {
            for unit in Unit::ALL {
                let svg = draw(figures, unit, 300, "<b>");
                assert!(svg.ends_with("</svg>") && !svg.contains("NaN") && !svg.contains("<b>"), "{svg}");
            }
        }
        assert!(!bars(&[0; 11], 0, "").contains("NaN"));
        assert!(bars(&[3, 0, 0, 0, 0, 1200, 0, 0, 0, 0, 1], 500, "").contains(">1,200<"));
    }
}
