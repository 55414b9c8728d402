//! The memory over one iteration: stacked areas by category, the phases, and the card's capacity.

use std::fmt::Write;

use plotters::prelude::{ChartBuilder, IntoDrawingArea, PathElement, Polygon};
use plotters::style::text_anchor::{HPos, Pos, VPos};
use plotters::style::{Color, IntoFont, TextStyle};

use super::backend::{Escaped, Marks, SCALE, Svg};
use super::ticks::ticks;
use crate::estimate::{Category, Phase};
use crate::step::Moment;
use crate::ui::format::Unit;
use crate::ui::part::Part;
use crate::units::Bytes;

/// Height of the drawing in CSS pixels.
const HEIGHT: u32 = 190;
/// Room for the axis on the left, the names of the phases above.
const LEFT: u32 = 52;
const TOP: u32 = 20;
/// Of all text.
const TEXT: f64 = 11.5;

/// Draws a timeline as an `<svg>` of that width; what lies outside the allocator stands beneath everything.
pub fn draw(
    moments: &[Moment],
    context: Bytes,
    capacity: Bytes,
    unit: Unit,
    width: u32,
    name: &str,
) -> String {
    let marks = Marks::default();
    let mut body = String::new();
    let root = Svg::new(&mut body, &marks, (width, HEIGHT)).into_drawing_area();
    let highest = moments.iter().map(|moment| moment.parts.total() + context).max().unwrap_or_default();
    let end = moments.len().saturating_sub(1).max(1) as f64;
    let most = highest.max(capacity.min(Bytes(highest.0.saturating_mul(2)))).0 as f64 * 1.02 + 1.;
    let area = ChartBuilder::on(&root)
        .margin_top(units(TOP))
        .margin_left(units(LEFT))
        .margin_bottom(units(2))
        .build_cartesian_2d(0_f64..end, 0_f64..most)
        .map(|chart| chart.plotting_area().clone());
    if let Ok(area) = area {
        let text = |text: &str, class: &str, at: (i32, i32), anchor: HPos| {
            let font = ("sans-serif", TEXT * f64::from(SCALE)).into_font();
            let color = marks.add(class, None);
            let style = TextStyle::from(font).color(&color).pos(Pos::new(anchor, VPos::Center));
            // The backend writes to a string and cannot fail.
            drop(root.draw_text(text, &style, at));
        };
        let grid = marks.add("grid", None);
        for (y, label) in ticks(Bytes(most as u64), unit, 5) {
            let (left, right) = (area.map_coordinate(&(0., y)), area.map_coordinate(&(end, y)));
            drop(root.draw(&PathElement::new([left, right], grid)));
            text(&label, "tick", (left.0 - 6 * SCALE, left.1), HPos::Right);
        }
        let mut floor = vec![0_f64; moments.len()];
        let mut layer = |part: Part, of: &dyn Fn(&Moment) -> Bytes| {
            if !moments.iter().any(|moment| of(moment).0 > 0) {
                return;
            }
            let roof: Vec<f64> =
                moments.iter().zip(&floor).map(|(moment, floor)| floor + of(moment).0 as f64).collect();
            let there = roof.iter().enumerate().map(|(x, y)| (x as f64, *y));
            let back = floor.iter().enumerate().rev().map(|(x, y)| (x as f64, *y));
            let color = marks.add(format!("part {}", part.class()), Some(part.label().to_owned()));
            drop(area.draw(&Polygon::new(there.chain(back).collect::<Vec<_>>(), color.filled())));
            floor = roof;
        };
        layer(Part::Context, &|_| context);
        for category in Category::ALL {
            layer(Part::Tensors(category), &|moment| moment.parts.get(category));
        }
        for phase in Phase::ALL {
            let Some(first) = moments.iter().position(|moment| moment.phase == phase) else { continue };
            let x = first as f64;
            let (bottom, top) = (area.map_coordinate(&(x, 0.)), area.map_coordinate(&(x, most)));
            if first > 0 {
                let line = marks.add("phase", None);
                drop(root.draw(&PathElement::new([bottom, (top.0, top.1 - 14 * SCALE)], line)));
            }
            text(short(phase), "tick", (top.0 + 4 * SCALE, top.1 - 9 * SCALE), HPos::Left);
        }
        if (capacity.0 as f64) < most {
            let y = capacity.0 as f64;
            let line = marks.add("capacity", Some("the card's memory".to_owned()));
            let ends = [area.map_coordinate(&(0., y)), area.map_coordinate(&(end, y))];
            drop(root.draw(&PathElement::new(ends, line)));
        }
    }
    drop(root);
    let mut svg = String::with_capacity(body.len() + 200);
    // Writing to a string cannot fail.
    let _ = write!(
        svg,
        "<svg viewBox=\"0 0 {width} {HEIGHT}\" width=\"{width}\" height=\"{HEIGHT}\" role=\"img\" \
         aria-label=\"{}\">{body}</svg>",
        Escaped(name),
    );
    svg
}

const fn short(phase: Phase) -> &'static str {
    match phase {
        Phase::Forward => "forward",
        Phase::Backward => "backward",
        Phase::Step => "step",
    }
}

fn units(pixels: u32) -> i32 {
    i32::try_from(pixels).unwrap_or(i32::MAX).saturating_mul(SCALE)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::estimate::Parts;

    fn moment(phase: Phase, bytes: u64) -> Moment {
        let mut parts = Parts::default();
        parts.0[Category::Weights.index()] = bytes;
        Moment { phase, parts }
    }

    #[test]
    fn what_is_there_is_drawn_and_the_rest_is_not() {
        let moments = [moment(Phase::Forward, 1 << 30), moment(Phase::Backward, 2 << 30)];
        let svg = draw(&moments, Bytes(1 << 28), Bytes(24 << 30), Unit::Binary, 640, "Over time");
        assert!(svg.contains("part-weights") && svg.contains("part-context"), "{svg}");
        assert!(!svg.contains("part-logits") && svg.contains(">backward<"), "{svg}");
    }

    #[test]
    fn nothing_at_all_is_a_drawing_too() {
        assert!(draw(&[], Bytes(0), Bytes(0), Unit::Decimal, 0, "").starts_with("<svg"));
    }
}
