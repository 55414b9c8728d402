//! Memory against one input: a curve for each scenario, the card's end, and the value that is chosen.

use plotters::prelude::{ChartBuilder, IntoDrawingArea, PathElement};
use plotters::style::Color;
use plotters::style::text_anchor::{HPos, VPos};

use super::backend::{Marks, SCALE, Svg};
use super::pen::{HEIGHT, Pen, TICKS, svg};
use crate::ui::format::Unit;
use crate::units::Bytes;

/// A scenario's curve.
pub struct Curve {
    /// What stands at its end; nothing where there is one curve only.
    pub name: String,
    /// What is needed at every stop, where that is known.
    pub points: Vec<Option<Bytes>>,
    /// Which scenario's it is, from 0: each has a stroke of its own, solid, dashed, dotted or both.
    pub position: usize,
    /// Whether it is the one that the controls change.
    pub active: bool,
}

/// What a drawing is of.
pub struct Frame<'a> {
    /// The values at the stops, as they are written.
    pub stops: &'a [String],
    /// Where the card ends.
    pub capacity: Bytes,
    /// The chosen value, in stops from the left, and what it needs.
    pub chosen: (f64, Bytes),
    /// How it is called for those who do not see it.
    pub name: &'a str,
}

/// How far above the card's end, or the lowest point of the highest one where that is higher, curves are drawn.
pub const BEYOND: f64 = 1.6;
/// How far two names beneath the curves are apart, in CSS pixels.
const APART: u32 = 56;
/// How wide the name of a curve is, in CSS pixels.
const LETTER: i32 = 12;

/// Draws the curves as an `<svg>` of that width.
pub fn draw(curves: &[Curve], frame: &Frame<'_>, unit: Unit, width: u32) -> String {
    let marks = Marks::default();
    let mut body = String::new();
    let root = Svg::new(&mut body, &marks, (width, HEIGHT)).into_drawing_area();
    let known = || curves.iter().flat_map(|curve| curve.points.iter().flatten()).copied();
    let highest = known().max().unwrap_or_default().max(frame.chosen.1);
    // A curve that goes far beyond the card would press all that fits flat; each that is nowhere near it is seen nonetheless.
    let lowest = curves.iter().filter_map(|curve| curve.points.iter().flatten().min());
    let near = frame.capacity.max(lowest.copied().max().unwrap_or_default());
    let most = (near.0 as f64 * BEYOND).min(highest.max(frame.capacity).0 as f64 * 1.1).max(1.);
    let last = frame.stops.len().saturating_sub(1).max(1) as f64;
    let area = ChartBuilder::on(&root)
        .margin_top(10 * SCALE)
        .margin_bottom(20 * SCALE)
        .margin_left(TICKS as i32 * SCALE)
        .margin_right(16 * SCALE)
        .build_cartesian_2d(0_f64..last, 0_f64..most)
        .map(|chart| chart.plotting_area().clone());
    if let Ok(area) = area {
        let pen = Pen { area, marks: &marks };
        pen.ticks(Bytes(most as u64), unit, last);
        let mut ends: Vec<(i32, i32)> = Vec::new();
        for curve in curves {
            let Some((x, y)) = pen.curve(curve, most) else { continue };
            // names at one place stand beside each other
            let is_near =
                |end: &&(i32, i32)| (end.0 - x).abs() < 12 * SCALE && (end.1 - y).abs() < 10 * SCALE;
            let before = i32::try_from(ends.iter().filter(is_near).count()).unwrap_or(0);
            ends.push((x, y));
            let beside = x + (5 + 14 * before) * SCALE;
            // where the drawing ends they stand beneath each other
            let end = i32::try_from(width).unwrap_or(i32::MAX).saturating_sub(LETTER);
            let is_beyond = before > 0 && beside / SCALE > end;
            let at = if is_beyond { (x + 5 * SCALE, y + 13 * before * SCALE) } else { (beside, y) };
            pen.named("name", &curve.name, at, (HPos::Left, VPos::Center));
        }
        let y = frame.capacity.0 as f64;
        pen.line("capacity", [(0., y), (last, y)]);
        let (left, height) = pen.area.map_coordinate(&(0., y));
        let text = format!("{} on the card", unit.amount(frame.capacity));
        pen.named("capacity-name", &text, (left + 4 * SCALE, height - 4 * SCALE), (HPos::Left, VPos::Bottom));
        let step = (frame.stops.len() as u32 * APART).div_ceil(width.max(1)).max(1) as usize;
        for (index, stop) in frame.stops.iter().enumerate().step_by(step) {
            let (x, floor) = pen.area.map_coordinate(&(index as f64, 0.));
            pen.named("tick", stop, (x, floor + 6 * SCALE), (HPos::Center, VPos::Top));
        }
        for curve in curves {
            if let Some(at) = curve.ends_at(frame.capacity) {
                pen.ring((at, y));
            }
        }
        let (at, bytes) = frame.chosen;
        pen.line("chosen", [(at, 0.), (at, most)]);
        pen.dot((at, (bytes.0 as f64).min(most)));
    }
    drop(root);
    svg(&body, frame.name, width)
}

impl Curve {
    /// Where it first goes beyond what the card has, in stops from the left.
    fn ends_at(&self, capacity: Bytes) -> Option<f64> {
        let points = self.points.iter().enumerate();
        let points: Vec<(f64, f64)> =
            points.filter_map(|(index, bytes)| Some((index as f64, (*bytes)?.0 as f64))).collect();
        let capacity = capacity.0 as f64;
        let crossing = |pair: &[(f64, f64)]| {
            let [from, to] = [pair[0], pair[1]];
            let crosses = from.1 <= capacity && to.1 > capacity;
            crosses.then(|| from.0 + (to.0 - from.0) * (capacity - from.1) / (to.1 - from.1))
        };
        points.windows(2).find_map(crossing)
    }
}

impl Pen<'_, '_> {
    /// A curve, up to where it leaves the drawing; where it ends.
    fn curve(&self, curve: &Curve, most: f64) -> Option<(i32, i32)> {
        let other = if curve.active { "" } else { " other" };
        let class = format!("curve stroke-{}{other}", curve.position);
        let points = curve.points.iter().enumerate();
        let points: Vec<(f64, f64)> =
            points.filter_map(|(index, bytes)| Some((index as f64, (*bytes)?.0 as f64))).collect();
        let mut pieces: Vec<Vec<(f64, f64)>> = Vec::new();
        let pairs = points.iter().zip(points.iter().skip(1));
        for [from, to] in pairs.filter_map(|(from, to)| beneath(*from, *to, most)) {
            match pieces.last_mut().filter(|piece| piece.last() == Some(&from)) {
                Some(piece) => piece.push(to),
                None => pieces.push(vec![from, to]),
            }
        }
        let end = *pieces.last()?.last()?;
        let color = self.marks.add(class, None);
        for piece in pieces {
            drop(self.area.draw(&PathElement::new(piece, color.stroke_width(1))));
        }
        Some(self.area.map_coordinate(&end))
    }

    /// Where a curve goes beyond the card.
    fn ring(&self, at: (f64, f64)) {
        let color = self.marks.add("ends", None);
        let (x, y) = self.area.map_coordinate(&at);
        let size = 4 * SCALE;
        let corners =
            [(x - size, y - size), (x + size, y - size), (x + size, y + size), (x - size, y + size)];
        self.fill(&corners, color);
    }

    /// The chosen value on its curve.
    fn dot(&self, at: (f64, f64)) {
        let color = self.marks.add("dot", None);
        let (x, y) = self.area.map_coordinate(&at);
        let size = 4 * SCALE;
        let corners = [(x - size, y), (x, y - size), (x + size, y), (x, y + size)];
        self.fill(&corners, color);
    }
}

/// What of the way from one point to another lies no higher than `most`.
fn beneath(from: (f64, f64), to: (f64, f64), most: f64) -> Option<[(f64, f64); 2]> {
    let crossing = || {
        let share = (most - from.1) / (to.1 - from.1);
        (from.0 + (to.0 - from.0) * share, most)
    };
    match (from.1 <= most, to.1 <= most) {
        (true, true) => Some([from, to]),
        (true, false) => Some([from, crossing()]),
        (false, true) => Some([crossing(), to]),
        (false, false) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn drawn(points: &[Option<Bytes>], capacity: Bytes) -> String {
        let curve = Curve { name: "A".to_owned(), points: points.to_vec(), position: 0, active: true };
        let stops: Vec<String> = (0..points.len()).map(|stop| stop.to_string()).collect();
        let frame = Frame { stops: &stops, capacity, chosen: (1., Bytes::gib(5.)), name: "Memory" };
        draw(&[curve], &frame, Unit::Binary, 600)
    }

    #[test]
    fn a_curve_ends_where_it_leaves_the_drawing() {
        let points = [Some(Bytes::gib(4.)), None, Some(Bytes::gib(8.)), Some(Bytes::gib(400.))];
        let svg = drawn(&points, Bytes::gib(10.));
        for part in [
            "class=\"curve stroke-0\"",
            "class=\"capacity\"",
            ">10.0 GiB on the card<",
            "class=\"dot\"",
            ">3<",
        ] {
            assert!(svg.contains(part), "{part} is not in {svg}");
        }
        assert!(!svg.contains("NaN"));
    }

    #[test]
    fn a_curve_that_comes_from_far_above_is_seen_where_it_comes_down() {
        let points = [900., 500., 70., 40.].map(|gib| Some(Bytes::gib(gib)));
        let svg = drawn(&points, Bytes::gib(80.));
        assert_eq!(svg.matches("class=\"curve stroke-0\"").count(), 1, "{svg}");
    }

    #[test]
    fn a_curve_far_above_the_card_is_seen() {
        let points = [Some(Bytes::gib(144.)), Some(Bytes::gib(150.)), Some(Bytes::gib(400.))];
        let svg = drawn(&points, Bytes::gib(60.));
        assert!(svg.contains("class=\"curve stroke-0\"") && svg.contains("class=\"capacity\""), "{svg}");
    }

    #[test]
    fn one_that_is_far_above_the_other_is_seen_beside_it() {
        let curve = |position, gib: [f64; 3], active| Curve {
            name: crate::ui::state::letter(position).to_owned(),
            points: gib.map(|gib| Some(Bytes::gib(gib))).to_vec(),
            position,
            active,
        };
        let stops = ["1", "2", "3"].map(str::to_owned);
        let frame =
            Frame { stops: &stops, capacity: Bytes::gib(24.), chosen: (1., Bytes::gib(61.)), name: "Memory" };
        let svg = draw(
            &[curve(0, [10., 14., 30.], false), curve(1, [60., 61., 90.], true)],
            &frame,
            Unit::Binary,
            600,
        );
        for class in ["class=\"curve stroke-0 other\"", "class=\"curve stroke-1\""] {
            assert!(svg.contains(class), "{class} is not in {svg}");
        }
    }

    /// Two curves that end at one place at the edge: both names are on the drawing.
    #[test]
    fn names_stay_on_the_drawing() {
        let curve = |position| Curve {
            name: crate::ui::state::letter(position).to_owned(),
            points: [4., 8.].map(|gib| Some(Bytes::gib(gib))).to_vec(),
            position,
            active: true,
        };
        let stops = ["1", "2"].map(str::to_owned);
        let frame =
            Frame { stops: &stops, capacity: Bytes::gib(24.), chosen: (1., Bytes::gib(8.)), name: "Memory" };
        let svg = draw(&[curve(0), curve(1)], &frame, Unit::Binary, 600);
        let places = svg.split("<text class=\"name\" x=\"").skip(1);
        let places: Vec<f64> = places
            .map(|rest| rest.split('"').next().and_then(|x| x.parse().ok()).expect("a place"))
            .collect();
        assert!(places.len() == 2 && places.iter().all(|x| x + f64::from(LETTER) <= 602.), "{svg}");
    }

    #[test]
    fn the_end_of_the_card_is_marked_on_a_curve() {
        let points = |gib: [f64; 3]| gib.map(|gib| Some(Bytes::gib(gib))).to_vec();
        let svg = drawn(&points([10., 20., 28.]), Bytes::gib(24.));
        assert_eq!(svg.matches("class=\"ends\"").count(), 1, "{svg}");
        let within = drawn(&points([10., 20., 22.]), Bytes::gib(24.));
        assert!(!within.contains("class=\"ends\""), "{within}");
        let curve = Curve { name: String::new(), points: points([10., 20., 28.]), position: 0, active: true };
        assert_eq!(curve.ends_at(Bytes::gib(24.)), Some(1.5));
    }

    #[test]
    fn extremes_are_drawn() {
        for capacity in [Bytes::ZERO, Bytes(u64::MAX)] {
            for points in [&[][..], &[None], &[Some(Bytes(u64::MAX)), Some(Bytes::ZERO)]] {
                let svg = drawn(points, capacity);
                assert!(svg.ends_with("</svg>") && !svg.contains("NaN"), "{svg}");
            }
        }
    }
}
